"""labkit's own convolution gradient against MindSpore's, and against a sum written out in numpy."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.networks import create_resnet, use_fast_gradients
from labkit.networks.cpu_convolution import FastGradientConv2d
from labkit.training import build, recipes


def gradients(layer, x, dout):
    """Gradients of sum(layer(x) * dout) by x and by the weight."""

    def product(x):
        return (layer(x) * ms.Tensor(dout)).sum()

    dx, (dweight,) = ms.grad(product, 0, layer.trainable_params())(ms.Tensor(x))
    return dx.asnumpy(), dweight.asnumpy()


def convolution_gradients(x, weight, dout):
    """The same two gradients, from the definition of a 3x3 convolution with padding 1."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    dpadded, dweight = np.zeros_like(padded), np.zeros(weight.shape)
    height, width = x.shape[2:]
    for i in range(3):
        for j in range(3):
            window = np.s_[:, :, i : i + height, j : j + width]
            dweight[:, :, i, j] = np.einsum("nohw,nchw->oc", dout, padded[window])
            dpadded[window] += np.einsum("nohw,oc->nchw", dout, weight[:, :, i, j])
    return dpadded[:, :, 1:-1, 1:-1], dweight


# Narrow and wide; planes that fill memory pages and planes that do not; not square.
@pytest.mark.parametrize("shape", [(2, 3, 5, 32, 32), (2, 4, 4, 16, 64), (3, 5, 2, 7, 9), (1, 130, 2, 32, 32)])
def test_gradients_follow_the_definition(shape):
    batch, in_channels, out_channels, height, width = shape
    random = np.random.default_rng(0)
    x = random.standard_normal((batch, in_channels, height, width), np.float32)
    dout = random.standard_normal((batch, out_channels, height, width), np.float32)
    layer = FastGradientConv2d(in_channels, out_channels)
    dx, dweight = gradients(layer, x, dout)
    true_dx, true_dweight = convolution_gradients(x, layer.weight.asnumpy(), dout)
    np.testing.assert_allclose(dx, true_dx, atol=1e-5 * np.abs(true_dx).max())
    np.testing.assert_allclose(dweight, true_dweight, atol=1e-5 * np.abs(true_dweight).max())


def test_network_keeps_names_values_and_output():
    ms.set_seed(3)
    net = create_resnet("resnet50")
    before = {p.name: p.asnumpy().copy() for p in net.get_parameters()}
    x = ms.Tensor(np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32))
    output = net(x).asnumpy()
    use_fast_gradients(net)
    replaced = [cell for _, cell in net.cells_and_names() if isinstance(cell, FastGradientConv2d)]
    assert len(replaced) == 14  # the stem and every 3x3 of stride 1: 16 blocks less 3 that halve the image
    after = {p.name: p.asnumpy() for p in net.get_parameters()}
    assert list(after) == list(before)
    assert all(np.array_equal(after[name], value) for name, value in before.items())
    np.testing.assert_array_equal(net(x).asnumpy(), output)


@pytest.mark.parametrize("device, fast", [("CPU", 17), ("Ascend", 0), ("GPU", 0)])
def test_a_recipe_gets_them_on_a_cpu_only(monkeypatch, repo_root, device, fast):
    recipe = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample", ("network.name=resnet20",))
    assert recipe.network.fast_gradient
    if device != ms.get_context("device_target"):
        monkeypatch.setattr(build.ms, "get_context", {"device_target": device}.get)
    net = build.create_network(recipe)
    # Of 19: the stem and two in each of nine blocks, less two of stride 2.
    assert sum(isinstance(cell, FastGradientConv2d) for _, cell in net.cells_and_names()) == fast


def test_other_convolutions_stay():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.strided = nn.Conv2d(4, 4, 3, 2, "pad", 1)
            self.same = nn.Conv2d(4, 4, 3, 1, "same")
            self.biased = nn.Conv2d(4, 4, 3, 1, "pad", 1, has_bias=True)
            self.dilated = nn.Conv2d(4, 4, 3, 1, "pad", 1, dilation=2)
            self.grouped = nn.Conv2d(4, 4, 3, 1, "pad", 1, group=2)
            self.pointwise = nn.Conv2d(4, 4, 1)
            self.plain = nn.Conv2d(4, 4, 3, 1, "pad", 1)

    net = Net()
    use_fast_gradients(net)
    assert [name for name, cell in net.name_cells().items() if isinstance(cell, FastGradientConv2d)] == ["plain"]
