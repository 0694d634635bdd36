"""Optimizers."""

from mindspore import Tensor, nn


def decay_groups(params, weight_decay):
    """Split parameters into two groups: `weight_decay` for weights, none for batch norm and biases.

    Vectors are batch norm's scale and shift and the biases; a weight has two dimensions or more.
    """
    weights = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [*(group for group in groups if group["params"]), {"order_params": list(params)}]


def momentum(net, lr, momentum=0.9, weight_decay=1e-4):
    """`nn.Momentum` over a network's trainable parameters; lr is an array with a value per step.

    Without Nesterov's variant: on a CPU MindSpore 2.8 takes `use_nesterov=True` and ignores it.
    """
    groups = decay_groups(net.trainable_params(), weight_decay)
    return nn.Momentum(groups, Tensor(lr), momentum)
