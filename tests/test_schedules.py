"""labkit.schedules: against the seed's loop and closed forms written here."""

import math

import numpy as np
import pytest

from labkit.schedules import SCHEDULES, linear, quadratic, total_steps

NAMES = sorted(SCHEDULES.keys() - {"polynomial"})  # a curve of its own, which tests/thor has
# epochs, steps_per_epoch, lr_init, lr_max, warmup_epochs
SETTINGS = [
    (90, 1562, 0.01, 0.1, 5),
    (10, 7, 0.0, 0.4, 1),
    (3, 5, 0.02, 0.02, 2),
    (4, 10, 0.1, 0.05, 1),  # a warm-up that falls
    (2, 9, 0.01, 0.1, 0),
    (1, 1, 0.01, 0.1, 0),
]


def seed_get_lr(total_epochs, steps_per_epoch, lr_init, lr_max, warmup_epochs):
    """`get_lr` of the CIFAR-10 seed, a step at a time, from its formula."""
    total, warmup = steps_per_epoch * total_epochs, steps_per_epoch * warmup_epochs
    rates = []
    for i in range(int(total)):
        if i < warmup:
            rates.append(lr_init + (lr_max - lr_init) / warmup * i)
        else:
            rates.append(lr_max * (1 - (i - warmup) / (total - warmup)) ** 2)
    return np.array(rates, np.float32)


def falling(name, t, lr_max, lr_end):
    """Rate at the part t of the way from the warm-up's end to the training's."""
    share = {"quadratic": (1 - t) * (1 - t), "linear": 1 - t, "cosine": math.cos(math.pi * t / 2) ** 2}[name]
    return lr_end + (lr_max - lr_end) * share


@pytest.mark.parametrize("setting", SETTINGS)
def test_quadratic_is_the_seeds_get_lr(setting):
    epochs, steps, lr_init, lr_max, warmup = setting
    rates = quadratic(epochs, steps, lr_init=lr_init, lr_max=lr_max, warmup_epochs=warmup)
    np.testing.assert_allclose(rates, seed_get_lr(*setting), rtol=1e-6, atol=1e-9)


def test_defaults_are_the_seeds():
    np.testing.assert_allclose(quadratic(90, 10), seed_get_lr(90, 10, 0.01, 0.1, 5), rtol=1e-6, atol=1e-9)
    for name in NAMES:
        np.testing.assert_array_equal(SCHEDULES[name](9, 10)[:50], quadratic(9, 10)[:50])


@pytest.mark.parametrize("lr_end", [0.0, 0.003])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_every_step_against_the_closed_form(name, setting, lr_end):
    epochs, steps, lr_init, lr_max, warmup_epochs = setting
    total, warmup = epochs * steps, warmup_epochs * steps
    rates = SCHEDULES[name](epochs, steps, lr_init, lr_max, lr_end, warmup_epochs)
    assert rates.dtype == np.float32
    rising = [lr_init + (lr_max - lr_init) * i / warmup for i in range(warmup)]
    after = [falling(name, i / (total - warmup), lr_max, lr_end) for i in range(total - warmup)]
    np.testing.assert_allclose(rates, np.array(rising + after), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("warmup_epochs, peak", [(0.5, 50), (1.25, 125), (0.29, 29), (0.57, 57)])
@pytest.mark.parametrize("name", NAMES)
def test_part_of_an_epoch_as_warm_up(name, warmup_epochs, peak):
    """0.29 * 100 is 28.999999999999996 in floating point; it is 29 steps all the same."""
    rates = SCHEDULES[name](3, 100, lr_init=0.01, lr_max=0.3, warmup_epochs=warmup_epochs)
    assert (len(rates), rates.argmax()) == (300, peak)
    assert rates[peak] == np.float32(0.3)


@pytest.mark.parametrize(
    "epochs, steps, warmup",
    [(0, 10, 0), (5, 0, 0), (-1, 10, 0), (0.5, 1, 0), (5, 10, 5), (5, 10, 6), (5, 10, -1)],
)
@pytest.mark.parametrize("name", NAMES)
def test_lengths_that_cannot_be(name, epochs, steps, warmup):
    with pytest.raises(ValueError, match=r"at least one step|must end before"):
        SCHEDULES[name](epochs, steps, warmup_epochs=warmup)


@pytest.mark.parametrize("epochs, steps", [(0.29, 29), (0.57, 57), (2.3, 230), (1.999, 199)])
def test_a_fraction_of_an_epoch_is_whole_steps(epochs, steps):
    """Of 100; in binary, 0.29 * 100 is a little less than 29."""
    assert total_steps(epochs, 100) == steps == len(linear(epochs, 100, warmup_epochs=0))
