"""A layer with THOR: the layer between its taps, and everything that THOR stores for it."""

import mindspore as ms
from mindspore import Parameter, nn, ops

from labkit.system.errors import LabkitError
from labkit.thor import inverses
from labkit.thor.factors import Patches, TapA, TapG, block_shape, channels, features


class ThorError(LabkitError):
    """A setting that THOR cannot work with, or a factor that cannot be inverted: one line that names it."""


def require(holds, rule, value):
    """Raise a ThorError with a setting's rule and its value, if it does not hold."""
    if not holds:
        raise ThorError(f"{rule}, not {value}")


class ThorLayer(nn.Cell):
    """A Conv2d or Dense between two taps, with its factors, their inverses and what the trace rule remembers.

    Its outputs stay the same to the last bit, and its parameters keep their names. factor_a, factor_g: the latest
    factors (blocks, b, b), inverted or not. inverse_a, inverse_g: the inverses in use, of factor + sqrt(damping) I; the
    identity at first. trace (1,): of F + damping I at that time, 0 at first. stopped (1,): 1 once they are final.
    """

    def __init__(self, layer, name, block_size, loss_scale, share):
        super().__init__(auto_prefix=False)
        self.rows_g = layer.weight.shape[0]
        self.rows_a = layer.weight.size // self.rows_g
        self.shape_a, self.shape_g = block_shape(self.rows_a, block_size), block_shape(self.rows_g, block_size)
        convolution = isinstance(layer, nn.Conv2d)
        self.tap_a = TapA(self.shape_a, Patches(layer) if convolution else features, share)
        self.tap_g = TapG(self.shape_g, channels if convolution else features, share, loss_scale)
        self.taps_on = False  # ThorStep turns them on around the graph of a factor step, and only around it
        (a, b), (g, h) = self.shape_a, self.shape_g
        self.factor_a = Parameter(ops.zeros((a, b, b), ms.float32), f"thor.{name}.factor_a")
        self.factor_g = Parameter(ops.zeros((g, h, h), ms.float32), f"thor.{name}.factor_g")
        self.inverse_a = Parameter(ops.eye(b).tile((a, 1, 1)), f"thor.{name}.inverse_a", requires_grad=False)
        self.inverse_g = Parameter(ops.eye(h).tile((g, 1, 1)), f"thor.{name}.inverse_g", requires_grad=False)
        self.trace = Parameter(ops.zeros(1, ms.float32), f"thor.{name}.trace", requires_grad=False)
        self.stopped = Parameter(ops.zeros(1, ms.int32), f"thor.{name}.stopped", requires_grad=False)

    def construct(self, x):
        if self.taps_on:
            return self.tap_g(self.layer(self.tap_a(x, self.factor_a)), self.factor_g)
        return self.layer(x)

    def factors_ema(self, factor_a, factor_g, factor_ema):
        """The averaged factors (EMA), with a step's factors included.

        While there are no inverses, there are no older factors either: the result is the step's factors alone.
        """
        kept = factor_ema * (self.trace > 0).astype(ms.float32)
        return kept * self.factor_a + (1 - kept) * factor_a, kept * self.factor_g + (1 - kept) * factor_g

    def precondition(self, gradient):
        """factor_g^-1 dW factor_a^-1 for the gradient of this layer's weight."""
        return inverses.precondition(gradient, self.inverse_a, self.inverse_g)

    def factors(self):
        """Each factor with its rows, for `invert`."""
        return (self.factor_a, self.rows_a), (self.factor_g, self.rows_g)

    def store(self, **values):
        """Set parameters of this layer, by name: factor_a, factor_g, inverse_a, inverse_g, trace, stopped."""
        for name, value in values.items():
            getattr(self, name).set_data(value)
