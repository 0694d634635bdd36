"""One training step in PyTorch and in MindSpore, recorded by layer and compared by stage, as in the original guide."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np

from labkit.parity.layers import layers, weights_of
from labkit.parity.measures import NOISE, Tolerances, difference, differences
from labkit.parity.pytorch import torch
from labkit.parity.report import Report
from labkit.parity.weights import from_mindspore, torch_state, without_counters
from labkit.system import device
from labkit.system.errors import LabkitError

UPDATES = 2


@dataclass
class Side:
    """One framework's part of a comparison."""

    net: Any  # module or cell, in the mode (train or eval) for the step
    loss: Any  # (logits, labels) -> scalar
    optimizer: Any  # over the network's trainable parameters
    images: np.ndarray  # from this side's pipeline, mostly (N, C, H, W) float32
    labels: np.ndarray  # mostly (N,) integers


@dataclass
class Layer:
    """The results of one call of a layer: its output, and the gradients that arrived and were passed on."""

    output: np.ndarray | None = None
    gradient_in: np.ndarray | None = None  # of the loss with respect to the layer's output
    gradient_on: np.ndarray | None = None  # of the loss with respect to the layer's (first) input


@dataclass
class Step:
    """The record of a training step; names are PyTorch's, values are numpy arrays."""

    weights: dict  # before the step, including buffers
    logits: np.ndarray = None
    loss: float = None
    gradients: dict = field(default_factory=dict)
    state_after: dict = field(default_factory=dict)  # after the forward pass, which moves batch norm's statistics
    layers: dict = field(default_factory=dict)  # name -> Layer, in the order of the forward pass

    def add(self, name, output=None) -> Layer:
        """Record a call of a layer, further calls of the same layer as NAME#2, NAME#3, ..."""
        count = 1 + sum(known.partition("#")[0] == name for known in self.layers)
        layer = self.layers[name if count == 1 else f"{name}#{count}"] = Layer(output)
        return layer

    def gradients_of(self, name) -> dict:
        """Gradients of a layer's own parameters."""
        layer = name.partition("#")[0]
        return {key: value for key, value in self.gradients.items() if key.rpartition(".")[0] == layer}


def torch_step(side: Side) -> Step:
    """Forward pass, loss and gradients in PyTorch, without a weight update."""
    net, step, handles, entered = side.net, Step(torch_state(side.net)), [], {}
    names = {layer.module: name for name, layer in layers(net).items() if layer.is_whole}

    # Copy before and after a layer: in-place operations (ReLU, `out += x`) then change the copies, and if several
    # layers read the same input, the gradient at the copy belongs to this layer alone.
    def before(module, inputs):
        copy, layer = inputs[0].clone(), step.add(names[module])
        if copy.requires_grad:  # False for the images
            copy.register_hook(lambda gradient: setattr(layer, "gradient_on", _numpy(gradient)))
        entered[module] = layer
        return (copy, *inputs[1:])

    def after(module, inputs, output):
        layer = entered[module]
        layer.output = _numpy(_single(names[module], output))
        if output.requires_grad:
            output.register_hook(lambda gradient: setattr(layer, "gradient_in", _numpy(gradient)))
        return output.clone()

    for module in names:
        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        logits = net(torch().from_numpy(side.images))
        loss = side.loss(logits, torch().from_numpy(as_classes(side.labels, np.int64)))
        net.zero_grad()
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    step.logits, step.loss, step.state_after = _numpy(logits), loss.item(), torch_state(net)
    learnt = {name: p for name, p in net.named_parameters() if p.requires_grad}  # zeros if not used, as in MindSpore
    step.gradients = {name: _numpy(torch().zeros_like(p) if p.grad is None else p.grad) for name, p in learnt.items()}
    return step


