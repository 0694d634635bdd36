"""The reference of the ports in this folder: network, loss and optimizer of PyTorch, and the shape of a batch."""

import torch
from torch import nn

SHAPE = (8, 3, 15, 15)


def reference():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def reference_loss():
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def reference_optimizer(net):
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 1e-3}, {"params": others}]
    return torch.optim.SGD(groups, 0.1, 0.9)
