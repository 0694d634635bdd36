"""Whatever a learner hands in costs that learner's row at most: folders, zips and names that nobody should make."""

import io
import json
import os
import subprocess
import zipfile

import pytest

from grader import batch, submissions
from tests.grader.conftest import filled_in

DEEP = 1500


def _deep_folder(top):
    """As many folders as no recursion comes through, made by going into each: its path is longer than any may be."""
    top.mkdir()
    here = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(DEEP):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)


def _deep_zip(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("d/" * DEEP + "lab.ipynb", "{}")


def _zip_of_runs(file):
    """Runs within Runs."""
    with zipfile.ZipFile(file, "w") as archive:
        for depth in range(1, 50):
            archive.writestr("r/" * depth + "recipe.yaml", "x")
            archive.writestr("r/" * depth + "summary.json", "x")


def _huge_number(file):
    file.write_text('{"nbformat": ' + "9" * 5000 + ', "cells": []}')


HOSTILE = {
    "deep": _deep_folder,
    "deeper.zip": _deep_zip,
    "\U00020000" * 59 + ".ipynb": lambda file: file.write_text("{}"),
    "é" * 91 + ".ipynb": lambda file: file.write_text("{}"),
    "runs.zip": _zip_of_runs,
    "number.ipynb": _huge_number,
    "nowhere.ipynb": lambda file: file.symlink_to("/nowhere/at/all"),
    "round.zip": lambda file: file.symlink_to(file),
    "half.ipynb": lambda file: file.write_text(
        '{"cells": [{"cell_type": "code", "id": "\\ud800", "source": "\\udfff"}]}'
    ),
    os.fsdecode(b"n\xff") + ".zip": lambda file: file.write_bytes(b"PK\x05\x06" + bytes(18)),
    "empty.zip": lambda file: file.write_bytes(b"PK\x05\x06" + bytes(18)),
    "none.md": lambda file: file.write_bytes(bytes(1000)),
}


@pytest.fixture
def class_of(tiny, tmp_path):
    """A folder with one learner who did well, and all the others."""
    folder = tmp_path / "handed-in"
    folder.mkdir()
    (folder / "ann.ipynb").write_text(json.dumps(filled_in(tiny, **tiny.solutions)))
    for name, make in HOSTILE.items():
        make(folder / name)
    yield folder
    subprocess.run(["rm", "-rf", tmp_path], check=True)  # pytest would not come through


def test_what_nobody_should_hand_in_costs_its_row_only(tiny, class_of, tmp_path):
    results, failed = batch.grade_batch(tiny, class_of, tmp_path / "out", sandboxed=False, jobs=1)
    assert not failed and len(results) == len(HOSTILE) + 1
    rows = {result["student"]: result for result in results}
    assert rows.pop("ann")["score"] == 8
    assert all(row["problem"].isprintable() and row["problem"] and row["score"] == 0 for row in rows.values()), rows
    assert "60 deep" in rows["deep"]["problem"] and "60 deep" in rows["deeper"]["problem"]
    assert not (tmp_path / "out" / batch.SCRATCH).exists()
    names = sorted(file.stem for file in (tmp_path / "out" / "results").iterdir())
    assert names == sorted([*rows, "ann"])
    again, _ = batch.grade_batch(tiny, class_of, tmp_path / "out", sandboxed=False, jobs=1)
    assert again == results


def test_what_a_grading_before_left_unpacked_is_removed_however_deep(tiny, class_of, tmp_path):
    scratch = tmp_path / "out" / batch.SCRATCH
    for folder in (scratch, tmp_path / "out" / "results"):
        folder.mkdir(parents=True)
    _deep_folder(scratch / "00001")
    results, _ = batch.grade_batch(tiny, class_of, tmp_path / "out", sandboxed=False, jobs=1)
    assert len(results) == len(HOSTILE) + 1 and not scratch.exists()


def test_in_a_zip_of_all_one_entry_that_cannot_be_unpacked_is_a_row(tmp_path):
    inner, place = io.BytesIO(), tmp_path / "class.zip"
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("lab.ipynb", "{}")
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("class/ann.ipynb", "{}")
        archive.writestr("class/.DS_Store", "")
        archive.writestr("class/bob/" + "d/" * DEEP + "lab.ipynb", "{}")
        archive.writestr("class/cyd/" + "x" * 300, "{}")
        archive.writestr("class/dan.zip", inner.getvalue())
        archive.writestr("class/eve/../../../../out.ipynb", "{}")
        archive.writestr(zipfile.ZipInfo("class/fay.ipynb"), b"{}" * 999, zipfile.ZIP_LZMA)
    (tmp_path / "scratch").mkdir()
    found = {one.student: submissions.look(one) for one in submissions.find(place, tmp_path / "scratch")}
    problems = {student: one.problem for student, one in found.items() if one.problem}
    assert set(found) == {"ann", "bob", "cyd", "dan", "eve", "fay"} and set(problems) == {"bob", "cyd", "eve", "fay"}
    reasons = {"bob": "60 deep", "cyd": "File name too long", "eve": "leads out", "fay": "in another way"}
    assert all(reason in problems[student] for student, reason in reasons.items()), problems
    assert not list(tmp_path.glob("**/out.ipynb"))
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("/etc/ann.ipynb", "{}")
        archive.writestr("bob.ipynb", "{}")
    bad, bob = submissions.find(place, tmp_path / "scratch" / "2")
    assert "leads out" in bad.problem and not bob.problem
