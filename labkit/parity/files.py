"""Convert weights of labkit's networks from a PyTorch file to a MindSpore checkpoint and back."""

import os
import tempfile
from pathlib import Path

import mindspore as ms

from labkit.networks import create_resnet
from labkit.parity.weights import WeightsError, from_mindspore, read_state, to_mindspore, write_state
from labkit.training.checkpoint import load_weights


def convert(network, source, target, num_classes=1000, stem="imagenet") -> None:
    """Convert a file in the direction that the suffixes imply; writes atomically. Raises WeightsError, RunError."""
    source, target = Path(source), Path(target)
    if not target.parent.is_dir():
        raise WeightsError(f"{target.parent}: no such folder")
    try:
        net = create_resnet(network, num_classes, stem)
    except ValueError as error:
        raise WeightsError(str(error)) from None
    if source.suffix in (".pth", ".pt") and target.suffix == ".ckpt":
        to_mindspore(read_state(source), net)
        with tempfile.TemporaryDirectory(dir=target.parent) as hidden:
            ms.save_checkpoint(net, f"{hidden}/new.ckpt")
            os.replace(f"{hidden}/new.ckpt", target)
    elif source.suffix == ".ckpt" and target.suffix in (".pth", ".pt"):
        load_weights(source, net)
        write_state(target, from_mindspore(net))
    else:
        raise WeightsError(f"{source} to {target}: need a PyTorch file (.pth, .pt) and a checkpoint (.ckpt)")
