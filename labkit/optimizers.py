"""Optimizers."""

from mindspore import Tensor, nn, ops


def decay_groups(params, weight_decay):
    """Split parameters into two groups: weights with `weight_decay`; batch norm and biases without.

    Batch norm's scale and shift and the biases are vectors; a weight has two dimensions or more.
    """
    weights = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    # MindSpore sorts parameters by group; order_params restores the network's order, in which gradients arrive.
    return groups + [{"order_params": list(params)}]


class ClippedMomentum(nn.Momentum):
    """`nn.Momentum` that first clips the global gradient norm, the norm of all gradients together, to `clip_norm`.

    Gradients arrive multiplied by the loss scale and, in data-parallel training, already averaged. Weight decay is
    added afterwards, as with PyTorch's `clip_grad_norm_` before SGD.
    """

    def __init__(self, params, learning_rate, momentum, clip_norm, **options):
        super().__init__(params, learning_rate, momentum, **options)
        self.max_norm = clip_norm * self.loss_scale

    def construct(self, gradients):
        return super().construct(ops.clip_by_global_norm(gradients, self.max_norm))


def momentum(net, lr, momentum=0.9, weight_decay=1e-4, clip_norm=None, loss_scale=1.0):
    """`nn.Momentum` over a network's trainable parameters; lr is an array with a value per step.

    loss_scale: the factor by which arriving gradients are multiplied; weight decay does not depend on it.
    There is no Nesterov variant: on a CPU MindSpore 2.8 accepts `use_nesterov=True` and ignores it.
    """
    groups = decay_groups(net.trainable_params(), weight_decay)
    if clip_norm is None:
        return nn.Momentum(groups, Tensor(lr), momentum, loss_scale=loss_scale)
    return ClippedMomentum(groups, Tensor(lr), momentum, clip_norm, loss_scale=loss_scale)
