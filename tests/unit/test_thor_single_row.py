"""Factors of one row: a layer with one output or one input, and blocks of size 1."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from labkit.thor import Thor, ThorStep, damped_inverse


@pytest.mark.parametrize("block_size", [None, 1])
def test_a_layer_with_one_output_is_preconditioned(block_size):
    random = np.random.default_rng(1)
    x, y = random.normal(size=(8, 3)).astype(np.float32), random.normal(size=(8, 1)).astype(np.float32)
    weight = random.normal(size=(1, 3)).astype(np.float32)
    net = nn.SequentialCell([nn.Dense(3, 1, weight_init=Tensor(weight), has_bias=False)])
    thor = Thor(net, [0.04], [True], block_size)
    ThorStep(net, nn.MSELoss(), nn.Momentum(thor.weights, 0.0, 0.0), thor)(Tensor(x), Tensor(y))

    errors = 2 * (x @ weight.T - y)
    factor_a, factor_g = x.T @ x / 8, errors.T @ errors / 8
    if block_size:
        factor_a = np.diag(np.diag(factor_a))
    gradient = random.normal(size=(1, 3)).astype(np.float32)
    wanted = gradient / (factor_g + 0.2) @ np.linalg.inv(factor_a + 0.2 * np.eye(3))
    np.testing.assert_allclose(thor((Tensor(gradient),))[0].asnumpy(), wanted, rtol=1e-5)


def test_damped_inverse_of_single_rows():
    blocks = Tensor([[[0.0]], [[1.5]]], ms.float32)
    np.testing.assert_allclose(damped_inverse(blocks, 0.25).asnumpy(), [[[2.0]], [[0.5]]])
