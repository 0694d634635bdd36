"""Measure a training step of ResNet-18: its time, and the times of its operators."""

import csv
import tempfile
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.profiler import ProfilerActivity, profile, tensorboard_trace_handler

from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet, mixed_precision
from labkit.optimizers import momentum

images = Tensor(np.random.default_rng(0).standard_normal((8, 3, 64, 64), np.float32))
labels = Tensor(np.arange(8), ms.int32)


def train_step(level="O0", mode=ms.GRAPH_MODE):
    """A training step at a level of mixed precision: a function that returns the loss as a number."""
    ms.set_context(mode=mode)
    ms.set_seed(1)
    net = mixed_precision(create_resnet("resnet18", stem="imagenet"), level)
    optimizer = momentum(net, np.full(200, 0.01, np.float32))
    with_loss = nn.WithLossCell(net, CrossEntropySmooth(10))
    cell = nn.TrainOneStepCell(with_loss, optimizer).set_train()

    def step():
        ms.set_context(mode=mode)
        return float(cell(images, labels).asnumpy())  # asnumpy() waits for the result

    return step


def seconds(call):
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def operators(step, steps=3):
    """Operators of a step, longest first, [{type, calls, ms}]; the profiler's folder."""
    folder = Path(tempfile.mkdtemp())
    # analyse_flag=True would also write trace_view.json, in a process that prints messages.
    handler = tensorboard_trace_handler(str(folder), analyse_flag=False)
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for _ in range(steps):
            step()
    (table,) = folder.glob("*/FRAMEWORK/cpu_op_type_info_*.csv")
    rows = []
    for row in csv.DictReader(table.open()):
        calls, total = int(row["type_occurrences"]), float(row["total_compute_time"])
        rows.append({"type": row["op_type"], "calls": calls // steps, "ms": total / steps})
    return sorted(rows, key=lambda row: -row["ms"]), table.parent
