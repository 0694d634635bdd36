"""`labkit train` of a recipe with a baseline: two Runs that differ by optimizer, schedule and epochs, and a table."""

import os
import shlex
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from labkit import cli
from labkit.training import compare, loop, recipes, runs
from labkit.training.callbacks import append_line
from labkit.training.recipes import RecipeError

# `labkit` with a network that compiles in a second instead of a ResNet.
SMALL = """
from mindspore import nn
from labkit.training import callbacks, build, loop
from labkit.cli import main
build.create_network = lambda recipe: nn.SequentialCell(
    nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(256, 10)
)
"""
# Interrupts `labkit train` right behind the history's line of step 2.
INTERRUPT = """
append = callbacks.append_line
def append_then_stop(file, record):
    append(file, record)
    if record.get("step") == 2:
        raise KeyboardInterrupt
callbacks.append_line = append_then_stop
"""


# -- Its recipe -----------------------------------------------------------------------------------


@pytest.fixture
def load(repo_root):
    """A function: recipe of the THOR lab by profile and settings, and its baseline's."""
    file = repo_root / "labs" / "thor" / "recipe.yaml"

    def load(profile, *settings):
        recipe = recipes.load(file, profile, settings)
        return recipe, recipe.baseline and recipes.baseline_of(recipe, file)

    return load


@pytest.mark.parametrize("profile", ["sample", "laptop"])
def test_without_settings_it_is_the_profile(load, profile):
    recipe, baseline = load(profile)
    assert baseline == load(recipe.baseline)[0]


@pytest.mark.parametrize("setting, key, value", [
    ("seed=7", "seed", 7), ("max_steps=3", "max_steps", 3), ("epochs=2", "epochs", 2), ("epochs=9", "epochs", 9),
    ("amp_level=O2", "amp_level", "O2"), ("loss.smoothing=0.1", "loss", {"smoothing": 0.1}),
])  # fmt: skip
def test_settings_are_the_baselines_too(load, setting, key, value):
    for recipe in load("laptop", setting):
        assert recipe.model_dump()[key] == value


@pytest.mark.parametrize("setting", [
    "optimizer.damping=0.5", "optimizer.weight_decay=0.5", "schedule.lr_max=0.5",
    'optimizer={"name": "thor", "damping": 0.5}', 'schedule={"name": "cosine", "lr_init": 0, "lr_max": 0.5}',
])  # fmt: skip
def test_optimizer_and_schedule_are_its_own(load, setting):
    """However they are set."""
    assert load("sample", setting)[1] == load("sample")[1]


@pytest.mark.parametrize("settings, says", [
    (("baseline=nope",), "recipe.yaml: no profile 'nope'; it has .*sample-momentum"),
    (("epochs=1", "schedule.warmup_epochs=0", "baseline=slow"), "recipe.yaml: schedule.warmup_epochs: 2 epochs"),
])  # fmt: skip
def test_a_baseline_that_cannot_be(tmp_path, repo_root, settings, says):
    file = yaml.safe_load((repo_root / "labs/thor/recipe.yaml").read_text())
    file["profiles"]["slow"] = {**file["profiles"]["sample-momentum"]}
    file["profiles"]["slow"]["schedule"] = {**file["profiles"]["slow"]["schedule"], "warmup_epochs": 2}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(file))
    with pytest.raises(RecipeError, match=says):
        recipes.baseline_of(recipes.load(path, "sample", settings), path)


# -- The command ----------------------------------------------------------------------------------


@pytest.fixture
def train(sample_data, tmp_path, monkeypatch):
    """A function: `labkit train thor` in a folder of its own, where training a Run is to write down its end."""
    trained = []

    def end(run):
        trained.append(run.path.name)
        if run.path.name == train.stops:
            raise KeyboardInterrupt
        runs.keep_provenance(run, {"name": "none", "sha256": "0" * 64})
        append_line(run.history_file, {"step": 1, "epoch": 1, "loss": 1.0, "lr": 0.1, "seconds": 1.0})
        append_line(run.history_file, {"epoch": 1, "accuracy": 0.5})
        runs.write_summary(run)

    def train(*arguments, status=0):
        trained.clear()
        done = CliRunner().invoke(cli.main, ["train", "thor", *arguments])
        assert done.exit_code == status, done.output
        return list(trained), done

    train.stops = None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "train", end)
    return train


def table(done):
    return [line.split()[0] for line in done.stdout.partition("on the test images")[2].splitlines()[3:]]


