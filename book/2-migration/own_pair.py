"""A small network in both frameworks, under different names: `labkit parity --pair own_pair.py`."""

import torch
from mindspore import nn

from labkit.losses import CrossEntropySmooth

SHAPE = (4, 3, 8, 8)  # of a batch


def reference():
    conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
    return torch.nn.Sequential(
        torch.nn.Sequential(conv, torch.nn.BatchNorm2d(8)),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    )


class Candidate(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1)
        self.norm = nn.BatchNorm2d(8, momentum=0.9)
        self.relu = nn.ReLU()
        self.end_point = nn.Dense(8, 5)

    def construct(self, x):
        return self.end_point(self.relu(self.norm(self.stem(x))).mean((2, 3)))


def candidate():
    return Candidate()


def candidate_loss():
    return CrossEntropySmooth(5)
