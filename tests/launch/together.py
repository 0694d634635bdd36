"""What N processes do together, written to FOLDER as RANKS-RANK.npz: two with batch 4 do the same as one with 8.

Several train the Run of job.py as well, FOLDER/whole.

python together.py FOLDER DATA
"""

import sys
import time
from pathlib import Path

import job
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model

from labkit.data import cifar10
from labkit.losses import CrossEntropySmooth
from labkit.optimizers import momentum
from labkit.system import device
from labkit.training import build, callbacks, recipes

STEPS, IMAGES = 6, 48
folder, data = Path(sys.argv[1]), sys.argv[2]


def weights(fusion):
    """Train a network without batch norm, for which every rank has first weights of its own; return its weights."""
    device.setup(1, fusion)
    ms.set_seed(1 + rank)
    net = nn.SequentialCell(
        nn.Conv2d(3, 4, 3, has_bias=True), nn.ReLU(), nn.Flatten(), nn.Dense(4 * 8 * 8, 16), nn.ReLU(), nn.Dense(16, 10)
    )
    device.share_weights(net.get_parameters())
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(IMAGES, 3, 8, 8)).astype(np.float32), np.arange(IMAGES, dtype=np.int32) % 10
    shard = {"num_shards": ranks, "shard_id": rank} if ranks > 1 else {}  # image k goes to rank k % ranks
    dataset = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False, **shard).batch(8 // ranks)
    lr = np.full(STEPS, 0.1, np.float32)
    model = Model(net, CrossEntropySmooth(10, 0.1), momentum(net, lr))
    file = folder / f"{ranks}-{fusion}.jsonl" if rank == 0 else None
    model.train(1, dataset, [callbacks.HistoryCallback(file, lr, device.mean_over_ranks)], dataset_sink_mode=False)
    return np.concatenate([parameter.asnumpy().ravel() for parameter in net.get_parameters()])


def stream():
    """Number (its pixels) and crop (the row and column where it begins) of every image of two epochs of the shard."""
    asked = recipes.load(recipes.find("cifar10"), "sample", (f"data.folder={data}", "data.batch_size=10"))
    dataset, found = build.train_dataset(asked, rank, ranks), []
    mean, std = np.array(cifar10.MEAN[0]), np.array(cifar10.STD[0])
    batches = dataset.create_tuple_iterator(num_epochs=2, output_numpy=True)
    for _ in range(2):
        found += [np.rint(255 * (std * images[:, 0] + mean)).astype(int) for images, _ in batches]
    pixels = np.concatenate(found)
    inside = pixels == pixels[:, 16:17, 16:17]
    return pixels[:, 16, 16], inside.any(axis=2).argmax(axis=1), inside.any(axis=1).argmax(axis=1)


device.setup(1)
rank, ranks = device.ranks()
result = {"plain": weights(None), "fused": weights([1, 3])}
result["number"], result["row"], result["column"] = stream()
if ranks > 1:
    job.train(folder / "whole", data)
if rank == 0 and ranks > 1:
    time.sleep(32)  # as in a long evaluation: the others wait, and do not give up
device.wait_for_all()
np.savez(folder / f"{ranks}-{rank}.npz", **result)
