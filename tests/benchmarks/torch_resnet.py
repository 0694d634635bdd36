"""The networks of labkit.networks in PyTorch, for the same work on the other side: same layers, same layout."""

import torch
from torch import nn
from torch.nn import functional

# Written out here, for labkit's own tables come with MindSpore, which must stay out of PyTorch's process.
LAYOUTS = {
    "resnet8": ((1, 1, 1), (16, 32, 64), False),
    "resnet20": ((3, 3, 3), (16, 32, 64), False),
    "resnet50": ((3, 4, 6, 3), (64, 128, 256, 512), True),
}


class Block(nn.Module):
    """Basic block, or with `bottleneck` a bottleneck block (stride on the 3x3)."""

    def __init__(self, in_channels, channels, stride, bottleneck, projection):
        super().__init__()
        out_channels = channels * (4 if bottleneck else 1)
        sizes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        widths = [in_channels, channels, channels, out_channels] if bottleneck else [in_channels, channels, channels]
        layers = []
        for (size, step), before, after in zip(sizes, widths, widths[1:]):
            layers += [nn.Conv2d(before, after, size, step, size // 2, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])
        self.stride, self.missing = stride, out_channels - in_channels
        changes = stride != 1 or self.missing
        self.shortcut = None
        if changes and projection:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )
        self.pads = changes and not projection

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        if self.pads:
            shortcut = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.missing))
        return torch.relu(self.body(x) + shortcut)


def create_resnet(name, num_classes=10):
    """One of labkit's networks with the CIFAR stem."""
    counts, widths, bottleneck = LAYOUTS[name]
    channels = widths[0]
    layers = [nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    for stage, (count, width) in enumerate(zip(counts, widths)):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            layers.append(Block(channels, width, stride, bottleneck, projection=bottleneck))
            channels = width * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
