"""Factors A and G: against loops over patches and MindSpore's own convolution; shares, blocks and averages."""

from functools import cache

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from small import KnownGradient, factors, gram, measured, patches, step_of, tensor

from labkit.system.device import in_mode
from labkit.thor.factors import Patches

IMAGES, CHANNELS, HEIGHT, WIDTH = 5, 2, 7, 6
# By name: a layer's options, of nn.Conv2d where there is a kernel, of nn.Dense otherwise.
LAYERS = {
    "plain": {"kernel_size": (3, 3)},
    "one_by_one": {"kernel_size": (1, 1), "stride": (2, 2)},
    "same_asymmetric": {"kernel_size": (3, 3), "stride": (2, 2)},  # 7 x 6: one zero above and below, one at the right
    "same_even": {"kernel_size": (2, 2)},
    "same_skipping": {"kernel_size": (2, 1), "stride": (3, 4)},  # pixels that no output sees
    "same_dilated": {"kernel_size": (3, 3), "dilation": (2, 1)},
    "valid": {"kernel_size": (3, 2), "stride": (2, 1), "pad_mode": "valid"},
    "valid_dilated": {"kernel_size": (2, 2), "dilation": (3, 2), "pad_mode": "valid"},
    "row": {"kernel_size": (1, 3), "stride": (1, 2)},
    "padded": {"kernel_size": (3, 3), "stride": (2, 2), "pad_mode": "pad", "padding": 1},
    "four_paddings": {"kernel_size": (3, 3), "stride": (2, 1), "pad_mode": "pad", "padding": (0, 1, 2, 3)},
    "bias": {"kernel_size": (3, 3), "has_bias": True},
    "dense": {},
    "dense_of_rows": {},  # of (N, rows, width): each row is a position
}
IN_GRAPH_MODE = ("same_asymmetric", "valid_dilated", "four_paddings", "dense", "dense_of_rows")  # a second each


