"""What the tests of THOR share: a loss with a known gradient, one measuring step, and the truth in float64 numpy.

All of numpy's formulas are written out here, with a loop for each output position; nothing comes from labkit.
"""

from itertools import product

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from scipy.linalg import block_diag

from labkit.thor import Preconditioner, ThorStep


class KnownGradient(nn.Cell):
    """Mean over the images of the sum of outputs * labels: each image's gradient by the outputs is its labels."""

    def construct(self, outputs, labels):
        return (outputs * labels).sum() / labels.shape[0]


def cross_entropy():
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def tensor(array):
    kind = ms.int32 if np.issubdtype(np.asarray(array).dtype, np.integer) else ms.float32
    return Tensor(np.asarray(array), kind)


def step_of(net, loss, *, lr=0.0, damping=(0.1,), factor_steps=(True,), block_size=None, loss_scale=1.0, momentum=0.0,
            weight_decay=0.0, **options):  # fmt: skip
    """A ThorStep with stock momentum; without a learning rate it only measures."""
    thor = Preconditioner(net, damping, factor_steps, block_size=block_size, loss_scale=loss_scale, **options)
    optimizer = nn.Momentum(thor.weights, lr, momentum, weight_decay)
    return ThorStep(net, loss, optimizer, thor)


def measured(net, images, labels, loss=None, **options):
    """The preconditioner of a network after one step, which leaves the weights as they are."""
    step = step_of(net, loss or KnownGradient(), **options)
    step(tensor(images), tensor(labels))
    return step.preconditioner


def factors(thor, name):
    """factor_a and factor_g of a layer in float64, with zeros outside their blocks."""
    pairs = thor.layers[name].factors()
    return tuple(block_diag(*factor.asnumpy().astype(np.float64))[:rows, :rows] for factor, rows in pairs)


def values(cell):
    """Every parameter of a cell, by name."""
    return {parameter.name: parameter.asnumpy().copy() for parameter in cell.get_parameters()}


# -- The truth --------------------------------------------------------------------------------------


def padding(mode, pad, size, kernel, stride, dilation, axis):
    """Zeros before and after an axis: MindSpore's documentation of nn.Conv2d."""
    if mode == "valid":
        return 0, 0
    if mode == "pad":
        pad = (pad,) * 4 if isinstance(pad, int) else pad
        return pad[2 * axis], pad[2 * axis + 1]
    outputs = -(-size // stride)
    total = max(0, (outputs - 1) * stride + dilation * (kernel - 1) + 1 - size)
    return total // 2, total - total // 2


def patches(images, kernel, stride=(1, 1), dilation=(1, 1), pad_mode="same", pad=0):
    """(N, T, C kh kw): what each output position sees, one after the other."""
    zeros = [padding(pad_mode, pad, images.shape[2 + i], kernel[i], stride[i], dilation[i], i) for i in (0, 1)]
    padded = np.pad(np.asarray(images, np.float64), [(0, 0), (0, 0), *zeros])
    n, channels, height, width = padded.shape
    reach = [(kernel[i] - 1) * dilation[i] for i in (0, 1)]
    rows, columns = range(0, height - reach[0], stride[0]), range(0, width - reach[1], stride[1])
    found = np.zeros((n, len(rows) * len(columns), channels, *kernel))
    for image, (t, (top, left)) in product(range(n), enumerate(product(rows, columns))):
        for c, i, j in product(range(channels), range(kernel[0]), range(kernel[1])):
            found[image, t, c, i, j] = padded[image, c, top + i * dilation[0], left + j * dilation[1]]
    return found.reshape(n, found.shape[1], -1)


def gram(rows):
    """sqrt(T) times the mean of r r^T over all rows (N, T, size): one of the two factors."""
    n, t, size = rows.shape
    total = np.zeros((size, size))
    for row in np.asarray(rows, np.float64).reshape(-1, size):
        total += np.outer(row, row)
    return total / (n * t) * t**0.5


def only_blocks(matrix, block_size):
    """The matrix with zeros outside its diagonal blocks: as few as may be, and as equal."""
    count = -(-len(matrix) // (block_size or len(matrix)))
    number = np.arange(len(matrix)) // -(-len(matrix) // count)
    return np.where(number[:, None] == number, matrix, 0)


def preconditioned(gradient, factor_a, factor_g, damping, block_size=None):
    """The dense solve: the whole damped Fisher block by vec(gradient)."""
    fisher = damped_fisher(factor_a, factor_g, damping, block_size)
    return np.linalg.solve(fisher, gradient.astype(np.float64).ravel()).reshape(gradient.shape)


def fisher_norm(step, factor_a, factor_g, damping, block_size=None):
    """sqrt(v^T F v) of v = vec(step), with the whole damped Fisher block."""
    vector = step.astype(np.float64).ravel()
    return (vector @ damped_fisher(factor_a, factor_g, damping, block_size) @ vector) ** 0.5


def damped_fisher(factor_a, factor_g, damping, block_size=None):
    """(factor_g + sqrt(damping) I) (x) (factor_a + sqrt(damping) I), every entry of it."""
    a, g = (
        only_blocks(np.asarray(f, np.float64), block_size) + damping**0.5 * np.eye(len(f)) for f in (factor_a, factor_g)
    )
    return np.kron(g, a)
