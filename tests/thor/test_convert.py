"""Converting a network: every layer's output stays bit by bit, every name stays, and what does not fit is told."""

import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn
from small import KnownGradient, step_of, tensor, values

from labkit.networks import create_resnet, use_fast_gradients
from labkit.thor import ThorLayer, convert


def convolution(**options):
    return lambda: nn.SequentialCell(nn.Conv2d(2, 4, **{"kernel_size": 3, **options}), nn.ReLU(), nn.Conv2d(4, 2, 1))


class Rows(nn.Cell):
    """A Dense of (N, rows, width)."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(6, 3)

    def construct(self, x):
        return self.dense(x.reshape(x.shape[0], -1, 6))


class Listed(nn.Cell):
    """Layers in a CellList, and one in a SequentialCell in a SequentialCell."""

    def __init__(self):
        super().__init__()
        self.several = nn.CellList([nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 1)])
        self.nested = nn.SequentialCell(nn.SequentialCell(nn.Conv2d(2, 2, 3, has_bias=True)), nn.ReLU())

    def construct(self, x):
        for layer in self.several:
            x = layer(x)
        return self.nested(x)


def normalised():
    return nn.SequentialCell(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Dense(4 * 42, 3, has_bias=False),
        nn.BatchNorm1d(3),
        nn.Dense(3, 2),
    )


def fast_gradients():
    net = nn.SequentialCell(nn.Conv2d(2, 4, 3, pad_mode="pad", padding=1), nn.ReLU())
    use_fast_gradients(net)
    return net


# A network on (3, 2, 7, 6) images, and the layers that are converted.
NETWORKS = {
    "bias": (convolution(has_bias=True), ["0", "2"]),
    "four paddings": (convolution(pad_mode="pad", padding=(0, 1, 2, 3)), ["0", "2"]),
    "dense of rows": (Rows, ["dense"]),
    "batch norm": (normalised, ["0", "3", "5"]),
    "lists": (Listed, ["several.0", "several.1", "nested.0.0"]),
    "fast gradients": (fast_gradients, ["0"]),
}


def images(rng):
    return tensor(rng.normal(size=(3, 2, 7, 6)))


@pytest.mark.parametrize("name", NETWORKS)
def test_output_and_names_stay(name, rng):
    """In both modes of the network, whether the taps are on or not; batch norm's moments as well."""
    create, expected = NETWORKS[name]
    x, outputs = images(rng), []
    for converted in (False, True):
        ms.set_seed(5)
        net = create()
        layers, before = {}, values(net)
        if converted:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                layers = convert(net)
            assert list(layers) == expected
            weights = {name: value for name, value in values(net).items() if not name.startswith("thor.")}
            assert list(weights) == list(before)
        outputs.append([])
        for train, taps_on in ((False, False), (True, False), (True, True)):
            for layer in layers.values():
                layer.taps_on = taps_on
            outputs[-1].append(net.set_train(train)(x).asnumpy())
        outputs[-1] += [value for name, value in values(net).items() if not name.startswith("thor.")]
    for plain, ours in zip(*outputs, strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_converted_network_trains(name, rng):
    """A factor step and another one, with gradients for every parameter."""
    create, _ = NETWORKS[name]
    net, x = create(), images(rng)
    labels = rng.normal(size=net(x).shape)
    step = step_of(net.set_train(), KnownGradient(), lr=0.1, factor_steps=[True, False])
    before = values(net)
    losses = [float(step(x, tensor(labels)).asnumpy()) for _ in range(2)]
    assert np.isfinite(losses).all()
    after = values(net)
    assert [p.name for p in step.preconditioner.weights if np.array_equal(before[p.name], after[p.name])] == []


# -- Layers that do not fit -----------------------------------------------------------------------------


def with_activation():
    return nn.SequentialCell(nn.Flatten(), nn.Dense(84, 3, activation="relu"), nn.Dense(3, 2))


def with_groups():
    return nn.SequentialCell(nn.Conv2d(2, 4, 3, group=2), nn.ReLU(), nn.Conv2d(4, 2, 1))


def in_a_block_used_twice():
    block = nn.SequentialCell(nn.Conv2d(2, 2, 3))
    return nn.SequentialCell(block, nn.ReLU(), block, nn.Conv2d(2, 2, 1))


class OneWeight(nn.Cell):
    """Two layers with a weight in common."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Dense(6, 6), nn.Dense(6, 6), nn.Dense(6, 2)
        self.second.weight = self.first.weight

    def construct(self, x):
        return self.last(self.second(self.first(x)))


UNFIT = {
    "activation": (with_activation, {"1"}, "its activation", ["2"]),
    "groups": (with_groups, {"0"}, "it has 2 groups", ["2"]),
    "a block used twice": (in_a_block_used_twice, {"0.0"}, "used in two places", ["3"]),
    "one weight": (OneWeight, {"first", "second"}, "used in two places", ["last"]),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_left(name, rng):
    """With one warning that names it; its gradient passes, the others' are preconditioned."""
    create, left, reason, converted = UNFIT[name]
    ms.set_seed(5)
    net, x = create(), images(rng)
    plain = net(x).asnumpy()
    with pytest.warns(UserWarning, match=reason) as seen:
        step = step_of(net, KnownGradient())
    told = {str(w.message).split(":")[0] for w in seen}
    assert told == {f"THOR leaves {n} to the first-order optimizer" for n in left}
    assert len(seen) == len(left) and list(step.preconditioner.layers) == converted
    assert sum(isinstance(cell, ThorLayer) for _, cell in net.cells_and_names()) == len(converted)
    np.testing.assert_array_equal(net(x).asnumpy(), plain)
    step(x, tensor(np.ones(plain.shape)))
    gradients = [tensor(rng.normal(size=p.shape)) for p in step.preconditioner.weights]
    same = {
        p.name for p, given, ours in zip(step.preconditioner.weights, gradients, step.preconditioner(tuple(gradients)))
        if np.array_equal(given.asnumpy(), ours.asnumpy())
    }  # fmt: skip
    assert same == {p.name for p in step.preconditioner.weights} - {f"{n}.weight" for n in converted}


def test_other_layers_with_a_matrix():
    """One warning that names them; a frozen layer is nobody's to train, and needs none."""
    net = nn.SequentialCell(nn.Conv2dTranspose(2, 2, 3), mint.nn.Linear(4, 4), nn.Dense(4, 3), nn.Dense(3, 2))
    net[2].weight.requires_grad = False
    with pytest.warns(UserWarning) as seen:
        layers = convert(net)
    assert [str(w.message) for w in seen] == [
        "THOR preconditions nn.Conv2d and nn.Dense, and leaves 0.weight, 1.weight to the first-order optimizer"
    ]
    assert list(layers) == ["3"]


def test_resnet_is_converted_as_a_whole():
    """ResNet-50: 54 layers, 653 blocks of up to 128 rows (the design's figures)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers = convert(create_resnet("resnet50", 1000, "imagenet"))
    blocks = sum(layer.shape_a[0] + layer.shape_g[0] for layer in layers.values())
    assert (len(layers), blocks) == (54, 653)
