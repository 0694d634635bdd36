"""A row of the operator table: a name in PyTorch and its counterpart in MindSpore, run on the same input."""

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
    """A name in PyTorch and its counterpart in MindSpore.

    theirs, ours: functions that compute arrays from the same input; None: only look up the names.
    traps: {what one might write instead: function for MindSpore's result in this case}.
    arguments: pairs "PyTorch's:MindSpore's" of arguments whose defaults are compared; one of the two may be missing.
    aspect: the part of the behaviour that is compared, if not all of it.
    tolerance: of the largest error relative to the largest value; draws are compared by their standard deviation.
    call: the right call in MindSpore, as text.
    """

    pytorch: str
    mindspore: str
    theirs: Callable | None = None
    ours: Callable | None = None
    traps: dict = field(default_factory=dict)
    arguments: str = ""
    aspect: str = ""
    tolerance: float = 1e-6
    call: str = ""

    def examine(self) -> dict:
        """Compare on this machine, in PyNative and in graph mode; raises AttributeError if a name does not exist."""
        theirs, ours = defaults(look_up(self.pytorch)), defaults(look_up(self.mindspore))
        pairs = [pair.split(":") for pair in self.arguments.split()]
        different = [
            [a and f"{a}={theirs[a]!r}", b and f"{b}={ours[b]!r}"]
            for a, b in pairs
            if not (a and b and theirs[a] == ours[b])
        ]
        result = {"pytorch": self.pytorch, "mindspore": self.mindspore, "aspect": self.aspect, "error": None}
        result |= {"traps": {}, "defaults": different}
        if self.theirs:
            expected, errors = self.theirs(), []
            for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
                with device.in_mode(mode):
                    errors.append(_outcome(expected, self.ours))
            failures = [error for error in errors if isinstance(error, str)]
            result["error"] = failures[-1] if failures else max(errors)
            result["equal"] = bool(not failures and max(errors) <= self.tolerance)
            with device.in_mode(ms.PYNATIVE_MODE):
                result["traps"] = {trap: _outcome(expected, function) for trap, function in self.traps.items()}
        return result


def _outcome(expected, function):
    """The largest error relative to the largest value; or why the two cannot be compared, as text."""
    try:
        actual = function()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__
    if not np.isfinite(actual).all():
        return "not finite"
    if np.shape(actual) != np.shape(expected):
        return f"shape {np.shape(actual)}, not {np.shape(expected)}"
    return difference("", expected, actual, 0.0).max_rel


def look_up(name):
    """The object with a dotted name; raises AttributeError."""
    module, *parts = name.split(".")
    value = importlib.import_module(module)
    for part in parts:
        module = f"{module}.{part}"
        try:
            value = getattr(value, part) if hasattr(value, part) else importlib.import_module(module)
        except ImportError:
            raise AttributeError(f"{module} does not exist") from None
    return value


def defaults(function) -> dict:
    """Default values of the arguments of a function or class, as far as Python knows them."""
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
