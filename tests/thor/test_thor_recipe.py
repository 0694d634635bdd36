"""Recipes with THOR: their keys, and the schedules of learning rate, damping and factor steps."""

import numpy as np
import pytest
from mindspore import nn

from labkit.schedules import polynomial
from labkit.thor.steps import damping, factor_steps
from labkit.training import build, recipes
from labkit.training.recipes import RecipeError

# The seed and the model zoo: lr_init, decay, end epoch; d0, decay; epochs; a device (the design's table).
SEEDS = [
    (0.045, 6, 70, 0.03, 0.87, 45), (0.04, 5, 58, 0.02, 0.87, 45),
    (0.05803, 4.04839, 53, 0.02714, 0.50036, 45), (0.05672, 4.9687, 50, 0.02345, 0.5467, 40),
]  # fmt: skip


@pytest.fixture
def load(repo_root):
    """Function: the THOR lab's recipe with settings."""
    return lambda *settings, profile="sample": recipes.load(repo_root / "labs/thor/recipe.yaml", profile, settings)


# -- Schedules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lr_init, power, end_epoch, _first, _decay, epochs", SEEDS)
def test_polynomial_is_the_seeds(lr_init, power, end_epoch, _first, _decay, epochs):
    """A step at a time: halved at epoch 39, and again at 40."""
    steps_per_epoch, expected = 12, []
    for i in range(epochs * steps_per_epoch):
        e = (i + 1) / steps_per_epoch
        rate = lr_init * (1 - e / end_epoch) ** power
        if e >= 39:
            rate *= 0.5
        if e >= 40:
            rate *= 0.5
        expected.append(rate)
    rates = polynomial(epochs, steps_per_epoch, lr_init, power, end_epoch, halve_epochs=(39, 40))
    assert rates.dtype == np.float32
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_polynomial_only_falls():
    """From the first step on; a warm-up, which it lacks, cannot be asked for. Past end_epoch the rate is 0."""
    rates = polynomial(4, 10, 0.2, power=2, end_epoch=3)
    np.testing.assert_allclose(rates[:30], 0.2 * (1 - (np.arange(30) + 1) / 30) ** 2, rtol=1e-5, atol=1e-9)
    assert not rates[30:].any()
    with pytest.raises(TypeError, match="warmup_epochs"):
        polynomial(4, 10, 0.2, warmup_epochs=1)


@pytest.mark.parametrize("_lr, _power, _end, first, decay, epochs", SEEDS)
def test_damping_is_the_seeds(_lr, _power, _end, first, decay, epochs):
    found = damping(epochs, 12, first, decay)
    assert found.shape == (epochs * 12,)
    for step in (0, 11, 119, epochs * 12 - 1):
        assert found[step] == pytest.approx(first * decay ** ((step + 1) / 12 / 10))
    assert found[119] == pytest.approx(first * decay)  # after ten epochs


@pytest.mark.parametrize("interval", [1, 3, 10, 25])
def test_factor_steps_at_an_interval(interval):
    np.testing.assert_array_equal(np.flatnonzero(factor_steps(20, interval)), np.arange(0, 20, interval))


@pytest.mark.parametrize("steps, first, final", [(500, 5, 50), (100, 1, 20), (30, 3, 3), (7, 2, 100)])
def test_a_growing_interval(steps, first, final):
    """From the first to nearly the last, never shorter; equal ends are a fixed interval."""
    gaps = np.diff(np.flatnonzero(factor_steps(steps, first, final)))
    assert gaps[0] == first and (np.diff(gaps) >= 0).all() and gaps[-1] <= final
    if steps == 500:
        assert gaps[-1] > 0.7 * final
    if first == final:
        assert set(gaps) == {first}


@pytest.mark.parametrize("interval, final", [(0, None), (-1, None), (5, 4), (5, 0)])
def test_wrong_intervals(interval, final):
    with pytest.raises(ValueError, match=f"interval must be at least 1, .*{interval} and {final}"):
        factor_steps(10, interval, final)


# -- Keys ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile, seed", [("full", SEEDS[0]), ("full-gpu", SEEDS[1])])
def test_full_profiles_are_the_seeds_settings(load, profile, seed):
    full = load(profile=profile)
    optimizer, schedule = full.optimizer, full.schedule
    lr = (schedule.lr_max, schedule.power, schedule.end_epoch)
    assert (*lr, optimizer.damping, optimizer.damping_decay, full.epochs) == seed
    assert (schedule.name, schedule.halve_epochs) == ("polynomial", [39, 40])
    assert (optimizer.name, optimizer.momentum, optimizer.weight_decay) == ("thor", 0.9, 5e-4)
    assert (optimizer.factor_interval, optimizer.final_interval, optimizer.trace_rule) == (834, None, "thor_nt")
    assert (optimizer.block_size, optimizer.factor_ema) == (128, 0.0)
    assert (optimizer.factor_share, optimizer.clip_fisher_norm) == (1.0, None)
    assert (full.network.name, full.network.num_classes, full.data.batch_size) == ("resnet50", 1000, 32)
    assert (full.loss_scale, full.loss.smoothing, full.amp_level) == (128, 0.1, "O2")


