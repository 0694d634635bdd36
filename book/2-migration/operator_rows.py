"""The rows of the operator tables: what torchvision's ResNet-50 and its training are made of."""

import operator
from functools import partial

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Constant, HeNormal, TruncatedNormal, initializer
from operator_check import Row

from labkit.losses import CrossEntropySmooth
from labkit.parity.pytorch import torch

_random = np.random.default_rng(0)
IMAGES = _random.normal(size=(2, 3, 8, 8)).astype(np.float32)
KERNEL = _random.normal(size=(4, 3, 3, 3)).astype(np.float32)
FEATURES = _random.normal(size=(6, 10)).astype(np.float32)
DENSE = _random.normal(size=(5, 10)).astype(np.float32)
LABELS = _random.integers(0, 10, 6).astype(np.int32)
LARGE = (256, 128, 3, 3)  # enough values for three digits of a standard deviation
GRADIENTS = [np.array([[1.0, -2.0], [3.0, 0.5]], np.float32) * factor for factor in (1, 2, -1)]


# -- Running a row: `create` returns a layer or a function ------------------------------------------


def theirs(create, inputs, weights):
    """PyTorch's output for arrays, with the given weights."""
    module = create()
    for name, value in weights.items():
        getattr(module, name).data = torch().from_numpy(value.copy())
    tensors = [torch().from_numpy(value) for value in inputs]
    tensors = [tensor if tensor.is_floating_point() else tensor.long() for tensor in tensors]
    return module(*tensors).detach().numpy()


def ours(create, inputs, weights):
    """MindSpore's output for the same."""
    cell = create()
    for name, value in weights.items():
        getattr(cell, name).set_data(Tensor(value))
    return cell(*map(Tensor, inputs)).asnumpy()


def layer(pytorch, mindspore, create_theirs, call, *inputs, weights=None, traps=None, arguments=""):
    """A row for two layers, and for layers that one might write instead. call: MindSpore's, a layer or of x."""
    given = {"inputs": inputs, "weights": weights or {}}
    create_ours = partial(eval, f"lambda x: {call}" if "(x" in call else call, globals())
    traps = {trap: partial(ours, create, **given) for trap, create in (traps or {}).items()}
    run = partial(theirs, create_theirs, **given), partial(ours, create_ours, **given)
    return Row(pytorch, mindspore, *run, traps, arguments, call=call)


def their_norm():
    """Output and running statistics after a batch, in one array."""
    norm = torch().nn.BatchNorm2d(3)
    parts = norm(torch().from_numpy(IMAGES)), norm.running_mean, norm.running_var
    return np.concatenate([part.detach().numpy().ravel() for part in parts])


def our_norm(training=True, **options):
    norm = nn.BatchNorm2d(3, **options).set_train(training)
    parts = norm(Tensor(IMAGES)), norm.moving_mean, norm.moving_variance
    return np.concatenate([part.asnumpy().ravel() for part in parts])


def their_steps(**options):
    """A parameter after each of three steps on given gradients."""
    weight, path = torch().nn.Parameter(torch().ones(2, 2)), []
    optimizer = torch().optim.SGD([weight], 0.1, **options)
    for gradient in GRADIENTS:
        weight.grad = torch().from_numpy(gradient.copy())
        optimizer.step()
        path.append(weight.detach().numpy().copy())
    return np.stack(path)


def our_steps(create):
    weight, path = Parameter(Tensor(np.ones((2, 2), np.float32)), name="norm.gamma"), []
    optimizer = create([weight])
    for gradient in GRADIENTS:
        optimizer((Tensor(gradient),))
        path.append(weight.asnumpy().copy())
    return np.stack(path)


def their_rates():
    """Ten learning rates of a cosine."""
    optimizer = torch().optim.SGD([torch().nn.Parameter(torch().zeros(1))], 0.256)
    schedule, rates = torch().optim.lr_scheduler.CosineAnnealingLR(optimizer, 10), []
    for _ in range(10):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return np.array(rates)


def our_rates(decay_epoch):
    return np.array(nn.cosine_decay_lr(0.0, 0.256, total_step=10, step_per_epoch=1, decay_epoch=decay_epoch))


def their_gradient():
    weight = torch().from_numpy(DENSE.copy()).requires_grad_()
    torch().logsumexp(torch().from_numpy(FEATURES) @ weight.T, 1).sum().backward()
    return weight.grad.numpy()


def our_gradient():
    def forward(features, weight):
        return ops.logsumexp(ops.matmul(features, weight.T), 1).sum()

    return ms.grad(forward, 1)(Tensor(FEATURES), Tensor(DENSE)).asnumpy()


