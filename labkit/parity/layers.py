"""Layers of a network in either framework, and which layers of two networks correspond."""

from collections import defaultdict
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import nn

from labkit.parity.measures import listed
from labkit.parity.pytorch import torch
from labkit.system import device
from labkit.system.errors import LabkitError, first_line

# MindSpore's names -> PyTorch's: of layers, and of their parameters.
KINDS = {"Cell": "Module", "Dense": "Linear", **{f"Conv{n}dTranspose": f"ConvTranspose{n}d" for n in (1, 2, 3)}}
STATISTICS = {"moving_mean": "running_mean", "moving_variance": "running_var"}
PARTS = {"gamma": "weight", "beta": "bias", "embedding_table": "weight", "w": "weight", **STATISTICS}
COUNTER = "num_batches_tracked"  # PyTorch's batch norm counts its batches; MindSpore has no such parameter


class WeightsError(LabkitError):
    """The weights do not fit: one line that lists the names."""


class Layer(NamedTuple):
    """A module or cell."""

    module: Any
    kind: str  # PyTorch's name for its class, and the shape of its weight
    weights: dict  # by PyTorch's name, (parameter or running statistic, its shape in PyTorch)
    is_whole: bool  # there are no layers inside


def layers(net) -> dict[str, Layer]:
    """Whole layers, and others with weights, in the order of definition. Raises WeightsError: shared, lazily built."""
    is_ours = isinstance(net, nn.Cell)
    parts = dict(net.cells_and_names() if is_ours else net.named_modules())
    inner = {f"{name}.bn2d".lstrip("."): name for name, part in parts.items() if isinstance(part, nn.BatchNorm3d)}
    if is_ours:
        own = [(name, *own) for name, cell in parts.items() for own in cell.parameters_and_names(expand=False)]
    else:
        own = [(*name.rpartition(".")[::2], value) for name, value in net.state_dict(keep_vars=True).items()]
    owners, weights, found = {}, defaultdict(dict), {}
    for name, key, value in own:
        full = f"{name}.{key}".lstrip(".")
        if (owner := owners.setdefault(id(value), full)) != full:
            raise WeightsError(f"{full} is the same as {owner}: shared weights are not supported")
        if not is_ours and torch().nn.parameter.is_lazy(value):
            raise WeightsError(f"{full} has no shape yet: call the network once before returning it")
        name = inner.get(name, name)
        kind, shape = _class(parts[name]), tuple(value.shape)
        if len(shape) == 4 and kind.endswith("1d"):  # MindSpore's one-dimensional convolutions are two-dimensional
            shape = shape[:2] + shape[3:]
        if key != COUNTER:
            weights[name][key if kind == "Module" else PARTS.get(key, key)] = value, shape
    for name, part in parts.items():
        kind, shapes = _class(part), {key: shape for key, (_, shape) in sorted(weights[name].items(), reverse=True)}
        is_whole = name in inner.values() or not [*(part.cells() if is_ours else part.children())]
        if shapes:
            kind = f"{kind} {shapes if kind == 'Module' else next(iter(shapes.values()))}"  # of the weight
        elif kind == "Module":
            kind = type(part).__name__
        if shapes or (is_whole and name not in inner):
            found[name] = Layer(part, kind, weights[name], is_whole and name != "")
    return found


def _class(part):
    """PyTorch's name for the first of a layer's classes that is the framework's own."""
    names = [c.__name__ for c in type(part).__mro__ if c.__module__.startswith(("torch.", "mindspore."))]
    return KINDS.get(names[0], names[0])


def weights_of(net, names=None) -> dict[str, tuple]:
    """All weights as in `Layer`, by PyTorch's names. names: of MindSpore's layers, from `match`; default: the same."""
    return {
        f"{(names or {}).get(name, name)}.{key}".lstrip("."): weight
        for name, layer in layers(net).items()
        for key, weight in layer.weights.items()
    }


