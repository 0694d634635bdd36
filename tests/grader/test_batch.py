"""`labkit grade` on a class of the tiny lab: by processes, by a real Dask cluster, interrupted, resumed, refused."""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from grader import batch, digests, executors, handed_in, sandbox, work
from grader.batch import BatchError, grade_batch
from grader.lab import load
from labkit.cli import main
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from tests.grader.conftest import TINY, filled_in, with_run

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')"]
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


def command(*arguments):
    return [*LABKIT, "grade", *map(str, arguments)]


def started(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(REPO), "TMPDIR": str(cwd)}
    return subprocess.Popen(
        command(*arguments), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in background
    )  # fmt: skip


def tree(folder):
    """Bytes of all files below a folder, by path."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def notebook(lab, **answers):
    return json.dumps(filled_in(lab, **answers))


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
    """The class, graded by two processes: folder of results, what was printed, what else was in the working folder."""
    place = tmp_path_factory.mktemp("graded")
    before = tree(handed_in_by_all)
    process = started(TINY, handed_in_by_all, "-o", "out", "--jobs", 2, cwd=place)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert tree(handed_in_by_all) == before
    return place / "out", output, errors


def test_a_class_is_graded(graded):
    out, output, errors = graded
    results = {file.stem: json.loads(file.read_text())["result"] for file in (out / "results").iterdir()}
    assert {student: result["score"] for student, result in results.items()} == POINTS
    assert all(result["max_score"] == 8 for result in results.values())
    verdicts = {student: [task["verdict"] for task in result["tasks"].values()] for student, result in results.items()}
    assert verdicts["dan"] == ["right", "crashed", "blocked by triangle"]
    assert verdicts["cyd"] == ["right", "partly right", "wrong"]
    assert verdicts["bob"] == ["not done"] * 3
    assert results["eve"]["problem"].startswith("eve.ipynb: damaged")
    assert "6 graded, A tiny lab" in output and "eve: eve.ipynb: damaged" in output and str(Path("out")) in output
    graded_last = re.findall(r" 6/6 .*, (\w+)\]", errors)  # the bar skips the names of those that end together
    assert graded_last and set(graded_last) <= POINTS.keys() - {"eve"}, errors


def test_nothing_is_written_beside_the_folder_and_no_scratch_is_left(graded):
    out = graded[0]
    assert {entry.name for entry in out.parent.iterdir()} == {"out"}  # TMPDIR and working folder
    assert {entry.name for entry in out.iterdir()} == batch.OURS - {batch.SCRATCH} - {f"{n}.part" for n in batch.FILES}
    assert {file.name for file in (out / "feedback").iterdir()} == {f"{student}.html" for student in POINTS}


def test_no_time_and_no_machine_stands_in_what_is_written(graded):
    today = time.strftime("%Y-%m-%d").encode()
    for name, data in tree(graded[0]).items():
        assert today not in data and str(graded[0]).encode() not in data and b"handed-in" not in data, name


def test_grading_again_computes_nothing_and_changes_nothing(graded, handed_in_by_all):
    out = graded[0]
    before, times = tree(out), {file: file.stat().st_mtime_ns for file in (out / "results").iterdir()}
    started_at = time.monotonic()
    process = started(TINY, handed_in_by_all, "-o", "out", cwd=out.parent)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert output == graded[1]
    assert tree(out) == before and times == {file: file.stat().st_mtime_ns for file in times}
    assert "the master" not in errors, time.monotonic() - started_at


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


def test_a_dask_cluster_writes_the_same_bytes(graded, handed_in_by_all, cluster, tmp_path):
    process = started(TINY, handed_in_by_all, "-o", "out", "--scheduler", cluster.scheduler_address, cwd=tmp_path)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert tree(tmp_path / "out") == tree(graded[0])


def test_an_interrupted_batch_goes_on_where_it_was(graded, handed_in_by_all, tmp_path):
    """Ended by each signal after another result; in the end all results are as if nothing had happened."""
    out, kept = tmp_path / "out", {}
    place = shutil.copytree(handed_in_by_all, tmp_path / "handed-in", ignore=shutil.ignore_patterns("dan*"))
    for signalled, status in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
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
        assert (out / batch.SCRATCH).exists() == (signalled == signal.SIGKILL)
        assert {entry.name for entry in tmp_path.iterdir()} == {"handed-in", "out"}
        now = _executed(out)
        assert kept.items() <= now.items()  # what there was has not been written again
        kept = now
    assert len(kept) >= 3 and not (out / "grades.csv").exists()
    process = started(TINY, place, "-o", "out", cwd=tmp_path)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    wanted = tree(graded[0] / "results")
    assert tree(out / "results") == {name: data for name, data in wanted.items() if name != "dan.json"}
    assert len(tree(out / "feedback")) == 5 and (out / "grades.csv").read_text().count("\n") == 6


def _executed(out):
    """Times of the results that took a process; the broken notebook takes none."""
    return {file.name: file.stat().st_mtime_ns for file in out.glob("results/*.json") if file.name != "eve.json"}


def _sometimes(task):
    """Work of a stranger: {"name", "folder", "what"}."""
    file = Path(task["folder"], task["name"])
    with file.open("ab") as record:  # a byte a try, which is there or not: another's death may end this process here
        record.write(b".")
    tries = file.stat().st_size
    if task["what"] == "dies" or (task["what"] == "dies once" and tries == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if task["what"] == "fails" or (task["what"] == "fails once" and tries == 1):
        raise ValueError("this is a bug")
    time.sleep(0.2)
    return task["name"]


KINDS = {"a": "", "b": "dies once", "c": "fails", "d": "", "e": "dies", "f": "fails once", "g": "", "h": ""}


def _all(pool, tmp_path):
    tasks = {name: lambda name=name, what=what: {"name": name, "folder": str(tmp_path), "what": what}
             for name, what in KINDS.items()}  # fmt: skip
    found = list(pool.results(_sometimes, tasks))
    assert sorted(student for student, _, _ in found) == sorted(KINDS)
    failed = {student: error for student, _, error in found if error}
    assert {student: result for student, result, error in found if not error} == {name: name for name in "abdfgh"}
    assert failed == {"c": "ValueError: this is a bug", "e": "its process died each time"}


def test_a_process_that_dies_costs_its_own_row_only(tmp_path):
    with executors.local(2, tmp_path) as pool:
        _all(pool, tmp_path)
    assert (tmp_path / "c").stat().st_size in (2, 3)  # once more, where another has taken its process along


class ToldToEnd:
    """A result of which the process is told to end while it sends it back."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return ToldToEnd, ()


