"""THOR's optimizer: damped inverses of the blocks, kept up to date by the trace rule, multiplied into the gradients.

THOR: Chen et al. 2021, "THOR, Trace-based Hardware-driven Layer-Oriented Natural Gradient Descent Computation" (AAAI).
"""

import warnings

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from labkit import runtime
from labkit.thor.statistics import ThorError, convert

# (w1, w2) of the trace rule: recompute an inverse above w1, keep it from w2 on, never recompute it below w2.
TRACE_RULES = {"thor": (0.01, 0.0), "thor_stop": (0.01, 0.001), "thor_nt": (0.0, 0.0)}


def damped_inverse(blocks, damping):
    """(blocks + sqrt(damping) I)^-1 for (B, b, b) symmetric blocks.

    With factor_a = sqrt(T) A this is THOR's (A + sqrt(damping / T) I)^-1, over sqrt(T).
    """
    damped = blocks + damping**0.5 * ops.eye(blocks.shape[-1], dtype=blocks.dtype)
    return ops.inverse(damped) if blocks.shape[-1] > 1 else 1 / damped  # MatrixInverse refuses a single row


def block_multiply(blocks, matrix):
    """Block-diagonal matrix (blocks, b, b) times matrix (size, M), size <= blocks * b."""
    count, b, _ = blocks.shape
    size, columns = matrix.shape
    missing = count * b - size
    if missing:
        matrix = ops.concat((matrix, ops.zeros((missing, columns), matrix.dtype)))
    return ops.matmul(blocks, matrix.reshape(count, b, columns)).reshape(count * b, columns)[:size]


def precondition(gradient, inverse_a, inverse_g):
    """factor_g^-1 dW factor_a^-1 for a gradient (out, in) or (out, in, kh, kw)."""
    matrix = gradient.reshape(gradient.shape[0], -1)
    matrix = block_multiply(inverse_g, matrix)
    matrix = block_multiply(inverse_a, matrix.T).T
    return matrix.reshape(gradient.shape)


def trace_rule(values, previous, stopped, thresholds):
    """Which layers get a new inverse, and which stop for good: two masks (L,).

    values: trace(F + damping I) now (L,); previous: when the inverse in use was computed, 0 where there is none.
    """
    upper, lower = thresholds
    change = np.abs(values - previous) / np.where(previous > 0, previous, 1)
    first = previous == 0
    stops = ~first & ~stopped & (change < lower)
    return ~stopped & ~stops & (first | (change > upper)), stopped | stops


