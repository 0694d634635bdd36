"""Where factors A and G are exactly the Fisher matrix, and the scale of a convolution's: by per-example gradients."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from small import cross_entropy, factors, measured, patches, tensor


def fisher(net, weight, images, labels):
    """The empirical Fisher matrix by brute force: mean of v v^T, v an image's gradient by one weight, flattened."""
    gradient = ms.grad(lambda x, y: cross_entropy()(net(x), y), None, weight)
    each = [gradient(tensor(x[None]), tensor(y[None])).asnumpy().astype(np.float64).ravel()
            for x, y in zip(images, labels)]  # fmt: skip
    return np.mean([np.outer(v, v) for v in each], axis=0)


def dense_in_between():
    return nn.SequentialCell(nn.Flatten(), nn.Dense(8, 3), nn.Tanh(), nn.Dense(3, 4))


def one_position():
    """A convolution as large as its image."""
    return nn.SequentialCell(nn.Conv2d(2, 3, 2, pad_mode="valid"), nn.Tanh(), nn.Flatten(), nn.Dense(3, 4))


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("create, name", [(dense_in_between, "1"), (dense_in_between, "3"), (one_position, "0")])
def test_exact_for_one_image(create, name, copies, rng):
    """F = G (x) A for one image with one position, or copies of it."""
    images, labels = np.repeat(rng.normal(size=(1, 2, 2, 2)), copies, axis=0), np.full(copies, 2)
    net = create()
    weight = next(p for p in net.trainable_params() if p.name == f"{name}.weight")
    truth = fisher(net, weight, images, labels)
    factor_a, factor_g = factors(measured(net, images, labels, cross_entropy()), name)
    np.testing.assert_allclose(np.kron(factor_g, factor_a), truth, rtol=1e-4, atol=1e-5 * np.abs(truth).max())


def brute_force(rows, outputs):
    """Mean over the images of v v^T, v = sum over positions of g_t a_t^T, flattened."""
    v = np.einsum("nto,nta->noa", outputs, rows).reshape(len(rows), -1)
    return v.T @ v / len(v)


def test_scale_of_a_convolution_by_monte_carlo(rng):
    """With derivatives that are independent between positions, F = T A (x) G (KFC): factor_a (x) factor_g has the T."""
    images, labels = rng.normal(size=(8000, 1, 4, 4)) + 0.5, rng.normal(size=(8000, 2, 3, 3))
    labels[:, 1] += 0.5 * labels[:, 0]
    rows = np.lib.stride_tricks.sliding_window_view(images[:, 0], (2, 2), axis=(1, 2)).reshape(8000, 9, 4)
    np.testing.assert_array_equal(rows[:2], patches(images[:2], (2, 2), pad_mode="valid"))
    truth = brute_force(rows, labels.reshape(8000, 2, 9).transpose(0, 2, 1))
    thor = measured(nn.SequentialCell(nn.Conv2d(1, 2, 2, pad_mode="valid")), images, labels)
    factor_a, factor_g = factors(thor, "0")
    error = np.linalg.norm(np.kron(factor_g, factor_a) - truth) / np.linalg.norm(truth)
    assert error < 0.06  # 8000 images; a factor T = 9 would be seen
