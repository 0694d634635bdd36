"""A layer with THOR: the layer between its taps, and everything that THOR stores for it."""

import warnings

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from labkit.system.errors import LabkitError
from labkit.thor import inverses
from labkit.thor.factors import Patches, TapA, TapG, block_shape, channels, features


class ThorError(LabkitError):
    """A setting that THOR cannot work with, or a factor that has no inverse: one line that names it."""


def require(holds, rule, value):
    """Raise a ThorError with a setting's rule and its value, if it does not hold."""
    if not holds:
        raise ThorError(f"{rule}, not {value}")


class ThorLayer(nn.Cell):
    """A Conv2d or Dense between two taps, with its factors, their inverses and what the trace rule remembers.

    Its outputs stay the same to the last bit, and its parameters keep their names. factor_a, factor_g: the latest
    factors (blocks, b, b), which may not have been inverted. inverse_a, inverse_g: the inverses in use, the identity
    at first. trace (1,): of F + damping I when these were computed, 0 at first. stopped (1,): 1 once they are final.
    """

    def __init__(self, layer, name, block_size, loss_scale, share):
        super().__init__(auto_prefix=False)
        self.rows_g = layer.weight.shape[0]
        self.rows_a = layer.weight.size // self.rows_g
        self.shape_a, self.shape_g = block_shape(self.rows_a, block_size), block_shape(self.rows_g, block_size)
        convolution = isinstance(layer, nn.Conv2d)
        self.tap_a = TapA(self.shape_a, Patches(layer) if convolution else features, share)
        self.tap_g = TapG(self.shape_g, channels if convolution else features, share, loss_scale)
        self.statistics = False  # taps are off; always on, PyNative would compute factors in every step
        (a, b), (g, h) = self.shape_a, self.shape_g
        self.factor_a = Parameter(ops.zeros((a, b, b), ms.float32), f"thor.{name}.factor_a")
        self.factor_g = Parameter(ops.zeros((g, h, h), ms.float32), f"thor.{name}.factor_g")
        self.inverse_a = _kept(ops.eye(b).expand_dims(0).tile((a, 1, 1)), f"thor.{name}.inverse_a")
        self.inverse_g = _kept(ops.eye(h).expand_dims(0).tile((g, 1, 1)), f"thor.{name}.inverse_g")
        self.trace = _kept(ops.zeros(1, ms.float32), f"thor.{name}.trace")
        self.stopped = _kept(ops.zeros(1, ms.int32), f"thor.{name}.stopped")

    def construct(self, x):
        if self.statistics:
            return self.tap_g(self.layer(self.tap_a(x, self.factor_a)), self.factor_g)
        return self.layer(x)

    def factors_ema(self, factor_a, factor_g, factor_ema):
        """The averaged factors (EMA), with a step's factors included.

        While there are no inverses, there are no older factors either: the result is the step's factors alone.
        """
        kept = factor_ema * (self.trace > 0).astype(ms.float32)
        return kept * self.factor_a + (1 - kept) * factor_a, kept * self.factor_g + (1 - kept) * factor_g

    def precondition(self, gradient):
        """factor_g^-1 dW factor_a^-1 for the gradient of this layer's weight."""
        return inverses.precondition(gradient, self.inverse_a, self.inverse_g)

    def factors(self):
        """Each factor with its rows, for `invert`."""
        return (self.factor_a, self.rows_a), (self.factor_g, self.rows_g)

    def refresh(self, inverse_a, inverse_g, trace):
        """Use new inverses from now on; trace: of the F + damping I that they belong to."""
        self.inverse_a.set_data(inverse_a)
        self.inverse_g.set_data(inverse_g)
        self.trace.set_data(Tensor([trace], ms.float32))

    def stop(self):
        """Keep factors and inverses for good."""
        self.stopped.set_data(Tensor([1], ms.int32))


def _kept(value, name):
    return Parameter(value, name, requires_grad=False)


def _unfit(layer):
    """Why THOR cannot convert a layer; None if it can."""
    if isinstance(layer, nn.Conv2d):
        if layer.group != 1:
            return f"it has {layer.group} groups"
        if getattr(layer, "data_format", "NCHW") not in ("NCHW", 0):
            return "it has its channels last"
    elif layer.activation is not None:
        return "its activation is built in; make it a layer of its own"
    return None


def convert(net, block_size=128, loss_scale=1.0, statistics_share=1.0):
    """Put the taps around every Conv2d and Dense of a network, in place; returns {name: ThorLayer} in their order.

    Layers that do not fit stay unchanged, with a warning: those with groups, channels last or an activation inside,
    used in two places, or of another type that has a matrix. Frozen layers stay unchanged without a warning. A layer
    that one parent calls twice is not detected. A layer's first axis must be the images. Raises ThorError.
    block_size: rows of the diagonal blocks, None for whole factors; statistics_share: how much of a batch is used.
    """
    require(block_size is None or block_size >= 1, "block_size: must be at least 1", block_size)
    require(0 < loss_scale < float("inf"), "loss_scale: must be a number above 0", loss_scale)
    require(0 < statistics_share <= 1, "statistics_share: must be above 0 and at most 1", statistics_share)
    # Mixed precision puts the whole network into a `_backbone`, a name that its parameters' names lack.
    found = [(name.removeprefix("_backbone."), cell) for name, cell in net.cells_and_names() if name]
    if any(isinstance(cell, ThorLayer) for _, cell in found):
        raise ThorError("the network is converted already: build a new one for another Thor")
    others = {id(weight): weight.name for weight in net.trainable_params() if weight.ndim > 1}
    places, layers = _places(net), {}
    for name, child in found:
        if not isinstance(child, (nn.Conv2d, nn.Dense)) or not child.weight.requires_grad:
            continue
        others.pop(id(child.weight), None)
        (parent, key), *elsewhere = places[id(child.weight)]
        reason = "it is used in two places" if elsewhere else _unfit(child)
        if reason:
            warnings.warn(f"THOR leaves {name} to the first-order optimizer: {reason}", stacklevel=2)
            continue
        layers[name] = ThorLayer(child, name, block_size or 2**31, loss_scale, statistics_share)
        _replace(parent, key, layers[name])
        layers[name].layer = child  # only now: set before, it would have got its name a second time
    if others:
        names = ", ".join(others.values())
        fits = "THOR preconditions nn.Conv2d and nn.Dense"
        warnings.warn(f"{fits}, and leaves {names} to the first-order optimizer", stacklevel=2)
    return layers


def _places(cell):
    """Where each weight is used, by its id: (parent, its name for the layer), once for each path down from `cell`."""
    places = {}
    for key, child in cell._cells.items():  # not name_cells(), which lists a layer with two names only once
        if child is None:
            continue
        if isinstance(child, (nn.Conv2d, nn.Dense)):
            places.setdefault(id(child.weight), []).append((cell, key))
        for weight, below in _places(child).items():
            places.setdefault(weight, []).extend(below)
    return places


def _replace(parent, key, cell):
    names = [p.name for p in cell.get_parameters()]
    if isinstance(parent, nn.SequentialCell):
        parent._cells[key] = cell
        parent.cell_list = list(parent._cells.values())
    else:
        setattr(parent, key, cell)
    for parameter, name in zip(cell.get_parameters(), names):
        parameter.name = name  # setattr puts the parent's prefix before it
