"""The training loop: the same MindSpore calls that the chapters show, in sequence.

`train` prepares (data, network, optimizer, checkpoint), fits (Model.train with callbacks), and finishes (the summary).
"""

import gc
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model
from tqdm import tqdm

from labkit.data.formats import format_of
from labkit.system import device, interrupts
from labkit.training import build, callbacks, checkpoint, runs
from labkit.training.recipes import Recipe, require_same
from labkit.training.runs import Run


@dataclass(frozen=True)
class Prepared:
    """What one process trains with: batches, model, learning rates; and how far it has come."""

    dataset: ds.Dataset
    network: nn.Cell
    model: Model  # trains the network
    lr: np.ndarray  # a value per step of all epochs
    steps_per_epoch: int
    step: int  # of the checkpoint, 0 without one
    total_steps: int

    def evaluation_due(self, every_steps: int | None) -> float | None:
        """The epoch of the evaluation that follows the checkpoint's step; None if none does."""
        if self.step > 0 and (self.step % self.steps_per_epoch == 0 or self.step >= self.total_steps):
            return -(-self.step // self.steps_per_epoch)
        if self.step > 0 and every_steps and self.step % every_steps == 0:
            return round(self.step / self.steps_per_epoch, 4)
        return None


def start(out: Path, recipe: Recipe, keys: tuple[str, ...], leads_host=False) -> Run:
    """The Run of a job at `out`: a new one, or the existing one, whose recipe must agree in `keys`; each rank calls it.

    leads_host: this process makes the Run for those on its machine, if machines share no folder.
    """
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = device.ranks()
    if rank == 0 and not (out / "recipe.yaml").exists():
        build.check_data(recipe, ranks)
        runs.create(out, recipe)
    device.wait_for_all()
    if leads_host and not (out / "recipe.yaml").exists():
        runs.create(out, recipe)
    device.wait_for_all()
    run = runs.open_run(out)
    require_same(run.recipe, recipe, out, keys)
    return run


def train(run: Run, *, progress=True) -> None:
    """Train a Run's recipe, evaluating after every epoch; resumes at the Run's checkpoint if there is one.

    Each of several processes trains on its share of the images with averaged gradients; only rank 0 evaluates, prints
    and writes. Raises RecipeError, DataError, DivergedError; RunError also for a complete Run, which is never changed.
    """
    recipe = run.recipe
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    with runs.alone(run) if device.ranks()[0] == 0 else nullcontext():
        _on_rank_0(check, run, recipe)
        prepared = prepare(run, recipe)
        fit(run, recipe, prepared, progress)
        _on_rank_0(runs.write_summary, run)


def check(run: Run, recipe: Recipe) -> None:
    """Check that data and processes are those the Run began with; record them at its first start. Raises RunError."""
    ranks = device.ranks()[1]
    info = build.check_data(recipe, ranks)
    workers = format_of(recipe).random_workers()
    runs.keep_provenance(run, info.dataset, ranks, workers)
    runs.require_same_data(run, info)
    runs.require_same_processes(run, ranks, workers)
    (run.path / "evaluation.json").unlink(missing_ok=True)  # of a checkpoint that will be overwritten


def prepare(run: Run, recipe: Recipe) -> Prepared:
    """Build the recipe's parts and restore the state of the Run's checkpoint. Raises RunError."""
    gc.collect()  # were an earlier training's network freed only in a later step, MindSpore would compile again there
    dataset = build.train_dataset(recipe, *device.ranks())
    steps_per_epoch = dataset.get_dataset_size()
    lr = build.learning_rates(recipe, steps_per_epoch)
    network = build.create_network(recipe)
    model = build.create_model(recipe, lr, network)
    step = checkpoint.restore(run, model.train_network)
    device.share_weights(network.get_parameters())
    # Replay the data stream up to `step`, augmentation included, instead of jumping (MindData's "fast" recovery).
    ds.config.set_fast_recovery(False)
    dataset.set_init_step(step)
    total_steps = min(recipe.epochs * steps_per_epoch, recipe.max_steps or sys.maxsize)
    return Prepared(dataset, network, model, lr, steps_per_epoch, step, total_steps)


def fit(run: Run, recipe: Recipe, prepared: Prepared, progress=True) -> None:
    """Train the remaining steps with `Model.train`; before that, make up for an evaluation that is missing."""
    rank, ranks = device.ranks()
    history = run.history_file if rank == 0 else None
    timer = callbacks.HistoryCallback(history, prepared.lr, device.mean_over_ranks)
    todo = [callbacks.StartAt(prepared.step), timer, callbacks.StopAt(prepared.total_steps)]
    evaluation = None
    if rank == 0:
        report = tqdm.write if progress else print
        # One rank evaluates: each has its own batch norm statistics, and the checkpoint has rank 0's.
        performance = callbacks.PerformanceCallback(recipe.data.batch_size, ranks, report)
        evaluation = callbacks.EvaluateCallback(
            prepared.network, build.test_dataset(recipe), history, report, recipe.evaluation_steps, (timer, performance)
        )
        checkpoints = callbacks.CheckpointCallback(run, recipe.checkpoint_steps)
        todo += [performance, checkpoints, evaluation]  # in this order: the evaluation may be stopped
        if progress:
            todo.append(callbacks.ProgressCallback(prepared.total_steps, recipe.epochs, evaluation))
    todo.append(callbacks.StopWhenAsked())  # once the others have recorded the step

    with interrupts.stopped_at_steps():
        due = prepared.evaluation_due(recipe.evaluation_steps)
        if evaluation and due is not None and due not in [record["epoch"] for record in run.evaluations()]:
            evaluation.evaluate(due)
        if prepared.step < prepared.total_steps:
            prepared.model.train(
                recipe.epochs, prepared.dataset, todo, dataset_sink_mode=recipe.dataset_sink_mode,
                initial_epoch=prepared.step // prepared.steps_per_epoch,
            )  # fmt: skip


def _on_rank_0(do, *arguments):
    """Call a function in one process only; the others wait until it is done."""
    if device.ranks()[0] == 0:
        do(*arguments)
    device.wait_for_all()
