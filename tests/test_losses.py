"""labkit.losses: against numpy."""

import mindspore as ms
import numpy as np
import pytest
from scipy.special import log_softmax

from labkit.losses import CrossEntropySmooth


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return rng.normal(0, 3, (16, 10)).astype(np.float32), rng.integers(0, 10, 16).astype(np.int32)


def targets(labels, classes, smoothing):
    """1 - s for the true class, s / (K - 1) for each other."""
    rows = np.full((len(labels), classes), smoothing / (classes - 1))
    rows[np.arange(len(labels)), labels] = 1 - smoothing
    return rows


def value(loss, logits, labels):
    out = loss(ms.Tensor(logits), ms.Tensor(labels))
    assert out.shape == ()
    return float(out.asnumpy())


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 0.99])
def test_mean_over_the_batch_of_minus_sum_target_log_softmax(batch, smoothing):
    logits, labels = batch
    expected = -(targets(labels, 10, smoothing) * log_softmax(logits.astype(float), axis=1)).sum(axis=1).mean()
    assert value(CrossEntropySmooth(10, smoothing), logits, labels) == pytest.approx(expected, rel=1e-5)


def test_pytorchs_convention_after_rescaling(batch):
    """label_smoothing=s: (1 - s) onehot + s / K, the same as s (K - 1) / K here; not the same as s."""
    logits, labels = batch
    over_all = 0.9 * targets(labels, 10, 0.0) + 0.1 / 10
    expected = -(over_all * log_softmax(logits.astype(float), axis=1)).sum(axis=1).mean()
    assert value(CrossEntropySmooth(10, 0.1 * 9 / 10), logits, labels) == pytest.approx(expected, rel=1e-5)
    assert value(CrossEntropySmooth(10, 0.1), logits, labels) != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_softmax_minus_target_over_n(batch, smoothing):
    logits, labels = batch
    gradient = ms.grad(CrossEntropySmooth(10, smoothing))(ms.Tensor(logits), ms.Tensor(labels)).asnumpy()
    expected = (np.exp(log_softmax(logits.astype(float), axis=1)) - targets(labels, 10, smoothing)) / 16
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)


def test_logits_of_thousands_stay_finite():
    logits = np.array([[5000.0, -5000.0, 0.0]], np.float32)
    assert value(CrossEntropySmooth(3), logits, np.array([0], np.int32)) == pytest.approx(0.0, abs=1e-6)
    assert value(CrossEntropySmooth(3), logits, np.array([1], np.int32)) == pytest.approx(10000.0)


@pytest.mark.parametrize("classes, smoothing", [(10, -0.1), (10, 1.0), (10, float("nan")), (1, 0.0), (1, 0.1)])
def test_settings_that_cannot_be(classes, smoothing):
    with pytest.raises(ValueError, match="needs two classes and a smoothing from 0 to below 1"):
        CrossEntropySmooth(classes, smoothing)
