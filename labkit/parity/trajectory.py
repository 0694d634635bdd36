"""A step and a short training in both frameworks, from the same weights."""

from datetime import datetime, timezone

import mindspore as ms
import numpy as np
from mindspore import nn

from labkit.parity.measures import Difference, Tolerances, differences
from labkit.parity.pytorch import torch
from labkit.parity.report import Report
from labkit.parity.step import as_classes, compare_step
from labkit.system import device
from labkit.training import provenance

# A ReLU whose input is zero up to rounding changes gradients by chance, whereas a defect shows in every batch. So if
# gradients differ, but no layer's output does, and there are such values, we try the next batch, up to this many.
TRIES = 3


def torch_losses(side, batches) -> list[float]:
    """Train a PyTorch network on (images, labels) batches; return the loss of each step."""
    losses = []
    for images, labels in batches:
        logits = side.net(torch().from_numpy(images))
        loss = side.loss(logits, torch().from_numpy(as_classes(labels, np.int64)))
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
            float(train_step(ms.Tensor(images), ms.Tensor(as_classes(labels, np.int32))).asnumpy())
            for images, labels in batches
        ]


def compare_trajectory(reference, candidate, batches) -> tuple[Difference, dict]:
    """Train both sides on the same batches; return the stage and the losses {"pytorch": [...], "mindspore": [...]}."""
    losses = {"pytorch": torch_losses(reference, batches), "mindspore": mindspore_losses(candidate, batches)}
    theirs, ours = ({f"step {number}": loss for number, loss in enumerate(side, 1)} for side in losses.values())
    return differences(f"losses of {len(batches)} steps", theirs, ours, Tolerances.trajectory), losses


def compare_training(pairs, create, batches, dataset, about) -> Report:
    """Compare a step, and a short training on `batches` if there are any; dataset, about: for the report.

    pairs: arguments of `compare_step`, each with another batch; the next one is tried if rounding may have decided.
    create: () -> (reference, candidate, ...) for the training.
    """
    for number, pair in enumerate(pairs, 1):
        report = compare_step(*pair)
        wrong = {stage.name for stage in report.stages if not stage.ok}
        if "gradients" not in wrong or not report.ties or report.first_divergence["forward"] or number == TRIES:
            break
    if batches:
        stage, report.losses = compare_trajectory(*create()[:2], batches)
        report.stages.append(stage)
    report.about = about | {
        "images": " x ".join(map(str, pair[0].images.shape)), "batch of the stream": number,
        "PyTorch": torch().__version__, "MindSpore": ms.__version__, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
    }  # fmt: skip
    report.provenance = provenance.collect(dataset)
    return report
