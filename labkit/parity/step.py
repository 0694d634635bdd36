"""One training step in PyTorch and in MindSpore, recorded layer by layer and compared stage by stage.

The stages follow "reproduce one step" in the original migration guide: batch, initial weights, logits, loss, gradients,
weights and buffers after the update.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np

from labkit.parity.measures import Difference, Tolerances, difference, differences
from labkit.parity.pytorch import torch
from labkit.parity.report import Report
from labkit.parity.weights import COUNTER, Names, from_mindspore, parameters
from labkit.system import device
from labkit.system.errors import LabkitError

UPDATES = 2


@dataclass
class Side:
    """One framework's part of a comparison.

    net: module or cell, in the mode (train or eval) for the step;
    loss: (logits, labels) -> scalar; optimizer: over the network's trainable parameters;
    images (N, C, H, W) float32, labels (N,) integers: numpy arrays from this side's pipeline.
    """

    net: Any
    loss: Any
    optimizer: Any
    images: np.ndarray
    labels: np.ndarray


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


def torch_step(side: Side) -> Step:
    """Forward pass, loss and gradients in PyTorch, without a weight update."""
    net, step, handles, entered = side.net, Step(torch_state(side.net)), [], {}

    def watch(name, module):
        # Copy before and after the layer: in-place operations (ReLU, `out += x`) then change the copies, and if several
        # layers read the same input, the gradient at the copy belongs to this layer alone.
        def before(module, inputs):
            copy, layer = inputs[0].clone(), step.add(name)
            if copy.requires_grad:  # False for the images
                copy.register_hook(lambda gradient: setattr(layer, "gradient_on", _numpy(gradient)))
            entered[name] = layer
            return (copy, *inputs[1:])

        def after(module, inputs, output):
            layer = entered[name]
            layer.output = _numpy(_single_tensor(name, output))
            if output.requires_grad:
                output.register_hook(lambda gradient: setattr(layer, "gradient_in", _numpy(gradient)))
            return output.clone()

        handles.extend([module.register_forward_pre_hook(before), module.register_forward_hook(after)])

    for name, module in net.named_modules():
        if name and not any(module.children()):
            watch(name, module)
    try:
        logits = net(torch().from_numpy(side.images))
        loss = side.loss(logits, torch().from_numpy(side.labels).long())
        net.zero_grad()
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    step.logits, step.loss = _numpy(logits), loss.item()
    step.gradients = {name: _numpy(p.grad) for name, p in net.named_parameters() if p.grad is not None}
    step.state_after = torch_state(net)
    return step


def mindspore_step(side: Side, names: Names) -> Step:
    """The same in MindSpore, in PyNative mode, because in graph mode hooks record nothing."""
    net, step, handles, calls = side.net, Step(from_mindspore(side.net, names)), [], defaultdict(list)

    def watch(name, cell):
        def forward(cell, inputs, output):
            calls[name].append(step.add(name, _single_tensor(name, output).asnumpy()))

        def backward(cell, gradient_on, gradient_in):
            if not calls[name]:  # a cell with its own bprop, for which MindSpore calls no forward hook
                return
            layer = calls[name].pop()  # backward, the last call comes first
            layer.gradient_in, layer.gradient_on = _first(gradient_in), _first(gradient_on)

        handles.extend([cell.register_forward_hook(forward), cell.register_backward_hook(backward)])

    for name, cell in net.cells_and_names():
        if name and not cell.cells():
            watch(names.layer(name), cell)

    def forward(images, labels):
        logits = net(images)
        return side.loss(logits, labels), logits

    trainable = net.trainable_params()
    try:
        with device.in_mode(ms.PYNATIVE_MODE):
            step_function = ms.value_and_grad(forward, None, trainable, has_aux=True)
            (loss, logits), gradients = step_function(ms.Tensor(side.images), ms.Tensor(side.labels.astype(np.int32)))
    finally:
        for handle in handles:
            handle.remove()
    step.logits, step.loss = logits.asnumpy(), float(loss.asnumpy())
    step.gradients = {
        names.parameter(p.name): gradient.asnumpy() for p, gradient in zip(trainable, gradients, strict=True)
    }
    step.state_after = from_mindspore(net, names)
    return step


def compare_step(reference: Side, candidate: Side, names=None) -> Report:
    """Compare one step of PyTorch (reference) and MindSpore (candidate) from their current weights, stage by stage.

    Both optimizers get the reference's gradients, so that a difference in this stage comes from the optimizers alone;
    they take two steps, because momentum has no effect on the first. Both networks end up with the updated weights.
    Raises WeightsError if two parameters get the same name, LabkitError for a layer with two outputs, NoTorchError.
    """
    names, allowed = names or Names(), Tolerances
    ours = mindspore_step(candidate, names)
    theirs = torch_step(reference)
    weights_after = torch_update(reference, theirs.gradients)
    updated = mindspore_update(candidate, theirs.gradients, names)
    trained = {*theirs.gradients, *ours.gradients}
    stages = [
        differences(
            "batch",
            {"images": reference.images, "labels": reference.labels},
            {"images": candidate.images, "labels": candidate.labels},
            allowed.batch,
        ),
        differences("weights", _without_counters(theirs.weights), _without_counters(ours.weights), allowed.weights),
        difference("logits", theirs.logits, ours.logits, allowed.outputs),
        difference("loss", theirs.loss, ours.loss, allowed.loss),
        differences("gradients", theirs.gradients, ours.gradients, allowed.cosine, by="cosine"),
        differences("weights after the update", weights_after, updated, allowed.update),
        differences("buffers after the step", _buffers(theirs, trained), _buffers(ours, trained), allowed.buffers),
    ]
    forward, backward, unmatched = compare_layers(theirs, ours, allowed)
    ties = _ties(theirs.layers, ours.layers, forward)
    return Report(stages=stages, forward=forward, backward=backward, unmatched=unmatched, ties=ties)


def compare_layers(theirs: Step, ours: Step, allowed: Tolerances):
    """Differences of outputs in the order of the forward pass, and of gradients in the order of the backward pass.

    A layer's backward entry is the worst of the gradient it passes on and those of its own parameters, so the first
    entry that is off is the layer that computes its gradient differently, not one that received a wrong gradient.
    If a gradient is wrong on arrival (from a loss, or an addition between layers), the entry is "before LAYER".
    """
    both = [name for name in theirs.layers if name in ours.layers]
    unmatched = {
        "pytorch": [name for name in theirs.layers if name not in ours.layers],
        "mindspore": [name for name in ours.layers if name not in theirs.layers],
    }
    forward = [difference(n, theirs.layers[n].output, ours.layers[n].output, allowed.outputs) for n in both]
    backward = []
    for name in reversed(both):
        reference, layer = theirs.layers[name], ours.layers[name]
        if layer.gradient_in is None and reference.gradient_in is None:
            continue
        if layer.gradient_in is None or reference.gradient_in is None:  # one side trains nothing before this layer
            backward.append(Difference(name, np.inf, np.inf, 0.0, allowed.cosine, False, by="cosine"))
            continue
        arrived = difference(f"before {name}", reference.gradient_in, layer.gradient_in, allowed.between, by="cosine")
        computed = []
        if expected := _gradients_of(name, theirs):
            computed.append(differences(name, expected, _gradients_of(name, ours), allowed.cosine, by="cosine"))
        if layer.gradient_on is not None and reference.gradient_on is not None:
            computed.append(difference(name, reference.gradient_on, layer.gradient_on, allowed.between, by="cosine"))
        backward.append(min([arrived] if not arrived.ok else computed or [arrived], key=lambda d: (d.ok, d.cosine)))
    return forward, backward, unmatched


def _ties(theirs, ours, forward) -> dict:
    """{layer that agrees and ends in a ReLU: number of values that, by rounding, are zero on one side only}.

    The gradient then passes on one side only. This is not a defect, but can change the gradients of a small layer.
    """
    outputs = {layer.name: (theirs[layer.name].output, ours[layer.name].output) for layer in forward if layer.ok}
    counts = {name: int(((a > 0) != (b > 0)).sum()) for name, (a, b) in outputs.items() if a.min(initial=0) == 0}
    return {name: count for name, count in counts.items() if count}


def _gradients_of(name, step):
    """Gradients of a layer's own parameters."""
    layer = name.partition("#")[0]
    return {key: value for key, value in step.gradients.items() if key.rpartition(".")[0] == layer}


