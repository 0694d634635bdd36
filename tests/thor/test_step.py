"""ThorStep: trajectories against numpy, in both modes, in mixed precision, resumed, with evaluations in between."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from small import KnownGradient, cross_entropy, factors, fisher_norm, gram, preconditioned, step_of, tensor, values

from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet, mixed_precision
from labkit.system.device import in_mode
from labkit.thor import Preconditioner, ThorError, ThorStep
from labkit.training import checkpoint

FACTOR_STEPS = [True, False, True, False, False, True]
DAMPING = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]


def small_net(seed=3):
    ms.set_seed(seed)
    return nn.SequentialCell(
        nn.Conv2d(2, 4, 3, stride=2, has_bias=True), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(16, 4)
    )


def batches(rng, count=6):
    return [(tensor(rng.normal(size=(8, 2, 4, 4))), tensor(rng.permutation(np.arange(8) % 4))) for _ in range(count)]


def training_step(net, **options):
    chosen = {
        "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "factor_steps": FACTOR_STEPS, "damping": DAMPING,
        "block_size": 16, "clip_fisher_norm": 0.4, "factor_ema": 0.5, "factor_share": 0.5,
    }  # fmt: skip
    return step_of(net.set_train(), CrossEntropySmooth(4, 0.1), **{**chosen, **options})


def run(step, data):
    return [float(step(images, labels).asnumpy()) for images, labels in data]


def require_equal(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, err_msg=name, **(tolerance or {"rtol": 0}))


# -- Against numpy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("block_size", [None, 2])
@pytest.mark.parametrize("loss_scale", [1.0, 256.0])
def test_steps_are_those_of_numpy(loss_scale, block_size, clip, rng):
    """The seed's order: unscale, precondition, weight decay, momentum; inverses of the last factor step."""
    lr, share, decay = 0.05, 0.9, 0.1
    images, labels = rng.normal(size=(6, 4, 5)), rng.normal(size=(6, 4, 3))
    net = nn.SequentialCell(nn.Dense(5, 3))
    step = step_of(
        net, KnownGradient(), lr=lr, momentum=share, weight_decay=decay, factor_steps=FACTOR_STEPS, damping=DAMPING,
        block_size=block_size, loss_scale=loss_scale, clip_fisher_norm=clip,
    )  # fmt: skip
    weight, bias = (p.asnumpy().astype(np.float64) for p in net.get_parameters() if not p.name.startswith("thor."))
    moments, norms = [0.0, 0.0], []
    for number, (x, y) in enumerate(zip(images, labels)):
        loss = step(tensor(x), tensor(y)).asnumpy()
        np.testing.assert_allclose(loss, ((x @ weight.T + bias) * y).sum() / 4, rtol=1e-4, atol=1e-4)
        if FACTOR_STEPS[number]:
            in_use = gram(x[:, None]), gram(y[:, None]), DAMPING[number], block_size
        preconditioned_weight = preconditioned(y.T @ x / 4, *in_use)
        norms.append(fisher_norm(preconditioned_weight, *in_use))
        if clip:
            preconditioned_weight *= min(1, clip / norms[-1])
        gradients = preconditioned_weight + decay * weight, y.mean(axis=0) + decay * bias
        moments = [share * moment + gradient for moment, gradient in zip(moments, gradients)]
        weight, bias = weight - lr * moments[0], bias - lr * moments[1]
    found = values(net)
    np.testing.assert_allclose(found["0.weight"], weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["0.bias"], bias, rtol=1e-4, atol=1e-5)
    assert min(norms) < 1.0 < max(norms)


def test_taps_are_on_in_factor_steps_alone(rng):
    step, taps_on = training_step(small_net()), []
    layers = step.preconditioner.layers.values()
    net = step.plain_step.gradients.net
    net.register_forward_pre_hook(lambda *_: taps_on.append({layer.taps_on for layer in layers}))
    for images, labels in batches(rng):
        step(images, labels)
        assert not any(layer.taps_on for layer in layers)
    assert taps_on == [{taps} for taps in FACTOR_STEPS]


