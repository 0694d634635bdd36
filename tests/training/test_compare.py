"""Steps and seconds to a target, of Runs whose history is written here."""

import json
import math
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from labkit import cli, figures
from labkit.training import compare, recipes, runs
from labkit.training.callbacks import append_line
from labkit.training.runs import RunError


@pytest.fixture
def make(tmp_path, repo_root):
    """A function: a complete Run of two steps an epoch, each of so many seconds, and 10 more where it compiles."""

    def make(name, accuracies, seconds=1.0, profile="sample", settings=(), compiled=(1, 2), processes=1):
        recipe = recipes.load(repo_root / "labs/thor/recipe.yaml", profile, settings)
        run = runs.create(tmp_path / name, recipe)
        for epoch, accuracy in enumerate(accuracies, start=1):
            for step in (2 * epoch - 1, 2 * epoch):
                slow = step in compiled
                line = {"step": step, "epoch": epoch, "loss": 1.0, "lr": 0.1, "seconds": seconds + 10 * slow}
                append_line(run.history_file, line | ({"compiled": True} if slow else {}))
            append_line(run.history_file, {"epoch": epoch, "accuracy": accuracy})
        runs.begin(run, SimpleNamespace(dataset={"name": "none", "sha256": "0" * 64}), processes)
        runs.write_summary(run)
        return run

    return make


@pytest.mark.parametrize("compiled", [(1, 2), (1,), (1, 5)])
def test_a_curve_leaves_compilation_out(make, compiled):
    """Of two graphs or one, and in a Run that was resumed."""
    curve = compare.curve(make("a", [0.2, 0.5, 0.6], seconds=2.0, compiled=compiled))
    assert (curve.steps, curve.seconds, curve.accuracies) == ([2, 4, 6], [4.0, 8.0, 12.0], [0.2, 0.5, 0.6])
    assert curve.compile_seconds == pytest.approx(10 * len(compiled))
    assert curve.step_ms == pytest.approx(2000)
    assert [curve.reaches(target) for target in (0.2, 0.21, 0.61)] == [(2, 4.0), (4, 8.0), None]


def test_evaluations_within_an_epoch(make, tmp_path):
    """Epoch 1.5 of two steps each is step 3; without them the Run is of the same setting."""
    seeds = [make(f"a-{seed}", [0.2, 0.6], settings=(f"seed={seed}", *more)) for seed, more in (
        (1, ()), (2, ("evaluation_steps=3",))
    )]  # fmt: skip
    lines = seeds[1].history_file.read_text().splitlines(keepends=True)
    lines.insert(4, json.dumps({"epoch": 1.5, "accuracy": 0.5}) + "\n")
    seeds[1].history_file.write_text("".join(lines))
    [(_, (one, other))] = compare.settings(seeds).items()
    assert (one.steps, other.steps, other.accuracies) == ([2, 4], [2, 3, 4], [0.2, 0.5, 0.6])
    assert other.reaches(0.4) == (3, 3.0)


def test_runs_that_differ_in_the_seed_are_one_setting(make):
    seeds = [make(f"thor-seed{n}", [0.1, end], settings=(f"seed={n}",)) for n, end in ((1, 0.5), (2, 0.6), (3, 0.7))]
    other = make("other", [0.5, 0.7], seconds=3.0, profile="sample-momentum")
    curves = compare.settings([other, *seeds])
    assert {name: len(ones) for name, ones in curves.items()} == {"other": 1, "thor": 3}
    assert compare.default_target(curves) == 0.7
    momentum, thor = compare.summary(curves, 0.6)
    assert (momentum["reached"], momentum["steps"], momentum["seconds"]) == (1, [4, 4, 4], [12.0, 12.0, 12.0])
    assert (thor["runs"], thor["reached"], thor["steps"]) == (3, 2, [4, 4, math.inf])
    assert thor["accuracy"] == [0.6, 0.5, 0.7]
    assert compare.summary(curves, 0.99)[1]["steps"] == [math.inf] * 3


def test_a_repetition_is_no_other_seed(make):
    curves = compare.settings([make("a-1", [0.5]), make("again", [0.5]), make("a-2", [0.6], settings=("seed=7",))])
    assert {name: len(ones) for name, ones in curves.items()} == {"a": 2, "again": 1}


@pytest.mark.parametrize("changed", [{"sha256": "1" * 64}, {"contents": "an image has other contents"}])
def test_other_data_is_not_compared(make, changed):
    one, other = make("one", [0.5]), make("other", [0.6])
    summary = one.summary
    summary["provenance"]["dataset"] |= {"contents": "those of one"}
    (one.path / "summary.json").write_text(json.dumps(summary))
    summary["provenance"]["dataset"] |= {"name": "digits", **changed}
    (other.path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunError, match="other: trained on other data .digits, .*one on none.; --any-data"):
        compare.settings([one, other])
    assert list(compare.settings([one, other], any_data=True)) == ["one", "other"]


