"""labkit.optimizers: against momentum and Adam in numpy, and against PyTorch's Muon."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from selection import torch_or_none

from labkit.networks import create_resnet
from labkit.optimizers import Muon, adamw, decay_groups, momentum, orthogonalised
from labkit.system.device import in_mode

RATES = np.array([0.1, 0.3, 0.05, 0.2], np.float32)


class Small(nn.Cell):
    """A weight, a bias and a batch norm."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.norm = nn.BatchNorm1d(2)
        for parameter in self.trainable_params():
            value = np.random.default_rng(len(parameter.name)).normal(size=parameter.shape)
            parameter.set_data(ms.Tensor(value, ms.float32))

    def construct(self, x):
        return self.norm(self.dense(x))


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)


@pytest.fixture(scope="module")
def resnet20():
    return create_resnet("resnet20")


def names(params):
    return [p.name for p in params]


def gradients_of(net, steps):
    rng = np.random.default_rng(0)
    return [{p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.trainable_params()} for _ in range(steps)]


def apply(optimizer, net, gradients, loss_scale=1.0):
    for step in gradients:
        optimizer(tuple(ms.Tensor(step[p.name] * loss_scale) for p in net.trainable_params()))
    return {p.name: p.asnumpy() for p in net.trainable_params()}


def test_every_parameter_is_in_one_group(resnet20):
    params = resnet20.trainable_params()
    decayed, kept, order = decay_groups(params, 0.01)
    assert sorted(names(decayed["params"]) + names(kept["params"])) == sorted(names(params))
    assert names(order["order_params"]) == names(params)
    optimizer = momentum(resnet20, RATES)
    assert names(optimizer.parameters) == names(params)
    assert len(set(names(optimizer.moments))) == len(params)


def test_weights_decay_and_vectors_do_not(resnet20):
    decayed, kept, _ = decay_groups(resnet20.trainable_params(), 0.01)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.01, 0.0)
    assert len(decayed["params"]) == 20
    assert all(name.endswith("weight") for name in names(decayed["params"]))
    assert {name.split(".")[-1] for name in names(kept["params"])} == {"gamma", "beta", "bias"}


def numpy_momentum(values, gradients, rates, mu, decay, clip_norm=np.inf):
    """v = mu v + g; w -= lr v; decay for matrices only; all gradients of a step first shortened to clip_norm."""
    values = {name: value.astype(np.float64) for name, value in values.items()}
    velocity = {name: np.zeros_like(value) for name, value in values.items()}
    for step, rate in enumerate(rates):
        norm = np.sqrt(sum((gradient.astype(np.float64) ** 2).sum() for gradient in gradients[step].values()))
        for name, value in values.items():
            gradient = gradients[step][name] * min(1, clip_norm / norm) + (decay * value if value.ndim > 1 else 0)
            velocity[name] = mu * velocity[name] + gradient
            values[name] = value - rate * velocity[name]
    return values


@pytest.mark.parametrize("mu, decay", [(0.9, 0.05), (0.9, 0.0), (0.5, 0.2)])
@pytest.mark.parametrize("clip_norm, loss_scale", [(None, 1.0), (None, 1024.0), (0.5, 1.0), (0.5, 1024.0), (100, 8.0)])
def test_steps_against_numpy(mu, decay, clip_norm, loss_scale):
    """Gradients of length 3 or so: 0.5 shortens each of them, 100 none; they come in multiplied by the loss scale."""
    net = Small()
    optimizer = momentum(net, RATES, mu, decay, clip_norm, loss_scale)
    before = {p.name: p.asnumpy().copy() for p in net.trainable_params()}
    gradients = gradients_of(net, len(RATES))
    found = apply(optimizer, net, gradients, loss_scale)
    expected = numpy_momentum(before, gradients, RATES, mu, decay, clip_norm or np.inf)
    assert len(expected) == 4
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("loss_scale", [1.0, 1024.0])
def test_clipping_in_a_train_step(mode, loss_scale):
    """As `Model` builds it: one step moves all parameters together by rate times clip_norm, whatever the loss scale."""
    with in_mode(mode):
        net = Small()
        params = net.trainable_params()
        before = [p.asnumpy().copy() for p in params]
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        optimizer = momentum(net, RATES, 0.9, 0.0, clip_norm=0.01, loss_scale=loss_scale)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer, loss_scale).set_train()
        x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
        step(ms.Tensor(x), ms.Tensor(np.arange(8) % 2, ms.int32))
    moved = np.sqrt(sum(((p.asnumpy() - b) ** 2).sum() for p, b in zip(params, before)))
    assert moved == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_defaults_are_he_et_al():
    """Section 3.4: momentum 0.9, weight decay 1e-4."""
    net, same = Small(), Small()
    for optimizer in (momentum(net, RATES), momentum(same, RATES, momentum=0.9, weight_decay=1e-4)):
        for _ in RATES:
            optimizer(tuple(ms.Tensor(np.ones(p.shape, np.float32)) for p in optimizer.parameters))
    for parameter, other in zip(net.trainable_params(), same.trainable_params(), strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), other.asnumpy())