class Thor(nn.Cell):
    """Gradients of a network's trainable parameters in, preconditioned ones out; biases and batch norm pass.

    damping, update: arrays with a value per step: lambda, and whether factors are computed (labkit.schedules).
    block_size: rows of the diagonal blocks; None for whole factors. thresholds: (w1, w2) of `trace_rule`.
    factor_average: share of the old factor that stays in the new one; 0 in THOR.
    Changes the network (see `convert`). Raises ThorError.
    """

    def __init__(self, net, damping, update, block_size=128, thresholds=TRACE_RULES["thor"], factor_average=0.0,
                 loss_scale=1.0):  # fmt: skip
        super().__init__(auto_prefix=False)
        self.damping, self.update = np.asarray(damping, np.float64), np.asarray(update, bool)
        wrong = self.damping[~(np.isfinite(self.damping) & (self.damping >= 0))]
        if wrong.size or not self.damping.size:
            given = f"{wrong[0]:g}" if wrong.size else "none at all"
            raise ThorError(f"damping: must be a number of at least 0 at every step, not {given}")
        if not self.update[:1].any():
            raise ThorError("update: factors must be computed at the first step")
        if block_size is not None and block_size < 1:
            raise ThorError(f"block_size: must be at least 1, not {block_size}")
        if not thresholds[0] >= thresholds[1] >= 0:
            raise ThorError(f"thresholds: must be w1 >= w2 >= 0, not {thresholds}")
        if not 0 <= factor_average < 1:
            raise ThorError(f"factor_average: must be at least 0 and below 1, not {factor_average}")
        if not 0 < loss_scale < np.inf:
            raise ThorError(f"loss_scale: must be a number above 0, not {loss_scale}")
        self.thresholds, self.factor_average, self.loss_scale = thresholds, factor_average, loss_scale
        self.weights = net.trainable_params()
        self.layers = convert(net, block_size or 2**31, loss_scale)
        if not self.layers:
            raise ThorError("no layer to precondition: the network has no Conv2d and no Dense that fits")
        self.names = list(self.layers)
        cells = self.layers.values()
        self.factors_a = ParameterTuple([cell.factor_a for cell in cells])
        self.factors_g = ParameterTuple([cell.factor_g for cell in cells])
        self.inverses_a = ParameterTuple(
            [_identity(f"thor.{name}.inverse_a", cell.shape_a) for name, cell in self.layers.items()]
        )
        self.inverses_g = ParameterTuple(
            [_identity(f"thor.{name}.inverse_g", cell.shape_g) for name, cell in self.layers.items()]
        )
        count = len(self.layers)
        self.traces = Parameter(ops.zeros(count, ms.float32), "thor.traces", requires_grad=False)
        self.stopped = Parameter(ops.zeros(count, ms.int32), "thor.stopped", requires_grad=False)
        self.sizes = np.array([cell.layer.weight.size for cell in cells], np.float64)
        place = {id(cell.layer.weight): number for number, cell in enumerate(cells)}
        self.places = tuple(place.get(id(weight), -1) for weight in self.weights)

    def construct(self, gradients):
        done = ()
        for gradient, place in zip(gradients, self.places):
            if place >= 0:
                gradient = precondition(gradient, self.inverses_a[place], self.inverses_g[place])
            done += (gradient,)
        return done

    def updates_at(self, step):
        """Whether step `step`, from 0, computes factors."""
        return bool(self.update[min(step, len(self.update) - 1)])

    def collect(self, asked):
        """Have the layers compute factors in the next step, or not."""
        for layer in self.layers.values():
            layer.statistics = asked

    def renew(self, step, factors, traces):
        """Take the factors of a step (A of all layers, then G), and invert those that the trace rule asks for.

        traces: of each factor (2 L,). Returns {trace: of F + damping I (L,), inverted: (L,) bool}, layers by `names`.
        A factor that is not finite changes nothing in its layer, with a warning. Raises ThorError.
        """
        count = len(self.names)
        damping = float(self.damping[min(step, len(self.damping) - 1)])
        traces = traces.asnumpy().astype(np.float64)
        finite = np.isfinite(traces[:count] * traces[count:])
        for name in np.array(self.names)[~finite]:
            message = f"THOR keeps the inverses of {name}: its factors in step {step + 1} are not finite"
            warnings.warn(message, stacklevel=2)
        previous, stopped = self.traces.asnumpy(), self.stopped.asnumpy() > 0
        for number in np.flatnonzero(finite & ~stopped):
            self.factors_a[number].set_data(factors[number])
            self.factors_g[number].set_data(factors[count + number])
        values = traces[:count] * traces[count:] + damping * self.sizes
        inverted, stopped = trace_rule(values, previous, stopped, self.thresholds)
        inverted &= finite  # nor does such a layer stop: its change is infinite, or NaN, which is not below w2
        chosen = np.flatnonzero(inverted)
        pairs = [(self.factors_a[n], self.inverses_a[n], f"factor_a of {self.names[n]}") for n in chosen]
        pairs += [(self.factors_g[n], self.inverses_g[n], f"factor_g of {self.names[n]}") for n in chosen]
        _invert(pairs, damping)
        self.traces.set_data(Tensor(np.where(inverted, values, previous), ms.float32))
        self.stopped.set_data(Tensor(stopped, ms.int32))
        return {"trace": values, "inverted": inverted}


def _identity(name, shape):
    """An inverse before there is one: the identity, which leaves the gradient as it is."""
    blocks, b = shape
    return Parameter(ops.eye(b).expand_dims(0).tile((blocks, 1, 1)), name, requires_grad=False)


def _invert(pairs, damping):
    """Invert (factor, inverse, name)s: blocks of one size in one call, shared out over the ranks."""
    for b in sorted({factor.shape[-1] for factor, _, _ in pairs}):
        chosen = [pair for pair in pairs if pair[0].shape[-1] == b]
        blocks = ops.concat([factor.value() for factor, _, _ in chosen])
        inverses = _share_out(blocks, damping)
        # trace(M M^-1) = b tells a true inverse: of a singular matrix the CPU's ops.inverse gives finite numbers.
        traces = ((blocks + damping**0.5 * ops.eye(b)) * inverses).sum((1, 2)).asnumpy()
        sound, start = np.abs(traces - b) < 0.5, 0
        for factor, inverse, name in chosen:
            own = slice(start, start + factor.shape[0])
            start = own.stop
            if not sound[own].all():
                raise ThorError(f"{name} has no inverse at damping {damping:g}; a higher damping gives it one")
            inverse.set_data(inverses[own])


def _share_out(blocks, damping):
    """damped_inverse of all blocks (B, b, b); of several processes each inverts its part."""
    rank, ranks = runtime.ranks()
    if ranks == 1:
        return damped_inverse(blocks, damping)
    count, b, _ = blocks.shape
    each = -(-count // ranks)
    filler = ops.eye(b).expand_dims(0).tile((each * ranks - count + 1, 1, 1))
    mine = ops.concat((blocks, filler))[rank * each : (rank + 1) * each]
    return ops.AllGather()(damped_inverse(mine, damping))[:count]
