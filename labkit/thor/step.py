"""One training step of THOR, for `mindspore.train.Model`: gradients, with factors or without, and their use."""

import mindspore as ms
from mindspore import Tensor, nn, ops

from labkit.thor.factors import block_trace
from labkit.thor.layer import ThorError


class Gradients(nn.Cell):
    """A network's loss and the gradients of `weights`; in data-parallel training averaged over the processes."""

    def __init__(self, net, loss, preconditioner, weights):
        super().__init__(auto_prefix=False)
        self.net, self.loss, self.loss_scale = net, loss, preconditioner.loss_scale
        self.loss_and_gradients = ms.value_and_grad(self.scaled_loss, None, weights)
        self.average = nn.DistributedGradReducer(weights, mean=True) if preconditioner.parallel else nn.Identity()

    def scaled_loss(self, images, labels):
        """(images, labels) -> the batch's mean loss, times the loss scale."""
        return self.loss(self.net(images), labels) * self.loss_scale

    def construct(self, images, labels):
        loss, gradients = self.loss_and_gradients(images, labels)
        return loss / self.loss_scale, self.average(gradients)


class GradientsAndFactors(Gradients):
    """Loss and gradients, and every layer's factors with their traces, in one backward pass."""

    def __init__(self, net, loss, preconditioner):
        layers, weights = preconditioner.cell_list, preconditioner.weights
        factors = [factor for layer in layers for factor in (layer.factor_a, layer.factor_g)]
        super().__init__(net, loss, preconditioner, (*weights, *factors))
        self.layers, self.count, self.factor_ema = layers, len(weights), preconditioner.factor_ema

    def __call__(self, images, labels):
        """(images, labels) -> loss, gradients, factors (A, G) of each layer, their traces (L, 2). The taps are on."""
        for layer in self.layers:  # this Cell is compiled with the taps, Gradients without them
            layer.taps_on = True
        try:
            return super().__call__(images, labels, Tensor(self.factor_ema, ms.float32))
        finally:
            for layer in self.layers:
                layer.taps_on = False

    def construct(self, images, labels, factor_ema):
        loss, gradients = super().construct(images, labels)
        of_weights, of_taps = gradients[: self.count], gradients[self.count :]
        factors, traces = (), ()
        for n in range(len(self.layers)):
            factor_a, factor_g = self.layers[n].factors_ema(of_taps[2 * n], of_taps[2 * n + 1], factor_ema)
            factors += ((factor_a, factor_g),)
            traces += (block_trace(factor_a), block_trace(factor_g))
        return loss, of_weights, factors, ops.stack(traces).reshape(-1, 2)


class ApplyGradients(nn.Cell):
    """Unscale, precondition, then the first-order optimizer, which adds weight decay: the original tutorial's order.

    Returns the loss, which is ready only when the new weights are.
    """

    def __init__(self, optimizer, preconditioner):
        super().__init__(auto_prefix=False)
        self.optimizer, self.preconditioner, self.loss_scale = optimizer, preconditioner, preconditioner.loss_scale

    def construct(self, loss, *gradients):  # not as one tuple, which graph mode would take for a constant
        return ops.depend(loss, self.optimizer(self.preconditioner(self.unscale(gradients))))

    def unscale(self, gradients):
        """The gradients in float32, over the loss scale."""
        unscaled = ()
        for gradient in gradients:
            unscaled += (gradient.astype(ms.float32) / self.loss_scale,)
        return unscaled


class PlainStep(nn.Cell):
    """A step without new factors, in one graph: it takes time for gradients to leave a graph."""

    def __init__(self, gradients, apply_gradients):
        super().__init__(auto_prefix=False)
        self.gradients, self.apply_gradients = gradients, apply_gradients

    def construct(self, images, labels):
        loss, gradients = self.gradients(images, labels)
        return self.apply_gradients(loss, *gradients)


class ThorStep(nn.Cell):
    """One training step: (images, labels) -> loss, with new factors and inverses in the preconditioner's factor steps.

    optimizer: a first-order one over `preconditioner.weights`, with loss scale 1; its `global_step` counts the steps.
    loss: a cell (logits, labels) -> mean loss of the batch. Not for sink mode, which leaves no step to the host.
    `refreshed` is what `Preconditioner.refresh` returned in this step, None without factors. Raises ThorError.
    """

    def __init__(self, net, loss, optimizer, preconditioner):
        super().__init__(auto_prefix=False)
        if [id(p) for p in optimizer.parameters] != [id(p) for p in preconditioner.weights]:
            raise ThorError("optimizer: must be over preconditioner.weights, in their order: gradients go by place")
        if getattr(optimizer, "loss_scale", 1.0) != 1.0:
            raise ThorError(f"optimizer: its loss_scale must be 1, not {optimizer.loss_scale}: ThorStep unscales")
        self.preconditioner, self.optimizer = preconditioner, optimizer
        self.gradients_and_factors = GradientsAndFactors(net, loss, preconditioner)
        self.apply_gradients = ApplyGradients(optimizer, preconditioner)
        gradients = Gradients(net, loss, preconditioner, preconditioner.weights)
        self.plain_step = PlainStep(gradients, self.apply_gradients)
        self.refreshed = None

    def __call__(self, images, labels):
        """Not `construct`: this chooses which of the compiled graphs runs, and computes inverses in between."""
        step = int(self.optimizer.global_step.asnumpy().item())
        self.refreshed = None
        if not self.preconditioner.is_factor_step(step):
            return self.plain_step(images, labels)
        loss, gradients, factors, traces = self.gradients_and_factors(images, labels)
        self.refreshed = self.preconditioner.refresh(step, factors, traces)
        return self.apply_gradients(loss, *gradients)
