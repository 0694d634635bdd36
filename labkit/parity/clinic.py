"""Defects from real migrations, planted one at a time in MindSpore's side of a pair of ResNets or in a pipeline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.common.initializer import XavierUniform, initializer
from mindspore.dataset import vision

from labkit.data.imagenet import MEAN, STD
from labkit.losses import CrossEntropySmooth
from labkit.optimizers import momentum
from labkit.parity.pipeline import compare_pipeline
from labkit.parity.report import Report
from labkit.parity.resnets import MOMENTUM, SMOOTHING, WEIGHT_DECAY, Setting, compare_resnets
from labkit.system.errors import LabkitError


@dataclass(frozen=True)
class Defect:
    """A defect: what is wrong, its source, and the stage and layer where the report should show it."""

    name: str  # in `labkit clinic`
    description: str
    source: str
    stage: str  # the first stage that differs
    layer: str | None  # the first layer that differs, forwards; for the stage "gradients", backwards
    plant: Callable  # (reference Side, candidate Side) -> None; for a pipeline: `create` of `compare_pipeline`
    network: str = "resnet18"
    in_pipeline: bool = False  # a single batch does not show it


def examine(names, folder, image_size=32, batch_size=8) -> Iterator[tuple[Defect, Report, dict]]:
    """For each defect: the report of one step, the first stage and layer that differ, and whether these are expected.

    folder: photographs from `write_photographs`. Raises LabkitError for an unknown defect, NoTorchError.
    """
    if unknown := [name for name in names if name not in DEFECTS]:
        raise LabkitError(f"unknown defect {unknown[0]!r}; known: {', '.join(DEFECTS)}")
    for name in names:
        defect = DEFECTS[name]
        if defect.in_pipeline:
            report = Report(compare_pipeline(defect.plant))
        else:
            setting = Setting(defect.network, Path(folder), image_size, batch_size, steps=0)
            report = compare_resnets(setting, defect.plant)
        stage = report.first_divergence["stage"]
        layer = report.first_divergence["backward" if stage == "gradients" else "forward"]
        result = {"stage": stage, "layer": layer, "located": (stage, layer) == (defect.stage, defect.layer)}
        yield defect, report, result


def _convolution(conv, stride=None, pad_mode="pad"):
    """Rebuild a convolution's operator with another stride or padding, but the same weight."""
    stride = conv.stride if stride is None else (stride, stride)
    pad = conv.padding if pad_mode == "pad" else 0
    conv.conv2d = ops.Conv2D(conv.out_channels, conv.kernel_size, pad_mode=pad_mode, pad=pad, stride=stride)


def _each(side, kind, change):
    """Change every cell of a kind."""
    for _, cell in side.net.cells_and_names():
        if isinstance(cell, kind):
            change(cell)


def statistics_momentum(reference, candidate):
    """PyTorch's momentum of 0.1 in MindSpore's batch norm."""
    for _, cell in candidate.net.cells_and_names():
        if isinstance(cell, nn.BatchNorm2d):
            cell.bn_train = ops.BatchNorm(is_training=True, epsilon=cell.eps, momentum=0.9)


def frozen_stem(reference, candidate):
    """The first convolution's weight is not trained."""
    candidate.net.conv1.weight.requires_grad = False


def scale_forgotten(reference, candidate):
    """(255 p - mean) / deviation instead of (p - mean) / deviation, for a pixel p in 0..1."""
    mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in (MEAN, STD))
    candidate.images = (255 * (candidate.images * std + mean) - mean) / std


class PassingReLU(nn.Cell):
    """A ReLU that passes on every gradient: the straight-through estimator of quantised networks."""

    def construct(self, x):
        return x + ops.stop_gradient(ops.relu(x) - x)


def _pipeline(folder, flip=0.5, **options):
    """A training pipeline of MindData's own operations, the same in each call; `options` go to its reader."""
    ds.config.set_seed(0)  # the same on all ranks: MindData distributes the shuffled images by it
    data = ds.ImageFolderDataset(str(Path(folder) / "train"), num_parallel_workers=1, **options)
    operations = [vision.Decode(), vision.RandomHorizontalFlip(flip), vision.HWC2CHW()]
    return data.map(operations, "image", num_parallel_workers=1)  # or the number of cores would decide what is drawn