def test_a_process_that_is_told_to_end_between_two_submissions_ends(tmp_path):
    """Otherwise it waits for the next one for ever, and whoever told it waits for its end."""
    with executors.local(2, tmp_path) as pool, pytest.raises(BatchError, match="has died"):
        pool.call(ToldToEnd)


def test_a_worker_of_dask_that_dies_costs_its_own_row_only(tmp_path, tiny, cluster):
    cluster.scheduler.allowed_failures = 1
    with executors.dask(cluster.scheduler_address, tiny, sandboxed=False) as pool:
        _all(pool, tmp_path)


def test_a_cluster_that_is_not_there_or_differs_is_told(tmp_path, tiny, cluster, monkeypatch):
    def refused(reason, address=cluster.scheduler_address):
        with pytest.raises(BatchError, match=reason) as error, executors.dask(address, lab, sandboxed=False):
            pass
        assert "\n" not in str(error.value)

    folder = shutil.copytree(TINY, tmp_path / "tiny")
    lab = load("tiny", folder)
    assert lab.digest  # read before the file goes
    with monkeypatch.context() as hasty:
        hasty.setattr(executors, "PATIENCE", 2)
        refused("tcp://127.0.0.1:9: no scheduler there", "tcp://127.0.0.1:9")
    monkeypatch.setattr(digests, "all_of_labkit", lambda: "0.1.0 0123456789abcdef")
    refused(r"worker tcp://.*: labkit is .*, here .* 0123456789abcdef")
    (folder / "lab.md").unlink()
    refused(r"worker tcp://.*lab\.md: missing")
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused("pip install 'distributed")


