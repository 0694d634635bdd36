"""THOR's optimizer: chooses layers for new inverses by the trace rule, and multiplies gradients by those in use.

THOR: Chen et al. 2021, "THOR, Trace-based Hardware-driven Layer-Oriented Natural Gradient Descent Computation" (AAAI).
"""

import warnings

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from labkit.thor.inverses import invert
from labkit.thor.layer import ThorError, convert, require

# (w1, w2) of the trace rule: recompute an inverse above w1, keep it down to w2, never recompute it below w2.
TRACE_RULES = {"thor": (0.01, 0.0), "thor_stop": (0.01, 0.001), "thor_nt": (0.0, 0.0)}


def trace_rule(values, previous, stopped, thresholds):
    """Which layers get new inverses, and which have stopped for good by now: two masks (L,).

    values: trace(F + damping I) now (L,); previous: when the inverses in use were computed, 0 if there are none.
    """
    upper, lower = thresholds
    change = np.abs(values - previous) / np.where(previous > 0, previous, 1)
    first = previous == 0
    stops = ~first & ~stopped & (change < lower)
    return ~stopped & ~stops & (first | (change > upper)), stopped | stops


class Thor(nn.Cell):
    """Gradients of a network's trainable parameters in, preconditioned ones out; biases and batch norm pass through.

    damping, update_mask: arrays with a value per step, the last for all later ones: lambda, and whether factors are
    computed (labkit.schedules). thresholds: (w1, w2) of `trace_rule`.
    block_size: rows of the diagonal blocks; None for whole factors. loss_scale: what gradients arrive multiplied by.
    factor_ema: share of the old factor that stays in the new one; 0 in THOR.
    statistics_share: how much of a batch, from its first image on, factors are computed from; 1 in THOR.
    clip_fisher_norm: largest Fisher norm of what THOR hands on (see `clip`); None for any, as in THOR.
    layers: {name: ThorLayer}. Thor changes the network (see `convert`). Raises ThorError.
    """

    def __init__(self, net, damping, update_mask, block_size=128, thresholds=TRACE_RULES["thor"], factor_ema=0.0,
                 loss_scale=1.0, statistics_share=1.0, clip_fisher_norm=None):  # fmt: skip
        super().__init__(auto_prefix=False)
        self.damping, self.update_mask = np.asarray(damping, np.float64), np.asarray(update_mask, bool)
        for name, values in (("damping", self.damping), ("update_mask", self.update_mask)):
            if values.ndim != 1:
                raise ThorError(f"{name}: must have a value for each step, not one for all")
        wrong = [f"{value:g}" for value in self.damping if not 0 <= value < np.inf]
        given = "none at all" if not self.damping.size else wrong[0] if wrong else None
        require(given is None, "damping: must be a number of at least 0 at every step", given)
        require(self.update_mask[:1].any(), "update_mask: factors must be computed at the first step", "later")
        pair = isinstance(thresholds, tuple) and len(thresholds) == 2 and thresholds[0] >= thresholds[1] >= 0
        require(pair, "thresholds: must be (w1, w2) with w1 >= w2 >= 0", repr(thresholds))
        require(0 <= factor_ema < 1, "factor_ema: must be at least 0 and below 1", factor_ema)
        bound = clip_fisher_norm is None or 0 < clip_fisher_norm < np.inf
        require(bound, "clip_fisher_norm: must be above 0, or None", clip_fisher_norm)
        self.clip_fisher_norm = clip_fisher_norm
        self.thresholds, self.factor_ema, self.loss_scale = thresholds, factor_ema, loss_scale
        self.parallel = ms.get_auto_parallel_context("parallel_mode") == ms.ParallelMode.DATA_PARALLEL
        self.weights = net.trainable_params()
        self.layers = convert(net, block_size, loss_scale, statistics_share)
        if not self.layers:
            raise ThorError("no layer to precondition: the network has no Conv2d and no Dense that fits")
        self.names, layers = list(self.layers), list(self.layers.values())
        self.cell_list = nn.CellList(layers, auto_prefix=False)  # `layers` for graph mode, which accepts no such dict
        place = {id(layer.layer.weight): number for number, layer in enumerate(layers)}
        self.places = tuple(place.get(id(weight), -1) for weight in self.weights)

    def construct(self, gradients):
        """Precondition the gradients of `weights`, and bound them if asked; their order and shapes stay."""
        done = self.precondition(gradients)
        return self.clip(gradients, done) if self.clip_fisher_norm else done

    # Each loop has its own method: graph mode nests what follows a loop within its last round, and has a limit.
    def precondition(self, gradients):
        """Precondition the gradients of converted layers; the others pass through."""
        done = ()
        for gradient, place in zip(gradients, self.places):
            if place >= 0:
                gradient = self.cell_list[place].precondition(gradient)
            done += (gradient,)
        return done

    def fisher_norm_squared(self, gradients, preconditioned):
        """p^T M p = g^T p over all layers, with the damped Fisher M whose inverse is in use."""
        products = ()
        for gradient, p, place in zip(gradients, preconditioned, self.places):
            if place >= 0:
                products += ((gradient * p).sum(),)
        return ops.stack(products).sum()

    def clip(self, gradients, preconditioned):
        """Scale the layers' preconditioned gradients, all by one factor, to a Fisher norm of at most the bound.

        Ba et al. 2017, "Distributed Second-Order Optimization using Kronecker-factored Approximations", bound the norm
        times the learning rate.
        """
        bound, clipped = self.clip_fisher_norm, ()
        scale = bound / ops.sqrt(ops.maximum(self.fisher_norm_squared(gradients, preconditioned), bound**2))
        for p, place in zip(preconditioned, self.places):
            clipped += (p * scale if place >= 0 else p,)
        return clipped

    def computes_factors(self, step):
        """Whether step `step`, from 0, is in the update mask."""
        return bool(self.update_mask[min(step, len(self.update_mask) - 1)])

    def update_inverses(self, step, factors, traces):
        """Store a step's factors in the layers, and refresh the inverses of the layers that the trace rule chooses.

        step: from 0. factors: (factor_a, factor_g) of each layer, both (blocks, b, b); traces: their traces (L, 2).
        Returns {trace: of F + damping I (L,), inverted: (L,) bool}, layers by `names`.
        A layer keeps its inverses, with a warning, if its factors are not finite, nothing went through its taps, or a
        factor has no inverse. In the last case, it is a ThorError if the layer has no inverses yet.
        """
        if self.parallel:  # all must decide alike, or they would wait for each other forever
            traces = ops.Broadcast(0)((traces,))[0]
        traces, layers = traces.asnumpy().astype(np.float64), list(self.layers.values())
        damping = float(self.damping[min(step, len(self.damping) - 1)])
        finite, used = np.isfinite(traces.prod(axis=1)), traces[:, 0] != 0
        self._warn(~finite, f"its factors in step {step + 1} are not finite")
        self._warn(~used, "nothing but zeros went through its taps")
        previous = np.array([layer.trace.asnumpy().item() for layer in layers])
        stopped = np.array([layer.stopped.asnumpy().item() > 0 for layer in layers])
        values = traces.prod(axis=1) + damping * np.array([layer.rows_a * layer.rows_g for layer in layers])
        chosen, stops = trace_rule(values, previous, stopped, self.thresholds)
        valid = finite & used
        chosen, stops = chosen & valid, stops & valid & ~stopped
        for n in np.flatnonzero(valid & ~stopped):
            layers[n].factor_a.set_data(factors[n][0])
            layers[n].factor_g.set_data(factors[n][1])
        for n in np.flatnonzero(stops):
            layers[n].stop()
        failed = self._refresh(chosen, values, damping)
        self._warn(failed, f"its factors have no inverse at damping {damping:g}")
        return {"trace": values, "inverted": chosen & ~failed}

    def _refresh(self, chosen, values, damping):
        """Invert the factors of chosen layers (L,), all at once; returns a mask (L,) of those that have no inverse."""
        layers, numbers, failed = list(self.layers.values()), np.flatnonzero(chosen), np.zeros_like(chosen)
        inverses = invert([each for n in numbers for each in layers[n].factors()], damping, self.parallel)
        for n, inverse_a, inverse_g in zip(numbers, inverses[::2], inverses[1::2]):
            failed[n] = inverse_a is None or inverse_g is None
            if not failed[n]:
                layers[n].refresh(inverse_a, inverse_g, values[n])
            elif layers[n].trace.asnumpy().item() == 0:
                name = f"{'factor_a' if inverse_a is None else 'factor_g'} of {self.names[n]}"
                raise ThorError(f"{name} has no inverse at damping {damping:g}; a higher damping gives it one")
        return failed

    def _warn(self, layers, reason):
        if layers.any():
            names = ", ".join(np.array(self.names)[layers])
            warnings.warn(f"THOR keeps the inverses of {names}: {reason}", stacklevel=3)
