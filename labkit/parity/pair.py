"""Compare any two networks: a file in Python builds one in each framework.

reference() -> torch.nn.Module and candidate() -> mindspore.nn.Cell are required. The file may also have
SHAPE = (8, 3, 32, 32): of the inputs, random images with random classes, or batch() -> (inputs, labels), two arrays;
reference_loss(), candidate_loss() -> a function (outputs, labels) -> scalar; default: cross-entropy;
reference_optimizer(net), candidate_optimizer(net); default: momentum 0.9 with learning rate 0.01 and no weight decay.
"""

import importlib.util
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from labkit.parity.layers import layers, match
from labkit.parity.measures import listed
from labkit.parity.pytorch import torch
from labkit.parity.report import Report
from labkit.parity.step import Side, trained
from labkit.parity.trajectory import TRIES, compare_training
from labkit.parity.weights import to_mindspore, torch_state
from labkit.system.errors import LabkitError, first_line


def read_pair(file):
    """A pair's file as a module, which may import its neighbours. Raises LabkitError."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, Path(file).resolve())
    if not spec or not Path(file).is_file():
        raise LabkitError(f"{file}: not a file of Python")
    pair = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = pair  # MindSpore looks for the source of a network's class there
    sys.path.insert(0, str(Path(spec.origin).parent))
    with located(pair):
        spec.loader.exec_module(pair)
        _ = pair.reference, pair.candidate
    return pair


@contextmanager
def located(pair):
    """Errors name the pair's file, and the line in it unless they are labkit's own."""
    place = getattr(pair, "__file__", "pair")
    try:
        yield
    except LabkitError as error:
        raise type(error)(f"{Path(place).name}: {error}") from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = "".join([f", line {frame.lineno}" for frame in frames if frame.filename == place][-1:])
        raise LabkitError(f"{Path(place).name}{line}: {type(error).__name__}: {first_line(error)}") from None


def create_networks(pair, seed=1):
    """(reference, candidate, names of layers from `match`, inputs, labels); both networks with their own weights."""
    torch().manual_seed(seed)
    ms.set_seed(seed)
    random = np.random.default_rng(seed)
    reference, candidate = pair.reference(), pair.candidate()
    if isinstance(reference, nn.Cell) or not isinstance(candidate, nn.Cell):
        raise LabkitError("reference() must return a network of PyTorch, candidate() one of MindSpore")
    if hasattr(pair, "batch"):
        inputs, labels = pair.batch()
    else:
        inputs = random.normal(size=getattr(pair, "SHAPE", (8, 3, 32, 32))).astype(np.float32)
        with torch().no_grad():
            batch, classes, *pixels = reference.eval()(torch().from_numpy(inputs)).shape
        labels = random.integers(0, classes, (batch, *pixels))
    return reference, candidate, match(reference, candidate, inputs), inputs, labels


def create_sides(pair, seed=1) -> tuple[Side, Side, dict]:
    """Both sides of a training step, with the reference's weights and without dropout, and the names of layers."""
    reference, candidate, names, *batch = create_networks(pair, seed)
    theirs = {name for name, parameter in reference.named_parameters() if parameter.requires_grad}
    ours = trained(candidate, names).keys()
    for framework, frozen in (("MindSpore", theirs - ours), ("PyTorch", ours - theirs)):
        if frozen:
            raise LabkitError(f"frozen in {framework} only: {listed(sorted(frozen))}")
    to_mindspore(torch_state(reference), candidate, names)
    for net, set_mode in ((reference, torch().nn.Module.train), (candidate, nn.Cell.set_train)):
        set_mode(net, True)
        for layer in layers(net).values():
            if layer.kind.startswith("Dropout"):  # no two random generators are alike
                set_mode(layer.module, False)
    defaults = {
        "reference_loss": torch().nn.CrossEntropyLoss,
        "candidate_loss": nn.CrossEntropyLoss,
        "reference_optimizer": lambda net: torch().optim.SGD(net.parameters(), 0.01, 0.9),
        "candidate_optimizer": lambda net: nn.Momentum(net.trainable_params(), 0.01, 0.9),
    }
    loss, our_loss, optimizer, our_optimizer = (getattr(pair, name, create) for name, create in defaults.items())
    ours = Side(candidate, our_loss(), our_optimizer(candidate), *batch)
    return Side(reference, loss(), optimizer(reference), *batch), ours, names


def compare_pair(pair, seed=1, steps=0) -> Report:
    """Compare a step of a pair (from `read_pair`, or any object), and a short training. LabkitError names the file."""
    with located(pair):
        batches = [create_networks(pair, seed)[3:]] * steps if steps else []
        return compare_training(
            (create_sides(pair, seed + number) for number in range(TRIES)), lambda: create_sides(pair, seed),
            batches, {"name": "a pair's own batch", "sha256": None},
            {"pair": Path(getattr(pair, "__file__", "pair")).name, "seed": seed},
        )  # fmt: skip
