"""Every source is cited, stands once on the page of references, and leads back to the chapters that cite it."""

import re
import shutil
from functools import cache

import pytest
import yaml
from bs4 import BeautifulSoup
from chapters import REPO, documents
from pybtex.database import parse_file
from sphinx.application import Sphinx

SOURCES = parse_file(REPO / "book/references.bib").entries


@cache
def cited() -> dict[str, set[str]]:
    """Documents by the key that they cite."""
    found = {key: set() for key in SOURCES}
    for document in documents():
        text = (REPO / f"{document}.md").read_text(encoding="utf-8")
        for keys in re.findall(r"\{cite:\w+\}`([^`]+)`", text):
            for key in keys.split(","):
                found[key.strip()].add(document)
    return found


@pytest.fixture(scope="module")
def entries(html):
    page = BeautifulSoup((html / "book/appendix/references.html").read_text(encoding="utf-8"), "html.parser")
    return page.select("div.citation")


@pytest.mark.parametrize("key", SOURCES)
def test_a_source_is_cited_and_complete(key):
    fields = SOURCES[key].fields
    assert cited()[key], "no chapter cites it"
    assert SOURCES[key].persons["author"]
    assert "title" in fields
    assert set(fields) & {"journal", "booktitle", "school", "publisher", "institution", "eprint", "url"}, "no place"
    assert "url" in fields or re.fullmatch(r"\d{4}", fields.get("year", "")), (
        "only what has an address may have no year"
    )


def test_the_page_has_each_once(entries):
    assert len(entries) == len(SOURCES) > 40
    labels = [entry.select_one(".label").get_text() for entry in entries]
    assert len(set(labels)) == len(labels)


def test_an_entry_leads_to_the_chapters_that_cite_it(entries):
    links = [len(entry.select(".cited-in a.reference.internal")) for entry in entries]
    assert min(links) >= 1
    assert sum(links) == sum(map(len, cited().values()))


def test_sources_of_one_author_and_year_differ_in_the_text(tmp_path, monkeypatch):
    """A small project with the book's own settings: both forms of citation carry the letter of the list."""
    monkeypatch.syspath_prepend(REPO / "book/_ext")
    settings = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    twice = ["he2016deep", "he2016identity"]
    cited = "\n".join(f":cite:t:`{key}` :cite:p:`{key}`\n" for key in twice)
    (tmp_path / "index.rst").write_text(f"Page\n====\n\n{cited}\n:cite:p:`goyal2017`\n\n.. bibliography::\n")
    config = {name: settings[name] for name in ("bibtex_reference_style", "bibtex_default_style")}
    config |= {"extensions": ["sphinxcontrib.bibtex", "bibliography"], "bibtex_bibfiles": ["references.bib"]}
    shutil.copy(REPO / "book/references.bib", tmp_path)
    folders = tmp_path, None, tmp_path / "out", tmp_path / "doctrees"
    Sphinx(*folders, "html", config, status=None, warningiserror=True).build()
    page = BeautifulSoup((tmp_path / "out/index.html").read_text(encoding="utf-8"), "html.parser")
    paragraphs = [p.get_text() for p in page.select("section > p")]
    assert paragraphs == [
        "He et al. [2016a] [He et al., 2016a]",
        "He et al. [2016b] [He et al., 2016b]",
        "[Goyal et al., 2017]",
    ]
    labels = [label.get_text().strip("[]") for label in page.select("div.citation .label")]
    assert labels == ["Goyal et al., 2017", "He et al., 2016a", "He et al., 2016b"]
