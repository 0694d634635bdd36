"""The learner's notebook of every lab, written beside the pages, and the address at which ModelArts opens one.

The button itself is in work_on_lab.py, with the other ways to open a lab; the book's public address is from online.py.
"""

import base64
from pathlib import Path
from urllib.parse import quote

import nbformat
from learners_version import LAB

from grader import handout
from grader.lab import read

CONSOLE = "https://authoring-modelarts-cnnorth4.huaweicloud.com/console/lab?share-url-b64="
CHAPTER = "book/4-cloud/notebooks"
FOLDER = "notebooks"  # below the pages
FIRST = """\
# This file came alone. The lab also needs the rest of the project: labkit, its packages, the data.
import importlib.util

if importlib.util.find_spec("labkit") is None:
    raise ImportError("labkit is missing; {chapter} says how to install it")
print("labkit is here")
"""


def console_link(notebook_url: str) -> str:
    """Address at which ModelArts opens the notebook at this public URL."""
    return CONSOLE + quote(base64.b64encode(notebook_url.encode()).decode(), safe="")


def file_name(docname: str) -> str:
    """Name of a lab's notebook: lab-cifar10.ipynb."""
    return f"lab-{LAB.fullmatch(docname)[1]}.ipynb"


def notebook(source: Path, book_url: str):
    """A lab as the learner's notebook, to stand alone: it looks for labkit first; links lead to the book's pages."""
    found = nbformat.from_dict(handout.notebook(read(source), f"labs/{source.parent.name}", book_url))
    chapter = f"{book_url}/{CHAPTER}.html" if book_url else "the chapter 'Labs in a ModelArts notebook'"
    found.cells.insert(0, nbformat.v4.new_code_cell(FIRST.format(chapter=chapter), id="labkit-is-here"))
    return found


def _write_notebooks(app, exception):
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir, FOLDER)
    folder.mkdir(exist_ok=True)
    for docname in filter(LAB.fullmatch, app.env.found_docs):
        found = notebook(Path(app.env.doc2path(docname)), app.config.book_url)
        nbformat.write(found, folder / file_name(docname))


def setup(app):
    app.setup_extension("online")
    app.connect("build-finished", _write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
