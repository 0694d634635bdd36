"""Port A."""

from mindspore import nn
from reference import SHAPE, reference, reference_loss, reference_optimizer  # noqa: F401

from labkit.optimizers import decay_groups


class Port(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-5, momentum=0.1)
        self.conv2 = nn.Conv2d(8, 16, 3, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(16, eps=1e-5, momentum=0.1)
        self.relu, self.pool, self.fc = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Dense(16, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.relu(self.bn2(self.conv2(x))).mean((2, 3)))


candidate = Port


def candidate_loss():
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def candidate_optimizer(net):
    return nn.Momentum(decay_groups(net.trainable_params(), 1e-3), 0.1, 0.9)
