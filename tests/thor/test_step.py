"""ThorStep: whole trajectories, against numpy, in both modes, in mixed precision, resumed and with evaluation between."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Accuracy, Model
from small import KnownGradient, cross_entropy, gram, preconditioned, step_of, tensor, values

from labkit.losses import CrossEntropySmooth
from labkit.networks import mixed_precision
from labkit.optimizers import momentum
from labkit.runtime import in_mode
from labkit.thor import Thor, ThorError, ThorStep

UPDATE = [True, False, True, False, False, True]
DAMPING = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]


def small_net(seed=3):
    ms.set_seed(seed)
    return nn.SequentialCell(
        nn.Conv2d(2, 4, 3, stride=2, has_bias=True), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(16, 4)
    )


def batches(rng, count=len(UPDATE)):
    return [(tensor(rng.normal(size=(8, 2, 4, 4))), tensor(rng.permutation(np.arange(8) % 4))) for _ in range(count)]


def training_step(net, **options):
    chosen = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "update": UPDATE, "damping": DAMPING, "block_size": 16}
    return step_of(net.set_train(), CrossEntropySmooth(4, 0.1), **{**chosen, **options})


def run(step, data):
    return [float(step(images, labels).asnumpy()) for images, labels in data]


def require_equal(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, err_msg=name, **(tolerance or {"rtol": 0}))


# -- Against numpy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [None, 2])
@pytest.mark.parametrize("loss_scale", [1.0, 256.0])
def test_steps_are_those_of_numpy(loss_scale, block_size, rng):
    """The seed's order: unscale, precondition, weight decay, momentum; inverses of the last update, damping of then."""
    lr, share, decay = 0.05, 0.9, 0.1
    images, labels = rng.normal(size=(6, 4, 5)), rng.normal(size=(6, 4, 3))
    net = nn.SequentialCell(nn.Dense(5, 3))
    step = step_of(
        net, KnownGradient(), lr=lr, momentum=share, weight_decay=decay, update=UPDATE, damping=DAMPING,
        block_size=block_size, loss_scale=loss_scale,
    )  # fmt: skip
    weight, bias = (p.asnumpy().astype(np.float64) for p in net.get_parameters() if not p.name.startswith("thor."))
    moments = [0.0, 0.0]
    for number, (x, y) in enumerate(zip(images, labels)):
        loss = step(tensor(x), tensor(y)).asnumpy()
        np.testing.assert_allclose(loss, ((x @ weight.T + bias) * y).sum() / 4, rtol=1e-4, atol=1e-4)
        if UPDATE[number]:
            in_use = gram(x[:, None]), gram(y[:, None]), DAMPING[number], block_size
        gradients = preconditioned(y.T @ x / 4, *in_use) + decay * weight, y.mean(axis=0) + decay * bias
        moments = [share * moment + gradient for moment, gradient in zip(moments, gradients)]
        weight, bias = weight - lr * moments[0], bias - lr * moments[1]
    found = values(net)
    np.testing.assert_allclose(found["0.weight"], weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["0.bias"], bias, rtol=1e-4, atol=1e-5)


def test_updates_are_told(rng):
    """Steps with statistics, what was found in them, and no statistics in others."""
    step, told = training_step(small_net()), []
    for images, labels in batches(rng):
        step(images, labels)
        told.append(step.last_update)
        asked = {layer.statistics for layer in step.thor.layers.values()}
        assert asked == {step.last_update is not None}
    assert [found is not None for found in told] == UPDATE
    assert told[0]["inverted"].all() and told[0]["trace"].shape == (2,) and (told[0]["trace"] > 0).all()


def test_inverses_that_are_kept(rng):
    """Under thresholds that nothing exceeds, all steps use the inverses of the first."""
    data = batches(rng)
    always_first, kept = (training_step(small_net(), **options) for options in (
        {"update": [True, False]}, {"thresholds": (1e9, 0.0)},
    ))  # fmt: skip
    assert run(kept, data) == run(always_first, data)
    assert not kept.last_update["inverted"].any()


# -- Modes and precision --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_graph_mode():
    """A training in graph mode: losses and all state, with an evaluation of the same network in the middle."""
    rng = np.random.default_rng(0)
    with in_mode(ms.GRAPH_MODE):
        data, net = batches(rng), small_net()
        step = training_step(net)
        losses = run(step, data[:3])
        logits = net.set_train(False)(data[0][0]).asnumpy()
        net.set_train()
        return losses + run(step, data[3:]), values(step), logits


def test_modes_agree(in_graph_mode, rng):
    """PyNative without the evaluation, graph mode with it: losses, factors, inverses, weights, moments."""
    data, step = batches(rng), training_step(small_net())
    losses = run(step, data)
    np.testing.assert_allclose(losses, in_graph_mode[0], rtol=1e-5)
    ours = values(step)
    assert ours.keys() == in_graph_mode[1].keys()
    for name, value in in_graph_mode[1].items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-3, atol=1e-4 * np.abs(value).max(), err_msg=name)
    assert losses[-1] != losses[0]


def test_evaluation_in_between_is_that_of_the_plain_network(in_graph_mode, rng):
    """With the weights of three steps, loaded into a network without taps."""
    step = training_step(small_net())
    data = batches(rng)
    run(step, data[:3])
    plain = small_net(seed=9)
    ms.load_param_into_net(plain, {p.name: p for p in step.step.net.get_parameters() if "thor" not in p.name})
    logits = plain.set_train(False)(data[0][0]).asnumpy()
    np.testing.assert_allclose(in_graph_mode[2], logits, rtol=1e-3, atol=1e-4)


