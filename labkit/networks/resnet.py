"""ResNets of He et al. 2015 (arXiv 1512.03385), with torchvision's layout and names.

Layout "v1.5": in a bottleneck the 3x3 convolution has the stride; padding is explicit and symmetric.
"""

from mindspore import nn, ops
from mindspore.common.initializer import HeNormal, HeUniform, TruncatedNormal, XavierUniform, initializer

from labkit.choices import CIFAR_LAYOUTS, IMAGENET_LAYOUTS, NETWORKS, STEMS


def conv(in_channels, out_channels, kernel_size, stride=1):
    """k x k convolution without bias, padded by (k - 1) / 2 on every side."""
    init = HeNormal(mode="fan_out", nonlinearity="relu")
    padding = kernel_size // 2
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, "pad", padding, weight_init=init)


def batch_norm(channels):
    """Batch norm; MindSpore's momentum 0.9 is the weight of the old value, PyTorch's 0.1 that of the new one."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.9)


class ZeroPadShortcut(nn.Cell):
    """Shortcut without parameters: every second pixel, new channels zero (He et al. 2015, section 3.3, option A)."""

    def __init__(self, in_channels, out_channels, stride):
        super().__init__()
        self.subsample = nn.AvgPool2d(kernel_size=1, stride=stride)
        self.missing = out_channels - in_channels

    def construct(self, x):
        x = self.subsample(x)
        batch, _, height, width = x.shape
        zeros = ops.zeros((batch, self.missing, height, width), x.dtype)
        return ops.concat((x, zeros), axis=1)


class BasicBlock(nn.Cell):
    """Two 3x3 convolutions, bypassed by a shortcut: (N, in, H, W) -> (N, channels, H/stride, W/stride)."""

    expansion = 1

    def __init__(self, in_channels, channels, stride=1, downsample=None):
        super().__init__()
        self.conv1 = conv(in_channels, channels, 3, stride)
        self.bn1 = batch_norm(channels)
        self.conv2 = conv(channels, channels, 3)
        self.bn2 = batch_norm(channels)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def construct(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + shortcut)


class Bottleneck(nn.Cell):
    """1x1, 3x3 (with the stride), 1x1 convolution, bypassed by a shortcut: (N, in, H, W) -> (N, 4 channels, ...)."""

    expansion = 4

    def __init__(self, in_channels, channels, stride=1, downsample=None):
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = conv(in_channels, channels, 1)
        self.bn1 = batch_norm(channels)
        self.conv2 = conv(channels, channels, 3, stride)
        self.bn2 = batch_norm(channels)
        self.conv3 = conv(channels, out_channels, 1)
        self.bn3 = batch_norm(out_channels)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def construct(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + shortcut)


class ResNet(nn.Cell):
    """Images (N, 3, H, W) -> logits (N, num_classes).

    block: `BasicBlock` or `Bottleneck`; layers: blocks per stage; widths: channels per stage before expansion.
    stem: "imagenet" (7x7 stride 2, then 3x3 max-pool stride 2) or "cifar" (3x3 stride 1, no pooling).
    projection: shortcuts that change shape are 1x1 convolutions (option B); otherwise zero-padded (option A).
    """

    def __init__(self, block, layers, num_classes, stem="imagenet", widths=(64, 128, 256, 512), projection=True):
        super().__init__()
        if stem not in STEMS:
            raise ValueError(f"stem must be one of {', '.join(STEMS)}, not {stem!r}")
        if len(layers) != len(widths):
            raise ValueError(f"layers and widths must be of equal length, not {len(layers)} and {len(widths)}")
        if len(layers) not in (3, 4):
            raise ValueError(f"layers must have 3 or 4 stages, not {len(layers)}")
        self.channels = widths[0]
        self.projection = projection
        self.conv1 = conv(3, self.channels, 7, 2) if stem == "imagenet" else conv(3, self.channels, 3)
        self.bn1 = batch_norm(self.channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1) if stem == "imagenet" else nn.Identity()
        for i, (count, width) in enumerate(zip(layers, widths, strict=True)):
            stage = self._stage(block, width, count, stride=1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", stage)
        if len(layers) == 3:
            self.layer4 = nn.Identity()
        self.fc = nn.Dense(self.channels, num_classes, weight_init=HeUniform(negative_slope=5**0.5))

    def _stage(self, block, width, count, stride):
        """`count` blocks; the first one changes resolution and channels."""
        out_channels = width * block.expansion
        downsample = None
        if stride != 1 or self.channels != out_channels:
            if self.projection:
                downsample = nn.SequentialCell(conv(self.channels, out_channels, 1, stride), batch_norm(out_channels))
            else:
                downsample = ZeroPadShortcut(self.channels, out_channels, stride)
        blocks = [block(self.channels, width, stride, downsample)]
        self.channels = out_channels
        blocks += [block(out_channels, width) for _ in range(count - 1)]
        return nn.SequentialCell(blocks)

    def construct(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        return self.fc(x.mean((2, 3)))


BLOCKS = {"basic": BasicBlock, "bottleneck": Bottleneck}


def create_resnet(name, num_classes=10, stem="cifar"):
    """Build a ResNet by name, one of `NETWORKS`; ResNet-8/20/32/56 have no ImageNet stem. Raises ValueError."""
    if name in IMAGENET_LAYOUTS:
        block, layers = IMAGENET_LAYOUTS[name]
        return ResNet(BLOCKS[block], layers, num_classes, stem)
    if name in CIFAR_LAYOUTS:
        if stem != "cifar":
            raise ValueError(f"{name} is a CIFAR network: its stem is 'cifar', not {stem!r}")
        blocks = (CIFAR_LAYOUTS[name],) * 3
        return ResNet(BasicBlock, blocks, num_classes, stem, widths=(16, 32, 64), projection=False)
    raise ValueError(f"unknown network {name!r}; known: {', '.join(NETWORKS)}")


def initialise_as_guide(net):
    """Draw initial weights as the original migration guide does: Xavier for convolutions, truncated normal for dense.

    In MindSpore 1.7, for which the guide was written, `TruncatedNormal()` cut at two standard deviations, and the bias
    of a dense layer started at zero. Today the bounds are absolute, and the default of 2 would cut nothing off.
    """
    for cell in net.cells():
        initialise_as_guide(cell)
        if isinstance(cell, nn.Conv2d):
            _draw(cell.weight, XavierUniform())
        elif isinstance(cell, nn.Dense):
            _draw(cell.weight, TruncatedNormal(sigma=0.01, a=-0.02, b=0.02))
            _draw(cell.bias, "zeros")


def zero_residual_branches(net):
    """Set the scale of every block's last batch norm to zero, so that each block starts as its shortcut alone.

    Goyal et al. 2017, section 5.1.
    """
    for _, cell in net.cells_and_names():
        if isinstance(cell, BasicBlock | Bottleneck):
            _draw((cell.bn3 if isinstance(cell, Bottleneck) else cell.bn2).gamma, "zeros")


def _draw(parameter, init):
    parameter.set_data(initializer(init, parameter.shape, parameter.dtype))
