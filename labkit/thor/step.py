"""One training step of THOR, for `mindspore.train.Model`: a compiled step without statistics, and one with them."""

import mindspore as ms
from mindspore import Tensor, nn, ops

from labkit.thor.statistics import ThorError


class _Step(nn.Cell):
    """Loss and gradients by `weights` of a network; in data-parallel training averaged over the processes."""

    def __init__(self, net, loss, weights, loss_scale):
        super().__init__(auto_prefix=False)
        self.net, self.loss, self.loss_scale = net, loss, loss_scale
        self.loss_and_gradients = ms.value_and_grad(self.scaled_loss, None, weights)
        self.average = nn.Identity()
        if ms.get_auto_parallel_context("parallel_mode") == ms.ParallelMode.DATA_PARALLEL:
            self.average = nn.DistributedGradReducer(weights, mean=True)

    def scaled_loss(self, images, labels):
        return self.loss(self.net(images), labels) * self.loss_scale


class Step(_Step):
    """A step with the inverses that there are: loss, gradients, preconditioned, applied."""

    def __init__(self, net, loss, optimizer, thor):
        super().__init__(net, loss, thor.weights, thor.loss_scale)
        self.update = Update(optimizer, thor)

    def construct(self, images, labels):
        loss, gradients = self.loss_and_gradients(images, labels)
        return ops.depend(loss / self.loss_scale, self.update(*self.average(gradients)))


class Statistics(_Step):
    """Loss and gradients, and every layer's factors with their traces, in one backward pass."""

    def __init__(self, net, loss, thor):
        super().__init__(net, loss, (*thor.weights, *thor.factors_a, *thor.factors_g), thor.loss_scale)
        self.count, self.factors = len(thor.weights), (*thor.factors_a, *thor.factors_g)

    def construct(self, images, labels, share):
        """share: of the old factors in the new ones, a scalar. Returns loss, gradients, factors, traces."""
        loss, gradients = self.loss_and_gradients(images, labels)
        gradients = self.average(gradients)
        factors, traces = (), ()
        for old, new in zip(self.factors, gradients[self.count :]):
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
    loss: a cell (logits, labels) -> mean loss of the batch.
    `last_update` is what `Thor.renew` returned in this step, None in a step without statistics. Raises ThorError.
    """

    def __init__(self, net, loss, optimizer, thor):
        super().__init__(auto_prefix=False)
        if [id(p) for p in optimizer.parameters] != [id(p) for p in thor.weights]:
            raise ThorError("optimizer: must be over thor.weights, in their order: it gets gradients by their place")
        self.thor, self.optimizer = thor, optimizer
        self.step = Step(net, loss, optimizer, thor)
        self.statistics = Statistics(net, loss, thor)
        self.update = Update(optimizer, thor)
        self.last_update = None

    def __call__(self, images, labels):
        """Not `construct`: which of the compiled steps runs is decided here, and inverses are computed in between."""
        step = int(self.optimizer.global_step.asnumpy().item())
        updates = self.thor.updates_at(step)
        self.thor.collect(updates)
        if not updates:
            self.last_update = None
            return self.step(images, labels)
        share = Tensor(self.thor.factor_average if step else 0.0, ms.float32)
        loss, gradients, factors, traces = self.statistics(images, labels, share)
        self.last_update = self.thor.renew(step, factors, traces)
        self.update(*gradients)
        return loss
