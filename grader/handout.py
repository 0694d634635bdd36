"""The learners' version of a lab: its text for the book, its notebook, and a zip with all that the notebook needs."""

import io
import posixpath
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from grader import lab as labs
from grader import translation
from grader.lab import Lab, LabError
from labkit.system.environment import REPO
from labkit.system.files import tracked

# What is included of other folders: the code, and the book that the notebook links to.
INCLUDED = {"labkit": ["**/*.py"], "data_scripts": ["**/*.py"], "book": ["**/*.md", "_static/*.svg"]}
TOP = ("LICENSE", "constraints.txt", "pyproject.toml", "requirements.txt")
# The lab's files that learners get: recipe, start files, recorded Runs. All others are for the instructor: master and
# manifest, an editor's backups of them, submissions, grades.
OF_THE_LAB = ("recipe.yaml", "job.yaml", "*.py", "runs/**/*", "parity/**/*", "scripts/**/*")
ENDINGS = {".py", ".sh", ".json", ".jsonl", ".yaml", ".md", ".svg"}
DATE = (1980, 1, 1, 0, 0, 0)  # of each file in the zip, so that the same lab gives the same bytes
README = """\
# {title}

1. Open `{notebook}` in this folder, which also contains labkit, the book's text, the lab's recipe and the scripts for its data.
2. If packages are missing, run this once in a terminal in this folder (a ModelArts image has its own MindSpore): `grep -v '^mindspore==' requirements.txt > needs.txt && python -m pip install -r needs.txt -c constraints.txt && python -m pip install --no-deps -e .` This stands for `make env`, which the notebook names: there is no Makefile here, and the top of the project is this folder.
3. Before you hand in, rename the notebook to your name or number; if you hand in a folder or zip, rename that instead. Include the folder of your Run if a task asks for one.
"""  # noqa: E501


def notebook(master: dict, place: str, book_url: str = "", language: str | None = None) -> dict:
    """The learner's notebook of a master (nbformat 4, as JSON) at `place`, such as labs/cifar10.

    Links and references to chapters lead to the book at `book_url`, or else from a folder such as work/ to the book's
    files in ../book. References that work only in the book become plain text.
    language: of its text and its self-checks; cells keep their ids, so that the same master grades any language.
    Raises LabError if there is no translation.
    """
    learners = labs.learners(master)
    catalogue = translation.translations(language, f"{place}/lab") if language else {}
    learners["metadata"] = {"kernelspec": learners["metadata"]["kernelspec"], "language_info": {"name": "python"}}
    for cell in learners["cells"]:
        if cell["cell_type"] == "markdown":
            text = translation.translated(cell["source"], catalogue)
            cell["source"] = _plain_markdown(text, place, book_url, language)
        elif cell["source"].startswith("# Check"):
            cell["source"] = translation.translated_code(cell["source"], catalogue)
    return learners


def files(lab: Lab, book_url: str = "", language: str | None = None) -> dict[str, bytes]:
    """The three files to hand out, by name: lab-NAME.ipynb, lab-NAME.md and lab-NAME-modelarts.zip."""
    import jupytext
    import nbformat

    name = f"lab-{lab.name}"
    learners = nbformat.from_dict(notebook(lab.notebook, f"labs/{lab.name}", book_url, language))
    nbformat.validate(learners)
    as_notebook = f"{nbformat.writes(learners)}\n".encode()
    in_zip = {
        f"{name}.ipynb": as_notebook.replace(b"](../book/", b"](book/"),  # here it is at the top
        "README.md": README.format(title=lab.manifest.title, notebook=f"{name}.ipynb").encode(),
        **_project(lab),
    }
    return {
        f"{name}.ipynb": as_notebook,
        f"{name}.md": jupytext.writes(learners, fmt="md:myst").encode(),
        f"{name}-modelarts.zip": _zipped(in_zip, name),
    }


