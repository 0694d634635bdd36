"""A start file for the tests: trains a small network into OUT; one rank may do something bad after a step.

python job.py OUT DATA [RANK STEP raise|die]: raise an error, be killed
python job.py OUT DATA evaluation: rank 0 is killed before it has written the line of an evaluation
"""

import os
import signal
import sys
from pathlib import Path

from mindspore import nn

from labkit.system import device
from labkit.training import build, callbacks, loop, recipes

SETTINGS = ("data.batch_size=20", "data.flip=0.5", "epochs=2", "checkpoint_steps=3", "all_reduce_fusion=[1,3]")


def small_network(recipe):
    """Batch norm as well, whose statistics differ between the ranks; compiles in a second."""
    return nn.SequentialCell(
        nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(4 * 8 * 8, 10)
    )


def act(rank, step, action):
    """Have `action` happen in one rank, after a step."""
    measured = callbacks.HistoryCallback.measured
    def measured_then_act(self, run_context, *arguments):
        measured(self, run_context, *arguments)
        if (device.ranks()[0], run_context.original_args().cur_step_num) == (rank, step):
            if action == "raise":
                raise ArithmeticError("planted")
            os.kill(os.getpid(), signal.SIGKILL)

    callbacks.HistoryCallback.measured = measured_then_act


def die_in_evaluation():
    """Have the process that writes an evaluation, rank 0, be killed before the line is there."""
    append = callbacks.append_line

    def append_or_die(file, record):
        if "accuracy" in record:
            os.kill(os.getpid(), signal.SIGKILL)
        append(file, record)

    callbacks.append_line = append_or_die


def train(out, data):
    """Train the small network into a Run, or resume it."""
    build.create_network = small_network
    asked = recipes.load(recipes.find("cifar10"), "sample", (f"data.folder={data}", *SETTINGS))
    run = loop.start(Path(out), asked, ("lab", "profile", "data.folder"))
    print(f"job of rank {device.ranks()[0]}", flush=True)
    loop.train(run, progress=False)


if __name__ == "__main__":
    out, data, *bad = sys.argv[1:]
    if bad == ["evaluation"]:
        die_in_evaluation()
    elif bad:
        act(int(bad[0]), int(bad[1]), bad[2])
    train(out, data)
