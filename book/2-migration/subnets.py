"""Compare each part of a ResNet with torchvision's: fixed input, fixed weights, one training step.

`python book/2-migration/subnets.py` compares all of them and writes RECORD, which is shown without PyTorch.
"""

import json
from collections import OrderedDict
from datetime import date

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from labkit.networks import BasicBlock, Bottleneck, create_resnet
from labkit.networks.resnet import batch_norm, conv
from labkit.optimizers import momentum
from labkit.parity.pytorch import torch, torchvision
from labkit.parity.resnets import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, torch_momentum
from labkit.parity.step import Side, compare_step
from labkit.parity.weights import to_mindspore, torch_state
from labkit.system import environment
from labkit.system.files import atomic_write

RECORD = environment.REPO / "labs/imagenet/parity/subnets.json"


def stem(net):
    """The layers before the blocks, with their names."""
    return OrderedDict((name, getattr(net, name)) for name in ("conv1", "bn1", "relu", "maxpool"))


def their_shortcut(resnet, channels, out_channels, stride):
    """torchvision's shortcut with a convolution."""
    return torch().nn.Sequential(resnet.conv1x1(channels, out_channels, stride), torch().nn.BatchNorm2d(out_channels))


def our_shortcut(channels, out_channels, stride):
    """labkit's shortcut with a convolution."""
    return nn.SequentialCell(conv(channels, out_channels, 1, stride), batch_norm(out_channels))


# {name: (torchvision's part, from its module `resnet`; labkit's part; shape of the input)}
SUBNETS = {
    "conv1x1": (lambda r: r.conv1x1(64, 256), lambda: conv(64, 256, 1), (4, 64, 14, 14)),
    "conv3x3, stride 2": (lambda r: r.conv3x3(64, 64, 2), lambda: conv(64, 64, 3, 2), (4, 64, 14, 14)),
    "stem": (
        lambda r: torch().nn.Sequential(stem(r.resnet18())),
        lambda: nn.SequentialCell(stem(create_resnet("resnet18", 10, "imagenet"))),
        (4, 3, 64, 64),
    ),
    "BasicBlock": (lambda r: r.BasicBlock(64, 64), lambda: BasicBlock(64, 64), (4, 64, 14, 14)),
    "BasicBlock, stride 2": (
        lambda r: r.BasicBlock(64, 128, 2, their_shortcut(r, 64, 128, 2)),
        lambda: BasicBlock(64, 128, 2, our_shortcut(64, 128, 2)),
        (4, 64, 14, 14),
    ),
    "Bottleneck": (lambda r: r.Bottleneck(256, 64), lambda: Bottleneck(256, 64), (4, 256, 14, 14)),
    "Bottleneck, stride 2": (
        lambda r: r.Bottleneck(256, 128, 2, their_shortcut(r, 256, 512, 2)),
        lambda: Bottleneck(256, 128, 2, our_shortcut(256, 512, 2)),
        (4, 256, 14, 14),
    ),
}


def compare_subnet(name, plant=None):
    """The Report about a part: output (as "logits"), a loss of it, gradients, update, statistics.

    plant: (reference, candidate) -> None changes the pair before the comparison. Raises NoTorchError.
    """
    create_theirs, create_ours, shape = SUBNETS[name]
    torch().manual_seed(1)
    random = np.random.default_rng(1)
    theirs, ours = create_theirs(torchvision().models.resnet), create_ours()
    # The initial ones and zeros would hide exchanged scale, shift and statistics, so draw random values.
    state = torch_state(theirs)
    state.update({k: random.uniform(0.5, 1.5, v.shape).astype(np.float32) for k, v in state.items() if v.ndim == 1})
    theirs.load_state_dict({k: torch().from_numpy(v.copy()) for k, v in state.items()})
    to_mindspore(state, ours)
    images = random.normal(size=shape).astype(np.float32)
    output = theirs.eval()(torch().from_numpy(images))
    probe = random.uniform(0.5, 1.5, tuple(output.shape)).astype(np.float32)
    theirs.train()
    ours.set_train()

    def loss(probe):
        """Every output counts, with its own weight."""
        return lambda output, labels: (output * output * probe).mean()

    labels = np.zeros(shape[0], np.int64)
    rates = np.full(10, LEARNING_RATE, np.float32)
    reference = Side(theirs, loss(torch().from_numpy(probe)), torch_momentum(theirs, LEARNING_RATE), images, labels)
    candidate = Side(ours, loss(ms.Tensor(probe)), momentum(ours, rates, MOMENTUM, WEIGHT_DECAY), images, labels)
    if plant:
        plant(reference, candidate)
    return compare_step(reference, candidate)


def same_padding(reference, candidate):
    """A defect to plant: pad a bottleneck's strided convolution with "same"."""
    conv = candidate.net.conv2
    conv.conv2d = ops.Conv2D(conv.out_channels, 3, pad_mode="same", stride=2)


def compare_all() -> dict:
    """The largest errors of each part, and the stages where a planted defect shows; raises NoTorchError."""
    about = {"date": date.today().isoformat(), "PyTorch": torch().__version__, "MindSpore": ms.__version__}
    planted = compare_subnet("Bottleneck, stride 2", same_padding)
    record = {"about": {**about, "machine": environment.machine()}, "subnets": {}}
    record["planted"] = {"ok": {stage.name: stage.ok for stage in planted.stages}, "first": planted.first_divergence}
    for name in SUBNETS:
        report = compare_subnet(name)
        stages = {stage.name: stage for stage in report.stages}
        record["subnets"][name] = {
            "ok": report.ok, "parameters": len(stages["weights"].tensors), "layers": len(report.forward),
            "output": stages["logits"].max_rel, "gradients": 1 - stages["gradients"].cosine,
            "update": stages["weights after the update"].max_rel,
        }  # fmt: skip
    return record


def recorded() -> dict:
    """The results of `compare_all` in RECORD."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(RECORD, json.dumps(compare_all(), indent=1) + "\n")
