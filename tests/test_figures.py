"""labkit.figures: what stands where on the axes."""

import os
import re
import runpy
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from labkit import figures
from labkit.system.environment import REPO
from labkit.training import recipes, runs
from labkit.training.callbacks import append_line


@pytest.fixture
def make_run(tmp_path, repo_root):
    """Function that makes a Run with a history of so many steps, five an epoch, evaluated after whole ones."""
    recipe = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample")

    def make_run(name, steps):
        run = runs.create(tmp_path / name, recipe)
        dataset = {"name": "digits", "sha256": "0" * 64, "train_images": 5 * recipe.data.batch_size + 1}
        runs.begin(run, SimpleNamespace(dataset=dataset))
        run.history_file.touch()
        for step in range(1, steps + 1):
            epoch = -(-step // 5)
            append_line(run.history_file, {"step": step, "epoch": epoch, "loss": 1 / step, "lr": 0.1, "seconds": 1.0})
            if step % 5 == 0:
                append_line(run.history_file, {"epoch": epoch, "accuracy": epoch / 10})
        return run

    return make_run


@pytest.mark.parametrize("steps", [3, 5, 10, 11, 12, 13, 14, 15])
def test_steps_stand_at_their_part_of_an_epoch(make_run, steps):
    """Also where the last epoch is not whole: killed, or ended early."""
    loss, rate, accuracy = figures.training_curves([make_run("run", steps)]).axes
    for line in [*loss.lines, *rate.lines]:
        np.testing.assert_allclose(line.get_xdata(), np.arange(1, steps + 1) / 5)
    np.testing.assert_array_equal(accuracy.lines[0].get_xdata(), np.arange(1, steps // 5 + 1))
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), 10 * np.arange(1, steps // 5 + 1))


def test_several_runs_have_a_colour_and_their_name(make_run):
    figure = figures.training_curves([make_run("mine", 10), make_run("yours", 3), make_run("empty", 0)])
    assert [text.get_text() for text in figure.axes[2].get_legend().get_texts()] == ["mine", "yours", "empty"]
    assert len({line.get_color() for line in figure.axes[2].lines}) == 3


def test_smooth_is_the_mean_of_the_values_before():
    np.testing.assert_allclose(figures.smooth([3, 5, 10, 0], 2), [3, 4, 7.5, 5])
    np.testing.assert_allclose(figures.smooth([3, 5], 1), [3, 5])


def test_confusion_matrix_without_an_error_or_without_an_image():
    draw = runpy.run_path(str(REPO / "book/1-cifar10/confusion.py"))["matrix"]
    for counts in ([[5, 0], [0, 7]], [[0, 0], [0, 0]], [[1, 2], [3, 4]]):
        figure = draw(counts, ["a", "b"])
        shown = [text.get_text() for text in figure.axes[0].texts]
        assert shown == [str(count) for row in counts for count in row if count]


def contrast(one, other):
    """Of two colours, by WCAG 2: 1 to 21."""

    def luminance(colour):
        values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_on_paper():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21) and contrast("#777777", "#FFFFFF") < 4.5
    assert min(contrast(colour, figures.PAPER) for colour in (figures.REFERENCE, figures.INK)) >= 4.5


def test_what_has_a_colour_keeps_it_beside_any_other():
    for names in (["momentum", "THOR"], ["THOR", "momentum"], ["a", "THOR", "b"]):
        found = figures.colour_of(names)
        assert list(found) == names and found["THOR"] == figures.COLOUR_OF["THOR"]
        assert len(set(found.values())) == len(names)
    assert list(figures.colour_of("abcdefgh").values()) == [*figures.COLOURS, *figures.COLOURS[:2]]


def test_optimizers_have_a_colour_each_and_the_live_figure_the_same():
    methods = {name: figures.COLOUR_OF[name] for name in ("momentum", "gradient", "Newton", "THOR")}
    assert len(set(methods.values())) == len(methods)
    assert figures.COLOUR_OF["natural"] == methods["THOR"]
    style = (REPO / "book/_static/interactive/interactive.css").read_text(encoding="utf-8")
    light = style.split("html[data-theme", 1)[0]
    for method in ("gradient", "momentum", "natural"):
        (colour,) = re.findall(rf"\.c-{method} {{ --colour: var\((--\w+)\); }}", style)
        assert f"{colour}: {figures.COLOUR_OF[method]};" in light, method


def test_labels_stand_at_their_lines_and_apart():
    figure, axis = figures.new_figure()
    axis.plot([0, 1, 2], [0, 5, 10], label="high")
    axis.plot([0, 1, 2], [0, 0, 5], label="middle")
    axis.plot([0, 1, 2], [0, 0, np.nan], label="left the picture")
    axis.plot([0, 1, 2], [0, 1, 5.1], label="beside it")
    axis.plot([0, 2], [3, 3])  # without a label
    axis.plot([0, 1, 2, 3], [0, 7, 8, 2], label="goes on")
    axis.set(xlim=(0, 2), ylim=(0, 10))
    figures.label_lines(axis, apart=0.1)
    found = {text.get_text(): (text.get_position()[1], text.get_color()) for text in axis.texts}
    assert {name: round(height, 9) for name, (height, _) in found.items()} == {
        "left the picture": 0, "middle": 0.5, "beside it": 0.6, "goes on": 0.8, "high": 1
    }  # fmt: skip
    assert [found[line.get_label()][1] for line in axis.lines[:4]] == [line.get_color() for line in axis.lines[:4]]


def test_the_users_matplotlib_changes_nothing(make_run, tmp_path):
    """Neither a matplotlibrc that asks for TeX nor the name of a backend that is not installed."""
    run = make_run("run", 10)
    runs.write_summary(run)
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 40\n")
    environment = {**os.environ, "MATPLOTLIBRC": str(tmp_path), "MPLBACKEND": "module://no_such_backend"}
    for command in (["plot", run.path], ["compare", run.path, run.path]):
        done = subprocess.run([sys.executable, "-m", "labkit", *command, "--out", tmp_path / "x.png"], env=environment)
        assert done.returncode == 0