# -- Modes and precision --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A training in PyNative mode that nothing disturbs: data, losses, all state, the folder of its checkpoints."""
    folder, data = tmp_path_factory.mktemp("steps"), batches(np.random.default_rng(0))
    with in_mode(ms.PYNATIVE_MODE):
        step, losses = training_step(small_net()), []
        for number, batch in enumerate(data, start=1):
            losses += run(step, [batch])
            ms.save_checkpoint(step, str(folder / f"{number}.ckpt"))
        return data, losses, values(step), folder


@pytest.fixture(scope="module")
def in_graph_mode(reference):
    """The same in graph mode: losses, all state, and logits of the network evaluated after three steps."""
    data, *_ = reference
    with in_mode(ms.GRAPH_MODE):
        net = small_net()
        step = training_step(net)
        losses = run(step, data[:3])
        logits = net.set_train(False)(data[0][0]).asnumpy()
        net.set_train()
        return losses + run(step, data[3:]), values(step), logits


def test_modes_agree(in_graph_mode, reference):
    """Graph mode with an evaluation in it, PyNative without: losses, factors, inverses, weights, moments."""
    _, losses, expected, _ = reference
    np.testing.assert_allclose(in_graph_mode[0], losses, rtol=1e-5)
    assert in_graph_mode[1].keys() == expected.keys()
    for name, value in expected.items():
        tolerance = {"rtol": 1e-3, "atol": 1e-4 * np.abs(value).max()}
        np.testing.assert_allclose(in_graph_mode[1][name], value, err_msg=name, **tolerance)
    assert losses[-1] != losses[0]


def test_evaluation_in_between_is_that_of_the_plain_network(in_graph_mode, reference):
    """Without taps, with the weights of three steps from the checkpoint."""
    data, _, _, folder = reference
    plain = small_net(seed=9)
    checkpoint.load_weights(folder / "3.ckpt", plain)
    logits = plain.set_train(False)(data[0][0]).asnumpy()
    np.testing.assert_allclose(in_graph_mode[2], logits, rtol=1e-3, atol=1e-4)