def torch_update(side: Side, gradients) -> dict:
    """Take two steps with PyTorch's optimizer on given gradients; return the trainable weights."""
    trainable = dict(side.net.named_parameters())
    for name, parameter in trainable.items():
        parameter.grad = torch().from_numpy(np.array(gradients[name])) if name in gradients else None
    for _ in range(UPDATES):
        side.optimizer.step()
    return {name: _numpy(parameter) for name, parameter in trainable.items()}


def mindspore_update(side: Side, gradients, names: Names) -> dict:
    """Take two steps with MindSpore's optimizer on given gradients; return the trainable weights."""
    torch_names = {parameter.name: name for name, parameter in parameters(side.net, names).items()}
    ordered = [gradients.get(torch_names.get(parameter.name)) for parameter in side.optimizer.parameters]
    # Zeros if a parameter has no gradient in PyTorch, so that the update runs; the stage "gradients" reports this.
    filled = [
        np.zeros(tuple(parameter.shape), np.float32) if gradient is None else gradient
        for gradient, parameter in zip(ordered, side.optimizer.parameters, strict=True)
    ]
    with device.in_mode(ms.PYNATIVE_MODE):
        for _ in range(UPDATES):
            side.optimizer(tuple(ms.Tensor(gradient) for gradient in filled))
    trainable = {parameter.name for parameter in side.net.trainable_params()}
    return {name: p.asnumpy().copy() for name, p in parameters(side.net, names).items() if p.name in trainable}


def torch_state(net) -> dict:
    """A PyTorch network's state as independent arrays."""
    return {name: _numpy(value) for name, value in net.state_dict().items()}


def _buffers(step, trained):
    """A network's state without the trained weights: batch norm's statistics."""
    return {name: value for name, value in _without_counters(step.state_after).items() if name not in trained}


def _without_counters(state):
    """A state without PyTorch's batch counters, which MindSpore does not have."""
    return {name: value for name, value in state.items() if name.rpartition(".")[2] != COUNTER}


def _single_tensor(name, output):
    """A layer's output, which must be a single tensor."""
    if isinstance(output, (tuple, list, dict)):
        raise LabkitError(f"layer {name} returns {len(output)} values; only layers that return one can be compared")
    return output


def _numpy(tensor):
    return None if tensor is None else tensor.detach().clone().numpy()


def _first(gradients):
    first = gradients[0] if isinstance(gradients, (tuple, list)) else gradients
    return None if first is None else first.asnumpy()
