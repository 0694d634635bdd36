"""Where THOR's statistics come from: layers that compute their factors A and G inside the backward pass.

A convolution is a matrix product: each row of `patches(x)` is what one output position sees, a_t, and the output is
s_t = W a_t. For one image the gradient by W is sum_t g_t a_t^T, with g_t the gradient of its loss by s_t. THOR's
Fisher block of a layer is (KFC: Grosse and Martens 2016, arXiv 1602.01407, section 3; T positions, N images)

    F = T A (x) G,    A = 1/(N T) sum a_t a_t^T,    G = 1/(N T) sum g_t g_t^T

and as T only scales, the layers here keep `factor_a` = sqrt(T) A and `factor_g` = sqrt(T) G: F = factor_a (x) factor_g.
A dense layer is the case T = 1.
"""

import warnings
from math import ceil

import mindspore as ms
from mindspore import Parameter, nn, ops

from labkit.system.errors import LabkitError


class ThorError(LabkitError):
    """A setting that THOR cannot work with, or a factor that has no inverse: one line that names it."""


def block_shape(size, block_size):
    """(blocks, rows of a block) of a matrix of `size` rows in equal diagonal blocks of at most `block_size`."""
    blocks = ceil(size / block_size)
    return blocks, ceil(size / blocks)


def in_blocks(matrices, shape):
    """Rows of N matrices by block, (N, size, M) -> (N blocks, b, M); rows of zeros at the end where they do not fit."""
    (blocks, b), (count, size, columns) = shape, matrices.shape
    if blocks * b > size:
        matrices = ops.concat((matrices, ops.zeros((count, blocks * b - size, columns), matrices.dtype)), 1)
    return matrices.reshape(count * blocks, b, columns)


def block_gram(matrices, shape):
    """Diagonal blocks of sum X X^T over N matrices X, (N, size, M) -> (blocks, b, b) float32."""
    (blocks, b), parts = shape, in_blocks(matrices.astype(ms.float32), shape)
    return ops.BatchMatMul(transpose_b=True)(parts, parts).reshape(-1, blocks, b, b).sum(0)


def features(x):
    """Columns of a dense layer's input or output: (N, ..., C) -> (1, C, N T)."""
    return x.reshape(-1, x.shape[-1]).T.expand_dims(0)


def channels(y):
    """Columns of a convolution's output: (N, C, H, W) -> (N, C, T)."""
    return y.reshape(y.shape[0], y.shape[1], -1)


class Patches(nn.Cell):
    """What each output position of a convolution sees: (N, C, H, W) -> (N, C kh kw, T), rows as in the weight."""

    def __init__(self, layer):
        super().__init__()
        self.kernel, self.stride, self.dilation = layer.kernel_size, layer.stride, layer.dilation
        self.mode = layer.pad_mode
        pad = layer.padding
        self.pad = (pad,) * 4 if isinstance(pad, int) else tuple(pad)  # top, bottom, left, right

    def _padding(self, size, axis):
        """(before, after) of an axis of `size` pixels."""
        if self.mode == "pad":
            return self.pad[2 * axis], self.pad[2 * axis + 1]
        if self.mode == "valid":
            return 0, 0
        extent = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        total = max((ceil(size / self.stride[axis]) - 1) * self.stride[axis] + extent - size, 0)
        return total // 2, total - total // 2

    def construct(self, x):
        top, bottom = self._padding(x.shape[2], 0)
        left, right = self._padding(x.shape[3], 1)
        if top + bottom + left + right:
            x = ops.pad(x, (left, right, top, bottom))
        return ops.unfold(x, self.kernel, self.dilation, 0, self.stride)


class TapA(nn.Cell):
    """Identity in front of a layer whose "gradient" by its second input is the layer's factor_a."""

    def __init__(self, shape, columns):
        super().__init__()
        self.shape, self.columns = shape, columns

    def construct(self, x, factor):
        return x

    def bprop(self, x, factor, out, dout):
        images, columns = x.shape[0], self.columns(x)
        positions = columns.shape[0] * columns.shape[2] // images
        return dout, block_gram(columns, self.shape) / (images * positions**0.5)


