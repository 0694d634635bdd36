"""What N processes do with THOR, written to FOLDER as RANKS-RANK.npz: two with batch 4 do the same as one with 8.

Then they train the Runs that are in the folder, with a small network: FOLDER/run, and FOLDER/stopped, interrupted once.

python ranks.py FOLDER
"""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Callback, nn
from small import cross_entropy, step_of, tensor

from labkit.system import device
from labkit.training import build, callbacks, loop, runs
from tests.small_runs import small_network

FACTOR_STEPS = [True, False, True, True, False, True]
# Blocks of at most 8: one of 4 rows, two of 5, four of 7, eight of 8, so that the ranks have some to fill up.
OPTIONS = {
    "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "block_size": 8, "loss_scale": 16.0, "factor_ema": 0.5,
    "damping": [0.1, 0.08], "factor_steps": FACTOR_STEPS, "thresholds": (0.02, 0.0), "factor_share": 0.5,
    "clip_fisher_norm": 2.95,
}  # fmt: skip


def train(rank, ranks, **changed):
    """All state of the step after the last step; of each step loss, traces and which layers were inverted."""
    ms.set_seed(1)
    net = nn.SequentialCell(
        nn.Conv2d(3, 4, 3, stride=2, has_bias=True), nn.Tanh(), nn.Flatten(), nn.Dense(4 * 4 * 4, 10)
    )
    step = step_of(net, cross_entropy(), **{**OPTIONS, **changed})
    rng, found = np.random.default_rng(0), {"loss": [], "trace": [], "inverted": []}
    for _ in FACTOR_STEPS:
        images, labels = rng.normal(size=(8, 3, 8, 8)), np.arange(8)
        found["loss"].append(float(step(tensor(images[rank::ranks]), tensor(labels[rank::ranks])).asnumpy()))
        if step.refreshed:
            found["trace"].append(step.refreshed["trace"])
            found["inverted"].append(step.refreshed["inverted"])
    return {**found, **{p.name: p.asnumpy() for p in step.get_parameters()}}


class Interrupt(Callback):
    """Ends the training in step 3, in every process."""

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 3:
            raise KeyboardInterrupt


if __name__ == "__main__":
    device.setup(1)
    here, count = device.ranks()
    folder = Path(sys.argv[1])
    np.savez(folder / f"{count}-{here}.npz", **train(here, count))
    build.create_network = small_network
    loop.train(runs.open_run(folder / "run"), progress=False)
    interrupt, raise_if_stopped = Interrupt(), callbacks.StopCallback.on_train_step_end
    callbacks.StopCallback.on_train_step_end = lambda self, run_context: interrupt.on_train_step_end(run_context)
    try:
        loop.train(runs.open_run(folder / "stopped"), progress=False)
        sys.exit("was not interrupted")
    except KeyboardInterrupt:
        callbacks.StopCallback.on_train_step_end = raise_if_stopped
        loop.train(runs.open_run(folder / "stopped"), progress=False)