def require_fit(theirs, ours, network) -> None:
    """Raise WeightsError unless PyTorch's weights, {name: shape}, have MindSpore's names and shapes (`weights_of`)."""
    ours = {name: shape for name, (_, shape) in ours.items()}
    shapes = [f"{name} {theirs[name]} for {shape}" for name, shape in ours.items() if theirs.get(name, shape) != shape]
    problems = {
        "missing in PyTorch": [f"{name} {shape}" for name, shape in ours.items() if name not in theirs],
        "missing in MindSpore": [f"{name} {shape}" for name, shape in theirs.items() if name not in ours],
        "other shapes": shapes,
    }
    if any(problems.values()):
        details = "; ".join(f"{problem}: {listed(names)}" for problem, names in problems.items() if names)
        for prefix, origin in (("module.", "DataParallel"), ("_orig_mod.", "torch.compile")):
            if theirs and all(name.startswith(prefix) for name in theirs):
                details = f"all names begin with '{prefix}', which {origin} adds: remove it"
        raise WeightsError(f"the weights do not fit {network}: {details}")


def match(reference, candidate, inputs) -> dict[str, str]:
    """{MindSpore's name of a layer: PyTorch's}, for a network in each framework and an array that both take.

    Layers of one kind correspond if they have equal names, or if the orders of definition and of calls give the same
    pairs. WeightsError lists what does not; layers without weights need not. The networks end in evaluation mode.
    """
    sides, names, by_order = (layers(reference), layers(candidate)), {}, []
    for has_weights in (True, False):
        groups = defaultdict(lambda: ([], []))
        for number, (side, done) in enumerate(zip(sides, (names.values(), names))):
            for name, layer in side.items():
                if bool(layer.weights) == has_weights and name not in done:
                    groups[layer.kind][number].append(name)
        for theirs, ours in groups.values():
            if {*theirs} == {*ours}:
                names |= zip(ours, ours)
            elif len(theirs) == len(ours):
                names |= zip(ours, theirs)
                by_order.append((theirs, ours))
        if all(name == other for name, other in names.items()):  # both name their layers alike
            names |= {name: name for name in sides[1] if name in sides[0]}
    taken = [name for name, layer in sides[0].items() if not layer.weights or name in names.values()]
    names |= {name: f"{name} (MindSpore)" for name in sides[1] if name not in names and name in taken}
    theirs = {name: shape for name, (_, shape) in weights_of(reference).items()}
    require_fit(theirs, weights_of(candidate, names), type(candidate).__name__)
    calls = [_calls(net, side, inputs) for net, side in zip((reference, candidate), sides)]
    for group in by_order:
        in_calls = (sorted(part, key=order.index) for part, order in zip(group, calls))
        if {*zip(*in_calls)} != {*zip(*group)}:
            names |= {name: f"{name} (MindSpore)" for name in group[1]}
            if sides[1][group[1][0]].weights:
                theirs, ours = map(listed, group)
                raise WeightsError(f"cannot tell which of {theirs} is which of {ours}: define them in the same order")
    return names


def _calls(net, side, inputs):
    """Names of layers in the order of their first calls, then of those that are not called."""
    order, hooks, is_ours = [], [], isinstance(net, nn.Cell)
    for name, layer in side.items():
        hooks.append(layer.module.register_forward_pre_hook(lambda *_, name=name: order.append(name)))
    try:
        with device.in_mode(ms.PYNATIVE_MODE), torch().no_grad():
            net.set_train(False)(ms.Tensor(inputs)) if is_ours else net.eval()(torch().from_numpy(inputs))
    except Exception as error:
        place = f"in layer {order[-1]}" if order else "before its first layer"
        raise LabkitError(f"{type(net).__name__} stops {place}: {first_line(error)}") from None
    finally:
        for hook in hooks:
            hook.remove()
    return [*order, *(name for name in side if name not in order)]
