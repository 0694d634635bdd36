"""What torchvision's ResNet-50 is made of, and what does the same in MindSpore: looked up by name and run in both.

`python -m labkit.parity.operators` examines everything again and writes RECORD, for machines without PyTorch.
"""

import ast
import importlib
import inspect
import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Constant, HeNormal, TruncatedNormal, initializer

from labkit import runtime
from labkit.losses import CrossEntropySmooth
from labkit.parity.measures import difference
from labkit.parity.resnets import NETWORKS
from labkit.parity.pytorch import torch, torchvision
from labkit.run import write_whole

RECORD = runtime.REPO / "labs/imagenet/parity/operators.json"


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
        """The row on this machine, in PyNative and in graph mode; raises AttributeError for a name that does not exist."""
        one, other = defaults(look_up(self.pytorch)), defaults(look_up(self.mindspore))
        pairs = [pair.split(":") for pair in self.arguments.split()]
        different = [(a, b) for a, b in pairs if not (a and b and one[a] == other[b])]
        found = {"pytorch": self.pytorch, "mindspore": self.mindspore, "what": self.what, "error": None, "traps": {}}
        found["defaults"] = [[a and f"{a}={one[a]!r}", b and f"{b}={other[b]!r}"] for a, b in different]
        if self.theirs:
            expected = self.theirs()
            errors = []
            for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
                with _mode(mode):
                    errors.append(_outcome(expected, self.ours))
            numbers = [error for error in errors if not isinstance(error, str)]
            found["error"] = max(numbers) if len(numbers) == len(errors) else errors[-1]
            found["equal"] = bool(numbers == errors and max(numbers) <= self.tolerance)
            with _mode(ms.PYNATIVE_MODE):
                found["traps"] = {how: _outcome(expected, trap) for how, trap in self.traps.items()}
        return found


@contextmanager
def _mode(mode):
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        yield
    finally:
        ms.set_context(mode=before)


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
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(module)
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
    return {name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty}


def _is_function(cell):
    return inspect.isfunction(cell.cell_contents)


# -- One input for both ---------------------------------------------------------------------------

_random = np.random.default_rng(0)
IMAGES = _random.normal(size=(2, 3, 8, 8)).astype(np.float32)
KERNEL = _random.normal(size=(4, 3, 3, 3)).astype(np.float32)
FEATURES, DENSE = (_random.normal(size=shape).astype(np.float32) for shape in ((6, 10), (5, 10)))
LABELS = _random.integers(0, 10, 6).astype(np.int32)
LARGE = (256, 128, 3, 3)  # values enough for a standard deviation to three digits
STEPS = [np.array([[1.0, -2.0], [3.0, 0.5]], np.float32) * factor for factor in (1, 2, -1)]  # gradients


def theirs(create, *inputs, **weights):
    """A PyTorch module or function on arrays, with given weights."""
    module = create()
    for name, value in weights.items():
        getattr(module, name).data = torch().from_numpy(value.copy())
    return module(*(torch().from_numpy(value) for value in inputs)).detach().numpy()


def ours(create, *inputs, **weights):
    """A MindSpore cell or function on arrays, with given weights."""
    cell = create()
    for name, value in weights.items():
        getattr(cell, name).set_data(Tensor(value))
    return cell(*map(Tensor, inputs)).asnumpy()


def their_norm():
    """Output and running statistics after a batch, in one array."""
    norm = torch().nn.BatchNorm2d(3)
    parts = norm(torch().from_numpy(IMAGES)), norm.running_mean, norm.running_var
    return np.concatenate([part.detach().numpy().ravel() for part in parts])


def our_norm(training=True, **options):
    norm = nn.BatchNorm2d(3, **options).set_train(training)
    return np.concatenate([part.asnumpy().ravel() for part in (norm(Tensor(IMAGES)), norm.moving_mean, norm.moving_variance)])


def their_steps(**options):
    """A parameter after each of three steps on the same gradients."""
    weight, path = torch().nn.Parameter(torch().ones(2, 2)), []
    optimizer = torch().optim.SGD([weight], 0.1, **options)
    for gradient in STEPS:
        weight.grad = torch().from_numpy(gradient.copy())
        optimizer.step()
        path.append(weight.detach().numpy().copy())
    return np.stack(path)


