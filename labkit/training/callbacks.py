"""Callbacks: what happens after a step and after an epoch. MindSpore calls them in the order of the list."""

import json
import math
import os
import sys
import time
from pathlib import Path

from mindspore.train import Callback
from tqdm import tqdm

from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError
from labkit.training.checkpoint import save_checkpoint


class DivergedError(LabkitError):
    """A loss that is not finite; earlier checkpoints stay."""


def loss_of(run_context) -> float:
    """Loss of the step just done. Reading it waits for the device, so that times taken afterwards are right."""
    outputs = run_context.original_args().net_outputs
    loss = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    return float(loss.asnumpy().mean())


def has_statistics(run_context) -> bool:
    """Whether the step just done computed THOR's statistics, with a graph of their own."""
    return bool(getattr(run_context.original_args().get("train_network"), "last_update", None))


class StepTimer(Callback):
    """Times steps: calls `measured(run_context, steps, seconds)` with the steps and seconds since the last call.

    In sink mode MindSpore calls back once an epoch and `steps` is the epoch's number of steps; otherwise it is 1.
    Time in other callbacks at the end of an epoch (evaluation, checkpoint), or passed to `skip`, is not counted.
    `self.compiled` is true for the first step with a graph, which compiles it.
    """

    def on_train_begin(self, run_context):
        self.last_step, self.graphs = run_context.original_args().cur_step_num, set()

    def on_train_epoch_begin(self, run_context):
        self.last_time = time.perf_counter()

    def on_train_step_end(self, run_context):
        loss_of(run_context)
        now, step = time.perf_counter(), run_context.original_args().cur_step_num
        steps, seconds = step - self.last_step, now - self.last_time
        graph = has_statistics(run_context)
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
    Steps that compile a graph are reported separately: ms per step and samples per second leave them out.
    In sink mode only whole epochs can be timed: the first is marked, and the second gives the compile time.
    """

    def __init__(self, batch_size, device_num=1, report=print):
        super().__init__()
        self.batch_size, self.device_num, self.report = batch_size, device_num, report
        self.compile_seconds = None  # known after the first step, or in sink mode after the second epoch
        self.step_ms = None  # of the epoch last reported
        self.first_epoch_seconds = None  # sink mode only

    def on_train_epoch_begin(self, run_context):
        super().on_train_epoch_begin(run_context)
        self.steps, self.seconds, self.compile_steps = 0, 0.0, []  # seconds of each step that compiled

    def measured(self, run_context, steps, seconds):
        if steps == 1 and self.compiled:
            self.compile_steps.append(seconds)
            self.compile_seconds = (self.compile_seconds or 0.0) + seconds
        self.steps += steps
        self.seconds += seconds

    def on_train_epoch_end(self, run_context):
        epoch, steps, seconds, note = run_context.original_args().cur_epoch_num, self.steps, self.seconds, ""
        if self.compile_steps:
            count, compiling = len(self.compile_steps), sum(self.compile_steps)
            note = f", compiled in {count} step{'s' if count > 1 else ''}: {compiling:.1f} s"
            if steps > count:
                steps, seconds = steps - count, seconds - compiling
        elif self.compile_seconds is None and self.first_epoch_seconds is None:
            self.first_epoch_seconds = seconds
            note = ", compile time included"
        elif self.compile_seconds is None:
            self.compile_seconds = self.first_epoch_seconds - seconds
            note = f", compile time was about {self.compile_seconds:.1f} s"
        self.step_ms = 1000 * seconds / steps
        rate = self.device_num * steps * self.batch_size / seconds
        self.report(
            f"epoch {epoch} cost time = {self.seconds:.3f} s, train step num: {self.steps}, "
            f"one step time: {self.step_ms:.3f} ms, train samples per second of cluster: {rate:.1f}{note}"
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

    A step that compiled a graph, such as the first one after a start, also has `"compiled": true`.
    lr: array with a value per step. A loss that is not finite ends the training with DivergedError.
    With several processes the loss is the `mean` over them, so each needs this callback; only one has the file.
    """

    def __init__(self, file, lr, mean=float):
        super().__init__()
        self.file, self.lr, self.mean = file, lr, mean

    def measured(self, run_context, steps, seconds):
        state = run_context.original_args()
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