# Mixed precision needs a class whose code it can rewrite, for O1.
class Small(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(2, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()
        self.flatten, self.dense = nn.Flatten(), nn.Dense(16, 4)

    def construct(self, x):
        x = self.relu(self.norm(self.conv(x)))
        return self.dense(self.flatten(x))


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_mixed_precision(level, reference):
    """float16 with a loss scale: the loss falls; parameters are float32, factors and bounded step near float32's."""
    images, labels = reference[0][0]
    found = []
    for chosen, scale in (("O0", 1.0), (level, 1024.0)):
        ms.set_seed(3)
        step = training_step(mixed_precision(Small(), chosen), loss_scale=scale)
        before = values(step.optimizer)
        losses = run(step, [(images, labels)])
        assert list(step.preconditioner.layers) == ["conv", "dense"]
        both = [factors(step.preconditioner, name) for name in step.preconditioner.names]
        moments = values(step.optimizer)
        names = [f"{name}.weight" for name in step.preconditioner.names]
        steps = [moments[f"moments.{name}"] - 0.01 * before[name] for name in names]
        norms = [fisher_norm(taken, *pair, DAMPING[0], 16) for taken, pair in zip(steps, both)]
        np.testing.assert_allclose(np.linalg.norm(norms), 0.4, rtol=1e-3)  # the bound
        found.append([np.array(losses), *sum(both, ()), *steps])
    assert all(p.dtype == ms.float32 for p in step.get_parameters() if p.ndim > 1)
    losses += run(step, [(images, labels)] * 4)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert sum(np.array_equal(*pair) for pair in zip(*found)) < 2  # only the first factor_a, of float32 images
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=0.05, atol=0.01 * np.abs(theirs).max())


@pytest.mark.parametrize("share, count", [(1.0, 8), (0.375, 3)])
@pytest.mark.parametrize("images_size, labels_size, loss_scale", [(1, 1e-6, 2.0**14), (1000, 100, 64.0)])
def test_squares_beyond_half_precision(images_size, labels_size, loss_scale, share, count, mode, rng):
    """Squares that float16 takes for zero or for infinity: the factors are those of float32."""
    images, labels = images_size * rng.normal(size=(8, 6)), labels_size * rng.normal(size=(8, 4))
    net = mixed_precision(nn.SequentialCell(nn.Dense(6, 4)), "O3")
    step = step_of(net, KnownGradient(), loss_scale=loss_scale, damping=[images_size**4], factor_share=share)
    step(tensor(images), tensor(labels))
    for factor, rows in zip(factors(step.preconditioner, "0"), (images, labels), strict=True):
        expected = gram(rows[:count, None])
        np.testing.assert_allclose(factor, expected, rtol=0.02, atol=0.01 * expected.max())


# -- Resuming, wrong optimizers --------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(1, len(FACTOR_STEPS)))
def test_resumed_at_any_step(k, reference):
    """After a factor step, before one, between two: the same losses and the same state, bit by bit."""
    data, losses, state, folder = reference
    resumed = training_step(small_net(seed=8))
    missing, unused = ms.load_param_into_net(resumed, ms.load_checkpoint(str(folder / f"{k}.ckpt")))
    assert missing == unused == []
    assert run(resumed, data[k:]) == losses[k:]
    require_equal(values(resumed), state)


@pytest.mark.parametrize("params, scale, says", [
    (lambda thor: [{"params": thor.weights[1:]}, {"params": thor.weights[:1]}], 1.0, "must be over"),
    (lambda thor: thor.weights[:-1], 1.0, "must be over preconditioner.weights, in their order"),
    (lambda thor: thor.weights, 128.0, "its loss_scale must be 1, not 128.0"),
])  # fmt: skip
def test_an_optimizer_that_does_not_fit(params, scale, says):
    """It would give a layer the gradient of another, as they go by their place, or divide every step twice."""
    net = small_net()
    thor = Preconditioner(net, DAMPING, FACTOR_STEPS, loss_scale=scale)
    with pytest.raises(ThorError, match=f"^optimizer: {says}"):
        ThorStep(net, cross_entropy(), nn.Momentum(params(thor), 0.1, 0.9, loss_scale=scale), thor)


@pytest.mark.slow  # half a minute of compiling
def test_graph_mode_takes_as_many_layers_as_resnet_50_has():
    """Both steps compile, with every option: graph mode nests what follows a loop, to a depth of 1,000."""
    net = create_resnet("resnet50")
    step = step_of(net, cross_entropy(), lr=0.1, clip_fisher_norm=1.0, loss_scale=2.0, block_size=128)
    gradients = [tensor(np.full(weight.shape, 2e-3)) for weight in step.preconditioner.weights]
    with in_mode(ms.GRAPH_MODE):
        step.apply_gradients(tensor(1.0), *gradients)
    # The inverses are still the identity: the norm is that of the gradients of all layers.
    scale = 1 / (1e-3 * sum(layer.layer.weight.size for layer in step.preconditioner.layers.values()) ** 0.5)
    assert scale < 1
    moments = {p.name: p.asnumpy() for p in step.optimizer.moments}
    np.testing.assert_allclose(moments["moments.layer4.2.conv3.weight"], 1e-3 * scale, rtol=1e-4)
    np.testing.assert_allclose(moments["moments.bn1.gamma"], 1e-3, rtol=1e-4)
    with in_mode(ms.GRAPH_MODE):
        assert np.isfinite(step.plain_step(tensor(np.zeros((2, 3, 32, 32))), tensor(np.arange(2))).asnumpy())