def mindspore_step(side: Side, names=None) -> Step:
    """The same in MindSpore, in PyNative mode, because in graph mode hooks record nothing."""
    net, step, handles, calls = side.net, Step(from_mindspore(side.net, names)), [], defaultdict(list)

    def watch(name, cell):
        def forward(cell, inputs, output):
            calls[name].append(step.add(name, output.asnumpy() if isinstance(output, ms.Tensor) else output))

        def backward(cell, gradient_on, gradient_in):
            if calls[name]:  # not of a cell with its own bprop, for which MindSpore calls no forward hook
                layer = calls[name].pop()  # backward, the last call comes first
                layer.gradient_in, layer.gradient_on = _numpy(gradient_in), _numpy(gradient_on)

        handles.extend([cell.register_forward_hook(forward), cell.register_backward_hook(backward)])

    for name, layer in layers(net).items():
        if layer.is_whole:
            watch((names or {}).get(name, name), layer.module)

    def forward(images, labels):
        logits = net(images)
        return side.loss(logits, labels), logits

    weights = trained(net, names)
    batch = ms.Tensor(side.images), ms.Tensor(as_classes(side.labels, np.int32))
    try:
        with device.in_mode(ms.PYNATIVE_MODE):
            parameters = [parameter for parameter, _ in weights.values()]
            (loss, logits), gradients = ms.value_and_grad(forward, None, parameters, has_aux=True)(*batch)
    finally:
        for handle in handles:
            handle.remove()
    for name, layer in step.layers.items():  # not in a hook: MindSpore's next gradients would fail
        _single(name, layer.output)
    step.logits, step.loss, step.state_after = logits.asnumpy(), float(loss.asnumpy()), from_mindspore(net, names)
    step.gradients = {name: g.asnumpy().reshape(shape) for (name, (_, shape)), g in zip(weights.items(), gradients)}
    return step


def as_classes(labels, kind):
    """Labels in a framework's type of integers; unchanged if they are real numbers."""
    return labels.astype(kind) if labels.dtype.kind in "iu" else labels


def trained(net, names=None) -> dict:
    """A MindSpore network's weights that are not frozen, by PyTorch's names."""
    return {name: weight for name, weight in weights_of(net, names).items() if weight[0].requires_grad}


def compare_step(reference: Side, candidate: Side, names=None) -> Report:
    """Compare one step of PyTorch (reference) and MindSpore (candidate) from their current weights, stage by stage.

    Both optimizers get the reference's gradients, so that a difference in this stage comes from the optimizers alone;
    they take two steps, because momentum has no effect on the first. Both networks end up with the updated weights.
    names: PyTorch's names of MindSpore's layers, from `labkit.parity.layers.match`; default: the same.
    Raises WeightsError, NoTorchError; LabkitError for a layer with two outputs.
    """
    allowed, ours, theirs = Tolerances, mindspore_step(candidate, names), torch_step(reference)
    for _ in range(UPDATES):
        reference.optimizer.step()
    weights_after = {name: _numpy(p) for name, p in reference.net.named_parameters() if p.requires_grad}
    updated = mindspore_update(candidate, theirs.gradients, names)
    learnt = {*theirs.gradients, *ours.gradients}
    rounding = NOISE * max((np.abs(g[np.isfinite(g)]).max(initial=0) for g in theirs.gradients.values()), default=0.0)
    batches = [{"images": side.images, "labels": side.labels} for side in (reference, candidate)]
    weights = [without_counters(step.weights) for step in (theirs, ours)]
    buffers = [without_counters(step.state_after, learnt) for step in (theirs, ours)]
    stages = [
        differences("batch", *batches, allowed.batch),
        differences("weights", *weights, allowed.weights),
        difference("logits", theirs.logits, ours.logits, allowed.outputs),
        difference("loss", theirs.loss, ours.loss, allowed.loss),
        differences("gradients", theirs.gradients, ours.gradients, allowed.cosine, "cosine", rounding),
        differences("weights after the update", weights_after, updated, allowed.update),
        differences("buffers after the step", *buffers, allowed.buffers),
    ]
    forward, backward, unmatched = compare_layers(theirs, ours, allowed, rounding)
    return Report(stages, forward, backward, unmatched, _ties(theirs.layers, ours.layers, forward))