def our_steps(create):
    weight, path = Parameter(Tensor(np.ones((2, 2), np.float32)), name="norm.gamma"), []
    optimizer = create([weight])
    for gradient in STEPS:
        optimizer((Tensor(gradient),))
        path.append(weight.asnumpy().copy())
    return np.stack(path)


def their_rates():
    optimizer = torch().optim.SGD([torch().nn.Parameter(torch().zeros(1))], 0.256)
    schedule, rates = torch().optim.lr_scheduler.CosineAnnealingLR(optimizer, 10), []
    for _ in range(10):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return np.array(rates)


def their_gradient():
    weight = torch().from_numpy(DENSE.copy()).requires_grad_()
    torch().logsumexp(torch().from_numpy(FEATURES) @ weight.T, 1).sum().backward()
    return weight.grad.numpy()


def our_gradient():
    def forward(features, weight):
        return ops.logsumexp(ops.matmul(features, weight.T), 1).sum()

    return ms.grad(forward, 1)(Tensor(FEATURES), Tensor(DENSE)).asnumpy()


def their_clipped():
    weight = torch().nn.Parameter(torch().zeros(5, 10))
    weight.grad = torch().from_numpy(DENSE.copy())
    torch().nn.utils.clip_grad_norm_([weight], 1.0)
    return weight.grad.numpy()


def their_draw(name, **options):
    """Standard deviation of what an initialiser draws."""
    return look_up(f"torch.nn.init.{name}")(torch().empty(LARGE), **options).std().numpy()


def our_draw(init):
    return initializer(init, LARGE).init_data().asnumpy().std()


def _layer(name, **options):
    """A constructor call, not made yet: PyTorch is imported only where it is needed."""
    return lambda: look_up(f"torch.nn.{name}")(**options)


OPERATORS = (
    Row(
        "torch.nn.Conv2d", "mindspore.nn.Conv2d",
        partial(theirs, _layer("Conv2d", in_channels=3, out_channels=4, kernel_size=3, stride=2, padding=1, bias=False), IMAGES, weight=KERNEL),
        partial(ours, partial(nn.Conv2d, 3, 4, 3, 2, pad_mode="pad", padding=1), IMAGES, weight=KERNEL),
        {"padding=1 carried over": partial(ours, partial(nn.Conv2d, 3, 4, 3, 2, padding=1), IMAGES, weight=KERNEL),
         "padding left out": partial(ours, partial(nn.Conv2d, 3, 4, 3, 2), IMAGES, weight=KERNEL)},
        "padding:padding :pad_mode bias:has_bias",
    ),
    Row(
        "torch.nn.BatchNorm2d", "mindspore.nn.BatchNorm2d", their_norm, our_norm,
        {"momentum=0.1 carried over": partial(our_norm, momentum=0.1), "set_train() forgotten": partial(our_norm, training=False)},
        "eps:eps momentum:momentum",
    ),
    Row("torch.nn.ReLU", "mindspore.nn.ReLU", partial(theirs, _layer("ReLU"), IMAGES), partial(ours, nn.ReLU, IMAGES)),
    Row(
        "torch.nn.MaxPool2d", "mindspore.nn.MaxPool2d",
        partial(theirs, _layer("MaxPool2d", kernel_size=3, stride=2, padding=1), IMAGES),
        partial(ours, partial(nn.MaxPool2d, 3, 2, pad_mode="pad", padding=1), IMAGES),
        {"padding=1 carried over": partial(ours, partial(nn.MaxPool2d, 3, 2, padding=1), IMAGES),
         "pad_mode='same'": partial(ours, partial(nn.MaxPool2d, 3, 2, pad_mode="same"), IMAGES),
         "padding left out": partial(ours, partial(nn.MaxPool2d, 3, 2), IMAGES)},
        "stride:stride padding:padding :pad_mode",
    ),
    Row(
        "torch.nn.AdaptiveAvgPool2d", "mindspore.nn.AdaptiveAvgPool2d",
        partial(theirs, _layer("AdaptiveAvgPool2d", output_size=3), IMAGES), partial(ours, partial(nn.AdaptiveAvgPool2d, 3), IMAGES),
    ),
    Row(
        "torch.flatten", "mindspore.ops.flatten",
        lambda: torch().flatten(torch().from_numpy(IMAGES), 1).numpy(), lambda: ops.flatten(Tensor(IMAGES), start_dim=1).asnumpy(),
        {"flatten(x, 1) carried over": lambda: ops.flatten(Tensor(IMAGES), 1).asnumpy()},
        ":start_dim",
    ),
    Row(
        "torch.nn.Linear", "mindspore.nn.Dense",
        partial(theirs, _layer("Linear", in_features=10, out_features=5, bias=False), FEATURES, weight=DENSE),
        partial(ours, partial(nn.Dense, 10, 5, has_bias=False), FEATURES, weight=DENSE),
        {}, "bias:has_bias",
    ),
    Row(
        "torch.nn.CrossEntropyLoss", "mindspore.nn.CrossEntropyLoss",
        lambda: torch().nn.CrossEntropyLoss(label_smoothing=0.1)(torch().from_numpy(FEATURES), torch().from_numpy(LABELS).long()).numpy(),
        partial(ours, partial(nn.CrossEntropyLoss, label_smoothing=0.1), FEATURES, LABELS),
        {"the guide's smoothing, over K - 1": partial(ours, partial(CrossEntropySmooth, 10, 0.1), FEATURES, LABELS)},
        "reduction:reduction label_smoothing:label_smoothing",
    ),
    Row(
        "torch.logsumexp", "mindspore.ops.logsumexp",
        lambda: torch().logsumexp(torch().from_numpy(100 * FEATURES), 1).numpy(), lambda: ops.logsumexp(Tensor(100 * FEATURES), 1).asnumpy(),
        {"log(sum(exp(x)))": lambda: ops.log(ops.exp(Tensor(100 * FEATURES)).sum(1)).asnumpy()},
    ),
)  # fmt: skip