def test_both_are_trained_and_compared(train):
    trained, done = train("--out", "a")
    assert trained == ["a", "a-baseline"] and table(done) == ["a-baseline", "a"]


@pytest.mark.parametrize("stops", ["a", "a-baseline"])
def test_resumed_it_is_the_same_baseline(train, stops):
    """Settings are those of the Run: none is given again."""
    train.stops = stops
    trained, done = train("--set", "epochs=2", "--set", "seed=5", "--out", "a", status=130)
    assert trained[-1] == stops and "resume with: labkit train thor --resume --out a\n" in done.stderr
    train.stops = None
    trained, done = train("--resume", "--out", "a")
    assert trained == ["a", "a-baseline"][["a", "a-baseline"].index(stops) :] and table(done) == ["a-baseline", "a"]
    ours, baseline = (runs.open_run(name).recipe for name in ("a", "a-baseline"))
    assert (ours.epochs, ours.seed) == (baseline.epochs, baseline.seed) == (2, 5)
    trained, done = train("--resume", "--out", "a")  # both complete
    assert trained == [] and table(done) == ["a-baseline", "a"]


def test_the_newest_unfinished_one_is_a_baseline(train):
    """Without --out the pair goes on, and is compared."""
    train.stops = "thor-sample-baseline"
    train(status=130)
    train.stops = None
    trained, done = train("--resume")
    assert trained == ["thor-sample-baseline"] and table(done) == ["thor-sample-baseline", "thor-sample"]


@pytest.mark.parametrize("asked", [("--out", "thor-sample"), ()])
def test_a_baseline_under_its_older_name_is_resumed(train, tmp_path, asked):
    """The folder and the key of an earlier labkit, with a line that says what they are called now."""
    (tmp_path / "runs").mkdir()
    place = tmp_path if asked else tmp_path / "runs"
    train.stops = "thor-sample-baseline"
    train(*asked, status=130)
    os.rename(place / "thor-sample-baseline", place / "thor-sample-rival")
    recipe = place / "thor-sample" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("baseline: sample-momentum", "rival: sample-momentum"))
    train.stops = None
    trained, done = train("--resume", *asked)
    assert trained == ["thor-sample-rival"] and table(done) == ["thor-sample-rival", "thor-sample"]
    (line,) = [line for line in done.stderr.splitlines() if "rival" in line]
    assert "thor-sample-rival: " in line and line.endswith("thor-sample-baseline")
    assert not (place / "thor-sample-baseline").exists()


def test_resumed_with_an_older_key(train):
    train.stops = "a"
    train("--out", "a", "--set", "baseline=null", status=130)
    train.stops = None
    _, done = train("--resume", "--out", "a", "--set", "rival=sample-momentum", status=1)
    assert "a: a resumed Run keeps its recipe: baseline is None, not 'sample-momentum'" in done.stderr


def test_a_foreign_folder_among_the_runs(train, tmp_path):
    """It is no Run, and nobody's business."""
    train.stops = "thor-sample"
    train("--set", "baseline=null", status=130)
    (tmp_path / "runs" / "x").mkdir()
    (tmp_path / "runs" / "x" / "recipe.yaml").write_text("a: 1\n")
    train.stops = None
    trained, done = train("--resume")
    assert trained == ["thor-sample"] and "runs/x" not in done.stderr


def test_a_complete_run_is_followed_by_its_baseline(train, tmp_path):
    """As one that was killed between the two."""
    train("--out", "a")
    for file in (tmp_path / "a-baseline").glob("*"):
        file.unlink() if file.is_file() else file.rmdir()
    trained, done = train("--resume", "--out", "a")
    assert trained == ["a-baseline"] and "a is complete: nothing to resume" in done.stdout
    assert table(done) == ["a-baseline", "a"]


@pytest.mark.parametrize("settings, says", [
    ((), "a-baseline: already there"), (("--set", "baseline=nope"), "no profile 'nope'"),
])  # fmt: skip
def test_what_is_in_the_way_is_told_before_the_training(train, tmp_path, settings, says):
    (tmp_path / "a-baseline").mkdir()
    (tmp_path / "a-baseline" / "thesis.txt").touch()
    trained, done = train("--out", "a", *settings, status=1)
    assert trained == [] and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "a").exists()


def test_a_folder_in_use_is_named_as_it_was_typed(train):
    """The message names the Run's folder, not its baseline's."""
    train("--out", "a")
    trained, done = train("--out", "a", status=1)
    assert trained == [] and " a: already there, and complete; choose another --out" in done.stderr


