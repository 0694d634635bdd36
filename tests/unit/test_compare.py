"""Steps and seconds to a target, of Runs whose history is written here."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from labkit import cli, compare, plots
from labkit import recipe as recipes
from labkit import run as runs
from labkit.run import RunError


@pytest.fixture
def make(tmp_path):
    """A function: a Run of two steps an epoch, of so many seconds a step, the first two slower by their compilation."""

    def make(name, accuracies, seconds=1.0, profile="sample", settings=()):
        recipe = recipes.load(recipes.find("thor"), profile, settings)
        run = runs.create(tmp_path / name, recipe)
        lines = []
        for epoch, accuracy in enumerate(accuracies, start=1):
            for step in (2 * epoch - 1, 2 * epoch):
                taken = seconds + 10 * (step <= 2)
                lines.append({"step": step, "epoch": epoch, "loss": 1.0, "lr": 0.1, "seconds": taken})
            lines.append({"epoch": epoch, "accuracy": accuracy})
        run.history_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
        return run

    return make


def test_a_curve_leaves_compilation_out(make):
    curve = compare.curve(make("a", [0.2, 0.5, 0.6], seconds=2.0))
    assert (curve.steps, curve.seconds, curve.accuracies) == ([2, 4, 6], [4.0, 8.0, 12.0], [0.2, 0.5, 0.6])
    assert curve.compile_seconds == pytest.approx(20) and curve.step_ms == pytest.approx(2000)


@pytest.mark.parametrize("target, reached", [(0.2, (2, 2.0)), (0.21, (4, 4.0)), (0.5, (4, 4.0)), (0.61, None)])
def test_the_first_evaluation_at_or_above_the_target(make, target, reached):
    assert compare.curve(make("a", [0.2, 0.5, 0.6, 0.4])).reaches(target) == reached


def test_runs_that_differ_in_the_seed_are_one_setting(make):
    seeds = [make(f"thor-seed{n}", [0.1, end], settings=(f"seed={n}",)) for n, end in ((1, 0.5), (2, 0.6), (3, 0.7))]
    other = make("other", [0.5, 0.7], seconds=3.0, profile="sample-momentum")
    curves = compare.settings([other, *seeds])
    assert {name: len(ones) for name, ones in curves.items()} == {"other": 1, "thor": 3}
    assert compare.default_target(curves) == 0.7
    momentum, thor = compare.summary(curves, 0.6)
    assert (momentum["reached"], momentum["steps"], momentum["seconds"]) == (1, [4, 4, 4], [12.0, 12.0, 12.0])
    assert (thor["runs"], thor["reached"], thor["steps"]) == (3, 2, [4, 4, 4])
    assert thor["accuracy"] == [0.6, 0.5, 0.7]
    assert compare.summary(curves, 0.99)[1]["steps"] is None


def test_the_table_says_how_many_times_fewer(make):
    slow, fast = make("slow", [0.1, 0.2, 0.8, 0.8], seconds=2.0, profile="sample-momentum"), make("fast", [0.1, 0.9])
    curves = compare.settings([slow, fast])
    lines = compare.table(compare.summary(curves, 0.8), 0.8).splitlines()
    assert "80.00%" in lines[0]
    assert "6 (1.00x)" in lines[2] and "12 (1.00x)" in lines[2]
    assert "4 (1.50x)" in lines[3] and "4 (3.00x)" in lines[3] and "90.00%" in lines[3]
    assert "not reached" in compare.table(compare.summary(curves, 0.85), 0.85).splitlines()[2]


def test_the_figure_has_a_line_for_each_run(make):
    curves = compare.settings([make("a", [0.1, 0.2], profile="sample-momentum"), make("b", [0.2, 0.3])])
    steps, seconds = plots.comparison(curves, 0.2).axes
    assert len(steps.lines) == len(seconds.lines) == 3  # two Runs and the target
    assert list(steps.lines[0].get_xdata()) == [2, 4] and list(steps.lines[0].get_ydata()) == [10, 20]


def test_the_command(make, tmp_path):
    names = [str(make("a", [0.1, 0.2], profile="sample-momentum").path), str(make("b", [0.2, 0.3]).path)]
    shown = CliRunner().invoke(cli.main, ["compare", *names, "--out", str(tmp_path / "c.png")])
    assert shown.exit_code == 0 and "2 (2.00x)" in shown.output and (tmp_path / "c.png").stat().st_size > 1000
    found = json.loads(CliRunner().invoke(cli.main, ["compare", *names, "--json", "--target", "0.3"]).output)
    assert found["target"] == 0.3 and [row["reached"] for row in found["settings"]] == [0, 1]
    assert CliRunner().invoke(cli.main, ["compare", *names, "--target", "30"]).exit_code == 2


def test_runs_that_cannot_be_compared_are_named(make, tmp_path):
    run = make("a", [])
    with pytest.raises(RunError, match="a: not to be compared: it has no evaluation yet"):
        compare.curve(run)
    run = make("sink", [0.5])
    lines = run.history_file.read_text().splitlines()
    run.history_file.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(RunError, match=r"sink: not to be compared: .*\(sink mode\)"):
        compare.curve(run)


@pytest.mark.slow
def test_a_rival_is_trained_and_compared(tmp_path):
    small = ("network.name=resnet8", "data.image_size=16", "max_steps=2", "optimizer.damping=0.1")
    settings = [word for setting in small for word in ("--set", setting)]
    command = [sys.executable, "-m", "labkit", "train", "thor", *settings, "--out", str(tmp_path / "mine")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mine, rival = runs.open_run(tmp_path / "mine"), runs.open_run(tmp_path / "mine-rival")
    assert mine.recipe.optimizer.damping == 0.1 and rival.recipe.optimizer.name == "momentum"
    assert mine.steps()[0]["loss"] == rival.steps()[0]["loss"]  # the same weights and images
    assert mine.updates()[0]["update"] == 1 and rival.updates() == []
    assert "on the test images" in done.stdout.splitlines()[-4]