@pytest.fixture
def broken(tmp_path):
    """Submissions that take no process: a folder, to be changed."""
    folder = tmp_path / "handed-in"
    folder.mkdir()
    (folder / "ann.ipynb").write_text("{")
    (folder / "bob.ipynb").write_text('{"cells": []}')
    return folder


def test_late_ones_are_taken_in_and_others_are_looked_at_again(tiny, broken, tmp_path):
    out = tmp_path / "out"
    results, failed = grade_batch(tiny, broken, out)
    assert [result["student"] for result in results] == ["ann", "bob"] and not failed
    times = {file.name: file.stat().st_mtime_ns for file in (out / "results").iterdir()}
    (broken / "cyd.ipynb").write_text("[")
    grade_batch(tiny, broken, out)
    assert {file.name for file in (out / "results").iterdir()} == {"ann.json", "bob.json", "cyd.json"}
    assert {file.name for file in (out / "feedback").iterdir()} == {"ann.html", "bob.html", "cyd.html"}
    assert (out / "results" / "ann.json").stat().st_mtime_ns == times["ann.json"]
    (broken / "ann.ipynb").write_text("[]")
    result = grade_batch(tiny, broken, out)[0][0]
    assert "not a notebook" in result["problem"]


def test_a_folder_without_those_graded_before_is_refused(tiny, broken, tmp_path):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    (out / "feedback" / "notes.txt").write_text("mine")
    (out / "feedback" / "mine.html.part").write_text("mine too")
    before = tree(out)
    late = tmp_path / "late"
    late.mkdir()
    (late / "cyd.ipynb").write_text("[")
    said = (
        r"out: 2 learners graded before are not among the submissions \(ann, bob\): grade all together, remove the "
        r"results with --drop ann --drop bob, or choose"
    )
    with pytest.raises(BatchError, match=said):
        grade_batch(tiny, late, out)
    shutil.copy(broken / "ann.ipynb", late)
    with pytest.raises(BatchError, match=r"1 learner graded before is not among the submissions \(bob\)"):
        grade_batch(tiny, late, out)
    assert tree(out) == before
    (broken / "ann.ipynb").write_text("[]")
    grade_batch(tiny, broken, out)  # what somebody else has put there stays
    assert {name for name in tree(out) if "mine" in name or "notes" in name} == {
        "feedback/notes.txt", "feedback/mine.html.part",
    }  # fmt: skip


def test_who_is_dropped_is_gone_from_the_grades(tiny, broken, tmp_path):
    out, told = tmp_path / "out", []
    (broken / "bob.ipynb").rename(broken / "Zoë Q.ipynb")
    grade_batch(tiny, broken, out)
    with pytest.raises(BatchError, match=r"--drop ann: is among the submissions: take it out of .*handed-in first"):
        grade_batch(tiny, broken, out, drop=["ann"])
    (broken / "Zoë Q.ipynb").rename(broken / "bob.ipynb")
    before = tree(out)
    with pytest.raises(BatchError, match=r"\(Zoë Q\): grade all together, remove the results with --drop 'Zoë Q', or"):
        grade_batch(tiny, broken, out)
    assert tree(out) == before
    done = invoke(TINY, broken, "-o", out, "--no-sandbox", "--drop", "Zoe\u0308 Q")
    assert done.exit_code == 0, done.stderr
    assert {name for name in tree(out) if "/" in name} == {
        f"{folder}/{student}.{suffix}" for student in ("ann", "bob")
        for folder, suffix in (("results", "json"), ("feedback", "html"))
    }  # fmt: skip
    assert "Zo" not in (out / "grades.csv").read_text()
    grade_batch(tiny, broken, out, drop=["Zoë Q"], tell=told.append)  # the same command continues
    assert told == ["--drop Zoë Q: nobody of that name has a result, nothing to remove"]


