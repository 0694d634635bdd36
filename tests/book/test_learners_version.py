"""No solution and no hidden check of a lab stands in the book: not on its page, in what was executed, in a download."""

import json
from functools import cache
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from grader import lab, leaks

MARKERS = (lab.BEGIN, lab.END)


@cache
def text_of(file: Path) -> str:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".html":
        return BeautifulSoup(text, "html.parser").get_text()
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n".join(f"{lab.source(cell)}\n{json.dumps(cell['metadata'])}" for cell in cells)
    return text


@pytest.fixture(params=lab.names())
def name(request):
    return request.param


@pytest.fixture
def hidden(name):
    return leaks.secrets(lab.load(name))


def test_a_lab_in_the_book_tells_no_line_of_a_solution(html, name, hidden):
    executed = html.parent / "executed/labs" / name / "lab.ipynb"
    places = [f"labs/{name}/lab.html", f"_sources/labs/{name}/lab.md", f"notebooks/lab-{name}.ipynb"]
    for file in (executed, *(html / place for place in places)):
        lines = text_of(file).splitlines()
        assert "# Check" in map(str.strip, lines), f"{file}: is this the lab?"
        assert [leaks.told(hidden, line) for line in lines if leaks.told(hidden, line)] == [], file
        assert not [line for line in lines if line.strip() in MARKERS or '"probe"' in line or "probe:" in line], file


def test_no_other_file_of_the_book_tells_a_whole_solution(html, hidden):
    kinds = {".html", ".md", ".ipynb", ".js", ".txt", ".json"}
    files = [file for top in (html, html.parent / "executed") for file in top.rglob("*") if file.suffix in kinds]
    assert {file.suffix for file in files} >= {".html", ".md", ".ipynb", ".js"}
    told = {file: leaks.told_whole(hidden, text_of(file)) for file in files}
    assert {file: what for file, what in told.items() if what} == {}


def test_a_labs_page_offers_its_notebook(html, name):
    """The learner's: with its stubs, and the ids by which answers are found."""
    page = BeautifulSoup((html / f"labs/{name}/lab.html").read_text(encoding="utf-8"), "html.parser")
    (link,) = page.select("article a.lab-download")
    cells = json.loads((html / f"labs/{name}" / link["href"]).resolve().read_text(encoding="utf-8"))["cells"]
    answers = {cell["id"]: lab.source(cell) for cell in cells if "answer" in cell["metadata"]}
    assert answers == {f"answer-{task}": stub for task, stub in lab.load(name).stubs.items()}
