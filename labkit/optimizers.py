"""Optimizers."""

from mindspore import Tensor, nn


def decay_groups(params, weight_decay):
    """Split parameters into two groups: `weight_decay` for weights, none for batch norm and biases.

    Vectors are batch norm's scale and shift and the biases; a weight has two dimensions or more.
    """
    weights = [p for p in params if p.ndim > 1]
    vectors = [p for p in params if p.ndim <= 1]
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
        {"order_params": list(params)},
    ]


def momentum(net, lr, momentum=0.9, weight_decay=1e-4, nesterov=False):
    """`nn.Momentum` over a network's trainable parameters; lr is an array with a value per step."""
    groups = decay_groups(net.trainable_params(), weight_decay)
    return nn.Momentum(groups, Tensor(lr), momentum, use_nesterov=nesterov)
