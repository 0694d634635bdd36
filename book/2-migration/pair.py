"""Train two small networks for six steps, in any number of processes that share a batch of eight; rank 0 prints.

Each line of output is JSON: [name, losses, weights of the last layer]. The chapter on several processes runs this in
one process and, with `labkit launch`, in two.
"""

import json

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model

from labkit.losses import CrossEntropySmooth
from labkit.optimizers import momentum
from labkit.system import device
from labkit.training import callbacks

BATCH, STEPS = 8, 6  # BATCH: over all processes


class Losses(ms.train.Callback):
    """Records the loss of every step, averaged over all processes."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_step_end(self, run_context):
        self.values.append(device.mean_over_ranks(callbacks.loss_of(run_context)))


def train(name, *norm):
    """Train a network, whose initial weights differ between ranks until they are shared."""
    rank, ranks = device.ranks()
    ms.set_seed(100 + rank)
    last = nn.Dense(256, 10)
    net = nn.SequentialCell(nn.Conv2d(3, 4, 3), *norm, nn.ReLU(), nn.Flatten(), last)
    device.share_weights(net.get_parameters())
    shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}
    data = ds.NumpySlicesDataset((images, labels), ["x", "y"], shuffle=False, **shard)
    optimizer = momentum(net, np.full(STEPS, 0.1, np.float32))
    model, losses = Model(net, CrossEntropySmooth(10, 0.1), optimizer), Losses()
    model.train(1, data.batch(BATCH // ranks), [losses], dataset_sink_mode=False)
    if rank == 0:
        print(json.dumps([name, losses.values, last.weight.asnumpy().tolist()]))


device.setup(seed=1)
images = np.random.default_rng(0).normal(size=(STEPS * BATCH, 3, 8, 8)).astype(np.float32)
labels = np.arange(STEPS * BATCH, dtype=np.int32) % 10
train("without batch norm")
train("with batch norm", nn.BatchNorm2d(4))
device.wait_for_all()
