"""Defects from real migrations, planted one at a time in MindSpore's side of a ResNet pair or in a training pipeline.

Each comes from the code of the original documents or from practice; see its `source`.
"""

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
from labkit.parity.resnets import LEARNING_RATE, MOMENTUM, SMOOTHING, WEIGHT_DECAY, Setting, compare_resnets
from labkit.system.errors import LabkitError


@dataclass(frozen=True)
class Defect:
    """A defect: what is wrong, its source, and the stage and layer where the report should show it."""

    description: str
    source: str
    stage: str  # the first stage that differs
    layer: str | None  # the first layer that differs, forwards; for the stage "gradients", backwards
    plant: Callable  # (reference Side, candidate Side) -> None; for a pipeline: `create` of `compare_pipeline`
    network: str = "resnet18"
    in_pipeline: bool = False  # a single batch does not show it

    @property
    def name(self) -> str:
        """The defect's name in `labkit clinic`."""
        return self.plant.__name__


def examine(names, folder, image_size=32, batch_size=8) -> Iterator[tuple[Defect, Report, dict]]:
    """For each defect: the report of one step, the first stage and layer that differ, and whether these are expected.

    folder: photographs from `write_photographs`. Raises LabkitError for an unknown defect, NoTorchError.
    """
    for name in names:
        if name not in DEFECTS:
            raise LabkitError(f"unknown defect {name!r}; known: {', '.join(DEFECTS)}")
    for name in names:
        defect = DEFECTS[name]
        if defect.in_pipeline:
            report = Report(compare_pipeline(defect.plant))
        else:
            setting = Setting(defect.network, Path(folder), image_size, batch_size, steps=0)
            report = compare_resnets(setting, defect.plant)
        stage = next((stage.name for stage in report.stages if not stage.ok), None)
        layer = report.first_divergence["backward" if stage == "gradients" else "forward"]
        result = {"stage": stage, "layer": layer, "located": (stage, layer) == (defect.stage, defect.layer)}
        yield defect, report, result


def _convolution(conv, stride=None, pad_mode="pad"):
    """Rebuild a convolution's operator with another stride or padding, but the same weight."""
    stride = conv.stride if stride is None else (stride, stride)
    pad = conv.padding if pad_mode == "pad" else 0
    conv.conv2d = ops.Conv2D(conv.out_channels, conv.kernel_size, pad_mode=pad_mode, pad=pad, stride=stride)


def same_padding(reference, candidate):
    _convolution(candidate.net.layer2[0].conv1, pad_mode="same")


def same_pooling(reference, candidate):
    candidate.net.maxpool = nn.MaxPool2d(3, 2, pad_mode="same")


def stride_on_1x1(reference, candidate):
    block = candidate.net.layer2[0]
    _convolution(block.conv1, stride=2)
    _convolution(block.conv2, stride=1)


def statistics_momentum(reference, candidate):
    for _, cell in candidate.net.cells_and_names():
        if isinstance(cell, nn.BatchNorm2d):
            cell.bn_train = ops.BatchNorm(is_training=True, epsilon=cell.eps, momentum=0.9)


def epsilon(reference, candidate):
    for _, cell in candidate.net.cells_and_names():
        if isinstance(cell, nn.BatchNorm2d):
            cell.bn_train = ops.BatchNorm(is_training=True, epsilon=1e-3, momentum=0.1)


def evaluation_mode(reference, candidate):
    candidate.net.set_train(False)


def channels_reversed(reference, candidate):
    candidate.images = np.ascontiguousarray(candidate.images[:, ::-1])


def scale_forgotten(reference, candidate):
    """(255 p - mean) / deviation instead of (p - mean) / deviation, for a pixel p in 0..1."""
    mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in (MEAN, STD))
    candidate.images = (255 * (candidate.images * std + mean) - mean) / std


def other_initialisation(reference, candidate):
    for _, cell in candidate.net.cells_and_names():
        if isinstance(cell, nn.Conv2d):
            cell.weight.set_data(initializer(XavierUniform(), cell.weight.shape, cell.weight.dtype))


