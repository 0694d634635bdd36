"""Damped block inverses and preconditioning: against dense solves of the Kronecker product, limits and invariants."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from small import (
    KnownGradient,
    cross_entropy,
    factors,
    fisher_norm,
    gram,
    measured,
    only_blocks,
    patches,
    preconditioned,
    step_of,
    tensor,
    values,
)

from labkit.thor import TRACE_RULES, ThorError, damped_inverse, precondition
from labkit.thor.factors import block_gram, block_shape
from labkit.thor.inverses import invert

# Shape of a weight, block size: sizes that blocks divide and do not, one above 128, none at all.
WEIGHTS = [
    ((3, 5), None), ((4, 6), 2), ((3, 5), 2), ((5, 2, 3, 1), 4), ((2, 1, 2, 2), 8), ((1, 7), 3), ((3, 130), 128),
]  # fmt: skip


def random_factors(rng, weight):
    """Rows and their factors A and G, for a weight of this shape."""
    sizes = int(np.prod(weight[1:])), weight[0]
    rows = [rng.normal(size=(2 * size, 1, size)) for size in sizes]
    return rows, [gram(r) for r in rows]


@pytest.mark.parametrize("damping", [0.03, 1.0])
@pytest.mark.parametrize("weight, block_size", WEIGHTS)
def test_precondition_is_the_dense_solve(weight, block_size, damping, mode, rng):
    """Of the whole Kronecker product; with blocks, of the factors with zeros outside them."""
    rows, dense = random_factors(rng, weight)
    inverses = [
        damped_inverse(block_gram(tensor(r[:, 0].T[None]), block_shape(len(f), block_size or 2**31)) / len(r), damping)
        for r, f in zip(rows, dense)
    ]
    gradient = rng.normal(size=weight)
    found = precondition(tensor(gradient), *inverses).asnumpy()
    expected = preconditioned(gradient, *dense, damping, block_size)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def paper(gradient, a, g, positions, damping):
    """(1/T) (G + sqrt(damping / T) I)^-1 dW (A + sqrt(damping / T) I)^-1 with the paper's own A and G."""
    a, g = (f + (damping / positions) ** 0.5 * np.eye(len(f)) for f in (a, g))
    return np.linalg.inv(g) @ gradient @ np.linalg.inv(a) / positions


def test_a_whole_step_is_the_papers_formula(rng):
    """From images to preconditioned gradients, of a convolution with T = 9 positions; its bias passes."""
    images, labels, damping = rng.normal(size=(6, 2, 4, 4)), rng.normal(size=(6, 3, 3, 3)), 0.3
    net = nn.SequentialCell(nn.Conv2d(2, 3, 2, pad_mode="valid", has_bias=True))
    thor = measured(net, images, labels, damping=[damping])
    rows, outputs = patches(images, (2, 2), pad_mode="valid"), labels.reshape(6, 3, 9).transpose(0, 2, 1)
    weight, bias = rng.normal(size=(3, 2, 2, 2)), rng.normal(size=3)
    found, passed = thor((tensor(weight), tensor(bias)))
    expected = paper(weight.reshape(3, 8), gram(rows) / 3, gram(outputs) / 3, 9, damping).reshape(weight.shape)
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(passed.asnumpy(), bias.astype(np.float32))


# -- Limits and invariants ----------------------------------------------------------------------------


