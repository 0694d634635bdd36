"""Convert between PyTorch's state dicts and MindSpore's parameters: no name is left over, only tensors unpickled."""

import io
import pickle
import re
from pathlib import Path

import mindspore as ms
import numpy as np

from labkit.parity.measures import listed
from labkit.parity.pytorch import torch
from labkit.system.errors import LabkitError, first_line
from labkit.system.files import atomic_write

# Last part of a parameter's name: MindSpore's -> PyTorch's.
PARTS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}
COUNTER = "num_batches_tracked"  # PyTorch's batch norm counts its batches; MindSpore has no such parameter


class WeightsError(LabkitError):
    """The weights do not fit: one line that lists the names."""


class Names:
    """Translates MindSpore's names of layers and parameters to PyTorch's.

    renames: (regular expression, replacement) pairs, applied in turn to the MindSpore name, such as
    [(r"down_sample_layer", "downsample"), (r"^end_point", "fc")]; labkit's ResNets need none.
    """

    def __init__(self, renames=()):
        self.renames = [(re.compile(pattern), replacement) for pattern, replacement in renames]

    def layer(self, name: str) -> str:
        """PyTorch's name for a layer."""
        for pattern, replacement in self.renames:
            name = pattern.sub(replacement, name)
        return name

    def parameter(self, name: str) -> str:
        """PyTorch's name for a parameter: it renames the layer, gamma, beta and the moving statistics."""
        prefix, dot, last = self.layer(name).rpartition(".")
        return f"{prefix}{dot}{PARTS.get(last, last)}"


def parameters(net, names=None) -> dict:
    """The parameters of a MindSpore network by PyTorch name; raises WeightsError if two get the same name."""
    names, by_name = names or Names(), {}
    for original, parameter in net.parameters_dict().items():
        name = names.parameter(original)
        if name in by_name:
            raise WeightsError(f"{by_name[name].name} and {original} would both be called {name} in PyTorch")
        by_name[name] = parameter
    return by_name


def to_mindspore(state, net, names=None) -> None:
    """Load a complete PyTorch state (name -> array) into a MindSpore network, or nothing. Raises WeightsError."""
    state = {name: np.asarray(value) for name, value in state.items() if name.rpartition(".")[2] != COUNTER}
    load(state, parameters(net, names), type(net).__name__)


def load(state, parameters, network) -> None:
    """Load arrays into parameters of the same names.

    Raises WeightsError with the names that are missing, left over, or have another shape.
    """
    problems = {
        "missing": [name for name in parameters if name not in state],
        "left over": [name for name in state if name not in parameters],
        "other shapes": [
            f"{name} {state[name].shape} for {tuple(parameter.shape)}"
            for name, parameter in parameters.items()
            if name in state and state[name].shape != tuple(parameter.shape)
        ],
    }
    if any(problems.values()):
        details = "; ".join(f"{problem}: {listed(names)}" for problem, names in problems.items() if names)
        for prefix, origin in (("module.", "DataParallel"), ("_orig_mod.", "torch.compile")):
            if state and all(name.startswith(prefix) for name in state):
                details = f"all names begin with '{prefix}', which {origin} adds: remove it"
        raise WeightsError(f"the weights do not fit {network}: {details}")
    for name, parameter in parameters.items():
        parameter.set_data(ms.Tensor(state[name].astype(np.float32), parameter.dtype))


def from_mindspore(net, names=None) -> dict[str, np.ndarray]:
    """A MindSpore network's weights as a PyTorch state: name -> array; PyTorch's batch counters are zero."""
    state = {}
    for name, parameter in parameters(net, names).items():
        state[name] = parameter.asnumpy().copy()
        prefix, dot, last = name.rpartition(".")
        if last == "running_var":  # the counter's position in PyTorch
            state[f"{prefix}{dot}{COUNTER}"] = np.array(0, np.int64)
    return state


def read_state(path) -> dict[str, np.ndarray]:
    """Read a PyTorch file with a plain state dict: name -> array, floats as float32.

    Unpickles only tensors and refuses files with anything else. Raises WeightsError.
    """
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
    if others := [str(name) for name, value in state.items() if not _is_plain(value)]:
        raise WeightsError(f"{path}: not plain tensors: {listed(others)}; save model.state_dict()")
    return {
        name: (value.float() if value.is_floating_point() else value).detach().numpy() for name, value in state.items()
    }


def write_state(path, state) -> None:
    """Write a state (name -> array) to a PyTorch file, atomically."""
    file = io.BytesIO()
    torch().save({name: torch().from_numpy(np.array(value, order="C")) for name, value in state.items()}, file)
    atomic_write(Path(path), file.getvalue())


def _is_plain(value):
    return isinstance(value, torch().Tensor) and value.layout is torch().strided and not value.is_quantized
