"""Every record has its row on the appendix page *Recorded Runs and measurements*, and says what made it."""

import json
import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PLACES = ("labs/*/runs/*/summary.json", "labs/*/parity/**/*.json", "tests/benchmarks/results/*.json")
RECORDS = {path.relative_to(REPO).as_posix() for place in PLACES for path in REPO.glob(place)}


def test_each_has_its_row():
    page = (REPO / "book/appendix/recorded.md").read_text(encoding="utf-8")
    assert set(re.findall(r"</((?:labs|tests)/[^>]+\.json)>", page)) == RECORDS


def test_each_says_what_made_it():
    """The MindSpore or PyTorch that it was made with; no path of somebody's machine."""
    for name in RECORDS:
        text = (REPO / name).read_text(encoding="utf-8")
        assert re.search('"(mindspore|MindSpore|torch)": "?', text) and json.loads(text), name
        assert str(REPO) not in text, name
