"""Weights between PyTorch's state dicts and MindSpore's parameters: all names accounted for, only tensors unpickled."""

import os
import pickle
import re
from pathlib import Path

import mindspore as ms
import numpy as np

from labkit.parity.pytorch import torch
from labkit.system.errors import LabkitError

# Last part of a parameter's name, MindSpore -> PyTorch.
PARTS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}
COUNTER = "num_batches_tracked"  # PyTorch counts the batches of a batch norm; MindSpore has no such parameter


class WeightsError(LabkitError):
    """Weights that do not fit: one line that lists the names."""


class Names:
    """From MindSpore's names of layers and parameters to PyTorch's.

    renames: (regular expression, replacement) pairs, applied in turn to the MindSpore name, such as
    [(r"down_sample_layer", "downsample"), (r"^end_point", "fc")]; labkit's ResNets need none.
    """

    def __init__(self, renames=()):
        self.renames = [(re.compile(pattern), replacement) for pattern, replacement in renames]

    def layer(self, name: str) -> str:
        """PyTorch's name of a layer."""
        for pattern, replacement in self.renames:
            name = pattern.sub(replacement, name)
        return name

    def parameter(self, name: str) -> str:
        """PyTorch's name of a parameter: the layer's, and what PyTorch calls gamma, beta and the moving statistics."""
        prefix, dot, last = self.layer(name).rpartition(".")
        return f"{prefix}{dot}{PARTS.get(last, last)}"


def parameters(net, names=None) -> dict:
    """Every parameter of a MindSpore network by its PyTorch name; raises WeightsError if two get the same."""
    names, found = names or Names(), {}
    for own, parameter in net.parameters_dict().items():
        name = names.parameter(own)
        if name in found:
            raise WeightsError(f"{found[name].name} and {own} would both be called {name} in PyTorch")
        found[name] = parameter
    return found


def to_mindspore(state, net, names=None) -> None:
    """Load a PyTorch state (name -> array) into a MindSpore network, all of it or nothing.

    Raises WeightsError, listing names: missing in the state, left over in it, of another shape.
    """
    found = parameters(net, names)
    state = {name: np.asarray(value) for name, value in state.items() if name.rpartition(".")[2] != COUNTER}
    problems = []
    if missing := [name for name in found if name not in state]:
        problems.append(f"missing: {_listed(missing)}")
    if left_over := [name for name in state if name not in found]:
        problems.append(f"left over: {_listed(left_over)}")
    clashes = [
        f"{name} {state[name].shape} for {tuple(parameter.shape)}"
        for name, parameter in found.items()
        if name in state and state[name].shape != tuple(parameter.shape)
    ]
    if clashes:
        problems.append(f"other shapes: {_listed(clashes)}")
    if problems and state and all(name.startswith("module.") for name in state):
        problems = ["all names begin with 'module.', which DataParallel puts there: take it off"]
    if problems:
        raise WeightsError(f"the weights do not fit {type(net).__name__}: {'; '.join(problems)}")
    for name, parameter in found.items():
        parameter.set_data(ms.Tensor(state[name].astype(np.float32), parameter.dtype))


def from_mindspore(net, names=None) -> dict[str, np.ndarray]:
    """A MindSpore network's weights as a PyTorch state: name -> array; PyTorch's batch counters are zero."""
    state = {}
    for name, parameter in parameters(net, names).items():
        state[name] = parameter.asnumpy().copy()
        prefix, dot, last = name.rpartition(".")
        if last == "running_var":  # in PyTorch's position
            state[f"{prefix}{dot}{COUNTER}"] = np.array(0, np.int64)
    return state


def read_state(path) -> dict[str, np.ndarray]:
    """Read a PyTorch file with a plain state dict: name -> array, floats as float32.

    Only tensors are unpickled: a file with anything else is refused. Raises WeightsError.
    """
    if not Path(path).is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        state = torch().load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsError(f"{path}: holds more than tensors, or is no PyTorch file; not unpickled") from None
    except Exception as error:  # torch has no error of its own for a damaged file: struct.error, IndexError, ...
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"{path}: not a whole PyTorch file ({reason})") from None
    tensor = torch().Tensor
    if not isinstance(state, dict) or not state:
        raise WeightsError(f"{path}: not a state dict, but a {type(state).__name__}")
    plain = {n: v for n, v in state.items() if isinstance(n, str) and isinstance(v, tensor) and _is_plain(v)}
    others = [str(name) for name in state if name not in plain]
    if others:
        inner = [name for name in ("state_dict", "model") if isinstance(state.get(name), dict)]
        advice = f"the weights may be under {inner[0]!r}: save that part" if inner else "save model.state_dict()"
        raise WeightsError(f"{path}: no plain state dict: no tensor under {_listed(others)}; {advice}")
    return {name: _array(value) for name, value in state.items()}


def write_state(path, state) -> None:
    """Write a state (name -> array) as a PyTorch file, whole or not at all."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        torch().save({name: torch().from_numpy(np.array(value, order="C")) for name, value in state.items()}, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _is_plain(value):
    return value.layout is torch().strided and not value.is_quantized


def _array(value):
    value = value.detach()
    return (value.float() if value.is_floating_point() else value).numpy()


def _listed(names, most=8):
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
