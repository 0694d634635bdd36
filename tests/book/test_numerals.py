"""A measured number in the prose has a source: an output, the code or a citation of its page, or a reviewed reason."""

import re
from pathlib import Path

import chapters
import pytest
import yaml
from prose import prose

REVIEWED = Path(__file__).with_name("numerals.yaml")
UNITS = "%|percent|points|µs|ms|s|seconds?|minutes?|min|hours?|h|[kKMGT]i?B|times|images/s"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
NUMERAL = re.compile(rf"(?<![\w.,/-])({NUMBER})(?:\s(?:to|±)\s({NUMBER}))?[ \u00a0]?({UNITS})(?![\w/])")
# Stated times of reading and running are what tests/book/test_times.py holds.
SPOKEN_FOR = re.compile(r"Reading takes[^.]*\.|^Together:.*$|\| [\d h]+ min \|.*$|\| \d+ s \|$", re.M)
CITED = re.compile(r"\{cite|recorded-|\]\(http|https?://")


def paragraphs(document: str) -> list[str]:
    """The prose of a page, without code and formulas in a line."""
    text = re.sub(r"(\{[^}\n]*\})`([^`]*)`", r"\1 \2", prose(document))  # a role keeps its text
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "", text)
    return re.split(r"\n\s*\n", SPOKEN_FOR.sub("", text))


def numerals(paragraph: str) -> set[str]:
    """What it states with a unit: {"12 ms", "0.5%"}."""
    found = set()
    for first, second, unit in NUMERAL.findall(paragraph):
        space = "" if unit == "%" else " "
        found |= {f"{number}{space}{unit}" for number in (first, second) if number}
    return found


def own_numbers(document: str) -> set[float]:
    """Every number in the code and the outputs of a chapter."""
    if not chapters.is_notebook(document):
        return set()
    found = []
    for cell in chapters.code_cells(chapters.executed(document)):
        found.append(cell.source)
        for output in cell.outputs:
            found.append(output.get("text", ""))
            found += [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
    return set(map(float, re.findall(r"\d+(?:\.\d+)?", " ".join(map(str, found)).replace(",", "").replace("_", ""))))


def uncited(document: str) -> set[str]:
    """Numerals of a page whose paragraph cites nothing."""
    return set().union(*(numerals(one) for one in paragraphs(document) if not CITED.search(one)))


def unsourced(document: str) -> set[str]:
    """Numerals of a page that nothing on it accounts for."""
    own = own_numbers(document)
    return {one for one in uncited(document) if float(re.match(r"[\d.,]+", one).group().replace(",", "")) not in own}


def reviewed() -> dict[str, dict[str, str]]:
    return yaml.safe_load(REVIEWED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", chapters.documents())
def test_a_number_has_a_source(document):
    listed = reviewed().get(document, {})
    assert unsourced(document) - set(listed) == set(), (
        f"{document}: compute it, cite it, or give {REVIEWED.name} a reason"
    )
    # asked of the prose alone: a time that this machine measured may happen to be the number of a reviewed one
    assert set(listed) - uncited(document) == set(), f"{REVIEWED.name}: {document} has no use for it any more"


def test_the_list_has_reasons_and_pages():
    assert set(reviewed()) <= set(chapters.documents())
    assert all(str(reason).strip() for page in reviewed().values() for reason in page.values())


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("takes 12.5 ms a step", {"12.5 ms"}),
        ("between 2 to 3 hours", {"2 hours", "3 hours"}),
        ("76.4 ± 0.12% of 50,000 images", {"76.4%", "0.12%"}),
        ("2,048 images in `3 ms` and chapter 3.1", set()),
        ("needs 1.5 times fewer steps", {"1.5 times"}),
    ],
)
def test_numerals_are_found(prose, found):
    assert numerals(re.sub(r"`[^`]*`", "", prose)) == found