def test_another_baseline_in_the_way(train):
    """A Run by other settings is not taken for it."""
    train("--out", "a")
    train("--out", "b", "--set", "epochs=2")
    os.rename("b", "c")
    os.rename("a-baseline", "c-baseline")
    trained, done = train("--resume", "--out", "c", status=1)
    assert trained == [] and "c-baseline: a resumed Run keeps its recipe: epochs is 4, not 2" in done.stderr


def test_no_baseline_for_a_run_of_two_processes(train):
    """`labkit launch` trained it: in one process the baseline would have half the batch."""
    train("--out", "a", "--set", "baseline=null")
    file = runs.open_run("a").path / "recipe.yaml"
    file.write_text(file.read_text().replace("baseline: null", "baseline: sample-momentum"))
    summary = (runs.open_run("a").path / "summary.json").read_text().replace('"processes": 1', '"processes": 2')
    (runs.open_run("a").path / "summary.json").write_text(summary)
    trained, done = train("--resume", "--out", "a", status=1)
    assert trained == [] and "a: number of processes: began with 2" in done.stderr


def test_without_a_baseline(train, tmp_path):
    trained, done = train("--out", "a", "--set", "baseline=null")
    assert trained == ["a"] and table(done) == [] and [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_launch_says_that_it_trains_no_baseline(train, monkeypatch, tmp_path):
    monkeypatch.setattr("labkit.launch.msrun.launch", lambda command, *_, **__: loop.train(runs.open_run(command[-1])))
    done = CliRunner().invoke(cli.main, ["launch", "-n", "2", "train", "thor", "--out", "a"])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.splitlines() if "baseline" in line]
    assert line.endswith("labkit launch -n 2 train thor --profile sample-momentum")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_help_explains_the_baseline():
    text, _, examples = CliRunner().invoke(cli.main, ["train", "--help"]).output.partition("Example:")
    assert "baseline" in text
    assert "labkit train thor --profile sample\n" in examples and "--set baseline=null" in examples


def test_interrupted_and_resumed_for_real(tmp_path, sample_data, repo_root):
    """Trained with other settings than the profile's, stopped, resumed with the command that it names."""
    chosen = ("max_steps=3", "optimizer.damping=0.1", "seed=3", "checkpoint_steps=1")
    settings = [word for setting in chosen for word in ("--set", setting)]

    def labkit(before, *arguments):
        return subprocess.run(
            [sys.executable, "-c", SMALL + before + "main()", *arguments], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(repo_root)}, timeout=300,
        )  # fmt: skip

    done = labkit(INTERRUPT, "train", "thor", *settings, "--out", "mine")
    assert done.returncode == 130, done.stderr
    again = shlex.split(done.stderr.partition("resume with: labkit ")[2].splitlines()[0])
    done = labkit("", *again)
    assert done.returncode == 0, done.stderr
    mine, baseline = runs.open_run(tmp_path / "mine"), runs.open_run(tmp_path / "mine-baseline")
    assert mine.recipe.optimizer.damping == 0.1 and baseline.recipe.optimizer.name == "momentum"
    assert mine.steps()[0]["loss"] == baseline.steps()[0]["loss"]  # the same weights and images, by the same seed
    assert [record.get("compiled", False) for record in mine.steps()] == [True, True, False]  # the second: resumed
    assert [record.get("compiled", False) for record in baseline.steps()] == [True, False, False]
    assert [record["update"] for record in mine.updates()] == [1] and baseline.updates() == []
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["mine-baseline", "mine"]


def test_the_sample_shows_thor_ahead(tmp_path, sample_data, repo_root):
    """The whole profile, as a learner trains it: THOR ends higher, and reaches momentum's end in fewer steps."""
    command = [sys.executable, "-m", "labkit", "train", "thor", "--profile", "sample", "--out", "thor"]
    command += ["--set", "evaluation_steps=11"]  # twice an epoch, to see who comes first
    env = {**os.environ, "PYTHONPATH": str(repo_root)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    baseline, thor = (compare.curve(runs.open_run(tmp_path / name)) for name in ("thor-baseline", "thor"))
    assert thor.accuracies[-1] > baseline.accuracies[-1]
    reached = [side.reaches(baseline.accuracies[-1])[0] for side in (thor, baseline)]
    assert reached[0] < reached[1]
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["thor-baseline", "thor"]
