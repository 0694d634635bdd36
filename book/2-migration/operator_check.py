"""One row of the operator table: a name in PyTorch and its counterpart in MindSpore, run on the same input."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import mindspore as ms
import numpy as np

from labkit.parity.measures import difference
from labkit.system import device


@dataclass(frozen=True)
class Row:
    """A name in PyTorch and what does the same in MindSpore.

    theirs, ours: arrays computed from the same input; None: the names are looked up and nothing is run.
    traps: what one might write instead -> a function for MindSpore's result then.
    arguments: whose defaults are compared, "PyTorch's:MindSpore's" each; one of the two may be missing.
    what: which part of it is meant.
    tolerance: of the largest error relative to the largest value; draws are compared by their standard deviation.
    """

    pytorch: str
    mindspore: str
    theirs: Callable | None = None
    ours: Callable | None = None
    traps: dict = field(default_factory=dict)
    arguments: str = ""
    what: str = ""
    tolerance: float = 1e-6

    def examine(self) -> dict:
        """The row on this machine, in PyNative and in graph mode; raises AttributeError where a name does not exist."""
        one, other = defaults(look_up(self.pytorch)), defaults(look_up(self.mindspore))
        pairs = [pair.split(":") for pair in self.arguments.split()]
        different = [
            [a and f"{a}={one[a]!r}", b and f"{b}={other[b]!r}"]
            for a, b in pairs
            if not (a and b and one[a] == other[b])
        ]
        found = {"pytorch": self.pytorch, "mindspore": self.mindspore, "what": self.what, "error": None, "traps": {}}
        found["defaults"] = different
        if self.theirs:
            expected, errors = self.theirs(), []
            for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
                with device.in_mode(mode):
                    errors.append(_outcome(expected, self.ours))
            failures = [error for error in errors if isinstance(error, str)]
            found["error"] = failures[-1] if failures else max(errors)
            found["equal"] = bool(not failures and max(errors) <= self.tolerance)
            with device.in_mode(ms.PYNATIVE_MODE):
                found["traps"] = {how: _outcome(expected, trap) for how, trap in self.traps.items()}
        return found


def _outcome(expected, function):
    """The largest error relative to the largest value; or what keeps the two from being compared, as text."""
    try:
        found = function()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__
    if not np.isfinite(found).all():
        return "not finite"
    if np.shape(found) != np.shape(expected):
        return f"shape {np.shape(found)}, not {np.shape(expected)}"
    return difference("", expected, found, 0.0).max_rel


def look_up(name):
    """The object of a dotted name; raises AttributeError."""
    module, *parts = name.split(".")
    found = importlib.import_module(module)
    for part in parts:
        module = f"{module}.{part}"
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(module)
        except ImportError:
            raise AttributeError(f"{module} does not exist") from None
    return found


def defaults(function) -> dict:
    """Default values of a function's or class's arguments, where Python knows them."""
    function = function.__init__ if inspect.isclass(function) else function
    while inner := [c.cell_contents for c in getattr(function, "__closure__", None) or () if _is_function(c)]:
        function = inner[0]  # decorators of MindSpore's optimizers do not say what they wrap
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # written in C++
        return {}
    return {name: p.default for name, p in parameters.items() if p.default is not p.empty}


def _is_function(cell):
    return inspect.isfunction(cell.cell_contents)
