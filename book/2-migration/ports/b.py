"""Port B."""

from mindspore import nn
from reference import SHAPE, reference, reference_loss, reference_optimizer  # noqa: F401

from labkit.losses import CrossEntropySmooth
from labkit.optimizers import decay_groups


def candidate():
    return nn.SequentialCell(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(16, 10),
    )  # fmt: skip


def candidate_loss():
    return CrossEntropySmooth(10, 0.09)


def candidate_optimizer(net):
    return nn.Momentum(decay_groups(net.trainable_params(), 1e-3), 0.1, 0.9)
