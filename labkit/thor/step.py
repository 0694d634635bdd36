"""One training step of THOR, for `mindspore.train.Model`: gradients, with statistics or without, and their use."""

import mindspore as ms
from mindspore import Tensor, nn, ops

from labkit.thor.factors import block_trace
from labkit.thor.layer import ThorError


class Gradients(nn.Cell):
    """A network's loss and the gradients of `weights`; in data-parallel training averaged over the processes."""

    def __init__(self, net, loss, thor, weights):
        super().__init__(auto_prefix=False)
        self.net, self.loss, self.loss_scale = net, loss, thor.loss_scale
        self.loss_and_gradients = ms.value_and_grad(self.scaled_loss, None, weights)
        self.average = nn.DistributedGradReducer(weights, mean=True) if thor.parallel else nn.Identity()

    def scaled_loss(self, images, labels):
        """(images, labels) -> the batch's mean loss, times the loss scale."""
        return self.loss(self.net(images), labels) * self.loss_scale

    def construct(self, images, labels):
        loss, gradients = self.loss_and_gradients(images, labels)
        return loss / self.loss_scale, self.average(gradients)


class Statistics(Gradients):
    """Loss and gradients, and every layer's factors with their traces, in one backward pass."""

    def __init__(self, net, loss, thor):
        factors = [factor for layer in thor.layers.values() for factor in (layer.factor_a, layer.factor_g)]
        super().__init__(net, loss, thor, (*thor.weights, *factors))
        self.thor, self.layers, self.count = thor, thor.cell_list, len(thor.weights)

    def __call__(self, images, labels):
        """(images, labels) -> loss, gradients, factors (A, G) of each layer, their traces (L, 2). The taps are on."""
        for layer in self.layers:
            layer.statistics = True
        try:
            return super().__call__(images, labels, Tensor(self.thor.factor_ema, ms.float32))
        finally:
            for layer in self.layers:
                layer.statistics = False

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

    Hands the loss through, so that whoever waits for it waits for the new weights.
    """

    def __init__(self, optimizer, thor):
        super().__init__(auto_prefix=False)
        self.optimizer, self.thor, self.loss_scale = optimizer, thor, thor.loss_scale

    def construct(self, loss, *gradients):  # not as one tuple, which graph mode would take for a constant
        return ops.depend(loss, self.optimizer(self.thor(self.unscale(gradients))))

    def unscale(self, gradients):
        """The gradients in float32, over the loss scale."""
        unscaled = ()
        for gradient in gradients:
            unscaled += (gradient.astype(ms.float32) / self.loss_scale,)
        return unscaled


class ThorStep(nn.Cell):
    """One training step: (images, labels) -> loss, with new factors and inverses in the steps of `thor.update_mask`.

    optimizer: a first-order one over `thor.weights`, with loss scale 1; its `global_step` counts the steps.
    loss: a cell (logits, labels) -> mean loss of the batch. Not for sink mode, which leaves no step to the host.
    `last_update` is what `Thor.update_inverses` returned in this step, or None. Raises ThorError.
    """

    def __init__(self, net, loss, optimizer, thor):
        super().__init__(auto_prefix=False)
        if [id(p) for p in optimizer.parameters] != [id(p) for p in thor.weights]:
            raise ThorError("optimizer: must be over thor.weights, in their order: it gets gradients by their place")
        if getattr(optimizer, "loss_scale", 1.0) != 1.0:
            raise ThorError(f"optimizer: its loss_scale must be 1, not {optimizer.loss_scale}: Thor unscales gradients")
        self.thor, self.optimizer = thor, optimizer
        self.gradients = Gradients(net, loss, thor, thor.weights)
        self.statistics = Statistics(net, loss, thor)
        self.apply_gradients = ApplyGradients(optimizer, thor)
        self.last_update = None

    def __call__(self, images, labels):
        """Not `construct`: this chooses which of the compiled graphs runs, and computes inverses in between."""
        step = int(self.optimizer.global_step.asnumpy().item())
        self.last_update = None
        if self.thor.computes_factors(step):
            loss, gradients, factors, traces = self.statistics(images, labels)
            self.last_update = self.thor.update_inverses(step, factors, traces)
        else:
            loss, gradients = self.gradients(images, labels)
        return self.apply_gradients(loss, *gradients)