def ends_epoch(run_context) -> bool:
    """Whether the step just done is the last of its epoch, or of the training."""
    state = run_context.original_args()
    return state.cur_step_num % state.batch_num == 0 or run_context.get_stop_requested()


class CheckpointCallback(Callback):
    """Checkpoints a Run after every epoch, and every `every_steps` steps if given; see labkit.training.checkpoint.

    Put it before the evaluation in the list of callbacks, so that a stop during the evaluation loses no step.
    """

    def __init__(self, run, every_steps=None):
        super().__init__()
        self.run, self.every_steps = run, every_steps

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        # After the last step of an epoch the epoch's own checkpoint follows.
        if self.every_steps and state.cur_step_num % self.every_steps == 0 and not ends_epoch(run_context):
            save_checkpoint(self.run, state.train_network, state.cur_step_num)

    def on_train_epoch_end(self, run_context):
        state = run_context.original_args()
        save_checkpoint(self.run, state.train_network, state.cur_step_num)


class StopWhenAsked(Callback):
    """Obeys Ctrl-C and SIGTERM at the end of a step of training or evaluation: see interrupts.stopped_at_steps.

    After the last step of an epoch it first waits for the epoch's checkpoint.
    """

    def on_train_step_end(self, run_context):
        if not ends_epoch(run_context):
            interrupts.raise_if_stopped()

    def on_train_epoch_end(self, run_context):
        interrupts.raise_if_stopped()

    def on_eval_step_end(self, run_context):
        interrupts.raise_if_stopped()


class UpdateCallback(Callback):
    """Appends a JSON line per update of THOR's statistics: update (the step), trace and inverted, by layer."""

    def __init__(self, file, thor_step):
        super().__init__()
        self.file, self.thor_step = file, thor_step

    def on_train_step_end(self, run_context):
        found = self.thor_step.last_update
        if found:
            step, names = run_context.original_args().cur_step_num, self.thor_step.thor.names
            rounded = [float(f"{value:.6g}") if math.isfinite(value) else None for value in found["trace"]]
            inverted = [name for name, done in zip(names, found["inverted"]) if done]
            append_line(self.file, {"update": step, "trace": dict(zip(names, rounded)), "inverted": inverted})


def append_line(file: Path, record: dict) -> None:
    """Append a record to a JSON-lines file."""
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


class EvaluateCallback(Callback):
    """Evaluates after every epoch and appends a JSON line (epoch, the model's metrics) to the history.

    every_steps: also after every so many steps, with a fraction as epoch; `timers` (StepTimer) leave that time out.
    The latest top-1 accuracy is in `accuracy`.
    """

    def __init__(self, model, dataset, file, report=print, every_steps=None, timers=()):
        super().__init__()
        self.model, self.dataset, self.file, self.report = model, dataset, file, report
        self.every_steps, self.timers = every_steps, timers
        self.accuracy = None

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        # After the last step of an epoch the epoch's own evaluation follows.
        if self.every_steps and state.cur_step_num % self.every_steps == 0 and not ends_epoch(run_context):
            begin = time.perf_counter()
            self.evaluate(round(state.cur_step_num / state.batch_num, 4))
            state.train_network.set_train()
            for timer in self.timers:
                timer.skip(time.perf_counter() - begin)

    def on_train_epoch_end(self, run_context):
        self.evaluate(run_context.original_args().cur_epoch_num)

    def evaluate(self, epoch: float):
        """Evaluate the weights after an epoch. Ctrl-C and SIGTERM take effect before it and after each of its steps."""
        interrupts.raise_if_stopped()
        metrics = self.model.eval(self.dataset, [StopWhenAsked()], dataset_sink_mode=False)
        found = {name: float(value) for name, value in metrics.items()}
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
        self._show(run_context)
        self.bar.update(state.cur_step_num - self.bar.n)

    def on_train_epoch_end(self, run_context):
        self._show(run_context, refresh=True)  # with this epoch's accuracy

    def _show(self, run_context, refresh=False):
        shown = {"loss": f"{loss_of(run_context):.3f}"}
        if self.evaluation is not None and self.evaluation.accuracy is not None:
            shown["accuracy"] = f"{self.evaluation.accuracy:.3f}"
        self.bar.set_postfix(shown, refresh=refresh)

    def on_train_end(self, run_context):
        self.bar.close()
