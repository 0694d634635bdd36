"""One training step of THOR, for `mindspore.train.Model`: a compiled step without statistics, and one with them."""

import mindspore as ms
from mindspore import nn, ops

from labkit.thor.statistics import ThorError


class _Step(nn.Cell):
    """Loss and gradients by `weights` of a network; in data-parallel training averaged over the processes."""

    def __init__(self, net, loss, thor, weights):
        super().__init__(auto_prefix=False)
        self.net, self.loss, self.loss_scale = net, loss, thor.loss_scale
        self.loss_and_gradients = ms.value_and_grad(self.scaled_loss, None, weights)
        self.average = nn.DistributedGradReducer(weights, mean=True) if thor.parallel else nn.Identity()

    def scaled_loss(self, images, labels):
        return self.loss(self.net(images), labels) * self.loss_scale


class Step(_Step):
    """A step with the inverses that there are: loss, gradients, preconditioned, applied."""

    def __init__(self, net, loss, optimizer, thor):
        super().__init__(net, loss, thor, thor.weights)
        self.update = Update(optimizer, thor)

    def construct(self, images, labels):
        loss, gradients = self.loss_and_gradients(images, labels)
        return ops.depend(loss / self.loss_scale, self.update(*self.average(gradients)))


class Statistics(_Step):
    """Loss and gradients, and every layer's factors with their traces, in one backward pass."""

    def __init__(self, net, loss, thor):
        super().__init__(net, loss, thor, (*thor.weights, *thor.factors_a, *thor.factors_g))
        self.count, self.factors = len(thor.weights), (*thor.factors_a, *thor.factors_g)

    def construct(self, images, labels, shares):
        """shares: of old factors in the new ones, by layer (L,). Returns loss, gradients, factors, traces (2 L,)."""
        loss, gradients = self.loss_and_gradients(images, labels)
        gradients = self.average(gradients)
        factors, traces = (), ()
        for old, new, share in zip(self.factors, gradients[self.count :], ops.unstack(ops.concat((shares, shares)))):
            factor = share * old + (1 - share) * new
            factors += (factor,)
            traces += ((factor * ops.eye(factor.shape[-1])).sum(),)
        return loss / self.loss_scale, gradients[: self.count], factors, ops.stack(traces)


class Update(nn.Cell):
    """Unscale, precondition, then the first-order optimizer, which adds the weight decay: the seed's order."""

    def __init__(self, optimizer, thor):
        super().__init__(auto_prefix=False)
        self.optimizer, self.thor, self.loss_scale = optimizer, thor, thor.loss_scale

    def construct(self, *gradients):  # not as one tuple, which graph mode would take for a constant
        unscaled = ()
        for gradient in gradients:
            unscaled += (gradient.astype(ms.float32) / self.loss_scale,)
        return self.optimizer(self.thor(unscaled))


class ThorStep(nn.Cell):
    """One training step: (images, labels) -> loss, with new factors and inverses where `thor.update` says so.

    optimizer: a first-order one over `thor.weights`, with loss scale 1; its `global_step` counts the steps.
    loss: a cell (logits, labels) -> mean loss of the batch. Not for sink mode, which leaves no step to the host.
    `last_update` is what `Thor.renew` returned in this step, None in a step without statistics. Raises ThorError.
    """

    def __init__(self, net, loss, optimizer, thor):
        super().__init__(auto_prefix=False)
        if [id(p) for p in optimizer.parameters] != [id(p) for p in thor.weights]:
            raise ThorError("optimizer: must be over thor.weights, in their order: it gets gradients by their place")
        if getattr(optimizer, "loss_scale", 1.0) != 1.0:
            raise ThorError(f"optimizer: its loss_scale must be 1, not {optimizer.loss_scale}: Thor unscales gradients")
        self.thor, self.optimizer = thor, optimizer
        self.step = Step(net, loss, optimizer, thor)
        self.statistics = Statistics(net, loss, thor)
        self.update = self.step.update
        self.last_update = None

    def __call__(self, images, labels):
        """Not `construct`: which of the compiled steps runs is decided here, and inverses are computed in between."""
        step = int(self.optimizer.global_step.asnumpy().item())
        updates = self.thor.updates_at(step)
        self.thor.collect(updates)
        if not updates:
            self.last_update = None
            return self.step(images, labels)
        loss, gradients, factors, traces = self.statistics(images, labels, self.thor.shares())
        self.last_update = self.thor.renew(step, factors, traces)
        self.update(*gradients)
        return loss