def their_clipped():
    weight = torch().nn.Parameter(torch().zeros(5, 10))
    weight.grad = torch().from_numpy(DENSE.copy())
    torch().nn.utils.clip_grad_norm_([weight], 1.0)
    return weight.grad.numpy()


def their_draw(name, **options):
    """Standard deviation of an initialiser's values."""
    return getattr(torch().nn.init, name)(torch().empty(LARGE), **options).std().numpy()


def our_draw(init, shape=LARGE):
    return initializer(init, shape).init_data().asnumpy().std()


def _training(module):
    return np.float32(module.training)


# -- The rows ---------------------------------------------------------------------------------------

OPERATORS = (
    layer(
        "torch.nn.Conv2d", "mindspore.nn.Conv2d",
        lambda: torch().nn.Conv2d(3, 4, 3, 2, padding=1, bias=False),
        'nn.Conv2d(3, 4, 3, 2, pad_mode="pad", padding=1, has_bias=False)',
        IMAGES, weights={"weight": KERNEL},
        traps={"`padding=1` carried over": lambda: nn.Conv2d(3, 4, 3, 2, padding=1),
               "`padding` left out": lambda: nn.Conv2d(3, 4, 3, 2)},
        arguments="padding:padding :pad_mode bias:has_bias",
    ),
    Row(
        "torch.nn.BatchNorm2d", "mindspore.nn.BatchNorm2d", their_norm, our_norm,
        {"`momentum=0.1` carried over": partial(our_norm, momentum=0.1),
         "`set_train()` forgotten": partial(our_norm, training=False)},
        "eps:eps momentum:momentum", call="nn.BatchNorm2d(3, eps=1e-5, momentum=0.9)",  # the share of the old value
    ),
    layer("torch.nn.ReLU", "mindspore.nn.ReLU", lambda: torch().nn.ReLU(), "nn.ReLU()", IMAGES),
    layer("operator.add", "mindspore.ops.add", lambda: operator.add, "ops.add", IMAGES, IMAGES[::-1].copy()),
    layer(
        "torch.nn.MaxPool2d", "mindspore.nn.MaxPool2d",
        lambda: torch().nn.MaxPool2d(3, 2, padding=1),
        'nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)',
        IMAGES,
        traps={"`padding=1` carried over": lambda: nn.MaxPool2d(3, 2, padding=1),
               "`pad_mode='same'`": lambda: nn.MaxPool2d(3, 2, pad_mode="same"),
               "`padding` left out": lambda: nn.MaxPool2d(3, 2)},
        arguments="stride:stride padding:padding :pad_mode",
    ),
    layer(
        "torch.nn.AdaptiveAvgPool2d", "mindspore.nn.AdaptiveAvgPool2d",
        lambda: torch().nn.AdaptiveAvgPool2d(3), "nn.AdaptiveAvgPool2d(3)", IMAGES,
    ),
    layer(
        "torch.flatten", "mindspore.ops.flatten",
        lambda: partial(torch().flatten, start_dim=1), "ops.flatten(x, start_dim=1)", IMAGES,
        traps={"`flatten(x, 1)` carried over": lambda: lambda x: ops.flatten(x, 1)},
        arguments=":start_dim",
    ),
    layer(
        "torch.nn.Linear", "mindspore.nn.Dense",
        lambda: torch().nn.Linear(10, 5, bias=False), "nn.Dense(10, 5, has_bias=False)",
        FEATURES, weights={"weight": DENSE}, arguments="bias:has_bias",
    ),
    layer(
        "torch.nn.CrossEntropyLoss", "mindspore.nn.CrossEntropyLoss",
        lambda: torch().nn.CrossEntropyLoss(label_smoothing=0.1), "nn.CrossEntropyLoss(label_smoothing=0.1)",
        FEATURES, LABELS,
        traps={"the guide's smoothing, over K - 1": lambda: CrossEntropySmooth(10, 0.1)},
        arguments="reduction:reduction label_smoothing:label_smoothing",
    ),
    layer(
        "torch.logsumexp", "mindspore.ops.logsumexp",
        lambda: partial(torch().logsumexp, dim=1), "ops.logsumexp(x, dim=1)", 100 * FEATURES,
        traps={"`log(sum(exp(x)))`": lambda: lambda x: ops.log(ops.exp(x).sum(1))},
    ),
)  # fmt: skip

