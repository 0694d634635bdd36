"""Runs, their provenance and checkpoints: what a Run keeps, and what it refuses."""

import dataclasses
import json
import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor

import mindspore as ms
import numpy as np
import pytest

import labkit
from labkit.data import files
from labkit.system import environment
from labkit.system.files import atomic_write
from labkit.training import provenance, runs
from labkit.training.runs import RunError

HISTORY = [
    # The first step compiles, one waits; evaluations stand between the epochs.
    {"step": 1, "epoch": 1, "loss": 2.3, "lr": 0.1, "seconds": 9.0},
    {"step": 2, "epoch": 1, "loss": 2.2, "lr": 0.1, "seconds": 0.2},
    {"step": 3, "epoch": 1, "loss": 2.1, "lr": 0.1, "seconds": 0.4},
    {"epoch": 1, "accuracy": 0.25},
    {"step": 4, "epoch": 2, "loss": 2.0, "lr": 0.1, "seconds": 0.3},
    {"step": 5, "epoch": 2, "loss": 1.9, "lr": 0.1, "seconds": 5.0},
    {"step": 6, "epoch": 2, "loss": 1.8, "lr": 0.1, "seconds": 0.1},
    {"epoch": 2, "accuracy": 0.75},
]


@pytest.fixture
def recipe(sample_recipe):
    return sample_recipe()


@pytest.fixture
def run(tmp_path, recipe):
    return runs.create(tmp_path / "run", recipe)


def write_history(run, records):
    """History, and the provenance that a training notes before it."""
    (run.path / "provenance.json").write_text('{"commit": "c", "processes": 1}')
    run.history_file.write_text("".join(json.dumps(record) + "\n" for record in records))


# -- Making and finding ---------------------------------------------------------------------------


def test_create_keeps_the_recipe(tmp_path, recipe):
    run = runs.create(tmp_path / "a" / "b", recipe)
    assert run.recipe == recipe
    assert runs.open_run(tmp_path / "a" / "b") == run
    assert not run.complete
    assert run.checkpoint.parent.is_dir() and not run.checkpoint.exists()


def test_create_refuses_what_is_in_the_way(tmp_path, recipe):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    for name, says in (("file", "cannot be made"), ("folder", "already there; choose another --out")):
        with pytest.raises(RunError, match=f"{name}: {says}"):
            runs.create(tmp_path / name, recipe)
    with pytest.raises(RunError, match="file"):
        runs.create(tmp_path / "file" / "run", recipe)
    assert (tmp_path / "folder" / "thesis.txt").read_text() == (tmp_path / "file").read_text() == "mine"
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(RunError, match="already there, and complete; choose another --out$"):
        runs.require_free(tmp_path)


def test_create_in_an_empty_directory_also_after_a_create_that_was_killed(tmp_path, recipe):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "recipe.yaml.1a2b3c4d.part").write_text("lab: cif")
    assert runs.create(tmp_path, recipe).recipe == recipe


def test_open_what_is_no_run(tmp_path, recipe):
    runs.create(tmp_path / "fast", recipe)
    with pytest.raises(RunError, match=f"{tmp_path}: not a Run .it has no recipe.yaml.$"):
        runs.open_run(tmp_path)
    with pytest.raises(RunError, match="no such folder; in .* there are fast"):
        runs.open_run(tmp_path / "fastt")


def test_a_new_folder_is_made_by_one_alone(tmp_path):
    (tmp_path / "x-2").touch()
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: runs.new_folder(tmp_path, "x"), range(16)))
    assert set(made) == {tmp_path / "x", *(tmp_path / f"x-{number}" for number in range(3, 18))}


def test_of_two_that_create_a_run_one_is_refused(tmp_path, recipe):
    def create(_):
        try:
            return runs.create(tmp_path / "run", recipe)
        except RunError as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        ends = list(threads.map(create, range(8)))
    assert sum(isinstance(end, runs.Run) for end in ends) == 1
    assert all("already there" in end or "another training" in end for end in ends if isinstance(end, str))


def test_one_training_at_a_time(run):
    refused = pytest.raises(RunError, match=f"{run.path}: another training of this Run is under way")
    with runs.alone(run), refused, runs.alone(run):
        pass
    with runs.alone(run):  # free again
        pass
    (run.path / "summary.json").write_text("{}")
    with pytest.raises(RunError, match=f"{run.path}: complete"), runs.alone(run):
        pass


# -- Files ----------------------------------------------------------------------------------------


def test_atomic_write_replaces_a_whole_file_or_nothing(tmp_path):
    file = tmp_path / "a.json"
    atomic_write(file, "old, and longer")
    atomic_write(file, "ä")
    assert file.read_text(encoding="utf-8") == "ä" and list(tmp_path.iterdir()) == [file]
    with pytest.raises(UnicodeEncodeError):
        atomic_write(file, 100_000 * "new" + "\ud800")  # a lone surrogate cannot be written, the text before can
    assert file.read_text(encoding="utf-8") == "ä"


