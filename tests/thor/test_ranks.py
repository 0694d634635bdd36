"""Data-parallel: two processes, with factors averaged and the inversion shared out, do what one process does.

In the same two, Runs are trained.
"""

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import ranks
from small_runs import require_equal, small_network, state

from labkit.launch import msrun
from labkit.system.device import in_mode
from labkit.training import build, evaluation, recipes, runs

pytestmark = pytest.mark.slow  # two processes

SETTINGS = (
    "data.batch_size=20", "data.flip=0.5", "epochs=2", "max_steps=4", "optimizer.factor_interval=3",
    "optimizer.damping=0.01", "optimizer.factor_ema=0.5", "optimizer.factor_share=0.5",
    "optimizer.clip_fisher_norm=0.8",
)  # fmt: skip
EPOCH_STEPS = 5  # 200 images, 2 x 20 at a time


@pytest.fixture(scope="module")
def launched(tmp_path_factory, repo_root, write_noise):
    """The folder in which two processes were."""
    folder = tmp_path_factory.mktemp("ranks")
    write_noise(folder / "data")
    for name, more in (("run", ()), ("stopped", ("checkpoint_steps=2",))):
        chosen = (f"data.folder={folder / 'data'}", *SETTINGS, *more)
        runs.create(folder / name, recipes.load(repo_root / "labs/thor/recipe.yaml", "sample", chosen))
    msrun.launch([str(Path(ranks.__file__)), str(folder)], 2, folder / "logs", device="CPU")
    return folder


@pytest.fixture(scope="module")
def results(launched):
    """What one process ends with, and each of two."""
    with in_mode(ms.GRAPH_MODE):
        one = ranks.train(0, 1)
    return [one, *(dict(np.load(launched / f"2-{rank}.npz")) for rank in (0, 1))]


def test_two_with_batch_4_are_one_with_batch_8(results):
    """Factors, inverses, traces, weights and momentum after six steps, four of them factor steps."""
    one, first, second = results
    assert {"thor.0.factor_a", "thor.0.inverse_g", "thor.3.inverse_a", "0.weight", "moments.3.bias"} <= one.keys()
    assert np.any(one["inverted"]) and not np.all(one["inverted"])  # the trace rule had something to decide
    with in_mode(ms.GRAPH_MODE):
        assert ranks.train(0, 1, clip_fisher_norm=None)["loss"] != one["loss"]  # and the bound to clip
    np.testing.assert_allclose(np.mean([first["loss"], second["loss"]], axis=0), one["loss"], rtol=1e-4)
    for name in one.keys() - {"loss"}:
        largest = np.abs(one[name]).max()
        np.testing.assert_allclose(first[name], one[name], rtol=1e-3, atol=1e-4 * largest, err_msg=name)


def test_ranks_agree_bit_by_bit(results):
    """On which inverses to refresh as on all else, though each sees other images."""
    _, first, second = results
    assert not np.array_equal(first["loss"], second["loss"])
    for name in first.keys() - {"loss"}:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_run_of_two_processes(launched, monkeypatch):
    """Steps, factor steps and evaluation are in it; each process inverts a part, and both have all inverses."""
    run = runs.open_run(launched / "run")
    assert run.processes == 2 and [record["step"] for record in run.steps()] == [1, 2, 3, 4]
    assert [record["factor_step"] for record in run.factor_steps()] == [1, 4]
    kept = state(run)
    refreshed = run.factor_steps()[-1]["inverted"]
    assert refreshed == ["0", "4"]
    damping = run.recipe.optimizer.damping * run.recipe.optimizer.damping_decay ** (4 / EPOCH_STEPS / 10)
    for name in refreshed:
        for kind in ("a", "g"):
            factor, inverse = (kept[f"thor.{name}.{part}_{kind}"].astype(np.float64) for part in ("factor", "inverse"))
            identity = np.broadcast_to(np.eye(factor.shape[-1]), factor.shape)
            rows = factor.any(axis=-1)  # not those of the padding
            product = (factor + damping**0.5 * identity) @ inverse
            np.testing.assert_allclose(product[rows], identity[rows], atol=0.01, err_msg=f"{name} {kind}")
    monkeypatch.setattr(build, "create_network", small_network)
    with in_mode(ms.GRAPH_MODE):
        assert evaluation.evaluate(run)["accuracy"] == run.summary["accuracy"]


def test_resumed_within_an_interval(launched):
    """At step 2, of an interval from 1 to 4; step 3 is lost. All ends as if nothing had happened."""
    run, stopped = (runs.open_run(launched / name) for name in ("run", "stopped"))
    assert stopped.complete and stopped.processes == 2
    require_equal(stopped, run)