def handed_out(folder: Path, patterns: Iterable[str] = OF_THE_LAB) -> list[Path]:
    """The files in a folder that learners get: those that git tracks, or all if it tracks none of them."""
    in_git = set(tracked(folder, LabError) or ())
    paths = []
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        name = path.relative_to(folder)
        is_private = any(part.startswith(".") or part in ("__pycache__", "checkpoints") for part in name.parts)
        is_known = not in_git or name.as_posix() in in_git
        if path.suffix in ENDINGS and path.is_file() and is_known and not is_private:
            paths.append(path)
    return paths


def _project(lab):
    """The files that the notebook needs, by name: labkit, the lab's recipe and records, scripts for the data."""
    paths = {file: REPO / file for file in TOP}
    for folder, patterns in INCLUDED.items():
        paths |= {path.relative_to(REPO).as_posix(): path for path in handed_out(REPO / folder, patterns)}
    paths |= {f"labs/{lab.name}/{path.relative_to(lab.folder).as_posix()}": path for path in handed_out(lab.folder)}
    return {name: path.read_bytes() for name, path in paths.items()}


def _zipped(contents, folder):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{folder}/{name}", DATE)
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            target.writestr(entry, contents[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    return packed.getvalue()


# -- Markdown for a notebook without the book ----------------------------------------------------------

LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)
LINK = re.compile(r"`[^`\n]*`|(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")  # code, or a link to a file
TITLE = {None: "*{}*", "zh_CN": "《{}》"}  # a heading in the book
ROLE = re.compile(r"\{(cite|doc|eq|numref|ref|term)\}`([^`<]*)(?:<([^`>]*)>)?`")


def _plain_markdown(text, place, book_url, language=None):
    pages = f"{book_url}/{language}" if language else book_url

    def to_page(shown, file, title, anchor):
        catalogue = translation.translations(language, file.removesuffix(".md")) if language else {}
        title = catalogue.get(title, title)
        if not book_url and not file.startswith("book/"):  # another lab's master, which has the solutions
            return shown or TITLE[language].format(title)
        return f"[{shown or title}]({f'{pages}/{file[:-3]}.html{anchor}' if book_url else f'../{file}'})"

    def role(match):
        name, text, target = match.groups()
        target, shown = (target or text).strip(), text.strip() if target else ""
        if page := _page(name, target, place):
            return to_page(shown, *page, f"#{target}" if name == "ref" else "")
        return shown or (target if name == "term" else f"`{target.rpartition('/')[2]}`")

    def link(match):
        image, shown, target = match.groups()
        if target is None:  # code
            return match[0]
        file, _, anchor = target.partition("#")
        file = posixpath.normpath(f"{place}/{file}")
        if image and (REPO / file).is_file():  # Sphinx's folder for images, or ours
            return f"![{shown}]({f'{book_url}/_images/{posixpath.basename(file)}' if book_url else f'../{file}'})"
        if image or not file.endswith(".md"):
            return shown
        return to_page(shown, file, _title(REPO / file), f"#{anchor}" if anchor else "")

    for pattern, replacement in ((LABEL, ""), (LINK, link), (ROLE, role)):
        text = pattern.sub(replacement, text)
    return text.strip("\n")


def _page(role, target, place):
    """File and heading that a `doc` or `ref` refers to; None if it does not refer to a heading."""
    if role == "doc":
        file = posixpath.normpath(posixpath.join("/", place, f"{target}.md")).lstrip("/")
        return (file, title) if (title := _title(REPO / file)) else None
    if role == "ref":
        for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/lab.md")]):
            if title := _title(path, rf"^\({re.escape(target)}\)=\n+#+ (.+)$"):
                return path.relative_to(REPO).as_posix(), title
    return None


def _title(page, heading=r"^# (.+)$"):
    """The first heading of this form on a page; "" if there is none."""
    match = re.search(heading, page.read_text(encoding="utf-8"), re.M) if page.is_file() else None
    return match[1].strip() if match else ""
