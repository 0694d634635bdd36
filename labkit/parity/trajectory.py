"""A short training in both frameworks: losses of the same steps, starting from the same weights."""

import mindspore as ms
import numpy as np
from mindspore import nn

from labkit.parity.measures import Difference, Tolerances, differences
from labkit.parity.pytorch import torch
from labkit.system import device


def torch_losses(side, batches) -> list[float]:
    """Train a PyTorch network on (images, labels) batches; return the loss of each step."""
    losses = []
    for images, labels in batches:
        loss = side.loss(side.net(torch().from_numpy(images)), torch().from_numpy(labels).long())
        side.optimizer.zero_grad()
        loss.backward()
        side.optimizer.step()
        losses.append(loss.item())
    return losses


def mindspore_losses(side, batches) -> list[float]:
    """The same in MindSpore, in graph mode, compiled as in `Model.train`."""
    with device.in_mode(ms.GRAPH_MODE):
        train_step = nn.TrainOneStepCell(nn.WithLossCell(side.net, side.loss), side.optimizer)
        train_step.set_train(side.net.training)
        return [
            float(train_step(ms.Tensor(images), ms.Tensor(labels.astype(np.int32))).asnumpy())
            for images, labels in batches
        ]


def compare_trajectory(reference, candidate, batches, tolerance=Tolerances.trajectory) -> tuple[Difference, dict]:
    """Train both sides on the same batches; return the stage and the losses {"pytorch": [...], "mindspore": [...]}.

    The stage's max_rel is the largest relative difference between the losses of a step.
    """
    theirs, ours = torch_losses(reference, batches), mindspore_losses(candidate, batches)
    stage = differences(f"losses of {len(theirs)} steps", _by_step(theirs), _by_step(ours), tolerance)
    return stage, {"pytorch": theirs, "mindspore": ours}


def _by_step(losses):
    return {f"step {number}": loss for number, loss in enumerate(losses, 1)}
