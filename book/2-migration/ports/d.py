"""Port D."""

from b import candidate_loss, candidate_optimizer  # noqa: F401
from mindspore import nn
from reference import SHAPE, reference, reference_loss, reference_optimizer  # noqa: F401


def candidate():
    return nn.SequentialCell(
        nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2, 2, pad_mode="same"),
        nn.Conv2d(8, 16, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(16, 10),
    )  # fmt: skip