@pytest.mark.parametrize("bound, share", [
    (0.5, 0.5), *(pytest.param(bound, 1.0, marks=pytest.mark.slow) for bound in (1.0, 2.0)),  # a graph each
])  # fmt: skip
def test_clipped_to_a_fisher_norm(bound, share, mode, rng):
    """The norm over all layers, in units of the unclipped one, by dense Fisher blocks; the bias is no part of it."""
    images, labels, damping = rng.normal(size=(6, 2, 4, 4)), np.arange(6) % 4, 0.2
    gradients = None

    def train(clip):
        nonlocal gradients
        ms.set_seed(3)
        net = nn.SequentialCell(nn.Conv2d(2, 3, 3, stride=2, has_bias=True), nn.Tanh(), nn.Flatten(), nn.Dense(12, 4))
        thor = measured(net, images, labels, cross_entropy(), damping=[damping], clip_fisher_norm=clip)
        gradients = gradients or {p.name: rng.normal(size=p.shape) for p in thor.weights}
        found = thor(tuple(tensor(gradient) for gradient in gradients.values()))
        return thor, dict(zip(gradients, (p.asnumpy().astype(np.float64) for p in found)))

    thor, unclipped = train(None)
    of_layers = [fisher_norm(unclipped[f"{name}.weight"], *factors(thor, name), damping) for name in thor.names]
    _, clipped = train(float(bound * np.linalg.norm(of_layers)))
    for name in gradients:
        expected = unclipped[name] * (1 if name.endswith("bias") else share)
        np.testing.assert_allclose(clipped[name], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradients_of_zeros_are_clipped_to_zeros(mode, rng):
    """Not divided by a norm of zero."""
    images, labels = rng.normal(size=(6, 5)), rng.normal(size=(6, 3))
    thor = measured(nn.SequentialCell(nn.Dense(5, 3)), images, labels, clip_fisher_norm=0.1)
    assert not any(p.asnumpy().any() for p in thor((tensor(np.zeros((3, 5))), tensor(np.zeros(3)))))


# -- Factors that have no inverse ---------------------------------------------------------------------


def inverted(factor, damping, rows=None):
    """Inverse of one factor (blocks, b, b) of a matrix with so many rows; None where it has none."""
    factor = Parameter(Tensor(np.asarray(factor), ms.float32), "factor")
    (inverse,) = invert([(factor, rows or factor.shape[0] * factor.shape[1])], damping)
    return None if inverse is None else inverse.asnumpy()


def of_rank(rng, size, rank):
    rows = rng.normal(size=(size, rank))
    return rows @ rows.T / rank


@pytest.mark.parametrize("size, rank, damping", [
    (3, 0, 0.0), (3, 1, 0.0), (3, 2, 0.0), (128, 127, 0.0), (128, 64, 0.0), (128, 64, 1e-13), (3, 1, np.nan),
    (576, 575, 0.0),
])  # fmt: skip
def test_singular(size, rank, damping, rng):
    """Also by rounding. MindSpore's CPU kernel gives finite numbers for these, most of them zeros."""
    good = np.eye(size)
    assert inverted([good, of_rank(rng, size, rank) if rank else np.zeros((size, size)), good], damping) is None


@pytest.mark.parametrize("size, rank, damping, largest", [
    (3, 3, 0.0, 1), (128, 128, 0.0, 1), (128, 64, 1e-4, 1), (128, 16, 0.01, 1e4), (128, 1, 0.03, 1e4), (3, 0, 1e-6, 1),
    (576, 256, 1e-8, 1), (576, 1, 0.03, 1e4),
])  # fmt: skip
def test_nearly_singular(size, rank, damping, largest, rng):
    """What occurs in training is not refused: few images, a direction that is much larger than others, dead units."""
    factor = of_rank(rng, size, rank) if rank else np.zeros((size, size))
    factor += (largest - 1) / size * np.ones((size, size))
    expected = np.linalg.inv(factor.astype(np.float32).astype(np.float64) + damping**0.5 * np.eye(size))
    found = inverted([factor], damping)
    np.testing.assert_allclose(found[0], expected, atol=0.01 * np.abs(expected).max())


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_padding_is_no_part_of_the_matrix(damping, rng):
    """Five rows in blocks of two: the sixth is zeros in the factor, and does not make it singular."""
    factor = only_blocks(of_rank(rng, 5, 9), 2)
    blocks = np.pad(factor, (0, 1)).reshape(3, 2, 3, 2)[range(3), :, range(3)]
    found = inverted(blocks, damping, rows=5)
    expected = np.linalg.inv(factor + damping**0.5 * np.eye(5))
    for block, start in zip(found, (0, 2, 4)):
        own = expected[start : start + 2, start : start + 2]
        np.testing.assert_allclose(block[: len(own), : len(own)], own, rtol=1e-3, atol=1e-4)


def test_singular_factor_of_a_layer():
    """Where there is no inverse to keep, an error that names it; the same with damping is a step like others."""
    images, labels = np.eye(4, 3), np.zeros((4, 2))
    with pytest.raises(ThorError, match="^factor_g of 0 is too close to singular for float32 at damping 0; raise it"):
        measured(nn.SequentialCell(nn.Dense(3, 2)), images, labels, damping=[0.0])
    thor = measured(nn.SequentialCell(nn.Dense(3, 2)), images, labels, KnownGradient(), damping=[0.1])
    assert all(np.isfinite(f).all() for f in factors(thor, "0"))


def test_later_singular_factor(rng):
    """The inverses in use stay, of both factors, with a warning."""
    options = {"damping": [0.1, 0.0], "factor_steps": [True, True], "thresholds": TRACE_RULES["thor_nt"]}
    step = step_of(nn.SequentialCell(nn.Dense(3, 2)), KnownGradient(), **options)
    images, labels = tensor(rng.normal(size=(4, 3))), tensor(rng.normal(size=(4, 2)))
    step(images, labels)
    before = values(step.preconditioner)
    step.optimizer.global_step.set_data(Tensor([1], ms.int32))
    with pytest.warns(UserWarning, match="keeps the inverses of 0: a factor is too close to singular for float32"):
        step(images, tensor(np.ones((4, 2))))
    assert not step.refreshed["inverted"].any()
    kept = values(step.preconditioner)
    for name in ("thor.0.inverse_a", "thor.0.inverse_g", "thor.0.trace"):
        np.testing.assert_array_equal(kept[name], before[name])


def test_nothing_went_through():
    """Inputs of zeros, or a layer that is called by another reference than its parent's: no 1 / damping for it."""
    with pytest.warns(UserWarning, match="keeps the inverses of 0: nothing but zeros went through its taps"):
        thor = measured(nn.SequentialCell(nn.Dense(3, 2)), np.zeros((4, 3)), np.eye(4, 2), damping=[0.0])
    np.testing.assert_array_equal(values(thor)["thor.0.inverse_a"][0], np.eye(3))