_STRIDED = "layer2.0.conv1"  # ResNet-18's first convolution that halves the resolution
_NETWORK, _UPDATE, _BUFFERS = "logits", "weights after the update", "buffers after the step"
_ALL = (
    Defect("same_padding", "a strided convolution padded by 'same'", "the guide's network", _NETWORK, _STRIDED,
           lambda _, ours: _convolution(ours.net.layer2[0].conv1, pad_mode="same")),
    Defect("same_pooling", "max-pooling padded by 'same'", "the guide's network", _NETWORK, "maxpool",
           lambda _, ours: setattr(ours.net, "maxpool", nn.MaxPool2d(3, 2, pad_mode="same"))),
    Defect("stride_on_1x1", "stride on the 1x1, not the 3x3", "He et al. 2015", _NETWORK, _STRIDED,
           lambda _, ours: (_convolution(ours.net.layer2[0].conv1, 2), _convolution(ours.net.layer2[0].conv2, 1)),
           "resnet50"),
    Defect("epsilon", "batch norm with epsilon 1e-3", "other frameworks' default", _NETWORK, "bn1",
           lambda _, ours: _each(ours, nn.BatchNorm2d, lambda cell: setattr(
               cell, "bn_train", ops.BatchNorm(is_training=True, epsilon=1e-3, momentum=0.1)))),
    Defect("evaluation_mode", "evaluation mode left on", "the field", _NETWORK, "bn1",
           lambda _, ours: ours.net.set_train(False)),
    Defect("channels_reversed", "blue and red exchanged", "images read by OpenCV", "batch", "conv1",
           lambda _, ours: setattr(ours, "images", np.ascontiguousarray(ours.images[:, ::-1]))),
    Defect("scale_forgotten", "pixels of 0..255 with a mean of 0..1", "the field", "batch", "conv1", scale_forgotten),
    Defect("other_initialisation", "XavierUniform instead of kaiming", "the guide's train.py", "weights", "conv1",
           lambda _, ours: _each(ours, nn.Conv2d, lambda conv: conv.weight.set_data(
               initializer(XavierUniform(), conv.weight.shape, conv.weight.dtype)))),
    Defect("smoothing_over_others", "label smoothing over K - 1 classes", "the original documents' loss", "loss", None,
           lambda _, ours: setattr(ours, "loss", CrossEntropySmooth(ours.loss.num_classes, SMOOTHING))),
    Defect("frozen_stem", "the stem frozen", "left over from debugging", "gradients", "conv1", frozen_stem),
    Defect("passing_gradient", "a ReLU that passes every gradient", "straight-through estimator", "gradients", "relu",
           lambda _, ours: setattr(ours.net, "relu", PassingReLU())),
    Defect("decay_everywhere", "weight decay on batch norm too", "a group that holds everything", _UPDATE, None,
           lambda _, ours: setattr(ours, "optimizer", nn.Momentum(
               [{"params": ours.net.trainable_params(), "weight_decay": WEIGHT_DECAY}],
               float(ours.optimizer.get_lr()), MOMENTUM))),
    Defect("usual_momentum", "momentum 0.9 instead of 0.875", "the usual value", _UPDATE, None,
           lambda _, ours: setattr(ours, "optimizer", momentum(
               ours.net, np.full(1000, float(ours.optimizer.get_lr()), np.float32), 0.9, WEIGHT_DECAY))),
    Defect("statistics_momentum", "batch norm's momentum by PyTorch's convention", "the field", _BUFFERS, None,
           statistics_momentum),
    Defect("flip_by_device", "flip by device_id / (device_id + 1)", "the original code", "flipped", None,
           lambda folder, rank, ranks: _pipeline(folder, rank / (rank + 1), num_shards=ranks, shard_id=rank), "", True),
    Defect("unshuffled_shards", "shards that are not shuffled", "the field", "order", None,
           lambda folder, rank, ranks: _pipeline(folder, num_shards=ranks, shard_id=rank, shuffle=False), "", True),
    Defect("shards_forgotten", "every rank reads all images", "the field", "seen", None,
           lambda folder, rank, ranks: _pipeline(folder), "", True),
)  # fmt: skip
DEFECTS = {defect.name: defect for defect in _ALL}
