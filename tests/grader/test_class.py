"""A class of thirty, from release to feedback by the commands of the instructor's chapter: the tiny lab's.

What it must end with: no wrong point, no crash, nothing written beside the output, no packet sent, no process left.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.grader import class_of

REPO = Path(__file__).resolve().parents[2]
LAB = "tests/grader/tiny"
PORT = "17113"  # of the server that the hostile ones call
UNWATCHED = {".git", ".venv", "_build", "data", "runs", "__pycache__", ".pytest_cache", ".ruff_cache"}

pytestmark = pytest.mark.usefixtures("sandboxed")


def listing(*folders):
    """Size and time of every file in these folders."""
    found = {}
    for top in folders:
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if name not in UNWATCHED]
            for path in (Path(folder, name) for name in [*names, *files]):
                about = path.lstat()
                found[str(path)] = None if path.is_dir() else (about.st_size, about.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The class, graded: {"folder", "expected", "told" by alone.py, "before", "after"}."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(REPO)}
    environment = os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"}

    def run(*command, before=()):
        command = [*before, sys.executable, *map(str, command)]
        return subprocess.run(command, cwd=REPO, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    watched = [REPO, folder / "home", folder / "tmp"]
    before = listing(*watched)
    run("-m", "labkit", "release", LAB, folder / "handout")
    notebook = folder / "handout/lab-tiny.ipynb"
    server = f"127.0.0.1:{PORT}"
    run("-m", "tests.grader.class_of", "tiny", folder / "class", "--notebook", notebook, "--address", server)
    expected = json.loads((folder / "class/expected.json").read_text())
    grade = ["-m", "labkit", "grade", LAB, folder / "class/submissions", "-o", folder / "grades", "--jobs", "2"]
    apart = ["unshare", "--net"] if os.geteuid() == 0 else []
    alone = "tests/grader/alone.py"
    told = json.loads(run(alone, PORT, sys.executable, *grade, before=apart)) | {"apart": bool(apart)}
    return {"folder": folder, "expected": expected, "told": told, "before": before, "after": listing(*watched)}


@pytest.fixture(scope="module")
def results(course):
    found = json.loads((course["folder"] / "grades/grades.json").read_text())["results"]
    return {result["student"]: result for result in found}


def test_thirty_of_four_kinds_are_graded(course, results):
    kinds = [student["kind"] for student in course["expected"].values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"right": 8, "partly right": 5, "wrong": 5, "hostile": 12}
    assert course["told"]["status"] == 0
    assert set(results) == set(course["expected"])


def test_no_point_is_wrong(course, results):
    expected = {student: wanted["tasks"] for student, wanted in course["expected"].items()}
    found = {name: {task: entry["points"] for task, entry in one["tasks"].items()} for name, one in results.items()}
    assert found == expected
    assert {name: one["score"] for name, one in results.items()} == {
        name: wanted["score"] for name, wanted in course["expected"].items()
    }


def test_verdicts_of_the_hostile(course, results):
    verdicts = {}
    for student, wanted in course["expected"].items():
        if wanted["kind"] == "hostile":
            lost = [entry["verdict"] for entry in results[student]["tasks"].values() if not entry["points"]]
            verdicts[wanted["what"]] = lost
    assert verdicts.pop("a fork bomb") in (["timed out"], ["error"], ["crashed"])  # it depends on who gives up first
    assert verdicts.pop("huge output") in (["timed out"], ["crashed"])
    assert verdicts == {
        "os._exit": ["crashed"],
        "an infinite loop": ["timed out"],
        "a memory bomb": ["crashed"],
        "a network call": ["error"],
        "reads the solution": ["error"],
        "a network call that hides its failure": [],
        "edited checks": ["not done"],
        "copied outputs": ["not done"],
        "broken JSON": ["missing"] * 3,
        "a kernel of R": ["missing"] * 3,
    }
    assert [name for name, one in results.items() if one["problem"]] == [
        name for name, wanted in course["expected"].items() if wanted["unreadable"]
    ]


def test_grades_csv_has_a_row_for_each(course):
    with open(course["folder"] / "grades/grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(course["expected"])
    for student, wanted in course["expected"].items():
        row = rows[student]
        assert (float(row["score"]), float(row["max_score"])) == (wanted["score"], 8)
        assert {task: float(row[task]) for task in wanted["tasks"]} == wanted["tasks"]


def test_everyone_gets_feedback(course):
    folder = course["folder"] / "grades"
    pages = {page.stem: page.read_text() for page in (folder / "feedback").glob("*.html")}
    assert set(pages) == set(course["expected"])
    for student, wanted in course["expected"].items():
        assert f"{wanted['score']:g} of 8 points" in pages[student]
    overview = (folder / "index.html").read_text()
    assert all(f"feedback/{student}.html" in overview for student in pages)
    assert (folder / "overview.svg").stat().st_size > 1000


def test_the_copy_is_flagged(course):
    overview = (course["folder"] / "grades/index.html").read_text()
    identical = overview.split("Identical answers</h2>")[1].split("<h2>")[0]
    named = [student for student in course["expected"] if student in identical]
    what = [course["expected"][student]["what"] for student in named]
    assert what == ["a folder with a Run", "a copy of the third, its metadata lost"]


def test_nothing_is_written_elsewhere(course):
    assert course["after"] == course["before"]
    assert {path.name for path in course["folder"].iterdir()} == {"home", "tmp", "handout", "class", "grades"}


def test_no_packet_is_sent(course):
    told = course["told"]
    assert told["connections"] == 0
    assert told["packets of one call"] > 0, "the counter of packets does not count"
    if told["apart"]:  # nobody else could send one
        assert told["packets"] == 0


def test_no_process_is_left(course):
    assert course["told"]["left"] == []


def test_the_class_is_the_same_each_time(tmp_path):
    lab = class_of.load("tiny")
    for name in ("one", "two"):
        class_of.write(lab, tmp_path / name, class_of.members(lab), class_of.labs.learners(lab.notebook))
    one, two = (listing_of_bytes(tmp_path / name) for name in ("one", "two"))
    assert one == two and len(one) == 31


def listing_of_bytes(top):
    return {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
