"""Schedules: one value per training step, as an array that can be plotted and checked.

Learning rates are float32. All warm up linearly from `lr_init`, reach `lr_max` after `warmup_epochs` and then fall
towards `lr_end`.
"""

import numpy as np


def _warmup_then(decay, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs):
    """Linear warm-up, then lr_end + (lr_max - lr_end) * decay(t) with t from 0 (included) to 1 (excluded)."""
    total = int(epochs * steps_per_epoch)
    warmup = round(warmup_epochs * steps_per_epoch)
    if total < 1:
        raise ValueError(f"a schedule needs at least one step, not {epochs} epochs of {steps_per_epoch} steps")
    if not 0 <= warmup < total:
        raise ValueError(f"warm-up of {warmup_epochs} epochs must end before training does, after {epochs}")
    step = np.arange(total, dtype=np.float64)
    rising = lr_init + (lr_max - lr_init) * step / max(warmup, 1)
    t = (step - warmup) / (total - warmup)
    falling = lr_end + (lr_max - lr_end) * decay(np.clip(t, 0.0, 1.0))
    return np.where(step < warmup, rising, falling).astype(np.float32)


def quadratic(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then (1 - t)^2: `get_lr` of the original lab, at `global_step` 0."""
    return _warmup_then(lambda t: (1 - t) ** 2, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs)


def cosine(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then (1 + cos(pi t)) / 2 (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return _warmup_then(
        lambda t: (1 + np.cos(np.pi * t)) / 2, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs
    )


def linear(epochs, steps_per_epoch, lr_init=0.01, lr_max=0.1, lr_end=0.0, warmup_epochs=5):
    """Warm-up, then 1 - t."""
    return _warmup_then(lambda t: 1 - t, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs)


def polynomial(epochs, steps_per_epoch, lr_init=0.045, lr_max=0.045, lr_end=0.0, warmup_epochs=0, power=6, end_epoch=70,
               halve_epochs=()):  # fmt: skip
    """lr_max (1 - e / end_epoch)^power with e = (step + 1) / steps_per_epoch, halved at each of `halve_epochs`.

    `get_model_lr` of the original THOR tutorial, which has no warm-up. Past end_epoch the rate is lr_end.
    """
    warmed = _warmup_then(np.ones_like, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs)
    e = (np.arange(len(warmed)) + 1) / steps_per_epoch
    falling = lr_end + (warmed - lr_end) * np.clip(1 - e / end_epoch, 0, 1) ** power
    rates = np.where(e <= warmup_epochs, warmed, falling)
    for epoch in halve_epochs:
        rates = np.where(e >= epoch, rates / 2, rates)
    return rates.astype(np.float32)


SCHEDULES = {"quadratic": quadratic, "cosine": cosine, "linear": linear, "polynomial": polynomial}


def damping(epochs, steps_per_epoch, first=0.03, decay=0.87):
    """THOR's lambda: first * decay^(e / 10), e = (step + 1) / steps_per_epoch (the model zoo); a float64 per step."""
    e = (np.arange(int(epochs * steps_per_epoch)) + 1) / steps_per_epoch
    return first * decay ** (e / 10)


def update_mask(steps, interval, final_interval=None):
    """Which steps compute THOR's factors: a mask that sets the first one and every `interval`-th after it.

    With final_interval the interval grows geometrically, from the first step to the last. Raises ValueError.
    """
    if interval < 1 or (final_interval is not None and final_interval < interval):
        raise ValueError(f"interval must be at least 1, final_interval no less, not {interval} and {final_interval}")
    mask, step, growth = np.zeros(steps, bool), 0, (final_interval or interval) / interval
    while step < steps:
        mask[step] = True
        step += round(interval * growth ** (step / steps))
    return mask
