"""Every chapter has its page; nothing on it is an accident. What a page refers to: test_links.py."""

import re
from functools import cache
from pathlib import Path

import pytest
from bs4 import BeautifulSoup


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def article(html: Path, page: str):
    return soup(html / page).find("article")


def test_top_page_leads_to_the_book(html):
    text = (html / "index.html").read_text(encoding="utf-8")
    assert "book/index.html" in text


def test_page_exists(html, page):
    assert (html / page).is_file()
    assert article(html, page).find("h1"), "no title"


def test_mathjax_is_loaded_where_formulas_are(html, page):
    assert bool(soup(html / page).head.select("script[src*=mathjax]")) == bool(article(html, page).select(".math"))


def test_no_traceback(html, page):
    """A failure that a chapter shows on purpose carries the tag raises-exception, and is marked as such."""
    for output in article(html, page).select(".cell_output .output"):
        if "traceback" not in output.get("class", []):
            assert not re.search("^Traceback", output.get_text(), re.M)  # one quoted from a log is indented
    for cell in article(html, page).select(".cell:has(.output.traceback)"):
        assert "tag_raises-exception" in cell["class"], cell.get_text()[:500]


def test_no_stderr(html, page):
    """Noise on stderr is a problem to mend, or, for a progress bar, to hide with the tag remove-stderr."""
    found = [block.get_text() for block in article(html, page).select(".output.stderr")]
    assert found == []


def test_images_have_alt_text(html, page):
    """Sphinx fills in the file's address where an author gives no text; that helps nobody."""
    bad = []
    for image in article(html, page).find_all("img"):
        alt = image.get("alt", "").strip()
        if not alt or re.search(r"\.(png|svg|jpe?g|gif)$", alt):
            bad.append((image.get("src"), alt))
    assert bad == []


def test_no_unresolved_markup(html, page):
    """Roles, citations and substitutions that stayed as they were typed."""
    text = BeautifulSoup(str(article(html, page)), "html.parser")
    for verbatim in text.select("pre, code, .math"):
        verbatim.clear()
    found = re.findall(r"\{[a-z:-]+\}`|\{\{.+?\}\}|^:::", text.get_text(), flags=re.M)
    assert found == []


def test_every_lab_says_how_to_work_on_it(html):
    """Where each button leads is tested in test_work_on_lab.py."""
    labs = sorted(path.parent.name for path in html.glob("labs/*/lab.html"))
    assert labs == sorted(path.stem.removeprefix("lab-") for path in html.glob("notebooks/*.ipynb"))
    for lab in labs:
        (row,) = article(html, f"labs/{lab}/lab.html").select(".work-on-lab")
        assert len(row.select("pre")) == 1 and len(row.select("a.lab-download")) == 1


def test_nothing_else_was_built(html):
    """Only chapters become pages: no README, no note, no file of the environment."""
    from chapters import documents

    extra = {"index", "genindex", "search", "py-modindex"}
    found = {path.relative_to(html).with_suffix("").as_posix() for path in html.rglob("*.html")}
    assert {name for name in found if not name.startswith("_static")} - extra == set(documents())


def test_chapters_left_nothing_behind(litter, repo_root):
    """A chapter's working directory is its own folder: what it writes belongs in a temporary one."""
    folders = [repo_root / "book", repo_root / "labs"]
    assert [path for path in litter() if any(path.is_relative_to(folder) for folder in folders)] == []


@pytest.mark.parametrize("name", ["_static/course.css", "search.html", "searchindex.js"])
def test_shared_files(html, name):
    assert (html / name).is_file()
