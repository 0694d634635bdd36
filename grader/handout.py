"""What learners get of a lab: its text for the book, its notebook, and the notebook with all that it needs as a zip."""

import io
import posixpath
import re
import zipfile
from pathlib import Path

from grader import lab as labs
from grader import translation
from grader.lab import Lab, LabError
from labkit.system.environment import REPO
from labkit.system.files import tracked

CODE = ("labkit", "data_scripts")  # folders; their Python files go along
TOP = ("LICENSE", "constraints.txt", "pyproject.toml", "requirements.txt")
# Of the lab's folder, what learners have too: recipe, start files, recorded Runs. All else is the instructor's: master
# and manifest, whatever an editor keeps of them, what was handed in, grades.
OF_THE_LAB = ("recipe.yaml", "job.yaml", "*.py", "runs/**/*", "parity/**/*", "scripts/**/*")
KINDS = {".py", ".sh", ".json", ".jsonl", ".yaml"}
DATE = (1980, 1, 1, 0, 0, 0)  # of each file in the zip: the same lab gives the same bytes
README = """\
# {title}

1. Open `{notebook}` in this folder: labkit, the lab's recipe and what makes its data lie beside it.
2. Where packages are missing, once, in a terminal in this folder (a ModelArts image has a MindSpore of its own): `grep -v '^mindspore==' requirements.txt > needs.txt && python -m pip install -r needs.txt -c constraints.txt && python -m pip install --no-deps -e .` This stands for `make env`, which the notebook names: there is no Makefile here, and the top of the project is this folder.
3. Rename the notebook to your name or number before you hand in; where it lies in a folder or zip, rename that. Hand it in with your answers, and the folder of your Run where a task asks for one.
"""  # noqa: E501


def learners_text(text: str) -> str:
    """A lab in MyST as learners may see it: no probe cells, no solutions, all else as it is.

    Raises ValueError where the markers of a solution do not pair.
    """
    import jupytext
    from markdown_it import MarkdownIt

    lines = text.split("\n")
    for token in reversed(MarkdownIt("commonmark").parse(text)):  # from the end: line numbers before it stay
        if token.type == "fence" and token.level == 0 and token.info.startswith("{code-cell}"):
            start, end = token.map
            fence = "\n".join(lines[start:end])
            (cell,) = jupytext.reads(fence, fmt="md:myst").cells
            lines[start:end] = [] if labs.probe_of(cell) else labs.without_solution(fence).split("\n")
    return "\n".join(lines)


def notebook(master: dict, place: str, book_url: str = "", language: str | None = None) -> dict:
    """The learner's notebook of a master (nbformat 4, as JSON) at `place`, such as labs/cifar10.

    It stands alone: links and references to chapters lead to the book at `book_url`; without one, the link's
    own words stay, or the chapter's title. References that work only in the book become plain text.
    language: of its text, and of what its self-checks print; cells keep their ids, so that any language is graded by
    the same master. Raises LabError if it has no such text.
    """
    found = labs.learners(master)
    catalogue = translation.translations(language, f"{place}/lab") if language else {}
    found["metadata"] = {"kernelspec": found["metadata"]["kernelspec"], "language_info": {"name": "python"}}
    for cell in found["cells"]:
        if cell["cell_type"] == "markdown":
            text = translation.translated(cell["source"], catalogue)
            cell["source"] = _plain_markdown(text, place, book_url, language)
        elif cell["source"].startswith("# Check"):
            cell["source"] = translation.translated_code(cell["source"], catalogue)
    return found


def files(lab: Lab, book_url: str = "", language: str | None = None) -> dict[str, bytes]:
    """The three files that are handed out, by name: lab-NAME.ipynb, lab-NAME.md and lab-NAME-modelarts.zip."""
    import jupytext
    import nbformat

    name = f"lab-{lab.name}"
    found = nbformat.from_dict(notebook(lab.notebook, f"labs/{lab.name}", book_url, language))
    nbformat.validate(found)
    as_notebook = f"{nbformat.writes(found)}\n".encode()
    beside = {
        f"{name}.ipynb": as_notebook,
        "README.md": README.format(title=lab.manifest.title, notebook=f"{name}.ipynb").encode(),
        **_project(lab),
    }
    return {
        f"{name}.ipynb": as_notebook,
        f"{name}.md": jupytext.writes(found, fmt="md:myst").encode(),
        f"{name}-modelarts.zip": _zipped(beside, name),
    }


