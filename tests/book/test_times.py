"""Every chapter says near its top how long it takes, and every part what its chapters take together."""

import re
from math import ceil

import pytest
from chapters import REPO, documents, is_notebook, learners_version

LINE = re.compile(r"Reading takes (\d+) minutes(?:, running (\d+) (second|minute)s?)?\b")
TOGETHER = re.compile(r"^Together: (?:(\d+) h )?(?:(\d+) min )?of reading, (\d+) min of running", re.M)
LOOKED_UP = {
    f"book/appendix/{name}"
    for name in ("cheat-sheets", "glossary", "symbols", "api", "cli", "execution", "recorded", "references")
}


def text(document: str) -> str:
    """What a reader gets of it: without the notebook's metadata, a lab without solutions."""
    whole = learners_version.text_of(REPO / f"{document}.md")
    return re.sub(r"\A---\n.*?\n---\n", "", whole, flags=re.S)


def is_chapter(document: str) -> bool:
    """True for a page that is read from its top to its end."""
    listed = document in LOOKED_UP or document.startswith("book/appendix/api/")
    return not (document.endswith("/index") or "/preface/" in document or listed)


CHAPTERS = [document for document in documents() if is_chapter(document)]
PARTS = [document for document in documents() if document.count("/") == 2 and document.endswith("/index")]


def times(document: str) -> tuple[int, int]:
    """Minutes of reading and seconds of running that a chapter states."""
    ((reading, running, unit),) = LINE.findall(text(document))
    return int(reading), int(running or 0) * {"minute": 60, "second": 1, "": 0}[unit]


@pytest.mark.parametrize("document", CHAPTERS)
def test_a_chapter_says_how_long_it_takes(document):
    top = text(document).split("\n## ")[0]
    assert LINE.search(top), "no line 'Reading takes N minutes, running M seconds' above the first section"
    reading, running = times(document)
    by_words = len(text(document).split()) / 200
    assert by_words / 2 <= reading <= max(5, 2 * by_words)
    assert bool(running) == is_notebook(document)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_says_what_its_chapters_take(part):
    """Row by row and together; the lab, whose tasks take hours, is not in the sum."""
    page = text(part)
    reading, running = 0, 0
    folder = part.rsplit("/", 1)[0]
    chapters = [document for document in CHAPTERS if document.startswith(f"{folder}/")]
    assert len(chapters) >= 4
    for chapter in chapters:
        minutes, seconds = times(chapter)
        reading, running = reading + minutes, running + seconds
        name = chapter.rsplit("/", 1)[1]
        run = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"
        assert re.search(rf"^\| {{doc}}`{name}` \|.*\| {minutes} min \| {run} \|$", page, re.M), chapter
    ((hours, minutes, run),) = TOGETHER.findall(page)
    assert (60 * int(hours or 0) + int(minutes or 0), int(run)) == (reading, ceil(running / 60))