FUNCTIONS = (
    Row(
        "torch.nn.Module", "mindspore.nn.Cell",
        lambda: np.float32(torch().nn.Module().training), lambda: np.float32(nn.Cell().set_train().training),
        {"set_train() left out": lambda: np.float32(nn.Cell().training)},
    ),
    Row(
        "torch.nn.Sequential", "mindspore.nn.SequentialCell",
        lambda: theirs(lambda: torch().nn.Sequential(torch().nn.ReLU(), torch().nn.Flatten()), IMAGES),
        partial(ours, lambda: nn.SequentialCell(nn.ReLU(), nn.Flatten()), IMAGES),
    ),
    Row("torch.Tensor.backward", "mindspore.grad", their_gradient, our_gradient),
    Row(
        "torch.nn.init.kaiming_normal_", "mindspore.common.initializer.HeNormal",
        partial(their_draw, "kaiming_normal_", mode="fan_out", nonlinearity="relu"),
        lambda: our_draw(HeNormal(mode="fan_out", nonlinearity="relu")),
        {"'HeNormal', the guide's table": lambda: our_draw("HeNormal")},
        "mode:mode nonlinearity:nonlinearity a:negative_slope", "deviation", 0.01,
    ),
    Row(
        "torch.nn.init.trunc_normal_", "mindspore.common.initializer.TruncatedNormal",
        partial(their_draw, "trunc_normal_", std=0.01), lambda: our_draw(TruncatedNormal(0.01)),
        {"cut at two deviations, as in 1.7": lambda: our_draw(TruncatedNormal(0.01, a=-0.02, b=0.02))},
        "std:sigma a:a b:b", "deviation", 0.01,
    ),
    Row(
        "torch.nn.init.constant_", "mindspore.common.initializer.Constant",
        lambda: torch().nn.init.constant_(torch().empty(3), 0.5).numpy(), lambda: initializer(Constant(0.5), (3,)).init_data().asnumpy(),
        {"'Constant', the guide's table": lambda: initializer("Constant", (3,)).init_data().asnumpy()},
    ),
    Row(
        "torch.nn.Linear", "mindspore.nn.Dense",
        lambda: torch().nn.Linear(512, 256).weight.std().detach().numpy(), lambda: nn.Dense(512, 256).weight.asnumpy().std(),
        {"TruncatedNormal(), the guide's": lambda: our_draw(TruncatedNormal())},
        "", "first weights", 0.01,
    ),
    Row(
        "torch.optim.SGD", "mindspore.nn.Momentum",
        partial(their_steps, momentum=0.875, weight_decay=0.1),
        lambda: our_steps(lambda p: nn.Momentum([{"params": p, "weight_decay": 0.1}], 0.1, 0.875)),
        {"no groups; a name with gamma": lambda: our_steps(lambda p: nn.Momentum(p, 0.1, 0.875, weight_decay=0.1))},
        "weight_decay:weight_decay nesterov:use_nesterov", "with weight decay",
    ),
    Row(
        "torch.optim.SGD", "mindspore.nn.SGD",
        partial(their_steps, momentum=0.875, nesterov=True), lambda: our_steps(lambda p: nn.SGD(p, 0.1, 0.875, nesterov=True)),
        {"nn.Momentum(use_nesterov=True)": lambda: our_steps(lambda p: nn.Momentum(p, 0.1, 0.875, use_nesterov=True))},
        "lr:learning_rate momentum:momentum dampening:dampening nesterov:nesterov", "Nesterov's",
    ),
    Row(
        "torch.optim.lr_scheduler.CosineAnnealingLR", "mindspore.nn.cosine_decay_lr",
        their_rates, lambda: np.array(nn.cosine_decay_lr(0.0, 0.256, 10, 1, decay_epoch=10)),
        {"decay_epoch=1, the guide's": lambda: np.array(nn.cosine_decay_lr(0.0, 0.256, 10, 1, decay_epoch=1))},
    ),
    Row(
        "torch.nn.utils.clip_grad_norm_", "mindspore.ops.clip_by_global_norm",
        their_clipped, lambda: ops.clip_by_global_norm((Tensor(DENSE),), 1.0)[0].asnumpy(),
    ),
    Row("torch.nn.parallel.DistributedDataParallel", "mindspore.set_auto_parallel_context"),
)  # fmt: skip


