"""The operator tables of part 2: compare the parts of torchvision's ResNets with their counterparts in MindSpore.

`python book/2-migration/operator_table.py` writes RECORD, which is shown on machines without PyTorch.
"""

import ast
import html
import inspect
import json
import re
from collections import Counter
from datetime import date

import mindspore as ms
from operator_rows import FUNCTIONS, OPERATORS

from labkit.parity.pytorch import torch, torchvision
from labkit.parity.resnets import NETWORKS
from labkit.system import environment
from labkit.system.files import atomic_write

RECORD = environment.REPO / "labs/imagenet/parity/operators.json"


def uses(network) -> dict:
    """What torchvision's ResNet calls in a forward pass, and the initialisers in its source: {name: count} each."""
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
    """torchvision's data about its trained weights: accuracies on ImageNet's validation images, parameters, recipe."""
    weights = torchvision().models.get_model_weights(network)
    return {
        version.name: {
            "parameters": version.meta["num_params"], "accuracy": version.meta["_metrics"]["ImageNet-1K"]["acc@1"],
            "top_5_accuracy": version.meta["_metrics"]["ImageNet-1K"]["acc@5"], "recipe": version.meta["recipe"],
        }
        for version in weights
    }  # fmt: skip


def examine(network="resnet50") -> dict:
    """Compare all rows on this machine; sets both frameworks' seeds. Raises NoTorchError."""
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
    """The results of `examine` in RECORD."""
    return json.loads(RECORD.read_text())


def table(rows) -> str:
    """Rows of `examine` as an HTML table: names, the right call, different defaults, traps, the largest error."""
    lines, calls = [], {(row.pytorch, row.mindspore, row.aspect): row.call for row in (*OPERATORS, *FUNCTIONS)}
    for row in rows:
        notes = []
        if row["traps"]:
            notes.append(f"right: `{calls[row['pytorch'], row['mindspore'], row['aspect']]}`")
        for theirs, ours in row["defaults"]:
            notes.append(f"default `{ours}`, not `{theirs}`" if theirs else f"default `{ours}`")
        for trap, outcome in row["traps"].items():
            effect = f"**{outcome}**" if isinstance(outcome, str) else f"**{100 * outcome:.3g}%** off"
            notes.append(f"{trap}: {effect}")
        ours = f"`{_short(row['mindspore'])}`" + (f", {row['aspect']}" if row["aspect"] else "")
        cells = f"`{_short(row['pytorch'])}`", "\n".join([ours, *notes]), _verdict(row)
        lines.append("<tr><td>{}</td><td>{}</td><td nowrap>{}</td></tr>".format(*map(_html, cells)))
    head = "<tr><th>PyTorch</th><th>MindSpore, and what to look out for</th><th>error</th></tr>"
    return "\n".join(['<table class="table" style="width: 100%">', head, *lines, "</table>"])


def _short(name):
    return re.sub(r"^(torch|mindspore(\.common)?)\.", "", name)


def _html(text):
    """`code`, **strong** and line ends as HTML; code may break after the dot in a name."""
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
