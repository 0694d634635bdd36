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
    """Damped inverses of factors [(blocks (blocks, b, b), rows of the matrix)]; None for those without.

    Blocks of equal size are inverted in one call; with `parallel` every process inverts a part of them.
    """
    inverses, damping = [None] * len(factors), Tensor(damping, ms.float32)
    for b in sorted({factor.shape[-1] for factor, _ in factors}):
        chosen = [n for n, (factor, _) in enumerate(factors) if factor.shape[-1] == b]
        own = [factors[n] for n in chosen]
        padded = [np.arange(factor.shape[0] * b) >= rows for factor, rows in own]  # padding: 1 on its diagonal
        ones = Tensor(np.concatenate(padded).reshape(-1, b, 1), ms.float32)
        blocks = ops.concat([factor.value() for factor, _ in own]) + ones * ops.eye(b)
        results = _share_out(blocks, damping) if parallel else damped_inverse(blocks, damping)
        # trace(M M^-1) = b marks a true inverse: of a singular matrix the CPU's MatrixInverse gives finite numbers too.
        # One direction without an inverse changes it by about 1, whatever the size.
        traces = ((blocks + damping**0.5 * ops.eye(b)) * results).sum((1, 2))
        traces = (ops.Broadcast(0)((traces,))[0] if parallel else traces).asnumpy()  # all processes decide alike
        start = 0
        for n in chosen:
            place = slice(start, start + factors[n][0].shape[0])
            if (np.abs(traces[place] - b) < min(0.004 * b, 0.5)).all():
                inverses[n] = results[place]
            start = place.stop
    return inverses


def _share_out(blocks, damping):
    """damped_inverse of all blocks (B, b, b): each process inverts its part and receives the others'."""
    rank, ranks = device.ranks()
    count, b, _ = blocks.shape
    each = -(-count // ranks)
    own = slice(rank * each, (rank + 1) * each)
    filler = ops.eye(b).expand_dims(0).tile((each * ranks - count + 1, 1, 1))  # one extra: never empty
    return ops.AllGather()(damped_inverse(ops.concat((blocks, filler))[own], damping))[:count]
