"""THOR's inverses: damped inverses of a factor's diagonal blocks, and their product with a gradient."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from labkit.system import device
from labkit.thor.factors import in_blocks


def damped_inverse(blocks, damping):
    """(blocks + sqrt(damping) I)^-1 for (B, b, b) symmetric blocks.

    With factor_a = sqrt(T) A this is THOR's (A + sqrt(damping / T) I)^-1, over sqrt(T).
    """
    damped = blocks + damping**0.5 * ops.eye(blocks.shape[-1], dtype=blocks.dtype)
    # The primitive behind ops.inverse is documented for all devices, ops.inverse is not. It refuses a single row.
    return ops.MatrixInverse()(damped) if blocks.shape[-1] > 1 else 1 / damped


def block_multiply(blocks, matrix):
    """Block-diagonal matrix (blocks, b, b) times matrix (size, M), size <= blocks * b: (size, M)."""
    (count, b, _), (size, columns) = blocks.shape, matrix.shape
    product = ops.matmul(blocks, in_blocks(matrix.expand_dims(0), (count, b))).reshape(count * b, columns)
    return product[:size] if count * b > size else product  # a slice of all rows takes ten times as long as the product


def precondition(gradient, inverse_a, inverse_g):
    """factor_g^-1 dW factor_a^-1 for a gradient (out, in) or (out, in, kh, kw)."""
    matrix = gradient.reshape(gradient.shape[0], -1)
    matrix = block_multiply(inverse_g, matrix)
    matrix = block_multiply(inverse_a, matrix.T).T
    return matrix.reshape(gradient.shape)


def invert(factors, damping, parallel=False):
    """Damped inverses of factors [(blocks (n, b, b), rows)]; None for one too close to singular for float32.

    Blocks of equal size are inverted in one call; with `parallel` every process inverts a part of them.
    """
    inverses, damping = [None] * len(factors), Tensor(damping, ms.float32)
    for b in sorted({blocks.shape[-1] for blocks, _ in factors}):
        numbers = [n for n, (blocks, _) in enumerate(factors) if blocks.shape[-1] == b]
        blocks = ops.concat([pad_diagonal(*factors[n]) for n in numbers])
        results = _share_out(blocks, damping) if parallel else damped_inverse(blocks, damping)
        valid, start = are_inverses(blocks, results, damping, parallel), 0
        for n in numbers:
            end = start + len(factors[n][0])
            if valid[start:end].all():
                inverses[n] = results[start:end]
            start = end
    return inverses


def pad_diagonal(blocks, rows):
    """Blocks (n, b, b) of a matrix of so many rows, with ones on the diagonal of the rows after those."""
    n, b, _ = blocks.shape
    if rows == n * b:
        return blocks.value()
    padding = (np.arange(n * b) >= rows).reshape(n, b, 1)
    return blocks + Tensor(padding, ms.float32) * ops.eye(b)


def are_inverses(blocks, inverses, damping, parallel=False):
    """Which inverses (B, b, b) of damped blocks are true ones: a mask (B,), the same in all processes.

    trace(M M^-1) = b marks a true one: for a singular M the CPU's MatrixInverse gives finite numbers too. A direction
    without an inverse changes the trace by about 1, whatever the size; so does rounding, where the condition of M is
    above about 1e7.
    """
    b = blocks.shape[-1]
    traces = ((blocks + damping**0.5 * ops.eye(b)) * inverses).sum((1, 2))
    traces = (ops.Broadcast(0)((traces,))[0] if parallel else traces).asnumpy()
    return np.abs(traces - b) < min(0.004 * b, 0.5)


def _share_out(blocks, damping):
    """damped_inverse of all blocks (B, b, b): each process inverts its part and receives the others'."""
    rank, ranks = device.ranks()
    count, b, _ = blocks.shape
    each = -(-count // ranks)
    share = slice(rank * each, (rank + 1) * each)
    filler = ops.eye(b).expand_dims(0).tile((each * ranks - count + 1, 1, 1))  # one extra: never empty
    return ops.AllGather()(damped_inverse(ops.concat((blocks, filler))[share], damping))[:count]
