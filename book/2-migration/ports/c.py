"""Port C."""

from mindspore import nn
from reference import SHAPE, reference, reference_loss, reference_optimizer  # noqa: F401


def block(channels, out_channels):
    conv = nn.Conv2d(channels, out_channels, 3, pad_mode="pad", padding=1)
    return [conv, nn.BatchNorm2d(out_channels, momentum=0.9), nn.ReLU()]


def candidate():
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(16, 10)]
    return nn.SequentialCell(*block(3, 8), nn.MaxPool2d(2, 2), *block(8, 16), *last)


def candidate_loss():
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def candidate_optimizer(net):
    return nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=1e-3)
