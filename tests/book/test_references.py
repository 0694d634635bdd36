"""Every source is cited, stands once on the page of references, and leads back to the chapters that cite it."""

import re
from functools import cache

import pytest
from bs4 import BeautifulSoup
from chapters import REPO, documents
from pybtex.database import parse_file

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