def test_some_are_not_graded_again_where_the_others_were_graded_with_other_tasks(tiny, broken, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "tiny"
    grade_batch(tiny, broken, out)
    before = tree(out)
    shutil.copytree(TINY, folder)
    for name, old in (("lab.md", ": steps\n"), ("grading.yaml", "steps:\n    title")):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace(old, old.replace("steps", "count")))
    other = load("tiny", folder)
    with pytest.raises(BatchError, match="tasks have changed since bob was graded: leave out --only"):
        grade_batch(other, broken, out, only=("ann",))
    assert tree(out) == before
    assert len(grade_batch(other, broken, out)[0]) == 2


def test_a_learner_is_named_in_either_normal_form(tiny, broken, tmp_path):
    (broken / "zo\u00eb.ipynb").write_text("{")
    for name in ("zo\u00eb", "zoe\u0308"):
        assert len(grade_batch(tiny, broken, tmp_path / "out", only=(name,))[0]) == 3


def _cores(folder):
    """Of this process, once two have come."""
    Path(folder, str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < 2:
        time.sleep(0.05)
    return sorted(os.sched_getaffinity(0))


def test_each_process_has_cores_of_its_own(tmp_path):
    """So that no submission takes time from another's."""
    every, here = sorted(os.sched_getaffinity(0)), str(tmp_path / "here")
    os.mkdir(here)
    with executors.local(2, tmp_path) as pool:
        taken = [cores for _, cores, _ in pool.results(_cores, {name: lambda: here for name in "ab"})]
    assert sorted(taken) == ([every[0::2], every[1::2]] if len(every) > 1 else [every, every])


def test_another_seed_is_told(tiny, broken, tmp_path):
    told = []
    for seed in (99, 99, None, None):
        grade_batch(tiny, broken, tmp_path / "out", seed=seed, tell=told.append)
        told.append(seed)
    said = "the seed differs from the last grading's (99): all are graded again"
    assert told == [99, 99, said, None, None]
    (broken / "ann.ipynb").unlink()
    (broken / "bob.ipynb").rename(broken / "cyd.ipynb")
    told.clear()
    grade_batch(tiny, broken, tmp_path / "out", seed=99, drop=["ann", "bob"], tell=told.append)
    assert not told  # of nobody there is an earlier result that counts


def test_results_that_somebody_removed_are_told(tiny, broken, tmp_path):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    shutil.rmtree(out / "results")
    before = tree(out)
    with pytest.raises(BatchError, match=r"out: its folder results is gone: put it back, or remove all of .*out to"):
        grade_batch(tiny, broken, out)
    assert tree(out) == before


def test_a_refused_grading_leaves_no_folders(tiny, tmp_path):
    (tmp_path / "none").mkdir()
    (tmp_path / "class.zip").write_text("no zip")
    (tmp_path / "old").mkdir()
    for place, out in (("none", "out"), ("class.zip", "out"), ("none", "old")):
        with pytest.raises(LabkitError):
            grade_batch(tiny, tmp_path / place, tmp_path / out)
    assert not (tmp_path / "out").exists() and not list((tmp_path / "old").iterdir())


def test_what_the_instructor_should_know_is_printed(broken, tmp_path):
    (broken / "readme.txt").write_text("x")
    shutil.copy(broken / "ann.ipynb", broken / "ann.new.ipynb")
    done = invoke(TINY, broken, "-o", tmp_path / "out", "--no-sandbox")
    assert "ignored: readme.txt\n" in done.stderr and "(leave one of them): ann, ann.new\n" in done.stderr


class _Pool:
    """A pool in which the grader itself fails with everything, or is interrupted."""

    def __init__(self, ended=None):
        self.ended = ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def call(self, function, *_):
        return {}

    def results(self, function, tasks):
        if self.ended:
            raise self.ended
        for student in tasks:
            yield student, None, "its process died each time"


@pytest.mark.parametrize("ended", [None, KeyboardInterrupt()])
def test_a_regrade_that_fails_leaves_nothing_old(tiny, broken, tmp_path, monkeypatch, ended):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    kept = tree(out)["results/bob.json"]
    (broken / "ann.ipynb").write_text(notebook(tiny, **tiny.solutions))
    monkeypatch.setattr(batch, "_pool", lambda *_: _Pool(ended))
    if ended:
        with pytest.raises(KeyboardInterrupt):
            grade_batch(tiny, broken, out)
        assert set(tree(out)) == {"results/bob.json", "feedback/bob.html"}
    else:
        assert grade_batch(tiny, broken, out)[1] == {"ann": "its process died each time"}
        files = tree(out)
        rows = {"results/ann.json", "results/bob.json", "feedback/ann.html", "feedback/bob.html"}
        assert set(files) == rows | batch.FILES
        row = json.loads(files["results/ann.json"])
        assert (row["key"], row["result"]["score"]) == ({"lab": "tiny"}, 0) and row["result"]["problem"] == batch.FAILED
        assert grade_batch(tiny, broken, out)[1] == {"ann": "its process died each time"}  # tried again
    assert tree(out)["results/bob.json"] == kept


def test_an_error_before_grading_leaves_all_that_was_there(tiny, broken, tmp_path, monkeypatch):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    before = tree(out)
    (broken / "ann.ipynb").write_text(notebook(tiny, **tiny.solutions))
    monkeypatch.setattr(batch.grade, "references", lambda *_: 1 / 0)
    monkeypatch.setattr(executors, "PATIENCE", 1)
    with pytest.raises(BatchError, match="no scheduler there"):
        grade_batch(tiny, broken, out, scheduler="tcp://127.0.0.1:9")
    assert tree(out) == before


def _slow(what):
    if what == "loops":
        while True:
            pass
    if what == "eats":
        return bytes(10**9)
    if what == "dies":
        os._exit(0)
    if what == "fails":
        raise BatchError("the disk is full")
    if what == "raises":
        return _slow(what)
    return os.getpid() if what == "pid" else what


def test_reading_cannot_hold_up_the_class():
    with executors.Reader(_slow, seconds=60, memory_mb=500) as read:
        assert read("one") == "one"
        first = read("pid")
        assert read("two") == "two" and read("pid") == first
        for what, said in [("loops", "takes more than 2 seconds"), ("dies", "Python itself ended"), ("eats", "memory"),
                           ("raises", "RecursionError")]:  # fmt: skip
            with pytest.raises(executors.NotRead, match=said):
                read.seconds = 2 if what == "loops" else 60
                read(what)
            read.seconds = 60
            assert read("more") == "more"
        with pytest.raises(BatchError, match="the disk is full"):
            read("fails")
        last = read("pid")
    assert last != first and not psutil.pid_exists(first) and not psutil.pid_exists(last)


def test_a_notebook_that_is_never_read_is_its_learners_row(tiny, broken, tmp_path, monkeypatch):
    class Never(executors.Reader):
        def __call__(self, one):
            raise executors.NotRead("takes more than 60 seconds to read")

    monkeypatch.setattr(executors, "Reader", Never)
    results, failed = grade_batch(tiny, broken, tmp_path / "out")
    assert [result["problem"] for result in results] == [
        f"{name}.ipynb: takes more than 60 seconds to read" for name in ("ann", "bob")
    ] and not failed


def test_no_more_at_a_time_than_memory_allows(monkeypatch):
    monkeypatch.setattr(executors.environment, "cores", lambda: 4)
    for free, jobs in ((100_000, 4), (13_000, 2), (12_000, 2), (11_999, 1), (100, 1)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: argparse.Namespace(available=free * 1_000_000))
        assert executors.most_jobs(6000) == jobs


def test_a_disk_that_is_full_is_told_and_costs_nobody(tiny, broken, tmp_path):
    with zipfile.ZipFile(broken / "fay.zip", "w") as archive:
        archive.writestr("lab.ipynb", bytes(2_000_000))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, most[1]))  # of the processes that it starts, too
    try:
        with pytest.raises(LabkitError, match=r"fay\.zip: cannot be looked into here: File too large"):
            grade_batch(tiny, broken, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not tree(tmp_path / "out")


def test_no_list_of_fonts_is_written_into_home(broken, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MPL", "XDG"))}
    environment |= {"PYTHONPATH": str(REPO), "HOME": str(home)}
    grade = command(TINY, broken, "-o", tmp_path / "out", "--no-sandbox")
    subprocess.run(grade, env=environment, check=True, capture_output=True)
    assert not list(home.rglob("*")) and (tmp_path / "out" / "overview.svg").exists()


@pytest.mark.parametrize("changed", ["seed", "sandboxed", "labkit", "lab", "recipe", "a record", "a package", "python"])
def test_what_decides_a_result_makes_a_new_one(tiny, broken, tmp_path, monkeypatch, changed):
    out, options, lab = tmp_path / "out", {}, tiny
    grade_batch(tiny, broken, out)
    times = {file: file.stat().st_mtime_ns for file in (out / "results").iterdir()}
    if changed == "labkit":
        monkeypatch.setattr(digests, "of_labkit", lambda *_: "another")
    elif changed == "a package":
        digests._packages.cache_clear()
        installed = list(importlib.metadata.distributions())
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: installed[1:])
    elif changed == "python":
        monkeypatch.setattr(platform, "python_version", lambda: "3.11.99")
    elif changed in ("recipe", "a record"):
        folder = shutil.copytree(TINY, tmp_path / "tiny")
        file = folder / {"recipe": "recipe.yaml", "a record": "runs/one/history.jsonl"}[changed]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        lab = load("tiny", folder)
    elif changed == "lab":
        folder = shutil.copytree(TINY, tmp_path / "tiny")
        (folder / "lab.md").write_text((folder / "lab.md").read_text() + "\nMore.\n")
        lab = load("tiny", folder)
    else:
        options = {changed: False if changed == "sandboxed" else 8}
    grade_batch(lab, broken, out, **options)
    digests._packages.cache_clear()
    assert all(file.stat().st_mtime_ns != before for file, before in times.items())


@pytest.mark.parametrize("left", [b"", b'{"key": {"lab": "ti', bytes(100), b"\xff\xfe"])
def test_half_of_a_result_makes_its_learner_graded_again(tiny, broken, tmp_path, left):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    before = tree(out)
    (out / "results" / "ann.json").write_bytes(left)
    grade_batch(tiny, broken, out)
    assert tree(out) == before
    (out / "results" / "ann.json").write_bytes(left)
    (broken / "ann.ipynb").unlink()
    with pytest.raises(BatchError, match=r"1 learner graded before is not among the submissions \(ann\)"):
        grade_batch(tiny, broken, out)


def test_a_folder_that_is_not_an_earlier_grading_is_refused(tiny, broken, tmp_path):
    def refused(out, reason, lab=tiny):
        before = tree(out) if out.is_dir() else None
        with pytest.raises(BatchError, match=reason) as error:
            grade_batch(lab, broken, out)
        assert "\n" not in str(error.value)
        assert before is None or tree(out) == before

    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.tex").write_text("x")
    refused(other, "holds chapter.tex")
    (other / "chapter.tex").unlink()
    (other / "index.html").write_text("my home page")
    refused(other, "holds index.html")
    (other / "index.html").unlink()
    (other / "results").mkdir()
    (other / "results" / "run.json").write_text("{}")
    refused(other, "run.json: not a result of an earlier grading")
    refused(broken, "apart from the submissions")
    refused(broken / "out", "apart from the submissions")
    refused(tmp_path, "apart from the submissions")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "not a folder")
    grade_batch(tiny, broken, tmp_path / "out")
    folder = shutil.copytree(TINY, tmp_path / "small")
    refused(tmp_path / "out", "holds a grading of the lab tiny", load("small", folder))


