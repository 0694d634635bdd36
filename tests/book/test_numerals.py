"""A measured number in the prose has a source: an output, the code or a citation of its page, or a reviewed reason."""

import re
from pathlib import Path

import chapters
import pytest
import yaml

REVIEWED = yaml.safe_load(Path(__file__).with_name("numerals.yaml").read_text(encoding="utf-8"))
UNITS = "%|percent|points|µs|ms|s|seconds?|minutes?|min|hours?|h|[kKMGT]i?B|times|images/s"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
NUMERAL = re.compile(rf"(?<![\w.,/-])({NUMBER})(?:\s(?:to|±)\s({NUMBER}))?[ \u00a0]?({UNITS})(?![\w/])")
# How long reading and running take is an estimate.
ESTIMATED = re.compile(r"Reading takes[^.]*\.|^Together:.*$|\| [\d h]+ min \|.*$|\| \d+ s \|$", re.M)
CITED = re.compile(r"\{cite|recorded-|\]\(http|https?://")
FENCE = re.compile(r"\s*(?P<fence>`{3,}|:{3,})(?:\{(?P<name>[\w-]+)\})?(?P<rest>.*)$")
# Directives in backticks whose text is read like the text around it; text between colons always is.
READ = {"admonition", "dropdown", "exercise", "figure", "glossary", "note", "question", "rubric", "tip", "warning"}


def prose(document: str) -> str:
    """Its text, captions of drawings included, without code, formulas and metadata; a lab's as learners see it."""
    text = chapters.learners_version.text_of(chapters.REPO / f"{document}.md")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    kept, open_fences = [], []  # of each open fence: its marks, and whether what is in it is read
    for line in text.split("\n"):
        if found := FENCE.match(line):
            fence, name, rest = found["fence"], found["name"], found["rest"].strip()
            if open_fences and (fence, name, rest) == (open_fences[-1][0], None, ""):
                open_fences.pop()
            elif all(read for _, read in open_fences):
                open_fences.append((fence, fence[0] == ":" or name in READ))
                kept += [rest] if open_fences[-1][1] and name != "figure" else []
        elif all(read for _, read in open_fences) and not re.match(r"\s*:[\w-]+:", line):
            kept.append(line)
    text = re.sub(r"\$\$.*?\$\$", "", "\n".join(kept), flags=re.S)
    text = re.sub(r"(\{[^}\n]*\})`([^`]*)`", r"\1 \2", text)  # a role keeps its text
    return ESTIMATED.sub("", re.sub(r"`[^`]*`|\$[^$]*\$", "", text))


def numerals(paragraph: str) -> set[str]:
    """What it states with a unit: {"12 ms", "0.5%"}."""
    found = set()
    for first, second, unit in NUMERAL.findall(paragraph):
        space = "" if unit == "%" else " "
        found |= {f"{number}{space}{unit}" for number in (first, second) if number}
    return found


def own_numbers(document: str) -> set[float]:
    """Every number in the code and the outputs of a chapter."""
    found = []
    for cell in chapters.code_cells(chapters.executed(document)) if chapters.is_notebook(document) else ():
        found.append(cell.source)
        for output in cell.outputs:
            found.append(output.get("text", ""))
            found += [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
    return set(map(float, re.findall(r"\d+(?:\.\d+)?", " ".join(map(str, found)).replace(",", "").replace("_", ""))))


@pytest.mark.parametrize("document", chapters.documents())
def test_a_number_has_a_source(document):
    paragraphs = re.split(r"\n\s*\n", prose(document))
    stated, own = set().union(*(numerals(text) for text in paragraphs if not CITED.search(text))), own_numbers(document)
    unsourced = {one for one in stated if float(re.match(r"[\d.,]+", one).group().replace(",", "")) not in own}
    assert unsourced - set(REVIEWED.get(document, {})) == set(), "compute it, cite it, or give numerals.yaml a reason"
