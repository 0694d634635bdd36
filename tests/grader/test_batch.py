"""`labkit grade` on a class of the tiny lab: graded, interrupted, resumed, refused."""

import json
import os
import shutil
import signal
import subprocess
import time
import zipfile

import psutil
import pytest
from running import LABKIT, contents, labkit

from grader import answers, batch, grade, sandbox
from grader.batch import grade_batch
from labkit.system.errors import LabkitError
from labkit.system.files import locked
from tests.grader.conftest import TINY, filled_in

# It leaves by the back door, and takes along all that it may.
HOSTILE = """
import os, signal
for victim in (-1, os.getppid()):
    try:
        os.kill(victim, signal.SIGKILL)
    except OSError:
        pass
os._exit(0)
"""
WRONG = "def triangle(steps, lr_max):\n    return np.full(steps, lr_max, np.float32)"
POINTS = {"ann": 8.0, "bob": 0.0, "cyd": 3.0, "dan": 2.0, "eve": 0.0, "fay": 8.0}


def started(*arguments, cwd):
    return subprocess.Popen(
        [*LABKIT, "grade", *map(str, arguments)], cwd=cwd, env=os.environ | {"TMPDIR": str(cwd)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in background
    )  # fmt: skip


def notebook(lab, **given):
    return json.dumps(filled_in(lab, **given))


@pytest.fixture(scope="module")
def handed_in_by_all(tiny, tmp_path_factory):
    """Submissions of six learners: right, blank, wrong, hostile, broken, and right in a zip."""
    folder = tmp_path_factory.mktemp("class") / "handed-in"
    folder.mkdir()
    right = tiny.solutions
    (folder / "ann.ipynb").write_text(notebook(tiny, **right))
    (folder / "bob.ipynb").write_text(notebook(tiny))
    (folder / "cyd").mkdir()
    (folder / "cyd" / "lab.ipynb").write_text(notebook(tiny, **right | {"triangle": WRONG}))
    (folder / "dan.ipynb").write_text(notebook(tiny, **right | {"triangle": HOSTILE}))
    (folder / "eve.ipynb").write_text(notebook(tiny, **right)[:-9])
    with zipfile.ZipFile(folder / "fay.zip", "w") as archive:
        archive.writestr("lab.ipynb", notebook(tiny, **right))
    return folder


@pytest.fixture(scope="module")
def graded(handed_in_by_all, sandboxed, tmp_path_factory):
    """The class, graded two at a time: folder of results, what was printed."""
    place = tmp_path_factory.mktemp("graded")
    before = contents(handed_in_by_all)
    process = started(TINY, handed_in_by_all, "-o", "out", "--jobs", 2, cwd=place)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert contents(handed_in_by_all) == before
    assert {entry.name for entry in place.iterdir()} == {"out"}  # TMPDIR and working folder
    return place / "out", output


def test_a_class_is_graded(graded):
    out, output = graded
    results = {file.stem: json.loads(file.read_text())["result"] for file in (out / "results").iterdir()}
    assert {student: result["score"] for student, result in results.items()} == POINTS
    verdicts = {student: [task["verdict"] for task in result["tasks"].values()] for student, result in results.items()}
    assert verdicts["dan"] == ["right", "crashed", "blocked by triangle"]
    assert verdicts["cyd"] == ["right", "partly right", "wrong"]
    assert verdicts["bob"] == ["not done"] * 3
    assert results["eve"]["problem"].startswith("eve.ipynb: damaged")
    assert "6 graded, A tiny lab" in output and "no points: eve: eve.ipynb: damaged" in output
    assert {file.name for file in (out / "feedback").iterdir()} == {f"{student}.html" for student in POINTS}
    today = time.strftime("%Y-%m-%d").encode()
    for name, data in contents(out).items():
        assert today not in data and str(out).encode() not in data and b"handed-in" not in data, name


def test_grading_again_computes_nothing_and_changes_nothing(tiny, graded, handed_in_by_all, monkeypatch):
    before = contents(graded[0])
    monkeypatch.setattr(grade, "references", None)  # nothing is executed
    grade_batch(tiny, handed_in_by_all, graded[0])
    assert contents(graded[0]) == before


def test_an_interrupted_batch_continues_where_it_was(graded, handed_in_by_all, tmp_path):
    """Ended by each signal after another result; in the end all results are as if nothing had happened."""
    out, kept = tmp_path / "out", {}
    place = shutil.copytree(handed_in_by_all, tmp_path / "handed-in", ignore=shutil.ignore_patterns("dan*"))
    for signalled, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        process = started(TINY, place, "-o", "out", "--jobs", 1, cwd=tmp_path)
        deadline = time.monotonic() + 100
        while len(_executed(out)) <= len(kept):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signalled)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == status, errors
        assert "Traceback" not in errors
        assert signalled == signal.SIGKILL or "Continue with: labkit grade" in errors
        assert not psutil.wait_procs(below, timeout=60)[1]
        now = _executed(out)
        assert kept.items() <= now.items()  # what there was has not been written again
        kept = now
    assert len(kept) >= 2 and not (out / "grades.csv").exists()
    process = started(TINY, place, "-o", "out", cwd=tmp_path)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    wanted = contents(graded[0] / "results")
    assert contents(out / "results") == {name: data for name, data in wanted.items() if name != "dan.json"}


def _executed(out):
    """Times of the results that there are."""
    return {file.name: file.stat().st_mtime_ns for file in out.glob("results/*.json")}