def test_half_written_last_line_belongs_to_an_unfinished_run(run):
    write_history(run, HISTORY[:3])
    run.history_file.write_text(run.history_file.read_text()[:-10])
    assert run.history() == HISTORY[:2]
    (run.path / "summary.json").write_text("{}")
    with pytest.raises(RunError, match=r"history\.jsonl, line 3: not valid JSON"):
        run.history()


@pytest.mark.parametrize("damage", [b'{"step": 2, "lo', b"\xff\xfe"])
def test_damage_inside_the_history(run, damage):
    run.history_file.write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3}\n')
    with pytest.raises(RunError, match=r"history\.jsonl, line 2: not valid JSON"):
        run.history()


@pytest.mark.parametrize(
    "name, advice", [("summary", "--resume"), ("evaluation", "labkit eval"), ("provenance", "never trained")]
)
def test_result_missing_or_damaged(run, name, advice):
    with pytest.raises(RunError, match=rf"{name}\.json: missing.*{advice}"):
        getattr(run, name)
    (run.path / f"{name}.json").write_text('{"accuracy": 1,\n')
    with pytest.raises(RunError, match=rf"{name}\.json: damaged: not valid JSON"):
        getattr(run, name)


# -- Summary and provenance -----------------------------------------------------------------------


def test_summary_of_a_history_made_by_hand(run):
    """Median of 0.2, 0.4, 0.3, 5.0, 0.1 is 0.3: the compile step is left out, the slow one does not count."""
    write_history(run, HISTORY)
    assert [record["step"] for record in run.steps()] == [1, 2, 3, 4, 5, 6]
    assert run.evaluations() == [HISTORY[3], HISTORY[7]]
    written = runs.write_summary(run)
    assert written == run.summary == {
        "accuracy": 0.75,
        "epochs": 2,
        "steps": 6,
        "train_seconds": 15.0,
        "step_ms": 300.0,
        "images_per_second": round(64 / 0.3, 1),
        "provenance": {"commit": "c", "processes": 1},  # of the first start
    }  # fmt: skip
    assert run.complete


def test_summary_of_a_sink_mode_history(run):
    """A line stands for the epoch's 10 steps, its seconds for one of them."""
    records = [{"step": 10 * e, "epoch": e, "loss": 1.0, "lr": 0.1, "seconds": s} for e, s in ((1, 0.9), (2, 0.2))]
    write_history(run, [records[0], HISTORY[3], records[1], HISTORY[7]])
    summary = runs.write_summary(run)
    assert (summary["steps"], summary["epochs"], summary["step_ms"]) == (20, 2, 200.0)
    assert summary["train_seconds"] == pytest.approx(11.0)


def test_provenance(repo_root):
    found = provenance.collect({"name": "digits", "sha256": "0" * 64})
    assert set(found) == {"commit", "dirty", "versions", "machine", "cores", "processes", "dataset"}
    versions = {"mindspore": ms.__version__, "numpy": np.__version__, "python": platform.python_version()}
    assert found["versions"] == {**versions, "labkit": labkit.__version__}
    assert found["cores"] == environment.cores() and os.uname().machine in found["machine"]
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True)
    assert found["commit"] == (git.stdout.strip() if git.returncode == 0 else None)
    json.dumps(found)


def test_provenance_is_that_of_the_first_start(run, monkeypatch):
    info = files.Info(run.path, "digits", (), 1, 1, "0" * 64, (), contents="2" * 64)
    runs.begin(run, info)
    first = run.provenance
    assert first["dataset"] == info.dataset and first["machine"] == environment.machine()
    monkeypatch.setattr(environment, "machine", lambda: "another")
    runs.begin(run, dataclasses.replace(info, name="the same by another name"))
    assert run.provenance == first
    with pytest.raises(RunError, match=rf"{run.path}: .*other data, digits: .* letters"):
        runs.begin(run, dataclasses.replace(info, name="letters", sha256="1" * 64))


@pytest.mark.parametrize("told, expected", [
    ("", (None, None)), ("abc", ("abc", False)), ("abc+", ("abc", True))
])  # fmt: skip
def test_commit_of_a_job(tmp_path, monkeypatch, told, expected):
    """A job has the code without its git; `labkit submit` says what it was."""
    monkeypatch.setattr(environment, "REPO", tmp_path)
    monkeypatch.setenv(provenance.COMMIT, told)
    assert provenance.commit() == expected


def test_dirty_is_true_for_changed_files_only(tmp_path, monkeypatch):
    """A real checkout: clean, then with an untracked file, a change; and a folder that is none."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    monkeypatch.setattr(environment, "REPO", tmp_path)
    assert provenance.commit() == (None, None)
    (tmp_path / "a").write_text("1")
    for command in (["init", "-q"], ["add", "a"], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    (tmp_path / "new").touch()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere/.git"))  # as git sets it for a hook
    assert provenance.commit() == (head, False)
    (tmp_path / "a").write_text("2")
    assert provenance.commit() == (head, True)
    monkeypatch.setattr(environment, "REPO", tmp_path / "lib")  # installed inside somebody else's checkout
    (tmp_path / "lib").mkdir()
    assert provenance.commit() == (None, None)