class TapG(nn.Cell):
    """Identity behind a layer whose "gradient" by its second input is the layer's factor_g.

    What comes in is the gradient of the mean loss over N images, times the loss scale. It is multiplied by
    N / loss_scale before it is squared: in float16, small squares would vanish and large ones overflow.
    """

    def __init__(self, shape, columns, loss_scale):
        super().__init__()
        self.shape, self.columns, self.loss_scale = shape, columns, loss_scale

    def construct(self, y, factor):
        return y

    def bprop(self, y, factor, out, dout):
        images, columns = dout.shape[0], self.columns(dout)
        positions = columns.shape[0] * columns.shape[2] // images
        columns = columns.astype(ms.float32) * (images / self.loss_scale)
        return dout, block_gram(columns, self.shape) / (images * positions**0.5)


class ThorLayer(nn.Cell):
    """A Conv2d or Dense between two taps. The layer keeps its name, its parameters theirs, its output every bit.

    factor_a, factor_g: blocks (blocks, b, b) of the latest factors, which the trace rule may not have inverted.
    statistics: whether the next step is to compute factors; graph mode would leave them out unasked, PyNative not.
    """

    def __init__(self, layer, name, block_size, loss_scale):
        super().__init__(auto_prefix=False)
        convolution = isinstance(layer, nn.Conv2d)
        outputs = layer.weight.shape[0]
        self.shape_a = block_shape(layer.weight.size // outputs, block_size)
        self.shape_g = block_shape(outputs, block_size)
        self.statistics = False
        self.tap_a = TapA(self.shape_a, Patches(layer) if convolution else features)
        self.tap_g = TapG(self.shape_g, channels if convolution else features, loss_scale)
        (a, b), (g, h) = self.shape_a, self.shape_g
        self.factor_a = Parameter(ops.zeros((a, b, b), ms.float32), f"thor.{name}.factor_a")
        self.factor_g = Parameter(ops.zeros((g, h, h), ms.float32), f"thor.{name}.factor_g")

    def construct(self, x):
        if self.statistics:
            return self.tap_g(self.layer(self.tap_a(x, self.factor_a)), self.factor_g)
        return self.layer(x)


def _unfit(layer):
    """Why THOR leaves a layer as it is; None where it does not."""
    if isinstance(layer, nn.Conv2d):
        if layer.group != 1:
            return f"its {layer.group} groups are as many layers"
        if getattr(layer, "data_format", "NCHW") not in ("NCHW", 0):
            return "its channels come last"
    elif layer.activation is not None:
        return "its activation is part of it; write it behind the layer"
    return None


def convert(net, block_size=128, loss_scale=1.0):
    """Put the taps around every Conv2d and Dense of a network, in place; returns {name: ThorLayer} in their order.

    What does not fit stays as it is, with a warning: groups, an activation inside, use in two places, other layers with
    a matrix; and without one what is frozen. A layer that one parent calls twice is not found out, and a network that
    reads a layer's weight itself finds it at `layer.layer.weight`.
    block_size: rows of the diagonal blocks that factors are cut into, None for whole ones; loss_scale: what gradients
    come multiplied by. Raises ThorError, for a network that is converted already as well.
    """
    if block_size is not None and block_size < 1:
        raise ThorError(f"block_size: must be at least 1, not {block_size}")
    if not 0 < loss_scale < float("inf"):
        raise ThorError(f"loss_scale: must be a number above 0, not {loss_scale}")
    # Mixed precision puts the whole network into a `_backbone`, a name that its parameters do not have.
    found = [(name.removeprefix("_backbone."), cell) for name, cell in net.cells_and_names() if name]
    if any(isinstance(cell, ThorLayer) for _, cell in found):
        raise ThorError("the network is converted already: make it anew for another Thor")
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
        layers[name] = ThorLayer(child, name, block_size or 2**31, loss_scale)
        _replace(parent, key, layers[name])
        layers[name].layer = child  # only now: put in place, it would have got its name a second time
    if others:
        names = ", ".join(others.values())
        warnings.warn(f"THOR leaves {names} to the first-order optimizer: not of nn.Conv2d or nn.Dense", stacklevel=2)
    return layers


def _places(cell):
    """Where each weight is used, by its id: (parent, what it calls the layer), once for each way from `cell` down."""
    places = {}
    for key, child in cell._cells.items():  # not name_cells(), which tells of a layer with two names only one
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