class Branches(nn.Cell):
    """Some of LAYERS side by side on the same images, their outputs in one row an image."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        for number, name in enumerate(names):
            options = LAYERS[name]
            if options:
                layer = nn.Conv2d(CHANNELS, 3 + number % 2, **options)
            else:
                layer = nn.Dense(CHANNELS * HEIGHT * WIDTH if name == "dense" else WIDTH, 3)
            setattr(self, name, layer)

    def construct(self, x):
        outputs = ()
        for name in self.names:
            fed = x
            if name == "dense":
                fed = x.reshape(x.shape[0], -1)
            elif name == "dense_of_rows":
                fed = x.reshape(x.shape[0], -1, WIDTH)
            outputs += (getattr(self, name)(fed).reshape(x.shape[0], -1),)
        return outputs


class RowLoss(nn.Cell):
    def construct(self, outputs, labels):
        return (ops.concat(outputs, 1) * labels).sum() / labels.shape[0]


@pytest.fixture(scope="module")
def branches():
    """Function: by mode, images, labels of each layer and the preconditioner that measured all layers in one step."""

    @cache
    def measure(mode):
        rng, names = np.random.default_rng(1), IN_GRAPH_MODE if mode == "graph" else tuple(LAYERS)
        images, net = rng.normal(size=(IMAGES, CHANNELS, HEIGHT, WIDTH)), Branches(names)
        widths = [output.shape[1] for output in net(tensor(images))]
        labels = rng.normal(size=(IMAGES, sum(widths)))
        with in_mode(ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE):
            thor = measured(net, images, labels, RowLoss())
        return images, dict(zip(names, np.split(labels, np.cumsum(widths)[:-1], axis=1))), thor

    return measure


@pytest.mark.parametrize(
    "mode, name", [*(("pynative", name) for name in LAYERS), *(("graph", name) for name in IN_GRAPH_MODE)]
)
def test_factors_are_those_of_the_loops(branches, mode, name):
    images, labels, thor = branches(mode)
    options, layer = LAYERS[name], thor.layers[name].layer
    channels = layer.weight.shape[0]
    if options:
        keys = {"stride", "dilation", "pad_mode"} & options.keys()
        rows = patches(images, options["kernel_size"], pad=options.get("padding", 0), **{k: options[k] for k in keys})
        outputs = labels[name].reshape(IMAGES, channels, -1).transpose(0, 2, 1)
    else:
        rows = images.reshape(IMAGES, -1, layer.in_channels)
        outputs = labels[name].reshape(IMAGES, -1, channels)
    assert rows.shape[:2] == outputs.shape[:2]
    factor_a, factor_g = factors(thor, name)
    np.testing.assert_allclose(factor_a, gram(rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(factor_g, gram(outputs), rtol=1e-5, atol=1e-6)


def test_blocks_are_the_diagonal_blocks(rng):
    """Of 18 rows in blocks of at most 5: four of 5 rows, the last with two rows of zeros."""
    images, labels = rng.normal(size=(3, 2, 4, 4)), rng.normal(size=(3, 5, 4, 4))
    whole, cut = (measured(nn.SequentialCell(nn.Conv2d(2, 5, 3, weight_init="zeros")), images, labels, block_size=b)
                  for b in (None, 5))  # fmt: skip
    factor_a, factor_g = factors(whole, "0")
    blocks = cut.layers["0"].factor_a.asnumpy()
    assert blocks.shape == (4, 5, 5) and cut.layers["0"].factor_g.shape == (1, 5, 5)
    padded = np.pad(factor_a, (0, 2))
    for number, block in enumerate(blocks):
        place = slice(5 * number, 5 * number + 5)
        np.testing.assert_allclose(block, padded[place, place], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(cut.layers["0"].factor_g.asnumpy()[0], factor_g, rtol=1e-6)


@pytest.mark.parametrize("share, count", [
    (0.4, 3), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((0.01, 1), (1.0, 7))),  # a graph each
])  # fmt: skip
def test_a_share_of_the_batch(share, count, mode, rng):
    """Factors are exactly those of the first images, whatever the batch's size; gradients are of all of them."""
    images, labels = rng.normal(size=(7, 2, 4, 4)), rng.normal(size=(7, 3))
    net = nn.SequentialCell(nn.Conv2d(2, 2, 3, pad_mode="valid"), nn.Flatten(), nn.Dense(8, 3))
    step = step_of(net, KnownGradient(), factor_share=share, loss_scale=8.0)
    before = net(tensor(images)).asnumpy()
    loss, gradients, *_ = step.gradients_and_factors(tensor(images), tensor(labels))
    assert loss.asnumpy() == pytest.approx((before * labels).sum() / 7, rel=1e-4)
    hidden = step.preconditioner.layers["0"].layer(tensor(images)).asnumpy().reshape(7, -1)
    np.testing.assert_allclose(gradients[-2].asnumpy() / 8, labels.T @ hidden / 7, rtol=1e-4, atol=1e-5)
    step(tensor(images), tensor(labels))
    factor_a, factor_g = factors(step.preconditioner, "2")
    np.testing.assert_allclose(factor_a, gram(hidden[:count, None]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(factor_g, gram(labels[:count, None]), rtol=1e-5, atol=1e-6)
    seen = patches(images, (3, 3), pad_mode="valid")
    back = (labels @ step.preconditioner.layers["2"].layer.weight.asnumpy()).reshape(7, 2, 4).transpose(0, 2, 1)
    factor_a, factor_g = factors(step.preconditioner, "0")
    np.testing.assert_allclose(factor_a, gram(seen[:count]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(factor_g, gram(back[:count]), rtol=1e-5, atol=1e-6)


# -- Over time, and MindSpore's own convolution ------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_average_over_time(share, rng):
    """The first factors are those of the batch, whatever the share; then share * old + (1 - share) * new."""
    labels = rng.normal(size=(2, 4, 3))
    images = rng.normal(size=(2, 4, 5))
    step = step_of(nn.SequentialCell(nn.Dense(5, 3)), KnownGradient(), factor_ema=share)
    expected = None
    for x, y in zip(images, labels):
        step(tensor(x), tensor(y))
        now = [gram(x[:, None]), gram(y[:, None])]
        expected = now if expected is None else [share * old + (1 - share) * new for old, new in zip(expected, now)]
        for ours, theirs in zip(factors(step.preconditioner, "0"), expected):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_average_begins_with_the_first_finite_factors(rng):
    """A first step that overflowed leaves nothing to average with."""
    images, labels = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4, 3))
    step = step_of(nn.SequentialCell(nn.Dense(5, 3)), KnownGradient(), factor_ema=0.9)
    with pytest.warns(UserWarning, match="not finite"):
        step(tensor(np.full((4, 5), np.inf)), tensor(labels[0]))
    step.optimizer.global_step.set_data(ms.Tensor([0], ms.int32))
    step(tensor(images[1]), tensor(labels[1]))
    a, g = factors(step.preconditioner, "0")
    np.testing.assert_allclose(a, gram(images[1][:, None]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(g, gram(labels[1][:, None]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, options in LAYERS.items() if options])
def test_patches_times_weight_is_the_convolution(name, rng):
    """MindSpore's own convolution says which pixels an output sees."""
    layer = nn.Conv2d(CHANNELS, 3, **LAYERS[name])
    images = tensor(rng.normal(size=(IMAGES, CHANNELS, HEIGHT, WIDTH)))
    outputs = layer(images).asnumpy()
    found = layer.weight.asnumpy().reshape(3, -1) @ Patches(layer)(images).asnumpy()
    bias = layer.bias.asnumpy()[:, None] if layer.has_bias else 0
    np.testing.assert_allclose(found + bias, outputs.reshape(IMAGES, 3, -1), rtol=1e-4, atol=1e-5)
