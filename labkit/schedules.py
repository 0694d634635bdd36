"""Schedules: one value per training step, as an array that can be plotted and checked.

Learning rates are float32. All but `polynomial` warm up linearly from `lr_init`, reach `lr_max` after `warmup_epochs`
and then fall towards `lr_end`.
"""

import numpy as np


def _warmup_then(decay, epochs, steps_per_epoch, rates, warmup_epochs):
    """Linear warm-up, then lr_end + (lr_max - lr_end) * decay(t) with t from 0 (included) to 1 (excluded)."""
    lr_init, lr_max, lr_end = rates
    total, warmup = _checked_steps(epochs, steps_per_epoch, warmup_epochs)
    step = np.arange(total, dtype=np.float64)
    rising = lr_init + (lr_max - lr_init) * step / max(warmup, 1)
    t = (step - warmup) / (total - warmup)
    falling = lr_end + (lr_max - lr_end) * decay(np.clip(t, 0.0, 1.0))
    return np.where(step < warmup, rising, falling).astype(np.float32)


def total_steps(epochs, steps_per_epoch) -> int:
    """Whole steps in a number of epochs, which may be a fraction."""
    return int(round(epochs * steps_per_epoch, 6))  # rounded first: 0.29 * 100 is a little less than 29


def _checked_steps(epochs, steps_per_epoch, warmup_epochs=0):
    if (total := total_steps(epochs, steps_per_epoch)) < 1:
        raise ValueError(f"a schedule needs at least one step, not {epochs} epochs of {steps_per_epoch} steps")
    if not 0 <= (warmup := round(warmup_epochs * steps_per_epoch)) < total:
        raise ValueError(f"warm-up of {warmup_epochs} epochs must end before training does, after {epochs}")
    return total, warmup


def quadratic(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then (1 - t)^2: `get_lr` of the original lab, at `global_step` 0."""
    return _warmup_then(lambda t: (1 - t) ** 2, epochs, steps_per_epoch, (lr_init, lr_max, lr_end), warmup_epochs)


def cosine(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then (1 + cos(pi t)) / 2 (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    rates = lr_init, lr_max, lr_end
    return _warmup_then(lambda t: (1 + np.cos(np.pi * t)) / 2, epochs, steps_per_epoch, rates, warmup_epochs)


def linear(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then 1 - t."""
    return _warmup_then(lambda t: 1 - t, epochs, steps_per_epoch, (lr_init, lr_max, lr_end), warmup_epochs)


def polynomial(epochs, steps_per_epoch, lr_max=0.045, power=6, end_epoch=70, halve_epochs=()):
    """lr_max (1 - e / end_epoch)^power with e = (step + 1) / steps_per_epoch, halved at each of `halve_epochs`.

    `get_model_lr` of the original THOR tutorial, which has no warm-up. Past end_epoch the rate is 0.
    """
    e = (np.arange(_checked_steps(epochs, steps_per_epoch)[0]) + 1) / steps_per_epoch
    rates = lr_max * np.clip(1 - e / end_epoch, 0, 1) ** power
    for epoch in halve_epochs:
        rates = np.where(e >= epoch, rates / 2, rates)
    return rates.astype(np.float32)


SCHEDULES = {"quadratic": quadratic, "cosine": cosine, "linear": linear, "polynomial": polynomial}
