"""What an instructor adds to grades: a roster, and points by hand."""

import csv
import io
import json

import pytest
from bs4 import BeautifulSoup

from grader import records
from grader.batch import grade_batch
from labkit.system.errors import LabkitError

HEAD = "student_id,task,points,comment\n"


def rows_of(file):
    return list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline="")))


@pytest.fixture
def handed_in(broken, tmp_path):
    (tmp_path / "out").mkdir()
    (broken / "bob.ipynb").rename(broken / "Bob Zoë_12345.ipynb")
    return broken


def test_points_and_comments_by_hand_survive_a_regrade(tiny, handed_in, tmp_path):
    out, told = tmp_path / "out", []
    text = f"\ufeff{HEAD}ann,triangle,2.5,by mail: nearly\nann,,,<b>Welcome</b>\nzoe,steps,1,\n"
    (out / "overrides.csv").write_text(text, encoding="utf-8")
    results, _ = grade_batch(tiny, handed_in, out, notify=told.append)
    assert told == ["overrides.csv: zoe has no result"]
    ann = next(result for result in results if result["student"] == "ann")
    assert (ann["score"], ann["tasks"]["triangle"]["verdict"], ann["comment"]) == (2.5, "by hand", "<b>Welcome</b>")
    page = BeautifulSoup((out / "feedback/ann.html").read_text(), "html.parser").get_text(" ", strip=True)
    for said in ("2.5 of 8 points", "2.5 of 4", "by hand", "by mail: nearly", "<b>Welcome</b>", "damaged"):
        assert said in page
    assert rows_of(out / "grades.csv")[1] | {"triangle": "2.5", "score": "2.5"} == rows_of(out / "grades.csv")[1]
    assert json.loads((out / "results/ann.json").read_text())["result"]["score"] == 0
    (handed_in / "ann.ipynb").write_text("[")
    (out / "overrides.csv").write_text(HEAD.replace(",", ";") + "ann;triangle;3,5;\n")  # as Excel writes it in German
    assert max(result["score"] for result in grade_batch(tiny, handed_in, out)[0]) == 3.5
    (out / "overrides.csv").unlink()
    assert not any(result["score"] for result in grade_batch(tiny, handed_in, out)[0])


def test_names_are_matched_as_they_were_handed_in(tiny, handed_in, tmp_path):
    """With tabs, a heading spelt otherwise, names of every kind, and those of Moodle and Canvas."""
    names = ["阿卜杜拉·买买提", "山田\u3000太郎", "Müller & Sohn", "x" * 200]
    for name in (*names, "Anna·Maria Rossi_1234_assignsubmission_file_lab", "leeann_12345_67890_lab"):
        (handed_in / f"{name}.ipynb").write_text("{")
    (handed_in / "12345.ipynb").write_text("{")  # not the person without a name
    rows = ["777\t\t", *(f"{name}\t\t" for name in names), "5\tAnna·Maria\tRossi", "6\tAnn\tLee", "7\tBob\tZoë"]
    text = "\n".join(["Student_ID\tFirst name\tlast_name", *rows])
    (tmp_path / "out" / "roster.csv").write_text(text, encoding="utf-8")
    told = []
    results, _ = grade_batch(tiny, handed_in, tmp_path / "out", notify=told.append)
    assert set(told) == {"roster.csv: ann is not in it", "roster.csv: 12345 is not in it"}
    assert [result["student"] for result in results if result["problem"] == records.ABSENT] == ["777"]
    assert len(results) == 10


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("overrides.csv", HEAD + "ann,triangel,1,\n", r"line 2: unknown task triangel; known: steps, triangle, total"),
        ("overrides.csv", HEAD + "ann,steps,2.5,\n", r"line 2: points must be from 0 to 2, got 2\.5"),
        ("overrides.csv", HEAD + "ann,,1,\n", r"line 2: points must be given for a task, got 1"),
        ("overrides.csv", HEAD + "ann,steps\n", r"line 2: does not have as many columns"),
        ("overrides.csv", "student_id,task\n", r"overrides\.csv: the column points is missing"),
        ("roster.csv", "student_id,email\n,a@b\n", r"line 2: student_id is empty"),
        ("roster.csv", 'student_id\n"ann' + 200_000 * " ", r"line \d+: field larger .*quotation"),
        ("roster.csv", b"student_id\n\xff", r"roster\.csv: not UTF-8"),
        ("roster.csv", "student_id\rann\rann\r", r"line 3: ann is there twice"),
        ("roster.csv", "student_id,email,Email\n", r"roster\.csv: the column email is there twice"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_is_named_before_anything_is_graded(tiny, handed_in, tmp_path, name, text, said):
    csv.field_size_limit(131_072)  # Python's own, which some package changes
    (tmp_path / "out" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LabkitError, match=said):
        grade_batch(tiny, handed_in, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == [name]


def test_a_roster_gives_its_columns_and_rows_for_the_absent(tiny, handed_in, tmp_path):
    out, told = tmp_path / "out", []
    (handed_in / "eve.ipynb").write_text("{")
    (out / "roster.csv").write_text(
        "student_id,last_name,first_name,email,SIS User ID\n"
        "7,Zoë,Bob,bob@school.example,s7\nann,Lee,Ann,ann@school.example,s1\ncyd,=1+1,Cyd,cyd@school.example,s3\n",
        encoding="utf-8",
    )
    grade_batch(tiny, handed_in, out, notify=told.append)
    assert told == ["roster.csv: eve is not in it"]
    rows = {row["student_id"]: row for row in rows_of(out / "grades.csv")}
    assert list(rows) == ["Bob Zoë_12345", "ann", "cyd", "eve"]
    wanted = {"last_name": "Zoë", "email": "bob@school.example", "SIS User ID": "s7"}
    assert wanted.items() <= rows["Bob Zoë_12345"].items()
    assert [rows["cyd"][key] for key in ("last_name", "score")] == ["'=1+1", "0"] and rows["eve"]["email"] == ""
    assert len(list((out / "results").iterdir())) == len(list((out / "feedback").iterdir())) == 3
    overview = (out / "index.html").read_text(encoding="utf-8")
    assert records.ABSENT in overview and "cyd.html" not in overview and "school.example" not in overview
