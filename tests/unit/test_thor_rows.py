"""labkit.thor: factors of a single row, which ops.inverse does not take."""

import numpy as np
import pytest
from mindspore import Tensor, nn

from labkit.thor import Thor, damped_inverse


@pytest.mark.parametrize("rows", [1, 2])
def test_inverse_of_blocks_of_so_many_rows(rows):
    random = np.random.default_rng(1).normal(size=(5, rows, 8)).astype(np.float32)
    blocks = random @ random.transpose(0, 2, 1)
    found = damped_inverse(Tensor(blocks), 0.09).asnumpy()
    np.testing.assert_allclose(found, np.linalg.inv(blocks + 0.3 * np.eye(rows)), rtol=1e-4)


def test_a_layer_with_one_output_is_preconditioned():
    thor = Thor(nn.SequentialCell(nn.Dense(3, 1)), damping=[0.09], update=[True])
    factor_a, factor_g = np.diag([1.0, 2.0, 3.0]), np.array([[4.0]])
    factors = [Tensor(factor[None].astype(np.float32)) for factor in (factor_a, factor_g)]
    thor.renew(0, factors, Tensor(np.array([6.0, 4.0], np.float32)))
    gradient = np.array([[1.0, -2.0, 0.5]], np.float32)
    found, bias = thor((Tensor(gradient), Tensor(np.array([7.0], np.float32))))
    np.testing.assert_allclose(found.asnumpy(), gradient / (np.diag(factor_a) + 0.3) / 4.3, rtol=1e-5)
    assert bias.asnumpy() == 7