def test_what_a_killed_grading_left_is_cleared(tiny, broken, tmp_path):
    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    before = tree(out)
    (out / batch.SCRATCH / "00001").mkdir(parents=True)
    for name in ("grades.csv.part", "results/ann.json.part", "feedback/ann.html.part", ".scratch/00001/x"):
        (out / name).write_text("half")
    grade_batch(tiny, broken, out)
    assert tree(out) == before


def test_two_at_once_are_refused(tiny, broken, tmp_path):
    from labkit.system.files import locked

    out = tmp_path / "out"
    grade_batch(tiny, broken, out)
    with locked(out, RuntimeError()), pytest.raises(BatchError, match="another grading into it is under way"):
        grade_batch(tiny, broken, out)


def invoke(*arguments):
    done = CliRunner().invoke(main, ["grade", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_without_a_sandbox_nothing_is_graded_unless_told(broken, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bwrap is not installed (package bubblewrap)")
    done = invoke(TINY, broken, "-o", tmp_path / "out")
    assert done.exit_code == 1 and "WARNING: no sandbox: bwrap is not installed" in done.stderr
    assert "install bubblewrap" in done.stderr and not (tmp_path / "out").exists()
    done = invoke(TINY, broken, "-o", tmp_path / "out", "--no-sandbox")
    assert done.exit_code == 0 and "WARNING: without a sandbox" in done.stderr
    assert "2 with a problem" in done.stdout


def test_wrong_usage_is_one_line(broken, tmp_path):
    out = tmp_path / "out"
    for arguments, said in [
        (("nolab", broken, "-o", out), "no lab nolab; the course's labs: "),
        ((TINY, tmp_path / "none", "-o", out, "--no-sandbox"), "none: there is no such folder or zip"),
        ((TINY, broken, "-o", out, "--jobs", "2", "--scheduler", "tcp://x"), "--jobs is of this machine"),
    ]:
        done = invoke(*arguments)
        assert done.exit_code and said in done.stderr.splitlines()[-1], done.stderr
        assert not out.exists()


def test_a_folder_that_every_sandbox_sees_is_refused(broken, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "")
    monkeypatch.setattr(sandbox, "SYSTEM", (*sandbox.SYSTEM, str(tmp_path / "seen")))
    for place, out in ((broken, tmp_path / "seen" / "out"), (tmp_path / "seen" / "class", tmp_path / "out")):
        done = invoke(TINY, place, "-o", out)
        assert done.exit_code == 1 and "every sandbox sees" in done.stderr and not out.exists()


def test_files_that_the_sandbox_lacks_are_named(broken, edited, tmp_path, monkeypatch):
    """The same line as of `labkit release`."""
    own = edited("lab.md", "How many whole batches", "How many whole batches")
    (own.folder / "recipe.yaml").write_text("lab: tiny")
    subprocess.run(["git", "-C", own.folder, "init", "-q"], check=True)
    subprocess.run(["git", "-C", own.folder, "add", "lab.md", "recipe.yaml"], check=True)
    (own.folder / "mine.py").write_text("x")
    monkeypatch.setattr(sandbox, "unavailable", lambda: "")
    monkeypatch.setattr(batch, "grade_batch", lambda *_, **__: ([], {}))
    done = invoke(own.folder, broken, "-o", tmp_path / "out")
    assert "tiny: not handed out, as git does not track it: mine.py\n" in done.stderr, done.stderr


def test_the_command_that_goes_on_is_one_that_a_shell_takes(broken, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "grade_batch", interrupted)
    monkeypatch.setattr(sys, "argv", ["labkit", "grade", "my lab", "it's"])
    done = invoke(TINY, broken, "-o", "x", "--no-sandbox")
    assert """Continue with: labkit grade 'my lab' 'it'"'"'s'""" in done.stderr


def test_without_the_sandbox_the_same_is_graded(graded, handed_in_by_all, tmp_path):
    place = tmp_path / "handed-in"
    place.mkdir()
    shutil.copy(handed_in_by_all / "ann.ipynb", place)
    process = started(TINY, place, "-o", "out", "--no-sandbox", cwd=tmp_path)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0 and "WARNING: without a sandbox" in errors, errors
    results = [json.loads((folder / "results" / "ann.json").read_text()) for folder in (tmp_path / "out", graded[0])]
    assert results[0]["result"] == results[1]["result"] and results[0]["key"] != results[1]["key"]


def test_a_zip_is_unpacked_while_it_is_graded_and_other_data_of_a_run_make_a_new_result(tmp_path, monkeypatch):
    lab, out, graded = with_run(tmp_path / "tiny"), tmp_path / "out", []
    place = tmp_path / "handed-in"
    place.mkdir()
    for student in ("ann", "bob"):
        with zipfile.ZipFile(place / f"{student}.zip", "w") as archive:
            archive.writestr("lab.ipynb", notebook(lab, **lab.solutions))
            archive.writestr("mine/recipe.yaml", "x")
            archive.writestr("mine/summary.json", student)

    class OneByOne(_Pool):
        def call(self, function, *arguments):
            return function(*arguments) if function is handed_in.required_of else {}

        def results(self, function, tasks):
            for student, task in tasks.items():
                assert not list((out / batch.SCRATCH).glob("0*"))  # nobody's, until it is asked for
                (run,) = task().runs
                assert (run / "summary.json").read_text() == student
                graded.append(student)
                yield student, batch.grade.nothing(lab, student, ""), ""

    monkeypatch.setattr(batch, "_pool", lambda *_: OneByOne())
    for data in ("one", "one", "two"):
        monkeypatch.setattr(handed_in, "required_of", lambda _, data=data: (None, data, []))
        grade_batch(lab, place, out)
    assert graded == ["ann", "bob"] * 2


@pytest.mark.usefixtures("sample_data")
def test_a_run_that_is_sent_to_a_worker_is_examined_as_it_was(tmp_path, sandboxed, monkeypatch):
    """A recipe is there, a history that is too large, and no checkpoint."""
    lab = with_run(tmp_path / "tiny")
    folder = lab.folder
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("epochs: nine")
    (run / "summary.json").write_text("{}")
    with open(run / "history.jsonl", "wb") as history:
        history.truncate(handed_in.TAKEN["history.jsonl"] + 1)
    (run / "other").write_text("not sent")
    files = work.run_files(run)
    assert set(files) == {"recipe.yaml", "summary.json", "history.jsonl"} and isinstance(files["history.jsonl"], int)
    execution = {"cells": {}, "values": {}, "stopped": ""}
    monkeypatch.setattr("grader.execution.execute", lambda *_: execution)  # the notebook is not what is asked
    results = [work.work(work.Work(lab, "ann", {}, (run,), sent, {}, 7, True)) for sent in (None, files)]
    assert results[0] == results[1]
    details = {name: value["detail"] for name, value in results[0]["tasks"]["run"]["values"].items()}
    assert "MB" in details["complete"] and "missing" in details["accuracy"] and details["recipe"]
    several = work.work(work.Work(lab, "ann", {}, (run, folder), None, {}, 7, True))["tasks"]["run"]
    assert several["verdict"] == "missing" and several["detail"] == "several Runs: run, tiny; hand in one"


def test_a_runs_file_that_cannot_be_read_is_its_learners_affair():
    """Not even by the instructor: another user's file, as root would never meet it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a folder of its own by TMPDIR lets nobody else in
        run = Path(folder)
        run.chmod(0o755)
        for name, mode in (("summary.json", 0o000), ("recipe.yaml", 0o644)):
            (run / name).write_text("{}")
            (run / name).chmod(mode)
        me = os.geteuid()
        os.seteuid(me or 65534)
        try:
            found = {work.digest((run,)) for _ in range(2)}
            files = work.run_files(run)
        finally:
            os.seteuid(me)
    assert len(found) == 1
    assert set(files) == {"recipe.yaml"}
