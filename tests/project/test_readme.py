"""README.md and the book's first page name the versions that labkit/system/versions.py supports."""

import re
from pathlib import Path

import pytest

from labkit.system import versions

REPO = Path(__file__).resolve().parents[2]
FIRST, LAST = (int(version.split(".")[1]) for version in (versions.PYTHONS[0], versions.PYTHONS[-1]))


def row(first: str) -> list[str]:
    """Cells of the row of "You need" that begins with this word."""
    section = (REPO / "README.md").read_text(encoding="utf-8").split("## You need\n")[1].split("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith(f"| {first}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_tested_pythons_are_the_supported_ones():
    assert row("tested")[2] == ", ".join(versions.PYTHONS)
    assert row("does not work")[2] == f"3.{FIRST - 1} and older, 3.{LAST + 1} and newer"


def test_the_tested_mindspores_are_the_supported_ones():
    named = re.findall(r"\d+\.\d+\.\d+", row("tested")[3])
    assert [versions.series_of(name) for name in named] == list(versions.MINDSPORES)
    assert f"{versions.MINDSPORE} (the default)" in row("tested")[3]


@pytest.mark.parametrize(
    "system", ["Linux on x86-64", "Linux on aarch64", "macOS on Apple silicon", "Windows through WSL2"]
)
def test_the_books_first_page_names_the_same(system):
    """The same Pythons, and the systems in the same groups."""
    page = (REPO / "book/index.md").read_text(encoding="utf-8")
    assert f"Python {versions.in_words(versions.PYTHONS)}" in page
    tested, _, others = page.partition("You need ")[2].partition("{doc}`appendix/setup`")[0].partition(". ")
    should_work, _, not_tried = others.partition("should work")
    groups = {"tested": tested, "should work": should_work, "not tried": not_tried}
    assert [system in text for text in groups.values()] == [system in row(name)[1] for name in groups]
