"""Callbacks: what happens after a step and after an epoch. MindSpore calls them in the order of the list.

A training has five at most, each with one duty. They need this order: record a step, show it, save it, evaluate, stop.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
from mindspore.train import Callback
from tqdm import tqdm

from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError
from labkit.training.checkpoint import save_checkpoint
from labkit.training.evaluation import accuracies, predict


class DivergedError(LabkitError):
    """A loss that is not finite; earlier checkpoints stay."""


def loss_of(run_context) -> float:
    """Loss of the step just done. Reading it waits for the device, so that times taken afterwards are right."""
    outputs = run_context.original_args().net_outputs
    loss = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    return float(loss.asnumpy().mean())


def factor_step_of(run_context) -> dict | None:
    """What `Preconditioner.refresh` returned in the step just done; None in a step without factors."""
    return getattr(run_context.original_args().get("train_network"), "refreshed", None)


class StepTimer(Callback):
    """Times steps: calls `measured` with the steps (in sink mode an epoch's, else 1) and seconds since the last call.

    Time of other callbacks is not counted: between an epoch's end and the next one's begin, and before a `resume`.
    `self.compiled` is true for the first step with a graph, which compiles it.
    """

    compiled = False

    def on_train_begin(self, run_context):
        self.last_step, self.graphs = run_context.original_args().cur_step_num, set()

    def on_train_epoch_begin(self, run_context):
        self.resume()

    def on_train_step_end(self, run_context):
        loss_of(run_context)
        now, step = time.perf_counter(), run_context.original_args().cur_step_num
        steps, seconds = step - self.last_step, now - self.last_time
        graph = bool(factor_step_of(run_context))  # such a step has a graph of its own
        self.compiled = graph not in self.graphs
        self.graphs.add(graph)
        self.last_step, self.last_time = step, now
        self.measured(run_context, steps, seconds)

    def resume(self):
        """Count time from now on: what other callbacks did since the step's end is not training."""
        self.last_time = time.perf_counter()

    def measured(self, run_context, steps, seconds):
        """What a timer does with `steps` steps that took `seconds` together."""


class PerformanceCallback(StepTimer):
    """Prints an epoch's time, steps, ms per step and samples per second of the cluster, as the original lab does.

    batch_size: samples per step on one device; device_num: devices of the cluster; report: called with each line.
    Steps that compile a graph are reported separately and left out of ms and samples; in sink mode they cannot be.
    """

    def __init__(self, batch_size, device_num=1, report=print):
        super().__init__()
        self.batch_size, self.device_num, self.report = batch_size, device_num, report

    def on_train_epoch_begin(self, run_context):
        super().on_train_epoch_begin(run_context)
        self.times = []  # (steps, seconds, compiled)

    def measured(self, run_context, steps, seconds):
        self.times.append((steps, seconds, self.compiled))

    def on_train_epoch_end(self, run_context):
        steps, seconds, compiled = map(np.array, zip(*self.times))
        warm = compiled if compiled.all() else ~compiled
        step_seconds, note = seconds[warm].sum() / steps[warm].sum(), ""
        if compiled.any():
            count = compiled.sum()
            note = f", compiled in {count} step{'s' if count > 1 else ''}: {seconds[compiled].sum():.1f} s"
        if compiled.any() and steps.max() > 1:
            note = ", compile time included"  # sink mode times no single step
        self.report(
            f"epoch {run_context.original_args().cur_epoch_num} cost time = {seconds.sum():.3f} s, "
            f"train step num: {steps.sum()}, one step time: {1000 * step_seconds:.3f} ms, "
            f"train samples per second of cluster: {self.device_num * self.batch_size / step_seconds:.1f}{note}"
        )


class HistoryCallback(StepTimer):
    """Appends a JSON line per step (step, epoch, loss, lr, seconds); in sink mode per epoch, with seconds per step.

    A step that compiled a graph also has `"compiled": true`, and one of THOR's factor steps a second line: factor_step,
    trace and inverted, by layer. lr: a value per step. start: the step of the checkpoint that a training resumes from;
    MindSpore would count from 0. With several processes, each needs this callback for the `mean` of the losses; only
    one has the file. Raises DivergedError for a loss that is not finite.
    """

    def __init__(self, file, lr, mean=float, start=0):
        super().__init__()
        self.file, self.lr, self.mean, self.start = file, lr, mean, start

    def on_train_begin(self, run_context):
        run_context.original_args().cur_step_num = self.start
        super().on_train_begin(run_context)

    def measured(self, run_context, steps, seconds):
        state, refreshed = run_context.original_args(), factor_step_of(run_context)
        loss, lr = self.mean(loss_of(run_context)), float(f"{self.lr[state.cur_step_num - 1]:.7g}")
        if not math.isfinite(loss):
            raise DivergedError(
                f"loss is {loss} at step {state.cur_step_num} (epoch {state.cur_epoch_num}, learning rate {lr:g}); "
                "try a lower schedule.lr_max or a longer schedule.warmup_epochs"
            )
        if not self.file:
            return
        record = {"step": state.cur_step_num, "epoch": state.cur_epoch_num, "loss": loss, "lr": lr}
        compiled = {"compiled": True} if self.compiled else {}
        append_line(self.file, {**record, "seconds": round(seconds / steps, 6), **compiled})
        if refreshed:
            names = state.train_network.preconditioner.names
            traces = [float(f"{value:.6g}") if math.isfinite(value) else None for value in refreshed["trace"]]
            inverted = [name for name, done in zip(names, refreshed["inverted"]) if done]
            line = {"factor_step": record["step"], "trace": dict(zip(names, traces)), "inverted": inverted}
            append_line(self.file, line)


def append_line(file: Path, record: dict) -> None:
    """Append a record to a JSON-lines file."""
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


def ends_epoch(run_context) -> bool:
    """Whether the step just done is the last of its epoch, or of the training."""
    state = run_context.original_args()
    return state.cur_step_num % state.batch_num == 0 or run_context.get_stop_requested()


def is_due(run_context, every_steps) -> bool:
    """Whether a step is one of `every_steps`, unless it ends an epoch: after an epoch everything is due."""
    step = run_context.original_args().cur_step_num
    return bool(every_steps) and step % every_steps == 0 and not ends_epoch(run_context)


def evaluation_epoch(step: int, steps_per_epoch: int, total_steps: int, every_steps: int | None) -> float | None:
    """The epoch whose evaluation follows a step, with a fraction within an epoch; None if none is due after it."""
    if step % steps_per_epoch == 0 or step >= total_steps:
        return -(-step // steps_per_epoch)
    return round(step / steps_per_epoch, 4) if every_steps and step % every_steps == 0 else None


class CheckpointCallback(Callback):
    """Checkpoints a Run after every epoch, every `every_steps` steps and at a stop; always before an evaluation."""

    def __init__(self, run, every_steps=None):
        super().__init__()
        self.run, self.every_steps = run, every_steps

    def on_train_step_end(self, run_context):
        if is_due(run_context, self.every_steps) or (interrupts.stop_requested() and not ends_epoch(run_context)):
            self.on_train_epoch_end(run_context)

    def on_train_epoch_end(self, run_context):
        state = run_context.original_args()
        save_checkpoint(self.run, state.train_network, state.cur_step_num)


class EvaluateCallback(Callback):
    """Evaluates after every epoch, and every `every_steps` steps; appends (epoch, accuracies) to the history."""

    def __init__(self, network, dataset, file, report=print, every_steps=None):
        super().__init__()
        self.network, self.dataset, self.file = network, dataset, file
        self.report, self.every_steps, self.accuracy = report, every_steps, None  # accuracy: the latest, top 1

    def on_train_step_end(self, run_context):
        if is_due(run_context, self.every_steps):
            state = run_context.original_args()
            self.evaluate(evaluation_epoch(state.cur_step_num, state.batch_num, sys.maxsize, self.every_steps))

    def on_train_epoch_end(self, run_context):
        self.evaluate(run_context.original_args().cur_epoch_num)

    def evaluate(self, epoch: float):
        """Evaluate the weights after an epoch. Ctrl-C and SIGTERM take effect before it and after each of its steps."""
        interrupts.raise_if_stopped()
        result = accuracies(*predict(self.network, self.dataset))
        self.network.set_train()
        self.accuracy = result["accuracy"]
        append_line(self.file, {"epoch": epoch, **result})
        self.report(f"epoch {epoch:g} " + ", ".join(f"{name} = {value:.4f}" for name, value in result.items()))


class ProgressCallback(PerformanceCallback):
    """Adds a tqdm bar over all steps, with epoch, loss and the latest `evaluation.accuracy`; `bar=False` hides it."""

    def __init__(self, batch_size, device_num, total_steps, evaluation, bar=True):
        super().__init__(batch_size, device_num, tqdm.write if bar else print)
        self.total_steps, self.evaluation, self.shown = total_steps, evaluation, bar

    def on_train_begin(self, run_context):
        super().on_train_begin(run_context)
        # A log file needs a line now and then, a terminal a bar that moves.
        terminal = sys.stderr.isatty() or environment.TERMINAL in os.environ  # `labkit launch` shows one process's log
        self.bar = tqdm(
            desc="compiling the first step", total=self.total_steps, initial=self.last_step, unit="step",
            mininterval=0.2 if terminal else 10, dynamic_ncols=True, disable=not self.shown,
        )  # fmt: skip

    def measured(self, run_context, steps, seconds):
        super().measured(run_context, steps, seconds)
        state, accuracy = run_context.original_args(), self.evaluation.accuracy
        epochs = -(-self.total_steps // state.batch_num)  # MindSpore's epoch_num is what a resumed training still has
        self.bar.set_description(f"epoch {state.cur_epoch_num}/{epochs}", refresh=False)
        accuracy = {} if accuracy is None else {"accuracy": f"{accuracy:.3f}"}
        self.bar.set_postfix({"loss": f"{loss_of(run_context):.3f}", **accuracy}, refresh=False)
        self.bar.update(steps)

    def __exit__(self, *error):  # called by MindSpore however a training ends
        self.bar.close()


class StopCallback(Callback):
    """Ends the training after step `step`, in sink mode after its epoch, or when Ctrl-C or SIGTERM ask for it.

    It comes last: the other callbacks have recorded and saved the step, and the `timers` among them leave out the time
    of that. Asked in the last step of an epoch, it waits until the epoch is saved.
    """

    def __init__(self, step, timers=()):
        super().__init__()
        self.step, self.timers = step, timers

    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num >= self.step:
            run_context.request_stop()  # MindSpore looks at it when the step has ended, `ends_epoch` in the callbacks

    def on_train_step_end(self, run_context):
        if not ends_epoch(run_context):
            interrupts.raise_if_stopped()
        for timer in self.timers:
            timer.resume()

    def on_train_epoch_end(self, run_context):
        interrupts.raise_if_stopped()