def handed_out(folder: Path, patterns: tuple[str, ...] = OF_THE_LAB) -> list[Path]:
    """The files below a folder that learners have too: those that git tracks, or all where it tracks none there."""
    known = set(tracked(folder, LabError) or ())
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.suffix in KINDS and path.is_file()}
    names = {path: path.relative_to(folder) for path in sorted(paths)}
    return [path for path, name in names.items()
            if not any(map(_private, name.parts)) and (not known or name.as_posix() in known)]  # fmt: skip


def _private(part):
    return part.startswith(".") or part in ("__pycache__", "checkpoints")


def _project(lab):
    """What the notebook needs beside it, by name: labkit, the lab's recipe and records, what makes the data."""
    found = {file: REPO / file for file in TOP}
    for folder in CODE:
        found |= {path.relative_to(REPO).as_posix(): path for path in handed_out(REPO / folder, ("**/*.py",))}
    found |= {f"labs/{lab.name}/{path.relative_to(lab.folder).as_posix()}": path for path in handed_out(lab.folder)}
    return {name: path.read_bytes() for name, path in found.items()}


def _zipped(contents, folder):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{folder}/{name}", DATE)
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            target.writestr(entry, contents[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    return packed.getvalue()


# -- Markdown for a notebook that stands alone ---------------------------------------------------------

LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)
LINK = re.compile(r"`[^`\n]*`|(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")  # code, or a link to a file
ALONE = {None: "*{}*", "zh_CN": "《{}》"}  # a heading of the book
ROLE = re.compile(r"\{(cite|doc|eq|numref|ref|term)\}`([^`<]*)(?:<([^`>]*)>)?`")


def _plain_markdown(text, place, book_url, language=None):
    pages = f"{book_url}/{language}" if language else book_url

    def to_page(shown, file, title, anchor):
        catalogue = translation.translations(language, file.removesuffix(".md")) if language else {}
        title = catalogue.get(title, title)
        if book_url:
            return f"[{shown or title}]({pages}/{file.removesuffix('.md')}.html{anchor})"
        return shown or ALONE[language].format(title)

    def role(match):
        kind, words, target = match.groups()
        target, shown = (target or words).strip(), words.strip() if target else ""
        if page := _page(kind, target, place):
            return to_page(shown, *page, f"#{target}" if kind == "ref" else "")
        return shown or (target if kind == "term" else f"`{target.rpartition('/')[2]}`")

    def link(match):
        image, shown, target = match.groups()
        if target is None:  # code
            return match[0]
        file, _, anchor = target.partition("#")
        file = posixpath.normpath(f"{place}/{file}")
        if image and book_url and (REPO / file).is_file():
            return f"![{shown}]({book_url}/_images/{posixpath.basename(file)})"  # where Sphinx puts a page's pictures
        if image or not file.endswith(".md"):
            return shown
        return to_page(shown, file, _title(REPO / file), f"#{anchor}" if anchor else "")

    for pattern, replacement in ((LABEL, ""), (ROLE, role), (LINK, link)):
        text = pattern.sub(replacement, text)
    return text.strip("\n")


def _page(kind, target, place):
    """The file of the project and the heading that `doc` or `ref` means; None where it means no heading."""
    if kind == "doc":
        file = posixpath.normpath(posixpath.join("/", place, f"{target}.md")).lstrip("/")
        return (file, title) if (title := _title(REPO / file)) else None
    if kind == "ref":
        for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/lab.md")]):
            if title := _title(path, rf"^\({re.escape(target)}\)=\n+#+ (.+)$"):
                return path.relative_to(REPO).as_posix(), title
    return None


def _title(page, heading=r"^# (.+)$"):
    """A page's first such heading; "" where there is none."""
    found = re.search(heading, page.read_text(encoding="utf-8"), re.M) if page.is_file() else None
    return found[1].strip() if found else ""
