"""THOR's optimizer: damped inverses of the blocks, kept up to date by the trace rule, multiplied into the gradients.

THOR: Chen et al. 2021, "THOR, Trace-based Hardware-driven Layer-Oriented Natural Gradient Descent Computation" (AAAI).
"""

import warnings

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from labkit.system import device
from labkit.thor.statistics import ThorError, convert, in_blocks

# (w1, w2) of the trace rule: recompute an inverse above w1, keep it from w2 on, never recompute it below w2.
TRACE_RULES = {"thor": (0.01, 0.0), "thor_stop": (0.01, 0.001), "thor_nt": (0.0, 0.0)}


def damped_inverse(blocks, damping):
    """(blocks + sqrt(damping) I)^-1 for (B, b, b) symmetric blocks.

    With factor_a = sqrt(T) A this is THOR's (A + sqrt(damping / T) I)^-1, over sqrt(T).
    """
    damped = blocks + damping**0.5 * ops.eye(blocks.shape[-1], dtype=blocks.dtype)
    # The primitive of ops.inverse, documented for all devices, which ops.inverse is not. It refuses a single row.
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
        for name, values in (("damping", self.damping), ("update", self.update)):
            if values.ndim != 1:
                raise ThorError(f"{name}: must have a value for each step, not one for all")
        wrong = self.damping[~(np.isfinite(self.damping) & (self.damping >= 0))]
        if wrong.size or not self.damping.size:
            given = f"{wrong[0]:g}" if wrong.size else "none at all"
            raise ThorError(f"damping: must be a number of at least 0 at every step, not {given}")
        if not self.update[:1].any():
            raise ThorError("update: factors must be computed at the first step")
        if not (isinstance(thresholds, tuple) and len(thresholds) == 2 and thresholds[0] >= thresholds[1] >= 0):
            raise ThorError(f"thresholds: must be (w1, w2) with w1 >= w2 >= 0, not {thresholds!r}")
        if not 0 <= factor_average < 1:
            raise ThorError(f"factor_average: must be at least 0 and below 1, not {factor_average}")
        self.thresholds, self.factor_average, self.loss_scale = thresholds, factor_average, loss_scale
        self.parallel = ms.get_auto_parallel_context("parallel_mode") == ms.ParallelMode.DATA_PARALLEL
        self.weights = net.trainable_params()
        self.layers = convert(net, block_size, loss_scale)
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
        self.sizes_g = np.array([cell.layer.weight.shape[0] for cell in cells])
        self.sizes_a = np.array([cell.layer.weight.size for cell in cells]) // self.sizes_g
        self.sizes = self.sizes_a * self.sizes_g
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

    def shares(self):
        """Of the old factors in the next ones, by layer (L,): factor_average, 0 where there was none yet."""
        return Tensor(np.where(self.traces.asnumpy() > 0, self.factor_average, 0), ms.float32)

    def renew(self, step, factors, traces):
        """Take the factors of a step, and invert those that the trace rule asks for.

        factors: A of all layers (blocks, b, b), then G; traces: theirs (2 L,).
        Returns {trace: of F + damping I (L,), inverted: (L,) bool}, layers by `names`.
        A layer keeps its inverses, with a warning, where its factors are not finite, nothing went through its taps, or
        a factor has no inverse; where it has none to keep, the last is a ThorError.
        """
        if self.parallel:  # all must decide alike, or they would wait for each other for ever
            traces = ops.Broadcast(0)((traces,))[0]
        traces_a, traces_g = traces.asnumpy().astype(np.float64).reshape(2, -1)
        damping, count = float(self.damping[min(step, len(self.damping) - 1)]), len(self.names)
        finite, used = np.isfinite(traces_a * traces_g), traces_a != 0
        self._warn(~finite, f"its factors in step {step + 1} are not finite")
        self._warn(~used, "nothing but zeros went through its taps")
        usable, previous, stopped = finite & used, self.traces.asnumpy(), self.stopped.asnumpy() > 0
        both = (*self.factors_a, *self.factors_g)
        for number in np.flatnonzero(np.tile(usable & ~stopped, 2)):
            both[number].set_data(factors[number])
        values = traces_a * traces_g + damping * self.sizes
        inverted, stopped = trace_rule(values, previous, stopped, self.thresholds)
        inverted &= usable  # nor does such a layer stop: its change is infinite, or NaN, which is not below w2
        chosen = np.flatnonzero(np.tile(inverted, 2))
        rows = np.concatenate((self.sizes_a, self.sizes_g))
        inverses, sound = invert([both[number] for number in chosen], rows[chosen], damping, self.parallel)
        for number in chosen[~sound]:
            if previous[number % count] == 0:
                name = f"{'factor_a' if number < count else 'factor_g'} of {self.names[number % count]}"
                raise ThorError(f"{name} has no inverse at damping {damping:g}; a higher damping gives it one")
        failed = np.isin(np.arange(count), chosen[~sound] % count)
        self._warn(failed, f"its factors have no inverse at damping {damping:g}")
        inverted &= ~failed
        kept = (*self.inverses_a, *self.inverses_g)
        for number, inverse in zip(chosen, inverses):
            if inverted[number % count]:
                kept[number].set_data(inverse)
        self.traces.set_data(Tensor(np.where(inverted, values, previous), ms.float32))
        self.stopped.set_data(Tensor(stopped, ms.int32))
        return {"trace": values, "inverted": inverted}

    def _warn(self, layers, reason):
        if layers.any():
            names = ", ".join(np.array(self.names)[layers])
            warnings.warn(f"THOR keeps the inverses of {names}: {reason}", stacklevel=3)


