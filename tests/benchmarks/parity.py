"""Equality with PyTorch where `make test` has no time for it: all depths at 224 pixels, and the rounding alone."""

import copy
import tempfile
import time
from pathlib import Path

import numpy as np

from labkit.parity import resnets
from labkit.parity.pytorch import torch
from labkit.parity.resnets import Setting, compare_resnets, write_photographs

BATCH, STEPS = 4, 20
RATES = (1e-3, 1e-4, resnets.TRAINING_RATE)
SCALES = (1.0, resnets.STEP_SCALE, resnets.TRAINING_SCALE)


def measure(report, networks=resnets.NETWORKS, image_size=224) -> dict:
    """Stages of every depth, and losses of PyTorch in float32 beside PyTorch in float64; report(line) on the way."""
    with tempfile.TemporaryDirectory() as folder:
        photographs = Path(folder) / "photographs"
        write_photographs(photographs)
        depths = []
        for network in networks:
            start = time.monotonic()
            found = compare_resnets(Setting(network, photographs, image_size, BATCH, STEPS))
            stages = [{**stage.as_dict(), "tensors": len(stage.tensors)} for stage in found.stages]
            seconds = time.monotonic() - start
            depths.append({
                "network": network, "image_size": image_size, "batch": BATCH, "ok": found.ok, "stages": stages,
                "first_divergence": found.first_divergence, "seconds": seconds,
            })  # fmt: skip
            report(f"{network}, {image_size} pixels, {seconds:.0f} s\n{found.table()}")
        return {"depths": depths, "rounding": list(_rounding(photographs, report)), "torch": torch().__version__}


def _rounding(folder, report, network="resnet50", image_size=64):
    """By rate and by scale of the blocks' last batch norm: how far the two losses of a step are apart."""
    setting = Setting(network, folder, image_size)
    batches = resnets.torch_batches(setting, 4)
    for scale in SCALES:
        for rate in RATES:
            reference, _ = resnets.create_sides(setting, batches[0], batches[0], 10, lr=rate, scale=scale)
            single, double = (_losses(reference, batches, kind, rate) for kind in ("float32", "float64"))
            apart = np.abs(single - double) / double
            report(f"PyTorch {network}, scale {scale:g}, rate {rate:g}: float32 leaves float64 by {apart.max():.1e}")
            yield {"scale": scale, "rate": rate, "relative": apart.tolist(), "losses": double.tolist()}


def _losses(side, batches, kind, rate):
    kind = getattr(torch(), kind)
    net = copy.deepcopy(side.net).to(kind)
    optimizer = resnets.torch_momentum(net, rate)
    losses = []
    for step in range(STEPS):
        images, labels = batches[step % len(batches)]
        loss = side.loss(net(torch().from_numpy(images).to(kind)), torch().from_numpy(labels).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)
