"""Weights after some steps, written to FOLDER as RANKS-RANK.npy: two processes with batch 4 do the same as one with 8.

python together.py FOLDER
"""

import sys
import time
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model

from labkit.losses import CrossEntropySmooth
from labkit.optimizers import momentum
from labkit.system import device
from labkit.training import callbacks

STEPS, IMAGES = 6, 48
folder = Path(sys.argv[1])
device.setup(1)
rank, ranks = device.ranks()
ms.set_seed(1 + rank)  # so every rank has first weights of its own
net = nn.SequentialCell(  # without batch norm, whose statistics differ between the ranks
    nn.Conv2d(3, 4, 3, has_bias=True), nn.ReLU(), nn.Flatten(), nn.Dense(4 * 8 * 8, 16), nn.ReLU(), nn.Dense(16, 10)
)
device.share_weights(net.get_parameters())
rng = np.random.default_rng(0)
images, labels = rng.normal(size=(IMAGES, 3, 8, 8)).astype(np.float32), np.arange(IMAGES, dtype=np.int32) % 10
shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}  # image k goes to rank k % ranks
dataset = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False, **shard).batch(8 // ranks)
lr = np.full(STEPS, 0.1, np.float32)
model = Model(net, CrossEntropySmooth(10, 0.1), momentum(net, lr))
file = folder / f"{ranks}.jsonl" if rank == 0 else None
model.train(1, dataset, [callbacks.HistoryCallback(file, lr, device.mean_over_ranks)], dataset_sink_mode=False)
if rank == 0 and ranks > 1:
    time.sleep(32)  # as in a long evaluation: the others wait, and do not give up
device.wait_for_all()
np.save(folder / f"{ranks}-{rank}.npy", np.concatenate([part.asnumpy().ravel() for part in net.get_parameters()]))