def _identity(name, shape):
    """An inverse before there is one: the identity, which leaves the gradient as it is."""
    blocks, b = shape
    return Parameter(ops.eye(b).expand_dims(0).tile((blocks, 1, 1)), name, requires_grad=False)


def invert(factors, sizes, damping, parallel=False):
    """Damped inverses of factors, each (blocks, b, b) of a matrix of sizes[i] rows, and which of them are sound.

    Blocks of one size are inverted in one call; with `parallel` every process inverts a part of them.
    """
    inverses, sound = [None] * len(factors), np.zeros(len(factors), bool)
    for b in sorted({factor.shape[-1] for factor in factors}):
        chosen = [n for n, factor in enumerate(factors) if factor.shape[-1] == b]
        padded = [np.arange(factors[n].shape[0] * b) >= sizes[n] for n in chosen]  # rows of zeros: 1 on their diagonal
        ones = Tensor(np.concatenate(padded).reshape(-1, b, 1), ms.float32)
        blocks = ops.concat([factors[n].value() for n in chosen]) + ones * ops.eye(b)
        results = _share_out(blocks, damping) if parallel else damped_inverse(blocks, damping)
        # trace(M M^-1) = b tells a true inverse: of a singular matrix the CPU's MatrixInverse gives finite numbers.
        traces = ((blocks + damping**0.5 * ops.eye(b)) * results).sum((1, 2)).asnumpy()
        start = 0
        for n in chosen:
            own = slice(start, start + factors[n].shape[0])
            inverses[n], sound[n] = results[own], (np.abs(traces[own] / b - 1) < 0.004).all()
            start = own.stop
    return inverses, sound


def _share_out(blocks, damping):
    """damped_inverse of all blocks (B, b, b): each process inverts its part, and gets those of the others."""
    rank, ranks = device.ranks()
    count, b, _ = blocks.shape
    each = -(-count // ranks)
    filler = ops.eye(b).expand_dims(0).tile((each * ranks - count + 1, 1, 1))  # one more than needed, for never none
    mine = ops.concat((blocks, filler))[rank * each : (rank + 1) * each]
    return ops.AllGather()(damped_inverse(mine, damping))[:count]
