"""THOR's preconditioner: it maps gradients to gradients, and chooses by the trace rule which layers it inverts anew.

THOR: Chen et al. 2021, "THOR, Trace-based Hardware-driven Layer-Oriented Natural Gradient Descent Computation" (AAAI).
"""

import warnings

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from labkit.choices import TRACE_RULES
from labkit.thor.convert import convert
from labkit.thor.inverses import invert
from labkit.thor.layer import ThorError, require


def trace_rule(values, previous, stopped, thresholds):
    """Which layers get new inverses, and which have stopped for good by now: two masks (L,).

    values: trace(F + damping I) now (L,); previous: when the inverses in use were computed, 0 if there are none.
    Both traces are damped: where damping I is most of them, the rule measures how the damping falls.
    """
    upper, lower = thresholds
    change = np.abs(values - previous) / np.where(previous > 0, previous, 1)
    first = previous == 0
    stops = ~first & ~stopped & (change < lower)
    return ~stopped & ~stops & (first | (change > upper)), stopped | stops


class Preconditioner(nn.Cell):
    """Gradients of a network's trainable parameters in, preconditioned ones out; biases and batch norm pass through.

    damping, factor_steps: arrays with a value per step, the last for all later ones: lambda, and whether factors are
    computed (labkit.thor.steps). thresholds: (w1, w2) of `trace_rule`.
    factor_ema: share of the old factor that stays in the new one; 0 in THOR.
    clip_fisher_norm: largest Fisher norm of the preconditioned gradient (see `clip`); None for any, as in THOR.
    conversion: block_size, loss_scale and factor_share, as `convert` takes them, which changes the network.
    layers: {name: ThorLayer}. Raises ThorError.
    """

    def __init__(self, net, damping, factor_steps, thresholds=TRACE_RULES["thor"], factor_ema=0.0,
                 clip_fisher_norm=None, **conversion):  # fmt: skip
        super().__init__(auto_prefix=False)
        self.damping, self.factor_steps = np.asarray(damping, np.float64), np.asarray(factor_steps, bool)
        for name, values in (("damping", self.damping), ("factor_steps", self.factor_steps)):
            require(values.ndim == 1 and values.size, f"{name}: must have a value for each step", values.shape)
        wrong = self.damping[~((self.damping >= 0) & (self.damping < np.inf))]
        require(not wrong.size, "damping: must be at least 0 at every step", wrong[:1])
        require(self.factor_steps[0], "factor_steps: must begin with the first step", "later")
        pair = isinstance(thresholds, tuple) and len(thresholds) == 2 and thresholds[0] >= thresholds[1] >= 0
        require(pair, "thresholds: must be (w1, w2) with w1 >= w2 >= 0", thresholds)
        require(0 <= factor_ema < 1, "factor_ema: must be at least 0 and below 1", factor_ema)
        bound = clip_fisher_norm is None or 0 < clip_fisher_norm < np.inf
        require(bound, "clip_fisher_norm: must be above 0, or None", clip_fisher_norm)
        self.thresholds, self.factor_ema, self.clip_fisher_norm = thresholds, factor_ema, clip_fisher_norm
        self.parallel = ms.get_auto_parallel_context("parallel_mode") == ms.ParallelMode.DATA_PARALLEL
        self.weights = net.trainable_params()
        self.layers = convert(net, **conversion)
        if not self.layers:
            raise ThorError("no layer to precondition: the network has no Conv2d and no Dense that fits")
        self.names, layers = list(self.layers), list(self.layers.values())
        self.loss_scale = layers[0].tap_g.loss_scale
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
        times the learning rate. The optimizer's own clip_norm, if there is one, comes after this one.
        """
        bound, clipped = self.clip_fisher_norm, ()
        scale = bound / ops.sqrt(ops.maximum(self.fisher_norm_squared(gradients, preconditioned), bound**2))
        for p, place in zip(preconditioned, self.places):
            clipped += (p * scale if place >= 0 else p,)
        return clipped

    def is_factor_step(self, step):
        """Whether step `step`, from 0, computes factors."""
        return bool(self.factor_steps[min(step, len(self.factor_steps) - 1)])

    def refresh(self, step, factors, traces):
        """Keep a step's factors in their layers, and invert those of the layers that the trace rule chooses.

        step: from 0. factors: (factor_a, factor_g) of each layer, both (blocks, b, b); traces: their traces (L, 2).
        Returns {trace: of F + damping I (L,), inverted: (L,) bool}, layers by `names`.
        A layer keeps its inverses, with a warning, if its factors are not finite, nothing went through its taps, or a
        factor is too close to singular. In the last case, it is a ThorError if the layer has no inverses yet.
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
        valid = finite & used & ~stopped
        chosen, stops = chosen & valid, stops & valid
        for n in np.flatnonzero(valid):
            ended = Tensor([int(stops[n])], ms.int32)
            layers[n].store(factor_a=factors[n][0], factor_g=factors[n][1], stopped=ended)
        failed = self._invert(chosen, values, damping)
        self._warn(failed, f"a factor is too close to singular for float32 at damping {damping:g}")
        return {"trace": values, "inverted": chosen & ~failed}

    def _invert(self, chosen, values, damping):
        """Invert the factors of chosen layers (L,), all at once; returns a mask (L,) of those that cannot be."""
        layers, numbers, failed = list(self.layers.values()), np.flatnonzero(chosen), np.zeros_like(chosen)
        inverses = invert([factor for n in numbers for factor in layers[n].factors()], damping, self.parallel)
        for n, inverse_a, inverse_g in zip(numbers, inverses[::2], inverses[1::2]):
            failed[n] = inverse_a is None or inverse_g is None
            if not failed[n]:
                layers[n].store(inverse_a=inverse_a, inverse_g=inverse_g, trace=Tensor([values[n]], ms.float32))
            elif layers[n].trace.asnumpy().item() == 0:
                name = f"{'factor_a' if inverse_a is None else 'factor_g'} of {self.names[n]}"
                raise ThorError(f"{name} is too close to singular for float32 at damping {damping:g}; raise it")
        return failed

    def _warn(self, layers, reason):
        if layers.any():
            names = ", ".join(np.array(self.names)[layers])
            warnings.warn(f"THOR keeps the inverses of {names}: {reason}", stacklevel=3)
