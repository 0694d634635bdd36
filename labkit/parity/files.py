"""Weights of labkit's networks from a PyTorch file to a MindSpore checkpoint and back."""

import os
import tempfile
from pathlib import Path

import mindspore as ms

from labkit.networks import create_resnet
from labkit.parity.weights import WeightsError, from_mindspore, load, read_state, to_mindspore, write_state
from labkit.system.errors import first_line
from labkit.training.checkpoint import is_weight


def convert(network, source, target, num_classes=1000, stem="imagenet") -> None:
    """Convert a file; the endings say which way. `target` appears whole or not at all. Raises WeightsError."""
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
        load_checkpoint(source, net)
        write_state(target, from_mindspore(net))
    else:
        raise WeightsError(f"{source} to {target}: one is a PyTorch file (.pth, .pt), the other a checkpoint (.ckpt)")


def load_checkpoint(file, net) -> None:
    """Load all of a MindSpore checkpoint, also one of a training, into a network. Raises WeightsError."""
    try:
        state = {name: parameter.asnumpy() for name, parameter in ms.load_checkpoint(str(file)).items()}
    except (ValueError, RuntimeError) as error:
        raise WeightsError(f"{file}: not a whole MindSpore checkpoint ({first_line(error)})") from None
    parameters = net.parameters_dict()
    if "history_bytes" in state:  # a Run's: optimizer state and the place in the data are not weights
        state = {name: value for name, value in state.items() if name in parameters or is_weight(name)}
    load(state, parameters, type(net).__name__)
