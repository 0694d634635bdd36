"""Optimizers."""

from mindspore import Tensor, nn, ops


def decay_groups(params, weight_decay):
    """Split parameters into two groups: `weight_decay` for weights, none for batch norm and biases.

    Vectors are batch norm's scale and shift and the biases; a weight has two dimensions or more.
    """
    weights = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [*(group for group in groups if group["params"]), {"order_params": list(params)}]


class ClippedMomentum(nn.Momentum):
    """`nn.Momentum` that first shortens all gradients, taken together as one vector, to `clip_norm` at most.

    Gradients come in multiplied by the loss scale, and in data-parallel training already averaged. Weight decay is
    added afterwards, as with PyTorch's `clip_grad_norm_` before SGD.
    """

    def __init__(self, params, learning_rate, momentum, clip_norm, **options):
        super().__init__(params, learning_rate, momentum, **options)
        self.longest = clip_norm * self.loss_scale

    def construct(self, gradients):
        return super().construct(ops.clip_by_global_norm(gradients, self.longest))


def momentum(net, lr, momentum=0.9, weight_decay=1e-4, clip_norm=None, loss_scale=1.0):
    """`nn.Momentum` over a network's trainable parameters; lr is an array with a value per step.

    loss_scale: the factor that gradients arrive multiplied by; weight decay does not depend on it.
    Without Nesterov's variant: on a CPU MindSpore 2.8 accepts `use_nesterov=True` and ignores it.
    """
    groups = decay_groups(net.trainable_params(), weight_decay)
    if clip_norm is None:
        return nn.Momentum(groups, Tensor(lr), momentum, loss_scale=loss_scale)
    return ClippedMomentum(groups, Tensor(lr), momentum, clip_norm, loss_scale=loss_scale)
