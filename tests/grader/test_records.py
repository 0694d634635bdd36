"""What an instructor adds to grades: roster, points by hand, penalties, exports; and a part graded again."""

import csv
import io
import json

import pytest
from bs4 import BeautifulSoup

from grader import batch, records, report
from grader.batch import BatchError, grade_batch
from grader.lab import LabError
from grader.records import RecordsError
from tests.grader.conftest import filled_in

HEAD = "student_id,task,points,comment\n"
LATE = "seed: 7\nlate: {due: 2026-12-01 18:00, per_day: 0.1, at_most: 0.25}"


def rows_of(file):
    return list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline="")))


def text_of(file):
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser").get_text(" ", strip=True)


@pytest.fixture
def handed_in(tmp_path):
    """Two learners whose submissions take no process."""
    folder = tmp_path / "handed-in"
    folder.mkdir()
    (folder / "ann.ipynb").write_text("{")
    (folder / "Bob Zoë_12345.ipynb").write_text('{"cells": []}')
    (tmp_path / "out").mkdir()
    return folder


def test_points_and_comments_by_hand_survive_a_regrade(tiny, handed_in, tmp_path):
    out, told = tmp_path / "out", []
    text = f"\ufeff{HEAD}ann,triangle,2.5,by mail: nearly\nann,,,<b>Welcome</b>\nzoe,steps,1,\n"
    (out / "overrides.csv").write_text(text, encoding="utf-8")
    results, _ = grade_batch(tiny, handed_in, out, tell=told.append)
    assert told == ["overrides.csv: zoe has no row"]
    ann = next(result for result in results if result["student"] == "ann")
    assert (ann["score"], ann["tasks"]["triangle"]["verdict"], ann["comment"]) == (2.5, "by hand", "<b>Welcome</b>")
    page = text_of(out / "feedback/ann.html")
    for said in ("2.5 of 8 points", "2.5 of 4", "by hand", "by mail: nearly", "<b>Welcome</b>", "damaged"):
        assert said in page
    assert rows_of(out / "grades.csv")[1] | {"triangle": "2.5", "score": "2.5"} == rows_of(out / "grades.csv")[1]
    assert json.loads((out / "results/ann.json").read_text())["result"]["score"] == 0
    (handed_in / "ann.ipynb").write_text("[")
    (out / "overrides.csv").write_text(HEAD.replace(",", ";") + "ann;triangle;3,5;\n")  # as Excel writes it in German
    assert max(result["score"] for result in grade_batch(tiny, handed_in, out)[0]) == 3.5
    (out / "overrides.csv").unlink()
    assert not any(result["score"] for result in grade_batch(tiny, handed_in, out)[0])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("overrides.csv", HEAD + "ann,triangel,1,\n", r"line 2: task triangel is none of steps, triangle, total"),
        ("overrides.csv", HEAD + "ann,steps,2.5,\n", r"line 2: points must be from 0 to 2, got 2\.5"),
        ("overrides.csv", HEAD + "ann,steps,nan,\n", r"line 2: points must be from 0 to 2, got nan"),
        ("overrides.csv", HEAD + "ann,,1,\n", r"line 2: points must be those of a task, got 1"),
        ("overrides.csv", HEAD + "ann,steps\n", r"line 2: has another number of columns"),
        ("overrides.csv", "student_id,task\n", r"overrides\.csv: the column points is missing"),
        ("roster.csv", "student_id,mail\n", r"roster\.csv: the column mail is none of student_id, last_name"),
        ("roster.csv", "student_id\nann\nann\n", r"line 3: ann is there twice"),
        ("roster.csv", "student_id,email\n,a@b\n", r"line 2: student_id is empty"),
        ("roster.csv", "student_id,due\nann,tomorrow\n", r"line 2: due must be like 2026-12-01 18:00, got tomorrow"),
        ("roster.csv", "student_id,due,handed_in\nann,2026-12-01 18:00,2026-12-01T18:00Z\n", r"line 2: of handed_in"),
        ("roster.csv", '"student_id' + 200_000 * " ", r"field larger .*quotation"),
        ("roster.csv", 'student_id\n"ann' + 200_000 * " ", r"line \d+: field larger .*quotation"),
        ("roster.csv", b"student_id\n\xff", r"roster\.csv: not UTF-8"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_is_named_before_anything_is_graded(tiny, handed_in, tmp_path, name, text, said):
    csv.field_size_limit(131_072)  # Python's own, which some package changes
    (tmp_path / "out" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RecordsError, match=said):
        grade_batch(tiny, handed_in, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == [name]


def test_a_roster_gives_names_rows_for_the_absent_and_exports(tiny, handed_in, tmp_path):
    out, told = tmp_path / "out", []
    (handed_in / "eve.ipynb").write_text("{")
    (out / "roster.csv").write_text(
        "student_id,last_name,first_name,email,SIS User ID\n"
        "7,Zoë,Bob,bob@school.example,s7\nann,Lee,Ann,ann@school.example,s1\ncyd,=1+1,Cyd,cyd@school.example,s3\n",
        encoding="utf-8",
    )
    (out / "overrides.csv").write_text(HEAD + "ann,steps,1,Good start\n")
    grade_batch(tiny, handed_in, out, tell=told.append)
    assert told == ["roster.csv: eve is not in it"]
    rows = {row["student_id"]: row for row in rows_of(out / "grades.csv")}
    assert list(rows) == ["Bob Zoë_12345", "ann", "cyd", "eve"]
    assert [rows["Bob Zoë_12345"][key] for key in ("last_name", "email")] == ["Zoë", "bob@school.example"]
    assert [rows["cyd"][key] for key in ("last_name", "score")] == ["'=1+1", "0"] and rows["eve"]["email"] == ""
    assert {file.name for file in (out / "results").iterdir()} == {"ann.json", "eve.json", "Bob Zoë_12345.json"}
    assert len(list((out / "feedback").iterdir())) == 3
    overview = (out / "index.html").read_text(encoding="utf-8")
    assert records.ABSENT in overview and "cyd.html" not in overview and "school.example" not in overview
    moodle = rows_of(out / "moodle.csv")
    assert [(row["Email address"], row["A tiny lab"], row["A tiny lab (feedback)"]) for row in moodle] == [
        ("bob@school.example", "0", ""), ("ann@school.example", "1", "steps: Good start"),
        ("cyd@school.example", "0", ""),
    ]  # fmt: skip
    possible, *canvas = rows_of(out / "canvas.csv")
    assert list(possible) == ["Student", *records.CANVAS, "A tiny lab"]
    assert (possible["Student"].strip(), possible["A tiny lab"]) == ("Points Possible", "8")
    assert [(row["Student"], row["SIS User ID"], row["A tiny lab"]) for row in canvas][1] == ("Lee, Ann", "s1", "1")
    (out / "roster.csv").unlink()
    assert len(grade_batch(tiny, handed_in, out)[0]) == 3
    assert not (out / "moodle.csv").exists() and not (out / "canvas.csv").exists()


@pytest.mark.parametrize(
    ("handed_in_at", "due", "penalty"),
    [
        ("2026-12-01 18:00", "", 0), ("2026-12-01 18:01", "", 0.8), ("2026-12-02 18:00", "", 0.8),
        ("2026-12-02 18:00:01", "", 1.6), ("2026-12-31 00:00", "", 2), ("2026-12-31 00:00", "2027-01-01 00:00", 0),
        ("", "", 0),
    ],
)  # fmt: skip
def test_what_was_handed_in_late_loses_points_by_the_rule(edited, handed_in, tmp_path, handed_in_at, due, penalty):
    lab, out = edited("grading.yaml", "seed: 7", LATE), tmp_path / "out"
    (out / "roster.csv").write_text(f"student_id,handed_in,due\nann,{handed_in_at},{due}\n")
    (out / "overrides.csv").write_text(HEAD + "ann,triangle,4,\n")
    grade_batch(lab, handed_in, out)
    row = rows_of(out / "grades.csv")[1]
    found = [float(row[key]) for key in ("raw_score", "late_submission_penalty", "score")]
    assert found == [4, penalty, 4 - penalty]
    assert row["duedate"] == (f"{due}:00" if due else "2026-12-01 18:00:00")
    assert ("because you handed in at" in text_of(out / "feedback/ann.html")) == bool(penalty)


def test_a_penalty_takes_no_more_than_there_is_and_its_rule_is_checked(edited, handed_in, tmp_path):
    lab = edited("grading.yaml", "seed: 7", LATE)
    (tmp_path / "out/roster.csv").write_text("student_id,handed_in\nann,2027-12-01\n")
    grade_batch(lab, handed_in, tmp_path / "out")
    assert {row["score"] for row in rows_of(tmp_path / "out/grades.csv")} == {"0"}
    (tmp_path / "out/roster.csv").write_text("student_id,handed_in\nann,2027-12-01T00:00+01:00\n")
    with pytest.raises(RecordsError, match="one has a time zone"):
        grade_batch(lab, handed_in, tmp_path / "out")
    with pytest.raises(LabError, match=r"late\.due"):
        edited("grading.yaml", "2026-12-01 18:00", "soon")


def test_one_learner_is_graded_again_and_nobody_else(tiny, handed_in, tmp_path):
    out = tmp_path / "out"
    grade_batch(tiny, handed_in, out)
    before = {file.name: file.stat().st_mtime_ns for file in (out / "results").iterdir()}
    other = (out / "results/Bob Zoë_12345.json").read_bytes()
    for file in handed_in.iterdir():
        file.write_text("[]")
    (handed_in / "cyd.ipynb").write_text("[")  # who has no result gets one: there is always a row for each
    results, _ = grade_batch(tiny, handed_in, out, only=["ann"])
    assert "not a notebook" in next(one for one in results if one["student"] == "ann")["problem"] and len(results) == 3
    assert (out / "results/Bob Zoë_12345.json").read_bytes() == other
    now = {file.name: file.stat().st_mtime_ns for file in (out / "results").iterdir()}
    assert now["ann.json"] > before["ann.json"] and now["Bob Zoë_12345.json"] == before["Bob Zoë_12345.json"]
    grade_batch(tiny, handed_in, out)
    assert (out / "results/Bob Zoë_12345.json").read_bytes() != other
    with pytest.raises(BatchError, match="--only dan: is not among"):
        grade_batch(tiny, handed_in, out, only=["dan"])
    with pytest.raises(BatchError, match="--task rates: is none of steps, triangle, total"):
        grade_batch(tiny, handed_in, out, tasks=["rates"])


def test_one_task_is_graded_again_and_the_others_keep_their_points(tiny, edited, tmp_path):
    (tmp_path / "handed-in").mkdir()
    file, out = tmp_path / "handed-in/ann.ipynb", tmp_path / "out"
    file.write_text(json.dumps(filled_in(tiny, **tiny.solutions | {"steps": "steps = 45", "total": "total = 1 / 0"})))
    first, _ = grade_batch(tiny, file.parent, out, sandboxed=False)
    assert first[0]["score"] == 4 and list(first[0]["errors"]) == ["total"]
    lab = edited("grading.yaml", "triangle:\n    title: A schedule", "triangle:\n    title: Its schedule")
    right = tiny.solutions | {"triangle": tiny.stubs["triangle"]}
    file.write_text(json.dumps(filled_in(tiny, **right)))
    [merged], _ = grade_batch(lab, file.parent, out, sandboxed=False, tasks=["steps"])
    assert [entry["points"] for entry in merged["tasks"].values()] == [2, 4, 0] and merged["score"] == 6
    assert list(merged["errors"]) == ["total"] and merged["tasks"]["triangle"]["title"] == "A schedule"
    [merged], _ = grade_batch(lab, file.parent, out, sandboxed=False, tasks=["triangle"])  # and what needs it
    assert [entry["verdict"] for entry in merged["tasks"].values()] == ["right", "not done", "blocked by triangle"]
    [whole], _ = grade_batch(lab, file.parent, out, sandboxed=False)
    assert whole["tasks"]["steps"]["points"] == 2 and whole == merged | {"errors": whole["errors"]}


def test_the_answers_can_be_written_for_a_tool_that_finds_copies(tiny, handed_in, tmp_path):
    (handed_in / "eve.ipynb").write_text(json.dumps(filled_in(tiny, steps="steps = '\ud800'", total="total = 1")))
    grade_batch(tiny, handed_in, tmp_path / "out", sandboxed=False, sources=tmp_path / "copies")
    written = {str(file.relative_to(tmp_path / "copies")): file.read_text(encoding="utf-8")
               for file in (tmp_path / "copies").rglob("*.py")}  # fmt: skip
    assert set(written) == {"answers/eve.py", "boilerplate/stubs.py"}  # of the others no answer can be read
    assert "# steps\nsteps = '\\ud800'\n\n# triangle\n" in written["answers/eve.py"]
    assert all(stub in written["boilerplate/stubs.py"] for stub in tiny.stubs.values())
    assert not any("copies" in name.name for name in (tmp_path / "out").iterdir())


def test_a_task_by_hand_is_counted_by_its_points(tiny):
    assert [report.verdicts.outcome("by hand", *points) for points in ((4, 4), (1, 4), (0, 4))] == [
        "all points", "some points", "no points",
    ]  # fmt: skip
    assert batch.OURS.isdisjoint(records.KEPT)
