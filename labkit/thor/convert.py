"""Conversion: THOR's taps around the layers of a network, in place."""

import warnings

from mindspore import nn

from labkit.thor.layer import ThorError, ThorLayer, require


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


def convert(net, block_size=128, loss_scale=1.0, factor_share=1.0):
    """Put the taps around every Conv2d and Dense of a network, in place; returns {name: ThorLayer} in their order.

    Layers that do not fit stay unchanged, with a warning: those with groups, channels last or an activation inside,
    used in two places, or of another type that has a matrix. Frozen layers stay unchanged without a warning. A layer
    that one parent calls twice is not detected. A layer's first axis must be the images. Raises ThorError.
    block_size: rows of the diagonal blocks, None for whole factors; factor_share: how much of a batch is used.
    """
    require(block_size is None or block_size >= 1, "block_size: must be at least 1", block_size)
    require(0 < loss_scale < float("inf"), "loss_scale: must be a number above 0", loss_scale)
    require(0 < factor_share <= 1, "factor_share: must be above 0 and at most 1", factor_share)
    # Mixed precision puts the whole network into a `_backbone`, a name that its parameters' names lack.
    cells = [(name.removeprefix("_backbone."), cell) for name, cell in net.cells_and_names() if name]
    if any(isinstance(cell, ThorLayer) for _, cell in cells):
        raise ThorError("the network is converted already: build a new one for another Preconditioner")
    others = {id(weight): weight.name for weight in net.trainable_params() if weight.ndim > 1}
    places, layers = _places(net), {}
    for name, child in cells:
        if not isinstance(child, (nn.Conv2d, nn.Dense)) or not child.weight.requires_grad:
            continue
        others.pop(id(child.weight), None)
        (parent, key), *elsewhere = places[id(child.weight)]
        reason = "it is used in two places" if elsewhere else _unfit(child)
        if reason:
            warnings.warn(f"THOR leaves {name} to the first-order optimizer: {reason}", stacklevel=2)
            continue
        layers[name] = ThorLayer(child, name, block_size or 2**31, loss_scale, factor_share)
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
