"""PyTorch's operators and functions and MindSpore's: looked up by name, run on the same input, their defaults compared.

`python -m labkit.parity.operators` examines the `operator_rows` and writes RECORD, for machines without PyTorch.
"""

import ast
import html
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

import mindspore as ms
import numpy as np

from labkit.parity.measures import difference
from labkit.parity.pytorch import torch, torchvision
from labkit.parity.resnets import NETWORKS
from labkit.system import device, environment
from labkit.system.files import atomic_write

RECORD = environment.REPO / "labs/imagenet/parity/operators.json"


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
        different = [(a, b) for a, b in pairs if not (a and b and one[a] == other[b])]
        found = {"pytorch": self.pytorch, "mindspore": self.mindspore, "what": self.what, "error": None, "traps": {}}
        found["defaults"] = [[a and f"{a}={one[a]!r}", b and f"{b}={other[b]!r}"] for a, b in different]
        if self.theirs:
            expected = self.theirs()
            errors = []
            for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
                with device.in_mode(mode):
                    errors.append(_outcome(expected, self.ours))
            numbers = [error for error in errors if not isinstance(error, str)]
            found["error"] = max(numbers) if len(numbers) == len(errors) else errors[-1]
            found["equal"] = bool(numbers == errors and max(numbers) <= self.tolerance)
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
    """Default values of a function's or class's arguments, where it tells them."""
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


def uses(network) -> dict:
    """What a ResNet of torchvision calls in a forward pass, and which initialisers its source names: name -> count."""
    resnet = torchvision().models.resnet
    net = getattr(resnet, network)()
    calls = Counter()
    for node in torch().fx.symbolic_trace(net).graph.nodes:
        if node.op == "call_module":
            calls[f"torch.nn.{type(net.get_submodule(node.target)).__name__}"] += 1
        elif node.op == "call_function":
            module = {"_operator": "operator"}.get(node.target.__module__, "torch")
            calls[f"{module}.{node.target.__name__}"] += 1
    nodes = ast.walk(ast.parse(inspect.getsource(resnet)))
    attributes = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
    drawn = Counter(f"torch.{name}" for name in attributes if name.startswith("nn.init."))
    return {"calls": dict(calls.most_common()), "initialisers": dict(drawn)}


def published(network) -> dict:
    """What torchvision says of its own trained weights: accuracies on ImageNet's validation images, parameters."""
    weights = torchvision().models.get_model_weights(network)
    return {
        version.name: {
            "parameters": version.meta["num_params"], "accuracy": version.meta["_metrics"]["ImageNet-1K"]["acc@1"],
            "top_5_accuracy": version.meta["_metrics"]["ImageNet-1K"]["acc@5"], "recipe": version.meta["recipe"],
        }
        for version in weights
    }  # fmt: skip


def examine(network="resnet50") -> dict:
    """All rows on this machine, and what they are for; sets both frameworks' seeds. Raises NoTorchError."""
    from labkit.parity.operator_rows import FUNCTIONS, OPERATORS

    torch().manual_seed(1)
    ms.set_seed(1)
    return {
        "about": {
            "date": date.today().isoformat(), "PyTorch": torch().__version__, "torchvision": torchvision().__version__,
            "MindSpore": ms.__version__, "machine": environment.machine(),
        },
        "network": network,
        "uses": uses(network),
        "published": {name: published(name) for name in NETWORKS},
        "operators": [row.examine() for row in OPERATORS],
        "functions": [row.examine() for row in FUNCTIONS],
    }  # fmt: skip


def recorded() -> dict:
    """What `examine` found when RECORD was written."""
    return json.loads(RECORD.read_text())


def table(rows) -> str:
    """Rows of `examine` as a table in HTML: names, defaults that differ, what traps lead to, the largest error."""
    lines = []
    for row in rows:
        notes = []
        for there, here in row["defaults"]:
            notes.append(f"default `{here}`, not `{there}`" if there else f"default `{here}`")
        for how, outcome in row["traps"].items():
            notes.append(f"{how}: **{outcome if isinstance(outcome, str) else f'{100 * outcome:.3g}% off'}**")
        ours = f"`{_short(row['mindspore'])}`" + (f", {row['what']}" if row["what"] else "")
        cells = f"`{_short(row['pytorch'])}`", "\n".join([ours, *notes]), _verdict(row)
        lines.append("<tr><td>{}</td><td>{}</td><td nowrap>{}</td></tr>".format(*map(_html, cells)))
    head = "<tr><th>PyTorch</th><th>MindSpore, and what to look out for</th><th>error</th></tr>"
    return "\n".join(['<table class="table" style="width: 100%">', head, *lines, "</table>"])


def _short(name):
    return re.sub(r"^(torch|mindspore(\.common)?)\.", "", name)


def _html(text):
    """`code`, **strong** and line ends as HTML; code may break behind the dot of a name."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text, quote=False).replace("\n", "<br>"))
    code = '<code style="white-space: normal">{}</code>'
    return re.sub(r"`(.+?)`", lambda match: code.format(re.sub(r"\.(?=[a-zA-Z])", ".<wbr>", match[1])), text)


def _verdict(row):
    if row["error"] is None:
        return "not run"
    error = row["error"] if isinstance(row["error"], str) else f"{row['error']:.0e}".replace("0e+00", "0")
    return error if row["equal"] else f"**DIFFERS**: {error}"


if __name__ == "__main__":
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(RECORD, json.dumps(examine(), indent=1) + "\n")
