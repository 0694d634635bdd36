"""labkit.networks: the first weights, by each rule and from the seed."""

import mindspore as ms
import numpy as np
import pytest

from labkit.networks import BasicBlock, Bottleneck, create_resnet, zero_residual_branches
from labkit.system.device import in_mode
from labkit.training import build, recipes


@pytest.fixture(scope="module", autouse=True)
def pynative():
    """Operators and blocks are called without compiling."""
    ms.set_seed(1)
    with in_mode(ms.PYNATIVE_MODE):
        yield


def test_initial_weights_are_kaiming_fan_out():
    """Deviation sqrt(2 / (k k out)), as torchvision; scale 1, shift 0; the classifier within 1 / sqrt(in)."""
    for parameter in create_resnet("resnet50", 1000, "imagenet").trainable_params():
        value = parameter.asnumpy()
        if value.ndim == 4:
            out, _, k, _ = value.shape
            assert value.std() == pytest.approx((2 / (k * k * out)) ** 0.5, rel=0.05), parameter.name
            assert abs(value.mean()) < 0.05 * value.std() + 3 * value.std() / value.size**0.5, parameter.name
        elif parameter.name.endswith(("gamma", "beta")):
            assert (value == (1 if parameter.name.endswith("gamma") else 0)).all(), parameter.name
        else:
            assert 0.95 / 2048**0.5 < np.abs(value).max() <= 1.001 / 2048**0.5, parameter.name


def test_initial_weights_as_the_guide_draws_them():
    """Uniform within sqrt(6 / (in + out)) with the kernel's area counted in; dense: deviation 0.01, cut at 0.02."""
    settings = ("network.name=resnet18", "network.num_classes=1000", "network.init=guide")
    net = build.create_network(recipes.load(recipes.find("imagenet"), "sample", settings))
    for parameter in net.trainable_params():
        value = parameter.asnumpy()
        if value.ndim == 4:
            out, channels, k, _ = value.shape
            bound = (6 / (k * k * (channels + out))) ** 0.5
            assert 0.99 * bound < np.abs(value).max() <= bound * (1 + 1e-6), parameter.name
            assert value.std() == pytest.approx(bound / 3**0.5, rel=0.03), parameter.name
        elif parameter.name == "fc.weight":
            assert 0.0199 < np.abs(value).max() <= 0.02
            assert value.std() == pytest.approx(0.0088, rel=0.01)  # of a normal cut at two deviations
        else:
            assert (value == (1 if parameter.name.endswith("gamma") else 0)).all(), parameter.name
    kernels = [p.asnumpy() for p in net.trainable_params() if p.shape == (512, 512, 3, 3)]
    assert len(kernels) == 3 and not np.array_equal(kernels[0], kernels[1])


@pytest.mark.parametrize(("name", "block"), [("resnet20", BasicBlock), ("resnet50", Bottleneck)])
def test_with_residual_branches_at_zero_a_block_passes_on_its_shortcut(name, block):
    net = create_resnet(name)
    before = {p.name: p.asnumpy().copy() for p in net.get_parameters()}
    zero_residual_branches(net)
    changed = [p.name for p in net.get_parameters() if not np.array_equal(before[p.name], p.asnumpy())]
    blocks = [cell for _, cell in net.cells_and_names() if isinstance(cell, block)]
    last = "bn3" if block is Bottleneck else "bn2"
    assert len(changed) == len(blocks) and all(name.endswith(f"{last}.gamma") for name in changed)
    settings = (f"network.name={name}", "network.init=zero_residual")
    chosen = build.create_network(recipes.load(recipes.find("cifar10"), "sample", settings))
    assert {p.name for p in chosen.trainable_params() if not p.asnumpy().any()} >= set(changed)
    plain = next(cell for cell in blocks if cell.downsample is None)
    x = ms.Tensor(np.random.default_rng(0).normal(size=(2, plain.conv1.in_channels, 8, 8)).astype(np.float32))
    np.testing.assert_array_equal(plain.set_train()(x).asnumpy(), np.maximum(x.asnumpy(), 0))


def test_the_seed_decides_the_initial_weights():
    weights = []
    for seed in (3, 3, 4):
        ms.set_seed(seed)
        weights.append(create_resnet("resnet20").conv1.weight.asnumpy())
    assert np.array_equal(*weights[:2]) and not np.array_equal(*weights[1:])
