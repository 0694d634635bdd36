"""Data-parallel: two processes, with factors averaged and the inversion shared out, do what one process does."""

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import ranks

from labkit import launch
from labkit.runtime import in_mode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory, repo_root):
    """What one process ends with, and each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(repo_root))
        launch.launch([str(Path(ranks.__file__)), str(folder)], 2, folder / "logs", device="CPU")
    with in_mode(ms.GRAPH_MODE):
        one = ranks.train(0, 1)
    return [one, *(dict(np.load(folder / f"2-{rank}.npz")) for rank in (0, 1))]


def test_two_with_batch_4_are_one_with_batch_8(results):
    """Factors, inverses, traces, weights and momentum after six steps, four of them with statistics."""
    one, first, second = results
    assert {"thor.0.factor_a", "thor.0.inverse_g", "thor.3.inverse_a", "0.weight", "moments.3.bias"} <= one.keys()
    np.testing.assert_allclose(np.mean([first["loss"], second["loss"]], axis=0), one["loss"], rtol=1e-4)
    for name in one.keys() - {"loss"}:
        largest = np.abs(one[name]).max()
        np.testing.assert_allclose(first[name], one[name], rtol=1e-3, atol=1e-4 * largest, err_msg=name)


def test_ranks_agree_bit_by_bit(results):
    """On which inverses to renew as on all else, though each sees other images."""
    _, first, second = results
    assert not np.array_equal(first["loss"], second["loss"])
    for name in first.keys() - {"loss"}:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_the_trace_rule_had_something_to_decide(results):
    inverted = np.array(results[0]["inverted"])
    assert inverted.shape == (4, 2) and inverted[0].all() and not inverted.all()
