"""Every chapter has its page in both languages; nothing on it is an accident, and nothing leads nowhere."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from chapters import REPO, documents

HAN = re.compile("[\u3001-\u303f\u4e00-\u9fff]")  # with punctuation
# What is English on Chinese pages as well: docstrings, help, references; code and what it printed or drew.
ENGLISH = re.compile("book/appendix/(api/.*|cli|references)")
CODE = "pre, code, script, style, mjx-container, .math, .cell_output"


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return {tag.get("id") or tag["name"] for tag in soup(path).select("[id], a[name]")}


def test_only_chapters_became_pages(html):
    extra = {"index", "genindex", "search", "py-modindex"}
    there = {path.relative_to(html).with_suffix("").as_posix() for path in html.rglob("*.html")}
    assert {name for name in there if not name.startswith(("_static", "book/slides/"))} - extra == set(documents())


@pytest.mark.parametrize("document", documents())
def test_nothing_on_a_page_is_an_accident(html, document):
    page = soup(html / f"{document}.html")
    assert page.article.find("h1"), "no title"
    assert bool(page.head.select("script[src*=mathjax]")) == bool(page.article.select(".math"))
    assert [output.get_text()[:300] for output in page.article.select(".output.stderr")] == []
    for cell in page.article.select(".cell"):
        failed = re.search("^Traceback", cell.get_text(), re.M) or cell.select(".output.traceback")
        assert not failed or "tag_raises-exception" in cell["class"], cell.get_text()[:500]
    for image in page.article.find_all("img"):  # Sphinx fills in the file's address where an author gives no text
        assert image.get("alt", "").strip() and not re.search(r"\.(png|svg|jpe?g|gif)$", image["alt"]), image.get("src")
    text = BeautifulSoup(str(page.article), "html.parser")
    for verbatim in text.select("pre, code, .math"):
        verbatim.clear()
    assert re.findall(r"\{[a-z:-]+\}`|\{\{.+?\}\}|^:::", text.get_text(), flags=re.M) == [], "markup as it was typed"


def leads_nowhere(file: Path, address: str, top: Path) -> bool:
    """True for a link of a page, to another page or another file of the book, whose target is missing."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return False
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    fragment = unquote(parts.fragment)
    inside = target.is_relative_to(top) or target.relative_to(top.parent).parts[0].startswith("html")  # other language
    there = inside and target.is_file()
    return not there or bool(fragment and target.suffix == ".html" and fragment not in anchors(target))


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(html, document):
    """Sphinx warns of references; this sees what is written by themes, extensions, drawings and outputs as well."""
    file = html / f"{document}.html"
    found = [tag.get(name) for tag in soup(file).find_all(True) for name in ("href", "src") if tag.get(name)]
    assert len(found) > 50
    assert [address for address in found if leads_nowhere(file, address, html)] == []


def test_chapters_left_nothing_behind(litter):
    """A chapter's working directory is its own folder: what it writes belongs in a temporary one."""
    folders = [REPO / "book", REPO / "labs"]
    assert [path for path in litter() if any(path.is_relative_to(folder) for folder in folders)] == []


@pytest.mark.slow  # fast, but a missing translation must not stop a commit
@pytest.mark.parametrize("document", documents())
def test_a_chinese_page_is_chinese_and_has_the_same_formulas(html, chinese, document):
    """Every paragraph, heading, item and cell of a table with four words or more has Chinese ones."""

    def formulas(page):
        return [re.sub(r"\\text\{[^}]*\}", "", formula.get_text()) for formula in page.article.select("div.math")]

    page, english = soup(chinese / f"{document}.html"), soup(html / f"{document}.html")
    assert page.html["lang"] == "zh-CN"
    assert formulas(page) == formulas(english)
    for source, other in ((page, html), (english, chinese)):  # each leads to the other
        folder = (chinese if source is page else html) / document
        (link,) = source.select(".other-language")
        assert (folder.parent / link["href"]).resolve() == other / f"{document}.html"
    if ENGLISH.fullmatch(document):
        return
    article = BeautifulSoup(str(page.article), "html.parser")
    texts = [picture.get("alt", "") for picture in article.select("img")]
    for tag in article.select(CODE):
        tag.decompose()
    texts += [tag.get_text() for tag in article.select("p, h1, h2, h3, h4, li, td, th, figcaption, summary")]
    texts += [tag.get_text() for tag in page.select("nav.bd-links .caption-text, nav.bd-links a")]
    assert [text for text in texts if len(re.findall("[A-Za-z]{2,}", text)) > 3 and not HAN.search(text)] == []
    frame = [tag for tag in page.find_all(True) if not tag.find_parent("article")]
    names = [tag.get(name, "") for tag in frame for name in ("title", "placeholder", "aria-label")]
    names += [tag.get_text() for tag in page.select("button, #pst-skip-link")]
    assert [name for name in names if re.search("[A-Za-z]{2} [A-Za-z]{2}", name) and not HAN.search(name)] == []