@pytest.mark.parametrize("changed", [
    {"processes": 2}, {"settings": ("epochs=5",)}, {"settings": ("optimizer.damping=0.1",)},
    {"profile": "sample-momentum"},
])  # fmt: skip
def test_what_decides_a_setting(make, changed):
    """Two processes have twice the batch."""
    curves = compare.settings([make("a-1", [0.5]), make("a-2", [0.6], **changed)])
    assert {name: len(ones) for name, ones in curves.items()} == {"a-1": 1, "a-2": 1}


@pytest.mark.parametrize("first, second, name", [
    ("thor-seed1", "thor-seed2", "thor"), ("thor-1", "thor-2", "thor"), ("resnet20", "again", "resnet20"),
])  # fmt: skip
def test_names_of_several(make, first, second, name):
    """Without the number of the seed; a network's number stays."""
    curves = compare.settings([make(first, [0.5]), make(second, [0.6], settings=("seed=2", "checkpoint_steps=5"))])
    assert [(key, len(both)) for key, both in curves.items()] == [(name, 2)]


def test_names_are_told_apart(make, monkeypatch, tmp_path):
    """No setting hides another, whose name it has without its number."""
    monkeypatch.chdir(tmp_path)
    names = {"thor-1": ("seed=1",), "thor-2": ("seed=2",), "thor": ("epochs=5",), "a/thor": ("epochs=6",)}
    for name, settings in names.items():
        make(name, [0.5], settings=settings)
    found = compare.settings([runs.open_run(name) for name in names])
    assert list(found) == ["thor", str(tmp_path / "thor"), "a/thor"]


def test_a_run_given_twice_counts_once(make):
    run, other = make("a", [0.5]), make("b", [0.6], profile="sample-momentum")
    curves = compare.settings([run, other, runs.open_run(run.path), other])
    assert {name: len(ones) for name, ones in curves.items()} == {"a": 1, "b": 1}


def test_the_table_says_how_many_times_fewer(make):
    slow, fast = make("slow", [0.1, 0.2, 0.8, 0.8], seconds=2.0, profile="sample-momentum"), make("fast", [0.1, 0.9])
    curves = compare.settings([slow, fast])
    first, *_, slower, faster = compare.table(compare.summary(curves, 0.8), 0.8).splitlines()
    assert "80.00%" in first
    assert "6 (1.00x)" in slower and "12 (1.00x)" in slower
    assert "4 (1.50x)" in faster and "4 (3.00x)" in faster and "90.00%" in faster
    assert "not reached" in compare.table(compare.summary(curves, 0.85), 0.85).splitlines()[-2]


def test_the_figure_has_a_line_for_each_run(make):
    curves = compare.settings([make("a", [0.1, 0.2], profile="sample-momentum"), make("b", [0.2, 0.3])])
    steps, seconds = figures.comparison(curves, 0.2).axes
    assert len(steps.lines) == len(seconds.lines) == 3  # two Runs and the target
    assert list(steps.lines[0].get_xdata()) == [2, 4] and list(steps.lines[0].get_ydata()) == [10, 20]


def test_the_command(make, tmp_path):
    names = [str(make("a", [0.1, 0.2], profile="sample-momentum").path), str(make("b", [0.2, 0.3]).path)]
    shown = CliRunner().invoke(cli.main, ["compare", *names, "--out", str(tmp_path / "c.png")])
    assert shown.exit_code == 0 and "2 (2.00x)" in shown.output and (tmp_path / "c.png").stat().st_size > 1000
    aimed = CliRunner().invoke(cli.main, ["compare", *names, "--target", "0.3"])
    assert "30.00%" in aimed.output and "not reached" in aimed.output
    assert CliRunner().invoke(cli.main, ["compare", *names, "--target", "30"]).exit_code == 2


def test_a_run_in_sink_mode_is_named(make):
    run = make("sink", [0.5, 0.6])
    run.history_file.write_text("".join(run.history_file.read_text().splitlines(True)[1:]))
    with pytest.raises(RunError, match=r"sink: cannot be compared: .*\(sink mode\)"):
        compare.curve(run)


def test_an_unfinished_run_is_refused(make):
    """Whatever it has; as a baseline its last accuracy so far would be the target."""
    whole, begun = make("whole", [0.5]), make("begun", [0.4], profile="sample-momentum")
    (begun.path / "summary.json").unlink()
    done = CliRunner().invoke(cli.main, ["compare", str(begun.path), str(whole.path)])
    again = f"`labkit train thor --resume --out {begun.path}`"
    said = f"Error: {begun.path}: cannot be compared: it is not complete; resume it with {again}\n"
    assert (done.exit_code, done.stderr) == (1, said)
