"""Every record has its entry in the book, says what made it, and is referred to by a chapter that shows it."""

import re
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book" / "_ext"))

import recorded  # noqa: E402

PAGE = REPO / "book" / "appendix" / "recorded.md"
CHAPTERS = {
    path.relative_to(REPO).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in [*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/lab.md")]
    if path != PAGE
}


@pytest.fixture(params=recorded.records())
def name(request):
    return request.param


def test_all_that_is_recorded_is_found():
    folders = {path.parent for path in REPO.glob("labs/*/runs/**/summary.json")}
    files = {*REPO.glob("labs/*/parity/**/*.json"), *REPO.glob("tests/benchmarks/results/**/*"), *folders}
    assert set(recorded.records()) == {path.relative_to(REPO).as_posix() for path in files}


def test_a_record_says_what_made_it(name):
    """One pattern fits, what it names exists, and the file tells of the MindSpore or the peers, and of the machine."""
    assert sum(recorded.fnmatchcase(name, pattern) for pattern in recorded.MADE_BY) == 1
    assert [path for path in recorded.made_by(name)[1] if not (REPO / path).exists()] == []
    assert recorded.origin(name)["mindspore"]


def test_a_chapter_refers_to_it(name):
    assert recorded.shown_in(name, CHAPTERS), f"no chapter refers to {recorded.label(name)}: refer to it, or remove it"


def test_labels_are_different_and_exist():
    labels = [recorded.label(name) for name in recorded.records()]
    assert len(set(labels)) == len(labels)
    used = {label for text in CHAPTERS.values() for label in re.findall(r"<(recorded-[\w-]+)>`", text)}
    assert used <= {*labels, "recorded-runs"}


def test_the_page_lists_each_once(name):
    patterns = re.findall(r"^```\{recorded\} (\S+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sum(recorded.fnmatchcase(name, pattern) for pattern in patterns) == 1


def test_shown_in_takes_whole_labels():
    texts = {"a": "{ref}`x <recorded-imagenet-parity-resnet50>`", "b": "{ref}`x <recorded-imagenet-parity-resnet50-x>`"}
    assert recorded.shown_in("labs/imagenet/parity/resnet50/report.json", texts) == ["a"]
