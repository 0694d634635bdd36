"""At the top of every lab's page: how to work on it. Here, as a download, on ModelArts, on Binder.

In _config.yml, book_url switches ModelArts on, and binder_ref switches Binder on (online.py). While either is empty,
its button is grey and leads to the section of book/4-cloud/notebooks that a reader then needs: for ModelArts the way
by hand, for Binder what to publish and set.
"""

from html import escape
from urllib.parse import quote, urlsplit

from docutils import nodes
from languages import said
from learners_version import LAB
from modelarts_button import CHAPTER, FOLDER, console_link, file_name
from online import GITHUB

BINDER = "https://mybinder.org/v2"
# Binder gives a session 2 GB at most; book/4-cloud/notebooks has what each lab needs.
TOO_LARGE_FOR_BINDER = ("imagenet",)
HEAD = """\
<div class="work-on-lab" role="group" aria-label="{title}">
<p class="title">{title}</p>
<p class="note">{note}</p>
<div class="ways">
"""


def binder_link(repository: str, ref: str, notebook: str) -> str:
    """Address at which Binder starts a public repository and opens a notebook in it.

    `repository`: its https address, on GitHub or elsewhere.
    """
    if GITHUB.fullmatch(repository):
        place = "gh" + urlsplit(repository).path.removesuffix(".git")
    else:
        place = f"git/{quote(repository, safe='')}"
    return f"{BINDER}/{place}/{quote(ref, safe='')}?labpath={quote(notebook, safe='')}"


def _button(kind, address, text):
    verb, _, place = text.partition(" | ")
    return f'<a class="lab-button {kind}" href="{escape(address)}"><span>{verb}</span> <span>{place}</span></a>\n'


def _add_row(app, doctree, docname):
    if app.builder.format != "html" or not LAB.fullmatch(docname):
        return
    config, lab = app.config, LAB.fullmatch(docname)[1]
    chapter = app.builder.get_relative_uri(docname, CHAPTER)
    notebook = f"{'../' * docname.count('/')}{FOLDER}/{file_name(docname)}"
    download = _button("lab-download", notebook, said(app, "Download | notebook"))
    buttons, lines = download.replace("<a ", "<a download ", 1), []
    if config.book_url:
        address = console_link(f"{config.book_url}/{FOLDER}/{file_name(docname)}")
        buttons += _button("modelarts-button", address, said(app, "Open in | ModelArts"))
    else:
        how = said(app, "Open in | ModelArts: how")
        buttons += _button("modelarts-button lab-how", f"{chapter}#open-a-lab", how)
        lines.append(said(app, "ModelArts opens only public notebooks. The button says how to open this one by hand."))
    if lab in TOO_LARGE_FOR_BINDER:
        more = said(app, "The lab needs [more memory than Binder gives].")
        lines.append(more.replace("[", f'<a href="{chapter}#binder">').replace("]", "</a>"))
    elif config.binder_ref:
        address = binder_link(config.repository_url, config.binder_ref, f"work/{file_name(docname)}")
        buttons += _button("binder-button", address, said(app, "Open in | Binder"))
    else:
        buttons += _button("binder-button lab-how", f"{chapter}#binder", said(app, "Open in | Binder: how"))
        lines.append(said(app, "Binder opens only public repositories. Its button leads to the settings for Binder."))

    command = f"make lab LAB={lab}" + ("" if config.language == "en" else f" BOOK_LANGUAGE={config.language}")
    space = "" if config.language.startswith("zh") else " "
    note = f'<p class="note">{space.join(lines)}</p>\n' if lines else ""
    head = {
        "title": said(app, "Work on this lab"),
        "note": said(app, "In JupyterLab on your machine, from the project's folder:"),
    }
    row = [
        nodes.raw("", HEAD.format(**head), format="html"),
        nodes.literal_block(command, command, language="sh"),  # sphinx-copybutton gives it its button
        nodes.raw("", f"{buttons}</div>\n{note}</div>\n", format="html"),
    ]
    title = next(doctree.findall(nodes.title))
    place = title.parent.index(title) + 1
    title.parent[place:place] = row


def setup(app):
    app.setup_extension("online")
    app.add_css_file("work-on-lab.css")
    app.connect("doctree-resolved", _add_row)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
