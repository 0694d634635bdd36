"""Add to the top of every lab's page how to work on it: in JupyterLab, as a download, on ModelArts, on Binder.

Settings in _config.yml, which book/appendix/online.md explains: book_url, the book's public address, enables ModelArts;
repository_url adds buttons for a repository on GitHub to every page; binder_ref, a branch, tag or commit in that
repository, enables Binder. Without a setting, its button is grey and leads to the relevant section of
book/4-cloud/notebooks. The learner's notebook of every lab is written next to the pages.
"""

import base64
import re
from html import escape
from pathlib import Path
from urllib.parse import quote, urlsplit

import nbformat
from docutils import nodes
from languages import said
from learners_version import LAB
from sphinx.errors import ConfigError

from grader import handout
from grader.lab import read

ADDRESS = {"book_url": r"https://[^\s/]+(/[^\s/]+)*", "repository_url": r"https://github\.com/[\w-]+/[\w.-]+"}
CONSOLE = "https://authoring-modelarts-cnnorth4.huaweicloud.com/console/lab?share-url-b64="
BINDER = "https://mybinder.org/v2"
TOO_LARGE_FOR_BINDER = ("imagenet",)  # Binder gives 2 GB at most; book/4-cloud/notebooks has what each lab needs
CHAPTER = "book/4-cloud/notebooks"
FIRST = """\
# This file came alone. The lab also needs the rest of the project: labkit, its packages, the data.
import importlib.util

if importlib.util.find_spec("labkit") is None:
    raise ImportError("labkit is missing; {chapter} says how to install it")
print("labkit is here")
"""
HEAD = """\
<div class="work-on-lab" role="group" aria-label="{title}">
<p class="title">{title}</p>
<p class="note">{note}</p>
<div class="ways">
"""


def _apply(app, config):
    for name, form in ADDRESS.items():
        if config[name] and not re.fullmatch(form, config[name]):
            raise ConfigError(f"_config.yml: {name} is not an address like {form}")
    if config.binder_ref and not config.repository_url:
        raise ConfigError("_config.yml: binder_ref needs repository_url, which is empty")
    if config.book_url:
        config.html_baseurl = f"{config.book_url}/"
    if config.repository_url:
        buttons = {"repository_url": config.repository_url, "use_repository_button": True, "use_issues_button": True}
        config.html_theme_options = config.html_theme_options | buttons


def console_link(notebook_url: str) -> str:
    """Address for opening the notebook at a public URL in ModelArts."""
    return CONSOLE + quote(base64.b64encode(notebook_url.encode()).decode(), safe="")


def binder_link(repository: str, ref: str, notebook: str) -> str:
    """Address for starting a public GitHub repository in Binder, with a notebook open."""
    return f"{BINDER}/gh{urlsplit(repository).path}/{quote(ref, safe='')}?labpath={quote(notebook, safe='')}"


def notebook(source: Path, book_url: str):
    """A lab's notebook for learners, for use without the project: first checks for labkit; links lead to the book."""
    learners = nbformat.from_dict(handout.notebook(read(source), f"labs/{source.parent.name}", book_url))
    chapter = f"{book_url}/{CHAPTER}.html" if book_url else "the chapter 'Labs in a ModelArts notebook'"
    learners.cells.insert(0, nbformat.v4.new_code_cell(FIRST.format(chapter=chapter), id="labkit-is-here"))
    return learners


def _write_notebooks(app, exception):
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir, "notebooks")
    folder.mkdir(exist_ok=True)
    for match in filter(None, map(LAB.fullmatch, app.env.found_docs)):
        learners = notebook(Path(app.env.doc2path(match[0])), app.config.book_url)
        nbformat.write(learners, folder / f"lab-{match[1]}.ipynb")


def _button(css_class, address, text):
    verb, _, place = text.partition(" | ")
    return f'<a class="lab-button {css_class}" href="{escape(address)}"><span>{verb}</span> <span>{place}</span></a>\n'


def _add_row(app, doctree, docname):
    if app.builder.format != "html" or not LAB.fullmatch(docname):
        return
    config, lab = app.config, LAB.fullmatch(docname)[1]
    chapter, file = app.builder.get_relative_uri(docname, CHAPTER), f"lab-{lab}.ipynb"
    download = f"{'../' * docname.count('/')}notebooks/{file}"
    buttons = _button("lab-download", download, said(app, "Download | notebook")).replace("<a ", "<a download ", 1)
    lines = []
    if config.book_url:
        address = console_link(f"{config.book_url}/notebooks/{file}")
        buttons += _button("modelarts-button", address, said(app, "Open in | ModelArts"))
    else:
        how = said(app, "Open in | ModelArts: how")
        buttons += _button("modelarts-button lab-how", f"{chapter}#open-a-lab", how)
        lines.append(said(app, "ModelArts opens only public notebooks. The button says how to open this one by hand."))
    if lab in TOO_LARGE_FOR_BINDER:
        more = said(app, "The lab needs [more memory than Binder gives].")
        lines.append(more.replace("[", f'<a href="{chapter}#binder">').replace("]", "</a>"))
    elif config.binder_ref:
        address = binder_link(config.repository_url, config.binder_ref, f"work/{file}")
        buttons += _button("binder-button", address, said(app, "Open in | Binder"))
    else:
        buttons += _button("binder-button lab-how", f"{chapter}#binder", said(app, "Open in | Binder: how"))
        lines.append(said(app, "Binder opens only public repositories. Its button leads to the settings for Binder."))
    command = f"make lab LAB={lab}" + ("" if config.language == "en" else f" BOOK_LANGUAGE={config.language}")
    note = "".join(f'<p class="note">{line}</p>\n' for line in lines)
    how = said(app, "In JupyterLab on your machine, from the project's folder:")
    title = next(doctree.findall(nodes.title))
    place = title.parent.index(title) + 1
    title.parent[place:place] = [
        nodes.raw("", HEAD.format(title=said(app, "Work on this lab"), note=how), format="html"),
        nodes.literal_block(command, command, language="sh"),  # sphinx-copybutton adds a button to it
        nodes.raw("", f"{buttons}</div>\n{note}</div>\n", format="html"),
    ]


def setup(app):
    for name in ("book_url", "repository_url", "binder_ref"):
        app.add_config_value(name, "", "env", [str])
    app.add_css_file("work-on-lab.css")
    app.connect("config-inited", _apply, priority=400)  # before the theme reads its options
    app.connect("doctree-resolved", _add_row)
    app.connect("build-finished", _write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
