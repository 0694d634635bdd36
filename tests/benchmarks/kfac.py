"""K-FAC in PyTorch against SGD: one training of a ResNet by ASDL, a public library, or by SGD alone.

ASDL: Osawa et al. 2023 (arXiv 2305.04684), package asdfghjkl.
python -m tests.benchmarks.kfac FOLDER OUT.json '{"optimizer": "kfac", ...}' trains on a folder in CIFAR-10's layout.
"""

import contextlib
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from labkit import schedules
from labkit.data import cifar10_files
from labkit.data.cifar10_files import MEAN, STD
from labkit.system.files import atomic_write
from tests.benchmarks.torch_resnet import create_resnet

DEFAULTS = {
    "network": "resnet8", "batch_size": 2048, "epochs": 6, "warmup_epochs": 1, "weight_decay": 5e-4, "seed": 1,
    "optimizer": "sgd", "lr": 1.0, "damping": 0.03, "interval": 4,
    "evaluation_steps": None,
}  # fmt: skip


def read(folder, split):
    """Normalised images (N, 3, 32, 32) float32 and labels (N,)."""
    images, labels = cifar10_files.read(folder, split)
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (pixels - mean) / std, torch.from_numpy(labels.astype(np.int64))


def augmented(images, padded_zero, random):
    """Random 32x32 windows of images (N, 3, 32, 32) padded by 4 black pixels, half of them mirrored."""
    padded = padded_zero.expand(len(images), 3, 40, 40).clone()
    padded[:, :, 4:36, 4:36] = images
    rows, columns = torch.randint(0, 9, (2, len(images)), generator=random)
    mirrored = torch.rand(len(images), generator=random) < 0.5
    across = torch.arange(32)
    x = torch.where(mirrored[:, None], 31 - across, across) + columns[:, None]
    y = across + rows[:, None]
    number = torch.arange(len(images))[:, None, None]
    return padded.permute(0, 2, 3, 1)[number, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2).contiguous()


def gradient_maker(net, settings):
    """ASDL's K-FAC with the empirical Fisher matrix of the latest batch, as THOR has it; batch norm passes."""
    from asdl.precondition import KfacGradientMaker, PreconditioningConfig, natural_gradient

    # Its marks for NVIDIA's profiler fail where PyTorch has no CUDA.
    natural_gradient.nvtx = SimpleNamespace(range=lambda name: contextlib.nullcontext())
    config = PreconditioningConfig(
        data_size=settings["batch_size"], damping=settings["damping"],
        preconditioner_upd_interval=settings["interval"], curvature_upd_interval=settings["interval"],
        ignore_modules=[torch.nn.BatchNorm2d],
    )  # fmt: skip
    return KfacGradientMaker(net, config, fisher_type="fisher_emp")


def train(folder, settings):
    """Train by `settings` and test after every epoch, or so many steps; returns what compare.Curve holds.

    Seconds are the processor's, in training steps alone, without reading and augmenting images: two trainings run at a
    time, and waiting for a core must not count.
    """
    torch.set_num_threads(1)  # the processor's seconds would add up those of all threads
    torch.manual_seed(settings["seed"])
    random = torch.Generator().manual_seed(settings["seed"])
    net = create_resnet(settings["network"]).train()
    for layer in net.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    optimizer = torch.optim.SGD(net.parameters(), settings["lr"], 0.9, weight_decay=settings["weight_decay"])
    (images, labels), test = read(folder, "train"), read(folder, "test")
    black = (-torch.tensor(MEAN) / torch.tensor(STD)).view(1, 3, 1, 1)
    batch, each = settings["batch_size"], len(images) // settings["batch_size"]
    rates = schedules.linear(settings["epochs"], each, 0.0, settings["lr"], 0.0, settings["warmup_epochs"])
    total = len(rates)
    maker = gradient_maker(net, settings) if settings["optimizer"] == "kfac" else None
    curve = {"steps": [], "seconds": [], "accuracies": [], "compile_seconds": 0.0}
    step, seconds = 0, 0.0
    progress = tqdm(total=total, unit="step")
    for _ in range(settings["epochs"]):
        order = torch.randperm(len(images), generator=random)
        for chosen in order[: each * batch].view(each, batch):
            x, y = augmented(images[chosen], black, random), labels[chosen]
            x = x.contiguous(memory_format=torch.channels_last)  # 1.6 times faster on a CPU; ASDL refuses such weights
            optimizer.param_groups[0]["lr"] = float(rates[step])
            start = time.process_time()
            optimizer.zero_grad()
            if maker:
                logits = maker.setup_model_call(net, x)
                maker.setup_loss_call(functional.cross_entropy, logits, y)
                _, loss = maker.forward_and_backward()
            else:
                loss = functional.cross_entropy(net(x), y)
                loss.backward()
            optimizer.step()
            seconds += time.process_time() - start
            step += 1
            progress.update()
            if not torch.isfinite(loss):
                sys.exit(f"Error: loss is {loss.item()} at step {step}")
            if step % (settings["evaluation_steps"] or each) == 0 or step == total:
                curve["steps"].append(step)
                curve["seconds"].append(seconds)
                curve["accuracies"].append(accuracy(net, *test))
                progress.set_postfix(accuracy=f"{curve['accuracies'][-1]:.3f}")
    return {**curve, "step_ms": 1000 * seconds / step}


def accuracy(net, images, labels):
    """Share of right answers, 0 to 1."""
    net.eval()
    with torch.no_grad():
        fast = images.contiguous(memory_format=torch.channels_last)
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in zip(fast.split(1000), labels.split(1000)))
    net.train()
    return right / len(labels)


if __name__ == "__main__":
    folder, out, given = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    curve = train(folder, DEFAULTS | given)
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(out, json.dumps(curve) + "\n")
