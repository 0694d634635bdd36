"""From a figure or a number to its record: the link, the entry, the files."""

import re
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book" / "_ext"))

import recorded  # noqa: E402

PAGE = "book/appendix/recorded.html"


@pytest.fixture(scope="module")
def links(html) -> set[str]:
    """Entries that some other page links to."""
    others = [file for top in ("book", "labs") for file in (html / top).rglob("*.html") if file != html / PAGE]
    pattern = re.compile(r'href="[^"#]*recorded\.html#([\w-]+)"')
    return {label for file in others for label in pattern.findall(file.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def entries(html) -> dict:
    """The parts of each entry on the page, by its label."""
    page = BeautifulSoup((html / PAGE).read_text(encoding="utf-8"), "html.parser")
    found = {}
    for term in page.select("article dt"):
        parts = term.find_next_siblings(["dt", "dd"])
        end = next((number for number, part in enumerate(parts) if part.name == "dt"), len(parts))
        found[term.find(id=True)["id"]] = parts[:end]
    return found


def test_each_record_is_linked_to(links):
    assert {recorded.label(name) for name in recorded.records()} <= links


def test_entries_are_the_records(entries):
    assert set(entries) == {recorded.label(name) for name in recorded.records()}


@pytest.mark.parametrize("name", recorded.records())
def test_an_entry_leads_back_and_has_the_files(html, entries, name):
    parts = entries[recorded.label(name)]
    text = " ".join(part.get_text() for part in parts)
    assert "Made by" in text and "no chapter" not in text
    assert all(commit[:10] in text for commit in recorded.origin(name)["commits"])
    files = {
        (html / PAGE).parent.joinpath(link["href"]).resolve() for part in parts for link in part.select("a.download")
    }
    kept = REPO / name
    wanted = {kept / "recipe.yaml", kept / "summary.json"} if kept.is_dir() else {kept}
    assert {file.read_bytes() for file in wanted} <= {file.read_bytes() for file in files}