def smoothing_over_others(reference, candidate):
    candidate.loss = CrossEntropySmooth(candidate.loss.num_classes, SMOOTHING)


def decay_everywhere(reference, candidate):
    everything = [{"params": candidate.net.trainable_params(), "weight_decay": WEIGHT_DECAY}]
    candidate.optimizer = nn.Momentum(everything, LEARNING_RATE, MOMENTUM)


def usual_momentum(reference, candidate):
    rates = np.full(10, LEARNING_RATE, np.float32)
    candidate.optimizer = momentum(candidate.net, rates, 0.9, WEIGHT_DECAY)


def frozen_stem(reference, candidate):
    candidate.net.conv1.weight.requires_grad = False


class PassingReLU(nn.Cell):
    """A ReLU that passes on every gradient: the straight-through estimator of quantised networks."""

    def construct(self, x):
        return x + ops.stop_gradient(ops.relu(x) - x)


def passing_gradient(reference, candidate):
    candidate.net.relu = PassingReLU()


def _pipeline(folder, flip=0.5, **options):
    """A training pipeline of MindData's own operations, the same in each call; `options` go to its reader."""
    ds.config.set_seed(0)  # the same on all ranks: MindData distributes the shuffled images by it
    data = ds.ImageFolderDataset(str(Path(folder) / "train"), num_parallel_workers=1, **options)
    operations = [vision.Decode(), vision.RandomHorizontalFlip(flip), vision.HWC2CHW()]
    return data.map(operations, "image", num_parallel_workers=1)  # or the number of cores would decide what is drawn


def flip_by_device(folder, rank, ranks):
    return _pipeline(folder, rank / (rank + 1), num_shards=ranks, shard_id=rank)


def unshuffled_shards(folder, rank, ranks):
    return _pipeline(folder, num_shards=ranks, shard_id=rank, shuffle=False)


def shards_forgotten(folder, rank, ranks):
    return _pipeline(folder)


_STRIDED = "layer2.0.conv1"  # ResNet-18's first convolution that halves the resolution
_NETWORK, _UPDATE, _BUFFERS = "logits", "weights after the update", "buffers after the step"
_ALL = (
    Defect("a strided convolution padded by 'same'", "the guide's network", _NETWORK, _STRIDED, same_padding),
    Defect("max-pooling padded by 'same'", "the guide's network", _NETWORK, "maxpool", same_pooling),
    Defect("stride on the 1x1, not the 3x3", "He et al. 2015", _NETWORK, _STRIDED, stride_on_1x1, "resnet50"),
    Defect("batch norm with epsilon 1e-3", "other frameworks' default", _NETWORK, "bn1", epsilon),
    Defect("evaluation mode left on", "the field", _NETWORK, "bn1", evaluation_mode),
    Defect("blue and red exchanged", "images read by OpenCV", "batch", "conv1", channels_reversed),
    Defect("pixels of 0..255 with a mean of 0..1", "the field", "batch", "conv1", scale_forgotten),
    Defect("XavierUniform instead of kaiming", "the guide's train.py", "weights", "conv1", other_initialisation),
    Defect("label smoothing over K - 1 classes", "the original documents' loss", "loss", None, smoothing_over_others),
    Defect("the stem frozen", "left over from debugging", "gradients", "conv1", frozen_stem),
    Defect("a ReLU that passes every gradient", "straight-through estimator", "gradients", "relu", passing_gradient),
    Defect("weight decay on batch norm too", "a group that holds everything", _UPDATE, None, decay_everywhere),
    Defect("momentum 0.9 instead of 0.875", "the usual value", _UPDATE, None, usual_momentum),
    Defect("batch norm's momentum by PyTorch's convention", "the field", _BUFFERS, None, statistics_momentum),
    Defect("flip by device_id / (device_id + 1)", "the original code", "flipped", None, flip_by_device, "", True),
    Defect("shards that are not shuffled", "the field", "order", None, unshuffled_shards, "", True),
    Defect("every rank reads all images", "the field", "seen", None, shards_forgotten, "", True),
)
DEFECTS = {defect.name: defect for defect in _ALL}