def test_evaluation_changes_no_trajectory(rng):
    """Neither the weights, nor batch norm's statistics, nor which step comes next."""
    data = batches(rng)
    step, again = training_step(small_net()), training_step(small_net())
    losses, with_evaluation = run(step, data), []
    net = again.step.net
    for images, labels in data:
        with_evaluation += run(again, [(images, labels)])
        net.set_train(False)(images)
        net.set_train()
    assert with_evaluation == losses
    require_equal(values(again), values(step))


@pytest.mark.parametrize("level, mode", [("O2", "pynative"), ("O3", "pynative"), ("O2", "graph")], indirect=["mode"])
def test_mixed_precision(level, mode, rng):
    """float16 with a loss scale, near float32: factors stay float32 and finite, the loss falls."""
    data = batches(rng, 1) * len(UPDATE)
    full = training_step(small_net()) if mode == "pynative" else None
    step = training_step(mixed_precision(small_net(), level), loss_scale=1024.0)
    losses = run(step, data)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {p.dtype for p in step.get_parameters() if p.ndim > 1} == {ms.float32}
    assert list(step.thor.layers) == ["0", "4"] or len(step.thor.layers) == 2
    if full:
        np.testing.assert_allclose(losses[0], run(full, data)[0], rtol=0.01)
        first = [values(s.thor)["thor.0.factor_a"] for s in (step, full) if "thor.0.factor_a" in values(s.thor)]
        for factor in first[1:]:
            np.testing.assert_allclose(factor, first[0], rtol=0.05, atol=0.05 * np.abs(factor).max())


def test_small_gradients_in_half_precision(rng):
    """Derivatives near 1e-6, whose squares float16 has not: with a loss scale factor_g is that of float32."""
    images, labels = rng.normal(size=(8, 6)), 1e-6 * rng.normal(size=(8, 4))
    net = mixed_precision(nn.SequentialCell(nn.Dense(6, 4)), "O3")
    step = step_of(net, KnownGradient(), loss_scale=2.0**14, damping=[1.0])
    step(tensor(images), tensor(labels))
    (factor,) = (p.asnumpy()[0] for p in step.thor.factors_g)
    expected = gram(labels[:, None])
    np.testing.assert_allclose(factor, expected, rtol=0.02, atol=0.01 * expected.max())


# -- Resuming, Model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_resumed_at_any_step(k, tmp_path, rng):
    """Between updates, before one and after one: the same losses and the same state, bit by bit."""
    data = batches(rng)
    whole = training_step(small_net())
    losses = run(whole, data)
    begun = training_step(small_net())
    run(begun, data[:k])
    ms.save_checkpoint(begun, str(tmp_path / "step.ckpt"))
    resumed = training_step(small_net(seed=8))
    missing, unused = ms.load_param_into_net(resumed, ms.load_checkpoint(str(tmp_path / "step.ckpt")))
    assert missing == unused == []
    assert run(resumed, data[k:]) == losses[k:]
    require_equal(values(resumed), values(whole))


def test_under_mindsporess_model(rng):
    """Model.train and Model.eval with a ThorStep do what calls of the step do."""
    data = batches(rng)
    step = training_step(small_net())
    losses = run(step, data)
    seen, net = [], small_net()

    class Losses(ms.train.Callback):
        def on_train_step_end(self, run_context):
            seen.append(float(run_context.original_args().net_outputs.asnumpy()))

    own = training_step(net)
    source = [(images.asnumpy(), labels.asnumpy()) for images, labels in data]
    dataset = ms.dataset.GeneratorDataset(source, ["image", "label"], shuffle=False)
    evaluation = nn.WithEvalCell(net, CrossEntropySmooth(4, 0.1))
    model = Model(own, metrics={"accuracy": Accuracy()}, eval_network=evaluation, eval_indexes=[0, 1, 2])
    model.train(1, dataset, [Losses()], dataset_sink_mode=False)
    np.testing.assert_allclose(seen, losses, rtol=1e-6)
    assert 0 <= model.eval(dataset, dataset_sink_mode=False)["accuracy"] <= 1


def test_labkits_momentum_over_the_plain_network(rng):
    """As `training.create_model` puts them together: parameters in two groups, vectors without weight decay."""
    net = small_net()
    optimizer = momentum(net, np.full(6, 0.05, np.float32), weight_decay=0.01)
    step = ThorStep(net.set_train(), CrossEntropySmooth(4), optimizer, Thor(net, DAMPING, UPDATE))
    assert np.isfinite(run(step, batches(rng))).all()


@pytest.mark.parametrize("params", [
    lambda thor: [{"params": thor.weights[1:]}, {"params": thor.weights[:1]}], lambda thor: thor.weights[:-1],
    lambda thor: [*thor.weights, *thor.factors_a],
])  # fmt: skip
def test_an_optimizer_over_other_parameters(params):
    """Gradients go to it by their place: another order would give a layer the gradient of another."""
    net = small_net()
    thor = Thor(net, DAMPING, UPDATE)
    with pytest.raises(ThorError, match="^optimizer: must be over thor.weights, in their order"):
        ThorStep(net, cross_entropy(), nn.Momentum(params(thor), 0.1, 0.9), thor)


def test_loss_scales_that_differ():
    net = small_net()
    thor = Thor(net, DAMPING, UPDATE, loss_scale=128.0)
    with pytest.raises(ThorError, match=r"^loss_scale: must be that of thor, 128\.0, not 1\.0$"):
        ThorStep(net, cross_entropy(), nn.Momentum(thor.weights, 0.1, 0.9), thor)
