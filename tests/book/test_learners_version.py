"""No solution and no hidden check of a lab is in the book: not on its page, in what was executed, in a download."""

import json

import pytest
from bs4 import BeautifulSoup
from chapters import REPO, executed

from grader import lab, leaks


@pytest.mark.parametrize("name", lab.names())
def test_a_lab_in_the_book_tells_no_line_of_a_solution(html, name):
    page = BeautifulSoup((html / f"labs/{name}/lab.html").read_text(encoding="utf-8"), "html.parser")
    cells = [f"{lab.source(cell)}\n{json.dumps(cell.metadata)}" for cell in executed(f"labs/{name}/lab").cells]
    texts = {
        f"page/lab-{name}.md": page.get_text(),
        f"executed/lab-{name}.md": "\n".join(cells),
        f"_sources/lab-{name}.md": (html / f"_sources/labs/{name}/lab.md").read_text(encoding="utf-8"),
        f"notebooks/lab-{name}.ipynb": (html / f"notebooks/lab-{name}.ipynb").read_text(encoding="utf-8"),
    }
    assert all("# Check" in text for text in texts.values()), "is this the lab?"
    leaks.require_none(lab.load(name), {file: text.encode() for file, text in texts.items()})
    with pytest.raises(lab.LabError, match=f"lab-{name}.md"):
        leaks.require_none(lab.load(name), {f"lab-{name}.md": (REPO / f"labs/{name}/lab.md").read_bytes()})


@pytest.mark.parametrize("name", lab.names())
def test_a_labs_page_offers_its_notebook(html, name):
    """The learner's: with its stubs, and the ids by which answers are found."""
    page = BeautifulSoup((html / f"labs/{name}/lab.html").read_text(encoding="utf-8"), "html.parser")
    (link,) = page.select("article a.lab-download[download]")
    cells = json.loads((html / f"labs/{name}" / link["href"]).resolve().read_text(encoding="utf-8"))["cells"]
    answers = {cell["id"]: lab.source(cell) for cell in cells if "answer" in cell["metadata"]}
    assert answers == {f"answer-{task}": stub for task, stub in lab.load(name).stubs.items()}
