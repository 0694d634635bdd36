"""Weights of labkit's networks from a PyTorch file to a MindSpore checkpoint and back."""

import os
from pathlib import Path

import mindspore as ms

from labkit.networks import create_resnet
from labkit.parity.weights import WeightsError, from_mindspore, read_state, to_mindspore, write_state
from labkit.training.checkpoint import is_weight

PYTORCH, MINDSPORE = (".pth", ".pt"), (".ckpt",)


def convert(network, source, target, num_classes=1000, stem="imagenet") -> None:
    """Convert a file; the endings say which way. `target` appears whole or not at all. Raises WeightsError."""
    source, target = Path(source), Path(target)
    if not target.parent.is_dir():
        raise WeightsError(f"{target.parent}: no such folder")
    try:
        net = create_resnet(network, num_classes, stem)
    except ValueError as error:
        raise WeightsError(str(error)) from None
    if source.suffix in PYTORCH and target.suffix in MINDSPORE:
        to_mindspore(read_state(source), net)
        part = target.with_name(target.stem + ".part.ckpt")  # MindSpore insists on the ending
        try:
            ms.save_checkpoint(net, str(part))
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    elif source.suffix in MINDSPORE and target.suffix in PYTORCH:
        load(source, net)
        write_state(target, from_mindspore(net))
    else:
        raise WeightsError(f"{source} to {target}: one is a PyTorch file (.pth, .pt), the other a checkpoint (.ckpt)")


def load(file, net) -> None:
    """Load all of a MindSpore checkpoint, also one of a training, into a network. Raises WeightsError."""
    if not Path(file).is_file():
        raise WeightsError(f"{file}: no such file")
    try:
        found = ms.load_checkpoint(str(file))
    except (ValueError, RuntimeError) as error:
        raise WeightsError(f"{file}: not a whole MindSpore checkpoint ({str(error).splitlines()[0]})") from None
    own = net.parameters_dict()
    state = {name: parameter.asnumpy() for name, parameter in found.items()}
    if "history_bytes" in state:  # a Run's: optimizer state and the place in the data are not weights
        state = {name: value for name, value in state.items() if name in own or is_weight(name)}
    to_mindspore(state, net, names=_AsTheyAre())


class _AsTheyAre:
    """A checkpoint's names are already MindSpore's."""

    def parameter(self, name):
        return name
