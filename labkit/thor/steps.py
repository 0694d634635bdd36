"""What changes from step to step: THOR's damping, and which steps compute factors."""

import numpy as np

from labkit.schedules import total_steps


def damping(epochs, steps_per_epoch, first=0.03, decay=0.87):
    """THOR's lambda: first * decay^(e / 10), e = (step + 1) / steps_per_epoch (the model zoo); a float64 per step."""
    e = (np.arange(total_steps(epochs, steps_per_epoch)) + 1) / steps_per_epoch
    return first * decay ** (e / 10)


def factor_steps(steps, interval, final_interval=None):
    """Mask (steps,) of the factor steps: the first step and every `interval`-th after it.

    With final_interval the interval grows geometrically, from the first step to the last. Raises ValueError.
    """
    if interval < 1 or (final_interval is not None and final_interval < interval):
        raise ValueError(f"interval must be at least 1, final_interval no less, not {interval} and {final_interval}")
    mask, step, growth = np.zeros(steps, bool), 0, (final_interval or interval) / interval
    while step < steps:
        mask[step] = True
        step += round(interval * growth ** (step / steps))
    return mask