def compare_layers(theirs: Step, ours: Step, allowed: Tolerances, rounding: float):
    """Differences of outputs in the order of the forward pass, and of gradients in the order of the backward pass.

    A layer's backward entry is the worst of the gradient it passes on and those of its own parameters, so the first
    entry that is off is the layer that computes its gradient differently, not one that received a wrong gradient.
    If a gradient is wrong on arrival (from a loss, or an addition between layers), the entry is "before LAYER".
    """

    def compared(name, expected, found, *bound):
        # In the same shape, if there are as many values: MindSpore's GroupNorm wants its input to have four dimensions.
        is_reshaped = expected is not None and found is not None and found.size == expected.size
        return difference(name, expected, found.reshape(expected.shape) if is_reshaped else found, *bound)

    pairs = {name: (layer, ours.layers[name]) for name, layer in theirs.layers.items() if name in ours.layers}
    sides = {"pytorch": theirs.layers, "mindspore": ours.layers}
    unmatched = {framework: [name for name in side if name not in pairs] for framework, side in sides.items()}
    forward = [compared(name, a.output, b.output, allowed.outputs) for name, (a, b) in pairs.items()]
    backward = []
    for name, (a, b) in reversed(pairs.items()):
        if a.gradient_in is None and b.gradient_in is None:
            continue
        one_trains = a.gradient_in is None or b.gradient_in is None  # what is before this layer
        label = name if one_trains else f"before {name}"
        arrived, parts = compared(label, a.gradient_in, b.gradient_in, allowed.between, "cosine"), []
        if expected := theirs.gradients_of(name):
            parts.append(differences(name, expected, ours.gradients_of(name), allowed.cosine, "cosine", rounding))
        if a.gradient_on is not None and b.gradient_on is not None:
            parts.append(compared(name, a.gradient_on, b.gradient_on, allowed.between, "cosine"))
        backward.append(min(parts if arrived.ok and parts else [arrived], key=lambda d: (d.ok, d.cosine)))
    return forward, backward, unmatched


def _ties(theirs, ours, forward) -> dict:
    """{layer that agrees and ends in a ReLU: number of values that, by rounding, are zero on one side only}.

    The gradient then passes on one side only. This is not a defect, but can change the gradients of a small layer.
    """
    outputs = {layer.name: (theirs[layer.name].output, ours[layer.name].output) for layer in forward if layer.ok}
    positive = {name: (a > 0, b.reshape(a.shape) > 0) for name, (a, b) in outputs.items() if a.min(initial=0) == 0}
    return {name: int((a != b).sum()) for name, (a, b) in positive.items() if (a != b).any()}


def mindspore_update(side: Side, gradients, names=None) -> dict:
    """Take two steps with MindSpore's optimizer on given gradients; return the trainable weights."""
    weights = trained(side.net, names)
    torch_names = {id(parameter): name for name, (parameter, _) in weights.items()}
    # Zeros if a parameter is frozen in PyTorch, so that the update runs; the stage "gradients" reports this.
    filled = [
        gradients.get(torch_names.get(id(parameter)), np.zeros(parameter.size, np.float32)).reshape(parameter.shape)
        for parameter in side.optimizer.parameters
    ]
    with device.in_mode(ms.PYNATIVE_MODE):
        for _ in range(UPDATES):
            side.optimizer(tuple(ms.Tensor(gradient) for gradient in filled))
    return {name: parameter.asnumpy().reshape(shape) for name, (parameter, shape) in weights.items()}


def _single(name, output):
    """A layer's output, which must be one tensor."""
    if isinstance(output, (tuple, list, dict)):
        raise LabkitError(f"layer {name} returns {len(output)} values; only layers that return one can be compared")
    return output


def _numpy(tensor):
    """An independent array; of several tensors, as hooks get gradients, the first one's."""
    tensor = tensor[0] if isinstance(tensor, (tuple, list)) else tensor
    if tensor is None:
        return None
    return tensor.asnumpy() if isinstance(tensor, ms.Tensor) else tensor.detach().clone().numpy()
