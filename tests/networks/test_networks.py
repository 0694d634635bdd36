"""labkit.networks: against published counts and against numpy."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.choices import NETWORKS
from labkit.networks import BasicBlock, Bottleneck, ResNet, create_resnet, resnet
from labkit.system.device import in_mode

# torchvision's models, 1000 classes: trainable parameters.
TORCHVISION = {
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032,
    "resnet101": 44_549_160, "resnet152": 60_192_808,
}  # fmt: skip
# He et al. 2015, table 6, in millions.
HE = {"resnet20": 0.27, "resnet32": 0.46, "resnet56": 0.85}


@pytest.fixture(scope="module", autouse=True)
def pynative():
    """So that stages can be looked at without compiling."""
    ms.set_seed(1)
    with in_mode(ms.PYNATIVE_MODE):
        yield


@pytest.fixture(scope="module")
def resnet20():
    return create_resnet("resnet20").set_train(False)


@pytest.fixture(scope="module")
def resnet50():
    return create_resnet("resnet50", 1000, "imagenet").set_train(False)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def count(net):
    return sum(int(np.prod(p.shape)) for p in net.trainable_params())


# -- Counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCHVISION)
def test_parameters_as_torchvision_counts_them(name):
    assert count(create_resnet(name, 1000, "imagenet")) == TORCHVISION[name]


@pytest.mark.parametrize("name", HE)
def test_parameters_as_the_paper_counts_them(name):
    assert round(count(create_resnet(name)) / 1e6, 2) == HE[name]


def test_cifar_stem_and_ten_classes_change_stem_and_classifier_only():
    """7x7 becomes 3x3: 3 * 64 * 40 weights fewer; 990 classes less: 990 * (2048 + 1) fewer."""
    assert count(create_resnet("resnet50")) == TORCHVISION["resnet50"] - 3 * 64 * 40 - 990 * 2049


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_are_what_the_name_says(name):
    """Convolutions and the classifier count, shortcuts do not."""
    weights = [p.name for p in create_resnet(name).trainable_params() if p.ndim > 1 and "downsample" not in p.name]
    assert len(weights) == int(name.removeprefix("resnet"))


def test_option_a_has_no_parameters(resnet20):
    assert not [p.name for p in resnet20.get_parameters() if "downsample" in p.name]


# -- Shapes ---------------------------------------------------------------------------------------


def stage_shapes(net, size):
    """(channels, height, width) after the stem and after each stage."""
    x = net.maxpool(net.relu(net.bn1(net.conv1(ms.Tensor(random(1, 3, size, size))))))
    shapes = [x.shape[1:]]
    for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
        if not isinstance(stage, nn.Identity):
            x = stage(x)
            shapes.append(x.shape[1:])
    return shapes


def test_stages_of_resnet50_on_imagenet(resnet50):
    """Table 1 of He et al.: 56, 56, 28, 14, 7."""
    assert stage_shapes(resnet50, 224) == [
        (64, 56, 56), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7),
    ]  # fmt: skip
    assert resnet50.conv1(ms.Tensor(random(1, 3, 224, 224))).shape == (1, 64, 112, 112)


def test_stages_of_the_cifar_networks(resnet20):
    """Section 4.2: 32, 16, 8 with 16, 32, 64 channels; a four-stage network ends at 4."""
    assert stage_shapes(resnet20, 32) == [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8)]
    resnet18 = create_resnet("resnet18").set_train(False)
    assert stage_shapes(resnet18, 32) == [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


def test_bottleneck_strides_on_its_3x3():
    block = Bottleneck(8, 2, stride=2, downsample=nn.Conv2d(8, 8, 1, 2))
    x = block.conv1(ms.Tensor(random(1, 8, 16, 16)))
    assert (block.conv1.weight.shape, x.shape) == ((2, 8, 1, 1), (1, 2, 16, 16))
    x = block.conv2(x)
    assert (block.conv2.weight.shape, x.shape) == ((2, 2, 3, 3), (1, 2, 8, 8))
    x = block.conv3(x)
    assert (block.conv3.weight.shape, x.shape) == ((8, 2, 1, 1), (1, 8, 8, 8))


# -- Values ---------------------------------------------------------------------------------------


def numpy_conv(x, weight, stride=1):
    """Cross-correlation with (k - 1) / 2 zeros on every side, from its definition."""
    k = weight.shape[-1]
    p = (k - 1) // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64))


@pytest.mark.parametrize("k, stride", [(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)])
@pytest.mark.parametrize("size", [8, 9])
def test_padding_is_explicit_and_symmetric(k, stride, size):
    """`pad_mode="same"` would pad an even image with stride 2 at the bottom and right only."""
    layer, x = resnet.conv(3, 4, k, stride), random(2, 3, size, size)
    expected = numpy_conv(x, layer.weight.asnumpy(), stride)
    np.testing.assert_allclose(layer(ms.Tensor(x)).asnumpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [8, 9])
def test_max_pool_of_the_stem(size):
    pool, x = create_resnet("resnet18", stem="imagenet").maxpool, random(1, 2, size, size) - 5  # all below zero
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(pool(ms.Tensor(x)).asnumpy(), windows.max(axis=(-1, -2)))


def test_option_a_is_every_second_pixel_and_zeros():
    x = random(2, 3, 8, 8)
    out = resnet.ZeroPadShortcut(3, 7, 2)(ms.Tensor(x)).asnumpy()
    assert out.shape == (2, 7, 4, 4)
    np.testing.assert_array_equal(out[:, :3], x[:, :, ::2, ::2])
    np.testing.assert_array_equal(out[:, 3:], 0)


def numpy_batch_norm(x, layer, training):
    scale, shift = layer.gamma.asnumpy()[:, None, None], layer.beta.asnumpy()[:, None, None]
    mean, variance = layer.moving_mean.asnumpy()[:, None, None], layer.moving_variance.asnumpy()[:, None, None]
    if training:  # of the batch, the variance biased
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_basic_block_against_numpy(stride, training):
    channels = 4 * stride
    shortcut = None if stride == 1 else resnet.ZeroPadShortcut(4, channels, 2)
    block = BasicBlock(4, channels, stride, shortcut).set_train(training)
    for layer, seed in ((block.bn1, 1), (block.bn2, 2)):  # statistics and scales of a trained network
        for parameter in layer.get_parameters():
            positive = np.abs(random(channels, seed=seed + len(parameter.name))) + 0.5
            parameter.set_data(ms.Tensor(positive if "variance" in parameter.name else positive - 1))
    x = random(3, 4, 8, 8)
    hidden = numpy_conv(x, block.conv1.weight.asnumpy(), stride)
    hidden = np.maximum(numpy_batch_norm(hidden, block.bn1, training), 0)
    hidden = numpy_batch_norm(numpy_conv(hidden, block.conv2.weight.asnumpy()), block.bn2, training)
    beside = x if stride == 1 else np.pad(x[:, :, ::2, ::2], ((0, 0), (0, 4), (0, 0), (0, 0)))
    expected = np.maximum(hidden + beside, 0)
    assert (expected == 0).any() and (expected > 0).any()
    np.testing.assert_allclose(block(ms.Tensor(x)).asnumpy(), expected, rtol=1e-3, atol=1e-4)


def test_running_statistics_keep_nine_tenths():
    layer = resnet.batch_norm(2).set_train(True)
    x = random(4, 2, 5, 5) * 3 + 1
    layer(ms.Tensor(x))
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), 0.1 * x.mean((0, 2, 3)), rtol=1e-4)
    unbiased = x.transpose(1, 0, 2, 3).reshape(2, -1).var(axis=1, ddof=1)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), 0.9 + 0.1 * unbiased, rtol=1e-3)


def test_logits_are_the_classifier_over_the_mean_of_the_map(resnet20):
    x = ms.Tensor(random(2, 3, 32, 32))
    features = resnet20.relu(resnet20.bn1(resnet20.conv1(x)))
    for stage in (resnet20.layer1, resnet20.layer2, resnet20.layer3):
        features = stage(features)
    expected = features.asnumpy().mean((2, 3)) @ resnet20.fc.weight.asnumpy().T + resnet20.fc.bias.asnumpy()
    np.testing.assert_allclose(resnet20(x).asnumpy(), expected, rtol=1e-3, atol=1e-4)


def test_graph_mode_computes_the_same(resnet20):
    x = ms.Tensor(random(2, 3, 32, 32))
    eager = resnet20(x).asnumpy()
    with in_mode(ms.GRAPH_MODE):
        np.testing.assert_allclose(resnet20(x).asnumpy(), eager, rtol=1e-3, atol=1e-4)


# -- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ResNet50", None])
def test_unknown_name(name):
    with pytest.raises(ValueError, match="unknown network .*resnet50"):
        create_resnet(name)


@pytest.mark.parametrize("name, stem, says", [("resnet20", "imagenet", "CIFAR network"), ("resnet50", "mnist", "stem")])
def test_a_stem_that_does_not_fit(name, stem, says):
    with pytest.raises(ValueError, match=says):
        create_resnet(name, 10, stem)


@pytest.mark.parametrize("layers, widths", [((2, 2), (16, 32, 64)), ((2, 2, 2, 2), (16, 32, 64)), ((), (16,))])
def test_layers_and_widths_of_unequal_length(layers, widths):
    with pytest.raises(ValueError, match="equal length"):
        ResNet(BasicBlock, layers, 10, widths=widths)


@pytest.mark.parametrize("layers", [(), (1, 1), (1, 1, 1, 1, 1)])
def test_stages_that_construct_does_not_run(layers):
    """Three or four stages are run: with five, the classifier would get the fourth's channels."""
    with pytest.raises(ValueError, match="stages|layers"):
        ResNet(BasicBlock, layers, 10, widths=(4, 8, 16, 32, 64)[: len(layers)])
