"""labkit.plots: what stands where on the axes."""

import numpy as np
import pytest

from labkit import plots
from labkit import recipe as recipes
from labkit import run as runs
from labkit.callbacks import append_line


@pytest.fixture
def make_run(tmp_path, repo_root):
    """Function that makes a Run with a history of so many steps, five an epoch, evaluated after whole ones."""
    recipe = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample")

    def make_run(name, steps):
        run = runs.create(tmp_path / name, recipe)
        dataset = {"name": "digits", "sha256": "0" * 64, "train_images": 5 * recipe.data.batch_size + 1}
        runs.keep_provenance(run, dataset)
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
    loss, rate, accuracy = plots.training_curves([make_run("run", steps)]).axes
    for line in [*loss.lines, *rate.lines]:
        np.testing.assert_allclose(line.get_xdata(), np.arange(1, steps + 1) / 5)
    np.testing.assert_array_equal(accuracy.lines[0].get_xdata(), np.arange(1, steps // 5 + 1))
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), 10 * np.arange(1, steps // 5 + 1))


def test_several_runs_have_a_colour_and_their_name(make_run):
    figure = plots.training_curves([make_run("mine", 10), make_run("yours", 3), make_run("empty", 0)])
    assert [text.get_text() for text in figure.axes[2].get_legend().get_texts()] == ["mine", "yours", "empty"]
    assert len({line.get_color() for line in figure.axes[2].lines}) == 3


def test_smooth_is_the_mean_of_the_values_before():
    np.testing.assert_allclose(plots.smooth([3, 5, 10, 0], 2), [3, 4, 7.5, 5])
    np.testing.assert_allclose(plots.smooth([3, 5], 1), [3, 5])


def test_confusion_matrix_without_an_error_or_without_an_image():
    for counts in ([[5, 0], [0, 7]], [[0, 0], [0, 0]], [[1, 2], [3, 4]]):
        figure = plots.confusion_matrix(counts, ["a", "b"])
        shown = [text.get_text() for text in figure.axes[0].texts]
        assert shown == [str(count) for row in counts for count in row if count]
