"""First-order optimizers. Each takes a network, learning rates with a value per step, and its settings."""

import numpy as np
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


def adamw(net, lr, beta1=0.9, beta2=0.999, weight_decay=0.01, loss_scale=1.0):
    """`nn.AdamWeightDecay`, with Adam's correction of both means' bias, which MindSpore leaves out.

    The correction is a factor of the learning rates, so it scales the weight decay of the first steps, too.
    loss_scale: has no effect, as Adam divides every gradient by its size.
    """
    step = np.arange(1, len(lr) + 1)
    lr = np.asarray(lr * np.sqrt(1 - beta2**step) / (1 - beta1**step), np.float32)
    return nn.AdamWeightDecay(decay_groups(net.trainable_params(), weight_decay), Tensor(lr), beta1, beta2)


def orthogonalised(matrix, steps=5):
    """The orthogonal matrix nearest to a matrix, roughly: singular values that are not tiny move to about 0.7 to 1.2.

    A Newton-Schulz iteration with the coefficients of Jordan et al. 2024, "Muon: an optimizer for hidden layers".
    """
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / ops.maximum(ops.norm(wide), 1e-7)  # no singular value above 1
    for _ in range(steps):
        gram = ops.matmul(wide, wide.T)
        wide = 3.4445 * wide + ops.matmul(-4.775 * gram + 2.0315 * ops.matmul(gram, gram), wide)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


class Muon(nn.Optimizer):
    """Muon for the weights of convolutions, as matrices (out, in * height * width); momentum for everything else.

    As PyTorch's `torch.optim.Muon`: Nesterov momentum, orthogonalised, times sqrt(out / in) if that is above 1.
    rest: the learning rate of everything else, as a multiple. Weight decay takes its share of a weight directly, as in
    AdamW; batch norm and biases have none. loss_scale: the factor by which arriving gradients are multiplied.
    """

    def __init__(self, net, lr, momentum=0.95, weight_decay=0.0, rest=1.0, loss_scale=1.0):
        super().__init__(Tensor(lr), net.trainable_params(), loss_scale=loss_scale)
        self.moments = self.parameters.clone(prefix="moments", init="zeros")
        self.momentum, self.decay, self.rest = momentum, weight_decay, rest

    def construct(self, gradients):
        lr, gradients, done = self.get_lr(), self.scale_grad(gradients), ()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        for parameter, moment, gradient in zip(self.parameters, self.moments, gradients):
            if gradient.ndim == 4:
                rate = lr
                mean = self.momentum * moment + (1 - self.momentum) * gradient
                step = self.momentum * mean + (1 - self.momentum) * gradient
                step = orthogonalised(step.reshape(step.shape[0], -1))
                step = step * max(1.0, step.shape[0] / step.shape[1]) ** 0.5
            else:
                rate = lr * self.rest
                mean = step = self.momentum * moment + gradient
            kept = 1 - rate * self.decay if gradient.ndim > 1 else 1.0
            update = parameter * kept - rate * step.reshape(gradient.shape)
            done += (ops.assign(moment, mean), ops.assign(parameter, update))
        return done


OPTIMIZERS = {"momentum": momentum, "adamw": adamw, "muon": Muon}