def uses(network) -> dict:
    """What a ResNet of torchvision calls in a forward pass, and what its source takes from torch.nn.init: name -> how often."""
    resnet = torchvision().models.resnet
    net = getattr(resnet, network)()
    calls = Counter()
    for node in torch().fx.symbolic_trace(net).graph.nodes:
        if node.op == "call_module":
            calls[f"torch.nn.{type(net.get_submodule(node.target)).__name__}"] += 1
        elif node.op == "call_function":
            module = {"_operator": "operator"}.get(node.target.__module__, "torch")
            calls[f"{module}.{node.target.__name__}"] += 1
    attributes = [ast.unparse(n) for n in ast.walk(ast.parse(inspect.getsource(resnet))) if isinstance(n, ast.Attribute)]
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
    torch().manual_seed(1)
    ms.set_seed(1)
    return {
        "about": {
            "date": date.today().isoformat(), "PyTorch": torch().__version__, "torchvision": torchvision().__version__,
            "MindSpore": ms.__version__, "machine": runtime.machine(),
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
    """Rows of `examine` as text: names, the largest error, defaults that differ, and what traps lead to."""
    lines = []
    for row in rows:
        ours = " ".join(filter(None, (row["mindspore"], row["what"] and f"({row['what']})")))
        lines += [f"{row['pytorch']} -> {ours}", f"    {_verdict(row)}"]
        lines += [f"    default  {theirs or '(none)'} there, {ours or '(none)'} here" for theirs, ours in row["defaults"]]
        for how, outcome in row["traps"].items():
            lines.append(f"    trap     {how}: {outcome if isinstance(outcome, str) else f'{100 * outcome:.2g}% off'}")
    return "\n".join(lines)


def _verdict(row):
    if row["error"] is None:
        return "exists; not run here"
    if isinstance(row["error"], str):
        return f"DIFFERS: {row['error']}"
    return f"{'equal' if row['equal'] else 'DIFFERS'}, largest error {row['error']:.0e}"


if __name__ == "__main__":
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    write_whole(RECORD, json.dumps(examine(), indent=1) + "\n")
