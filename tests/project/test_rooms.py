"""A chapter imports the rooms that it uses, so a change in another room does not execute it again."""

import re
import sys

import pytest
import rooms

sys.path.insert(0, str(rooms.REPO / "tests" / "notebooks"))

import chapters


@pytest.fixture(scope="module")
def users():
    """Room -> documents that import it, or whose commands do."""
    found = {}
    for document in chapters.notebooks():
        code = "\n".join(cell.source for cell in chapters.code_cells(chapters.source(document)))
        folders = [rooms.REPO, (rooms.REPO / document).parent, rooms.REPO / "book/4-cloud"]
        for room in rooms.rooms_of(rooms.imported(code, folders)):
            found.setdefault(room, set()).add(document)
    return found


def test_no_chapter_imports_a_room_that_it_does_not_use(users):
    assert rooms.strangers(users) == {}


def test_chapters_import_what_they_are_about(users):
    assert {"book/4-cloud/object-storage", "book/4-cloud/jobs"} <= users["obs"]
    assert "book/4-cloud/cards" in users["modelarts"] & users["launch"]
    assert "book/appendix/grading" in users["grading"] and "book/2-migration/clinic" in users["parity"]
    assert {"book/3-thor/inverse", "labs/thor/lab"} <= users["thor"]
    assert set(chapters.notebooks()) == users["system"]


def test_contributing_lists_every_room():
    text = (rooms.REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## The rooms of labkit\n")[1].split("\n## ")[0]
    listed = [name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for name in re.findall(r"`(.*?)/?`", row)]
    there = [path.name for path in (rooms.REPO / "labkit").iterdir() if path.name[0] not in "_."]
    assert sorted(listed) == sorted(there)


def test_what_waits_in_functions_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "REPO", tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/__init__.py").touch()
    (tmp_path / "one/two.py").write_text("import three\ndef later():\n    import four\n")
    for name in ("three", "four"):
        (tmp_path / f"{name}.py").touch()
    assert rooms.imported("from one import two", [tmp_path]) == {"one/__init__.py", "one/two.py", "three.py"}