@pytest.mark.parametrize("profile", ["sample", "laptop"])
def test_profiles_differ_from_their_baselines_by_optimizer_and_schedule_alone(load, profile):
    """So that a comparison compares optimizers; momentum may train for longer than THOR."""
    thor, baseline = load(profile=profile), load(profile=f"{profile}-momentum")
    differing = {key for key, value in thor if value != getattr(baseline, key)}
    assert differing == {"profile", "optimizer", "schedule", "epochs"} and thor.epochs <= baseline.epochs
    assert (thor.optimizer.name, baseline.optimizer.name) == ("thor", "momentum")
    assert thor.optimizer.weight_decay == baseline.optimizer.weight_decay


def test_the_task_is_the_sample_but_for_its_epochs_and_factors(load):
    task, sample = load(profile="task"), load(profile="sample")
    used = {"factor_share": 0.03125, "factor_ema": 0.0}
    changed = {"profile": "task", "epochs": 2, "optimizer": sample.optimizer.model_copy(update=used)}
    assert task == sample.model_copy(update=changed)
    assert task.optimizer.factor_share * task.data.batch_size == 2


@pytest.mark.parametrize("setting, named", [
    ("optimizer.damping=0", "optimizer.damping: must be greater than 0, not 0"),
    ("optimizer.final_interval=5", "optimizer.final_interval: must be at least 6, the first, not 5"),
    ("optimizer.trace_rule=never", "optimizer.trace_rule: must be 'thor', 'thor_stop' or 'thor_nt', not 'never'"),
    ('optimizer={"trace_rule": "thor_nt", "trace_threshold": 0.1}', "optimizer.trace_threshold: for the rules thor"),
    ("dataset_sink_mode=true", "dataset_sink_mode: must be false"),
    ("schedule.halve_epochs=[]", "schedule.halve_epochs: unknown key"),
    ('schedule={"name": "polynomial", "power": 6}', "schedule.end_epoch: missing"),
])  # fmt: skip
def test_wrong_keys(load, setting, named):
    """One line, with the key by the name that it has in the file."""
    with pytest.raises(RecipeError) as caught:
        load(setting)
    message = str(caught.value)
    assert named in message and len(message.splitlines()) == 1


def test_keys_of_thor_are_not_momentums(load):
    with pytest.raises(RecipeError, match=r"optimizer\.damping: unknown key$"):
        load("optimizer.damping=1", profile="sample-momentum")


@pytest.mark.parametrize("settings, thresholds", [
    ((), (0.01, 0.0)), (("trace_threshold=0.05",), (0.05, 0.0)), (("trace_rule=thor_nt",), (0.0, 0.0)),
    (("trace_rule=thor_stop", "trace_threshold=0.2"), (0.2, 0.001)),
])  # fmt: skip
def test_what_thor_gets_from_a_recipe(load, settings, thresholds):
    more = ("factor_ema=0.7", "factor_share=0.5", "clip_fisher_norm=0.3", "block_size=100", *settings)
    thor = build.create_thor(load(*(f"optimizer.{one}" for one in more)), nn.SequentialCell(nn.Dense(200, 3)), 22)
    assert (thor.thresholds, thor.factor_ema, thor.clip_fisher_norm) == (thresholds, 0.7, 0.3)
    layer = thor.layers["0"]
    assert (layer.tap_g.share, layer.shape_a) == (0.5, (2, 100))
    np.testing.assert_array_equal(np.flatnonzero(thor.factor_steps), np.arange(0, 66, 6))
    assert thor.damping == pytest.approx(damping(3, 22, 0.05, 0.5))


@pytest.mark.parametrize("epochs, steps", [(0.375, 131), (0.29, 101), (1.25, 438)])
def test_a_fraction_of_an_epoch(load, epochs, steps):
    """351 steps an epoch: as many values as the schedule has."""
    chosen = load(f"epochs={epochs}", "schedule.warmup_epochs=0.1")
    lr = build.learning_rates(chosen, 351)
    model = build.create_model(chosen, lr, nn.SequentialCell(nn.Flatten(), nn.Dense(200, 10)))
    thor = model.train_network.preconditioner
    assert len(lr) == len(thor.factor_steps) == len(thor.damping) == steps