def test_mindspore_still_ignores_nesterov_on_a_cpu():
    """The reason why `momentum` does not offer it. When this fails, MindSpore has learned it: offer it."""
    found = []
    for nesterov in (False, True):
        net = Small()
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9, use_nesterov=nesterov)
        for _ in range(3):
            optimizer(tuple(ms.Tensor(np.ones(p.shape, np.float32)) for p in net.trainable_params()))
        found.append(np.concatenate([p.asnumpy().ravel() for p in net.trainable_params()]))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("frozen", [["dense.weight"], ["dense.bias", "norm.gamma", "norm.beta"]])
def test_network_with_weights_only_or_vectors_only(frozen):
    """One of the two groups is empty, which `nn.Momentum` refuses."""
    net = Small()
    for parameter in net.trainable_params():
        parameter.requires_grad = parameter.name not in frozen
    optimizer = momentum(net, RATES, 0.9, 0.5)
    assert set(names(optimizer.parameters)) == {"dense.weight", "dense.bias", "norm.gamma", "norm.beta"} - set(frozen)


@pytest.mark.parametrize("arguments", [{"momentum": -0.1}, {"weight_decay": -0.1}, {"loss_scale": 0.0}])
def test_bad_values(arguments):
    with pytest.raises((ValueError, TypeError)):
        momentum(Small(), RATES, **arguments)


# -- AdamW and Muon ----------------------------------------------------------------------------------------


def test_adamw_against_numpy():
    """Both means without bias (Kingma and Ba 2015, algorithm 1); decay for matrices, and not through the gradient."""
    net = Small()
    expected = {p.name: p.asnumpy().astype(np.float64) for p in net.trainable_params()}
    gradients = gradients_of(net, len(RATES))
    found = apply(adamw(net, RATES, 0.8, 0.9, 0.1), net, gradients)
    for name, value in expected.items():
        m = v = np.zeros_like(value)
        for t, (rate, step) in enumerate(zip(RATES, gradients), start=1):
            m, v = 0.8 * m + 0.2 * step[name], 0.9 * v + 0.1 * step[name] ** 2
            decay = 0.1 * value * np.sqrt(1 - 0.9**t) / (1 - 0.8**t) if value.ndim > 1 else 0
            value = value - rate * (m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.9**t)) + 1e-8) + decay)
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 30), (30, 8), (5, 5)])
def test_orthogonalised(shape):
    """The singular vectors stay, the values come near 1; a multiple of a matrix gives the same."""
    matrix = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = orthogonalised(ms.Tensor(matrix)).asnumpy()
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ found @ right.T
    assert np.all((np.diag(inner) > 0.3) & (np.diag(inner) < 1.3))
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-4)
    np.testing.assert_allclose(orthogonalised(ms.Tensor(100 * matrix)).asnumpy(), found, atol=1e-5)


@pytest.mark.parametrize("loss_scale", [1.0, 1024.0])
def test_muon_is_pytorchs(pytorch, monkeypatch, loss_scale):
    """Ten steps of a small network: convolutions by `torch.optim.Muon`, in float32, everything else by its SGD."""
    torch = torch_or_none()
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())  # in which it would iterate
    layers = nn.Conv2d(2, 8, 1), nn.Conv2d(8, 4, 3, has_bias=True), nn.BatchNorm2d(4), nn.Flatten(), nn.Dense(36, 3)
    net = nn.SequentialCell(*layers)
    theirs = {p.name: torch.tensor(p.asnumpy()) for p in net.trainable_params()}
    matrices = {name: p.reshape(len(p), -1) for name, p in theirs.items() if p.ndim == 4}
    assert {np.sign(len(m) - m.shape[1]) for m in matrices.values()} == {-1, 1}  # tall and wide
    weights = [p for p in theirs.values() if p.ndim == 2]
    vectors = [p for p in theirs.values() if p.ndim == 1]
    rates = np.linspace(0.05, 0.02, 10).astype(np.float32)
    muon = torch.optim.Muon(list(matrices.values()), momentum=0.9, weight_decay=0.1)
    sgd = torch.optim.SGD([{"params": weights}, {"params": vectors}], momentum=0.9)
    gradients = gradients_of(net, len(rates))
    for rate, step in zip(rates, gradients):
        for name, p in theirs.items():
            holder = matrices.get(name, p)
            holder.grad = torch.tensor(step[name]).reshape(holder.shape)
        for optimizer, factor in ((muon, 1), (sgd, 3)):
            for group in optimizer.param_groups:
                group["lr"] = float(rate) * factor
        for weight in weights:
            weight.mul_(1 - 3 * float(rate) * 0.1)
        muon.step()
        sgd.step()
    found = apply(Muon(net, rates, 0.9, 0.1, rest=3.0, loss_scale=loss_scale), net, gradients, loss_scale)
    for name, value in found.items():
        np.testing.assert_allclose(value, theirs[name].numpy(), rtol=1e-4, atol=2e-5, err_msg=name)