def test_whatever_is_raised_costs_one_row_and_is_tried_again(tiny, broken, tmp_path, monkeypatch):
    """The grader's own failure: the row says so, the log has the traceback, the next grading tries again."""
    read = answers.read

    def fails_at_one(lab, notebooks):
        if notebooks[0].name == "ann.ipynb":
            raise MemoryError("a bug\nof the grader")
        return read(lab, notebooks)

    monkeypatch.setattr(answers, "read", fails_at_one)
    done = labkit("grade", TINY, broken, "-o", tmp_path / "out", "--no-sandbox")
    assert done.exit_code == 1 and "NOT GRADED, 0 points until then: ann: a bug of the grader" in done.stderr
    rows = (tmp_path / "out" / "grades.csv").read_text().splitlines()
    assert len(rows) == 3
    log = (tmp_path / "out" / batch.LOG).read_text()
    assert log.startswith("ann\nTraceback") and "MemoryError" in log and "bob" not in log
    monkeypatch.undo()
    results, failed = grade_batch(tiny, broken, tmp_path / "out", sandboxed=False)
    assert not failed and results[0]["problem"].startswith("ann.ipynb: damaged")
    assert not (tmp_path / "out" / batch.LOG).exists()


def test_late_ones_are_taken_in_and_what_changed_is_graded_again(tiny, broken, tmp_path, monkeypatch):
    graded = []

    def grade_one(lab, student, *_):
        graded.append(student)
        return grade.nothing(lab, student, "")

    def again(**options):
        graded.clear()
        grade_batch(tiny, broken, tmp_path / "out", sandboxed=False, **options)
        return graded

    monkeypatch.setattr(grade, "references", lambda *_: {})
    monkeypatch.setattr(grade, "grade_one", grade_one)
    assert again() == []
    (broken / "cyd.ipynb").write_text(notebook(tiny))
    assert again() == ["cyd"]
    assert again() == []
    assert again(seed=8) == ["cyd"]
    (broken / "cyd.ipynb").write_text(notebook(tiny, steps="steps = 1"))
    assert again(seed=8) == ["cyd"]
    monkeypatch.setattr(batch, "_code", lambda lab: "another labkit")
    assert again(seed=8) == ["cyd"]


def test_all_code_and_the_lab_decide_a_grade(tiny, edited, tmp_path, monkeypatch):
    assert batch._code(edited("grading.yaml", "points: 3", "points: 2")) != batch._code(tiny)
    monkeypatch.setattr(batch, "REPO", tmp_path)
    (tmp_path / "labkit").mkdir()
    before = batch._code(tiny)
    (tmp_path / "labkit" / "losses.py").write_text("# another")
    assert batch._code(tiny) != before


def test_what_no_grading_may_overwrite_is_refused(tiny, broken, tmp_path):
    def refused(place, out, said, lab=tiny):
        before = contents(tmp_path)
        with pytest.raises(LabkitError, match=said):
            grade_batch(lab, place, out, sandboxed=False)
        assert contents(tmp_path) == before

    out = tmp_path / "out"
    grade_batch(tiny, broken, out, sandboxed=False)
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    (fewer / "ann.ipynb").write_text("{")
    refused(fewer, out, "graded before, but not among the submissions: bob; grade all together, delete .*NAME.json")
    refused(broken, broken / "out", "choose a folder that neither contains nor is in the submissions")
    refused(out, out, "choose a folder that neither contains nor is in the submissions")
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.md").write_text("x")
    refused(broken, other, "contains thesis.md, but no earlier grading")
    with locked(out, LabkitError("")):
        refused(broken, out, "another grading into this folder is under way")
    result = json.loads((out / "results" / "ann.json").read_text())
    (out / "results" / "ann.json").write_text(json.dumps(result | {"key": {"lab": "thor"}}))
    refused(broken, out, "contains a grading of the lab thor")


def test_without_a_sandbox_nothing_is_graded_unless_told(broken, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bwrap is not installed (package bubblewrap)")
    done = labkit("grade", TINY, broken, "-o", tmp_path / "out")
    assert done.exit_code == 1 and "no sandbox: bwrap is not installed (package bubblewrap)" in done.stderr
    assert "install bubblewrap" in done.stderr and not (tmp_path / "out").exists()
    done = labkit("grade", TINY, broken, "-o", tmp_path / "out", "--no-sandbox")
    assert done.exit_code == 0 and "WARNING: without a sandbox" in done.stderr


def test_the_answers_can_be_written_for_a_tool_that_finds_copies(tiny, broken, tmp_path):
    (broken / "cyd.ipynb").write_text(notebook(tiny, steps="steps = '\udc80'"))
    copies = tmp_path / "copies"
    grade_batch(tiny, broken, tmp_path / "out", sandboxed=False, sources=copies)
    assert sorted(contents(copies)) == ["answers/cyd.py", "boilerplate/stubs.py"]
    text = (copies / "answers/cyd.py").read_text()
    assert text.startswith("# steps\nsteps = '\\udc80'\n\n# triangle\n") and tiny.stubs["total"] in text


@pytest.mark.slow  # a Run is trained
def test_a_run_in_a_zip_is_graded_and_graded_again_when_it_changes(run_lab, trained, tmp_path, sandboxed):
    shutil.copytree(trained, tmp_path / "ann" / "run")
    (tmp_path / "in").mkdir()

    def graded_as():
        (tmp_path / "ann" / "lab.ipynb").write_text(notebook(run_lab, **run_lab.solutions))
        shutil.make_archive(tmp_path / "in" / "ann", "zip", tmp_path / "ann")
        (result,), failed = grade_batch(run_lab, tmp_path / "in", tmp_path / "out")
        assert not failed
        return result["tasks"]["run"]["verdict"], result["score"]

    assert graded_as() == ("right", 14)
    (tmp_path / "ann" / "run" / "summary.json").write_text("{}")
    assert graded_as() == ("partly right", 13)
