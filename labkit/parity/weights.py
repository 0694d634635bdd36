"""Convert between PyTorch's state dicts and MindSpore's parameters: no name is left over, only tensors unpickled."""

import io
import pickle
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np

from labkit.parity.layers import COUNTER, WeightsError, require_fit, weights_of
from labkit.parity.measures import listed
from labkit.parity.pytorch import torch
from labkit.system.errors import first_line
from labkit.system.files import atomic_write
from labkit.training.checkpoint import load_weights


def to_mindspore(state, net, names=None) -> None:
    """Load a complete PyTorch state (name -> array) or nothing; names of layers: from `match`. Raises WeightsError."""
    state, weights = without_counters(state), weights_of(net, names)
    require_fit({name: np.shape(value) for name, value in state.items()}, weights, type(net).__name__)
    for name, (parameter, _) in weights.items():
        value = np.asarray(state[name], np.float32).reshape(parameter.shape)
        parameter.set_data(ms.Tensor(value, parameter.dtype))


def from_mindspore(net, names=None) -> dict[str, np.ndarray]:
    """A MindSpore network's weights as a PyTorch state: name -> array; PyTorch's batch counters are zero."""
    state = {}
    for name, (parameter, shape) in weights_of(net, names).items():
        state[name] = parameter.asnumpy().reshape(shape).copy()
        prefix, dot, last = name.rpartition(".")
        if last == "running_var":  # the counter's position in PyTorch
            state[f"{prefix}{dot}{COUNTER}"] = np.array(0, np.int64)
    return state


def torch_state(net) -> dict[str, np.ndarray]:
    """A PyTorch network's state as independent arrays."""
    return {name: value.detach().clone().numpy() for name, value in net.state_dict().items()}


def without_counters(state, names=()) -> dict:
    """A state without PyTorch's batch counters, which MindSpore does not have, and without `names`."""
    return {name: value for name, value in state.items() if name not in names and not name.endswith(COUNTER)}


def read_state(path) -> dict[str, np.ndarray]:
    """A plain state dict, name -> array, floats as float32. Raises WeightsError; unpickles nothing but tensors."""
    if not Path(path).is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        state = torch().load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsError(f"{path}: contains more than tensors, or is not a PyTorch file; not unpickled") from None
    except Exception as error:  # for damaged files torch raises struct.error, IndexError, ...
        raise WeightsError(f"{path}: damaged, or not a PyTorch file ({first_line(error)})") from None
    if not isinstance(state, dict) or not state:
        raise WeightsError(f"{path}: not a state dict, but a {type(state).__name__}")
    tensors = {name: value for name, value in state.items() if isinstance(value, torch().Tensor)}
    plain = {name for name, value in tensors.items() if value.layout is torch().strided and not value.is_quantized}
    if others := [str(name) for name in state if name not in plain]:
        raise WeightsError(f"{path}: not plain tensors: {listed(others)}; save model.state_dict()")
    return {name: (v.float() if v.is_floating_point() else v).detach().numpy() for name, v in state.items()}


def write_state(path, state) -> None:
    """Write a state (name -> array) to a PyTorch file, atomically."""
    file = io.BytesIO()
    torch().save({name: torch().from_numpy(np.array(value, order="C")) for name, value in state.items()}, file)
    atomic_write(Path(path), file.getvalue())


def convert(source, target, net, names=None) -> None:
    """Convert a file atomically, as the suffixes say, with MindSpore's `net`. Raises WeightsError, RunError."""
    source, target = Path(source), Path(target)
    if not target.parent.is_dir():
        raise WeightsError(f"{target.parent}: no such folder")
    if source.suffix in (".pth", ".pt") and target.suffix == ".ckpt":
        to_mindspore(read_state(source), net, names)
        with tempfile.TemporaryDirectory(dir=target.parent) as hidden:
            ms.save_checkpoint(net, f"{hidden}/new.ckpt")
            atomic_write(target, Path(hidden, "new.ckpt").read_bytes())  # MindSpore lets only the owner read its own
    elif source.suffix == ".ckpt" and target.suffix in (".pth", ".pt"):
        load_weights(source, net)
        write_state(target, from_mindspore(net, names))
    else:
        raise WeightsError(f"{source} to {target}: need a PyTorch file (.pth, .pt) and a checkpoint (.ckpt)")
