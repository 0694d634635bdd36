"""Callbacks: what happens after a step and after an epoch. MindSpore calls them in the order of the list."""

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


def update_of(run_context) -> dict | None:
    """What `Thor.update_inverses` returned in the step just done; None in a step without, or of another optimizer."""
    return getattr(run_context.original_args().get("train_network"), "last_update", None)


class StepTimer(Callback):
    """Times steps: calls `measured` with the steps (in sink mode an epoch's, else 1) and seconds since the last call.

    Time in other callbacks at the end of an epoch (evaluation, checkpoint), or passed to `skip`, is not counted.
    `self.compiled` is true for the first step with a graph, which compiles it.
    """

    compiled = False

    def on_train_begin(self, run_context):
        self.last_step, self.graphs = run_context.original_args().cur_step_num, set()

    def on_train_epoch_begin(self, run_context):
        self.last_time = time.perf_counter()

    def on_train_step_end(self, run_context):
        loss_of(run_context)
        now, step = time.perf_counter(), run_context.original_args().cur_step_num
        steps, seconds = step - self.last_step, now - self.last_time
        graph = bool(update_of(run_context))  # a step with THOR's factors has a graph of its own
        self.compiled = graph not in self.graphs
        self.graphs.add(graph)
        self.last_step, self.last_time = step, now
        self.measured(run_context, steps, seconds)

    def skip(self, seconds):
        """Leave out seconds within an epoch that were not spent on training."""
        self.last_time += seconds

    def measured(self, run_context, steps, seconds):
        """What a timer does with `steps` steps that took `seconds` together."""
        raise NotImplementedError


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


class StartAt(Callback):
    """Makes MindSpore count steps from `step`: without it, a resumed training counts from 0."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_begin(self, run_context):
        run_context.original_args().cur_step_num = self.step


class StopAt(Callback):
    """Ends the training after step `step`, in sink mode after its epoch; callbacks for an epoch's end still run."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num >= self.step:
            run_context.request_stop()


class HistoryCallback(StepTimer):
    """Appends a JSON line per step (step, epoch, loss, lr, seconds); in sink mode per epoch, with seconds per step.

    A step that compiled a graph also has `"compiled": true`, and one that computed THOR's factors a second line: update
    (the step), trace and inverted, by layer. lr: a value per step. With several processes, each needs this callback for
    the `mean` of the losses; only one has the file. Raises DivergedError for a loss that is not finite.
    """

    def __init__(self, file, lr, mean=float):
        super().__init__()
        self.file, self.lr, self.mean = file, lr, mean

    def measured(self, run_context, steps, seconds):
        state, update = run_context.original_args(), update_of(run_context)
        loss, lr = self.mean(loss_of(run_context)), float(f"{self.lr[state.cur_step_num - 1]:.7g}")
        if not math.isfinite(loss):
            raise DivergedError(
                f"loss is {loss} at step {state.cur_step_num} (epoch {state.cur_epoch_num}, learning rate {lr:g}); "
                "try a lower schedule.lr_max or a longer schedule.warmup_epochs"
            )
        record = {"step": state.cur_step_num, "epoch": state.cur_epoch_num, "loss": loss, "lr": lr}
        if self.file:
            compiled = {"compiled": True} if self.compiled else {}
            append_line(self.file, {**record, "seconds": round(seconds / steps, 6), **compiled})
        if self.file and update:
            names = state.train_network.thor.names
            traces = [float(f"{value:.6g}") if math.isfinite(value) else None for value in update["trace"]]
            inverted = [name for name, done in zip(names, update["inverted"]) if done]
            append_line(self.file, {"update": record["step"], "trace": dict(zip(names, traces)), "inverted": inverted})


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


class CheckpointCallback(Callback):
    """Checkpoints a Run after every epoch and every `every_steps` steps: before an evaluation, which may be stopped."""

    def __init__(self, run, every_steps=None):
        super().__init__()
        self.run, self.every_steps = run, every_steps

    def on_train_step_end(self, run_context):
        if is_due(run_context, self.every_steps):
            self.on_train_epoch_end(run_context)

    def on_train_epoch_end(self, run_context):
        state = run_context.original_args()
        save_checkpoint(self.run, state.train_network, state.cur_step_num)


class StopWhenAsked(Callback):
    """Obeys Ctrl-C and SIGTERM at the end of a step; after the last step of an epoch, when the epoch is saved."""

    def on_train_step_end(self, run_context):
        if not ends_epoch(run_context):
            interrupts.raise_if_stopped()

    def on_train_epoch_end(self, run_context):
        interrupts.raise_if_stopped()


class EvaluateCallback(Callback):
    """Evaluates a network after every epoch and appends a JSON line (epoch, accuracies) to the history.

    every_steps: also after every so many steps, with a fraction as epoch; `timers` (StepTimer) leave that time out.
    """

    def __init__(self, network, dataset, file, report=print, every_steps=None, timers=()):
        super().__init__()
        self.network, self.dataset, self.file, self.report = network, dataset, file, report
        self.every_steps, self.timers = every_steps, timers
        self.accuracy = None  # the latest, top 1

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        if is_due(run_context, self.every_steps):
            begin = time.perf_counter()
            self.evaluate(round(state.cur_step_num / state.batch_num, 4))
            for timer in self.timers:
                timer.skip(time.perf_counter() - begin)

    def on_train_epoch_end(self, run_context):
        self.evaluate(run_context.original_args().cur_epoch_num)

    def evaluate(self, epoch: float):
        """Evaluate the weights after an epoch. Ctrl-C and SIGTERM take effect before it and after each of its steps."""
        interrupts.raise_if_stopped()
        found = accuracies(*predict(self.network, self.dataset))
        self.network.set_train()
        self.accuracy = found["accuracy"]
        append_line(self.file, {"epoch": epoch, **found})
        self.report(f"epoch {epoch:g} " + ", ".join(f"{name} = {value:.4f}" for name, value in found.items()))


class ProgressCallback(Callback):
    """A tqdm bar over all steps, with epoch, loss and, once there is one, `evaluation.accuracy`."""

    def __init__(self, total_steps, epochs, evaluation=None):
        super().__init__()
        self.total_steps, self.epochs, self.evaluation = total_steps, epochs, evaluation

    def on_train_begin(self, run_context):
        done = run_context.original_args().cur_step_num
        # A log file needs a line now and then, a terminal a bar that moves.
        terminal = sys.stderr.isatty() or environment.TERMINAL in os.environ  # `labkit launch` shows one process's log
        interval = 0.2 if terminal else 10
        self.bar = tqdm(
            desc="compiling the first step", total=self.total_steps, initial=done, unit="step", mininterval=interval,
            dynamic_ncols=True,
        )  # fmt: skip

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        self.bar.set_description(f"epoch {state.cur_epoch_num}/{self.epochs}", refresh=False)
        shown = {"loss": f"{loss_of(run_context):.3f}"}
        if self.evaluation and self.evaluation.accuracy is not None:
            shown["accuracy"] = f"{self.evaluation.accuracy:.3f}"
        self.bar.set_postfix(shown, refresh=False)
        self.bar.update(state.cur_step_num - self.bar.n)

    def on_train_end(self, run_context):
        self.bar.close()