FUNCTIONS = (
    Row(
        "torch.nn.Module", "mindspore.nn.Cell",
        lambda: _training(torch().nn.Module()), lambda: _training(nn.Cell().set_train()),
        {"`set_train()` left out": lambda: _training(nn.Cell())}, "", "in training mode",
        call="nn.Cell().set_train()",
    ),
    layer(
        "torch.nn.Sequential", "mindspore.nn.SequentialCell",
        lambda: torch().nn.Sequential(torch().nn.ReLU(), torch().nn.Flatten()),
        "nn.SequentialCell(nn.ReLU(), nn.Flatten())", IMAGES,
    ),
    Row("torch.Tensor.backward", "mindspore.grad", their_gradient, our_gradient),
    Row(
        "torch.nn.init.kaiming_normal_", "mindspore.common.initializer.HeNormal",
        partial(their_draw, "kaiming_normal_", mode="fan_out", nonlinearity="relu"),
        lambda: our_draw(HeNormal(mode="fan_out", nonlinearity="relu")),
        {"`'HeNormal'`, the guide's": lambda: our_draw("HeNormal")},
        "mode:mode nonlinearity:nonlinearity a:negative_slope", "deviation", 0.01,
        call='HeNormal(mode="fan_out", nonlinearity="relu")',
    ),
    Row(
        "torch.nn.init.trunc_normal_", "mindspore.common.initializer.TruncatedNormal",
        partial(their_draw, "trunc_normal_", std=0.01), lambda: our_draw(TruncatedNormal(0.01)),
        {"cut at two deviations, as in 1.7": lambda: our_draw(TruncatedNormal(0.01, a=-0.02, b=0.02))},
        "std:sigma a:a b:b", "deviation", 0.01, call="TruncatedNormal(0.01, a=-2, b=2)",
    ),
    Row(
        "torch.nn.init.constant_", "mindspore.common.initializer.Constant",
        lambda: torch().nn.init.constant_(torch().empty(3), 0.5).numpy(),
        lambda: initializer(Constant(0.5), (3,)).init_data().asnumpy(),
        {"`'Constant'`, the guide's": lambda: initializer("Constant", (3,)).init_data().asnumpy()},
        call="Constant(0.5)",
    ),
    Row(
        "torch.nn.Linear", "mindspore.nn.Dense",
        lambda: torch().nn.Linear(512, 256).weight.std().detach().numpy(),
        lambda: nn.Dense(512, 256).weight.asnumpy().std(),
        {"`TruncatedNormal()`, the guide's": lambda: our_draw(TruncatedNormal(), (256, 512))},
        "", "first weights, deviation", 0.01, call="nn.Dense(512, 256)",
    ),
    Row(
        "torch.optim.SGD", "mindspore.nn.Momentum",
        partial(their_steps, momentum=0.875, weight_decay=0.1),
        lambda: our_steps(lambda p: nn.Momentum([{"params": p, "weight_decay": 0.1}], 0.1, 0.875)),
        {"no groups, a name with `gamma`": lambda: our_steps(
            lambda p: nn.Momentum(p, 0.1, 0.875, weight_decay=0.1))},
        "weight_decay:weight_decay nesterov:use_nesterov", "with weight decay",
        call='nn.Momentum([{"params": p, "weight_decay": 0.1}], 0.1, 0.875)',
    ),
    Row(
        "torch.optim.SGD", "mindspore.nn.SGD",
        partial(their_steps, momentum=0.875, nesterov=True),
        lambda: our_steps(lambda p: nn.SGD(p, 0.1, 0.875, nesterov=True)),
        {"`nn.Momentum(use_nesterov=True)`": lambda: our_steps(
            lambda p: nn.Momentum(p, 0.1, 0.875, use_nesterov=True))},
        "lr:learning_rate momentum:momentum dampening:dampening nesterov:nesterov", "Nesterov's",
        call="nn.SGD(p, 0.1, 0.875, nesterov=True)",
    ),
    Row(
        "torch.optim.SGD", "mindspore.nn.SGD",
        partial(their_steps, momentum=0.875, dampening=0.5),
        lambda: our_steps(lambda p: nn.SGD(p, 0.1, 0.875, dampening=0.5)), aspect="with dampening",
    ),
    Row(
        "torch.optim.lr_scheduler.CosineAnnealingLR", "mindspore.nn.cosine_decay_lr",
        their_rates, partial(our_rates, 10), {"`decay_epoch=1`, the guide's": partial(our_rates, 1)},
        call="nn.cosine_decay_lr(0.0, 0.256, 10, 1, decay_epoch=10)",
    ),
    Row(
        "torch.nn.utils.clip_grad_norm_", "mindspore.ops.clip_by_global_norm",
        their_clipped, lambda: ops.clip_by_global_norm((Tensor(DENSE),), 1.0)[0].asnumpy(),
    ),
    Row("torch.nn.parallel.DistributedDataParallel", "mindspore.set_auto_parallel_context"),
)  # fmt: skip
