"""THOR's factors: what a layer sees and what comes back to it, summed into A and G inside the backward pass.

A convolution is a matrix product: each column of `patches(x)` is what one output position sees, a_t, and the output is
s_t = W a_t. For one image, the loss's gradient for W is sum_t g_t a_t^T, where g_t is its gradient for s_t. THOR's
Fisher block of a layer is (KFC: Grosse and Martens 2016, arXiv 1602.01407, section 3; T positions, N images)

    F = T G (x) A,    A = 1/(N T) sum a_t a_t^T,    G = 1/(N T) sum g_t g_t^T

for a vec that takes W row by row, as numpy's ravel does. T is only a scale, so labkit keeps `factor_a` = sqrt(T) A and
`factor_g` = sqrt(T) G: F = factor_g (x) factor_a. A dense layer is the case T = 1.

This is the empirical Fisher, as in THOR's code: g_t belongs to the labels of the data, not to labels drawn from the
network's own predictions. With batch norm an image's gradient depends on the other images of its batch as well; like
other K-FAC implementations, this one sums as if it did not.
"""

from math import ceil

import mindspore as ms
from mindspore import nn, ops


def block_shape(size, block_size):
    """(blocks, rows of a block) of a matrix of `size` rows in equal diagonal blocks of at most `block_size`."""
    blocks = ceil(size / block_size)
    return blocks, ceil(size / blocks)


def in_blocks(matrices, shape):
    """Rows of N matrices by block, (N, size, M) -> (N blocks, b, M); padded by rows of zeros if they do not fit."""
    (blocks, b), (count, size, columns) = shape, matrices.shape
    if blocks * b > size:
        matrices = ops.concat((matrices, ops.zeros((count, blocks * b - size, columns), matrices.dtype)), 1)
    return matrices.reshape(count * blocks, b, columns)


def block_gram(matrices, shape):
    """Diagonal blocks of sum X X^T over N matrices X, (N, size, M) -> (blocks, b, b) float32."""
    (blocks, b), parts = shape, in_blocks(matrices.astype(ms.float32), shape)
    return ops.BatchMatMul(transpose_b=True)(parts, parts).reshape(-1, blocks, b, b).sum(0)


def block_trace(blocks):
    """Trace of a matrix, from its diagonal blocks (blocks, b, b)."""
    return (blocks * ops.eye(blocks.shape[-1])).sum()


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


class Tap(nn.Cell):
    """Identity next to a layer. The "gradient" of its second input is a factor of that layer, in blocks of `shape`.

    share: how much of the batch, from its first image on, the factor is computed from. Batches are shuffled, so this
    is a sample like any other (Martens and Grosse 2015, arXiv 1503.05671, section 8, use an eighth).
    """

    def __init__(self, shape, columns, share, loss_scale=1.0):
        super().__init__()
        self.shape, self.columns, self.share, self.loss_scale = shape, columns, share, loss_scale

    def construct(self, x, factor):
        return x

    def factor(self, x, scale=1.0):
        """sqrt(T) times the mean of r r^T over the columns r of some of the images, times scale: (blocks, b, b)."""
        images = max(1, round(x.shape[0] * self.share))
        part = x[:images] if images < x.shape[0] else x
        columns = self.columns(part if scale == 1.0 else part.astype(ms.float32) * scale)
        positions = columns.shape[0] * columns.shape[2] // images
        return block_gram(columns, self.shape) / (images * positions**0.5)


class TapA(Tap):
    """Before a layer: factor_a, computed from the layer's input."""

    def bprop(self, x, factor, out, dout):
        return dout, self.factor(x)


class TapG(Tap):
    """After a layer: factor_g, computed from each image's own gradient of the layer's output.

    What arrives is the gradient of the mean loss over N images, times the loss scale. It is multiplied by
    N / loss_scale before it is squared: in float16, small squares would vanish and large ones overflow.
    """

    def bprop(self, x, factor, out, dout):
        return dout, self.factor(dout, dout.shape[0] / self.loss_scale)
