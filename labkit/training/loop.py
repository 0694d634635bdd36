"""The training loop: the MindSpore calls of labs/cifar10/plain.py, for any recipe, with a Run that can be resumed.

`train` prepares (data, network, optimizer, checkpoint), fits (Model.train with callbacks), and finishes (the summary).
"""

import gc
import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model
from tqdm import tqdm

from labkit.data.files import Info
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


def start(out: Path, recipe: Recipe, keys: tuple[str, ...], leads_host=False) -> tuple[Run, Info | None]:
    """The Run of a job at `out`: a new one, or the existing one, whose recipe must agree in `keys`; each rank calls it.

    leads_host: this process makes the Run for those on its machine, if machines share no folder. Also returns what is
    known of the data, if it was checked.
    """
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    (rank, ranks), info = device.ranks(), None
    if rank == 0 and not (out / "recipe.yaml").exists():
        info = build.check_data(recipe, ranks)
        runs.create(out, recipe)
    device.wait_for_all()
    if leads_host and not (out / "recipe.yaml").exists():
        runs.create(out, recipe)
    device.wait_for_all()
    run = runs.open_run(out)
    require_same(run.recipe, recipe, out, keys)
    return run, info


def train(run: Run, *, info: Info | None = None, progress=True) -> None:
    """Train a Run's recipe, evaluating after every epoch; resumes at the Run's checkpoint if there is one.

    Each of several processes trains on its share of the images with averaged gradients; only rank 0 evaluates, prints
    and writes. info: what `build.check_data` returned, if it was called before. Raises RecipeError, DataError,
    DivergedError; RunError also for a complete Run, which is never changed.
    """
    recipe = run.recipe
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = device.ranks()
    with runs.alone(run) if rank == 0 else nullcontext():
        if rank == 0:
            info = info or build.check_data(recipe, ranks)
            runs.begin(run, info, ranks, format_of(recipe).random_workers())
        device.wait_for_all()
        fit(run, recipe, prepare(run, recipe, info), info, progress)
        if rank == 0:
            runs.write_summary(run)
        device.wait_for_all()


def prepare(run: Run, recipe: Recipe, info: Info | None = None) -> Prepared:
    """Build the recipe's parts and restore the state of the Run's checkpoint. Raises RunError."""
    gc.collect()  # were an earlier training's network freed only in a later step, MindSpore would compile again there
    dataset = build.train_dataset(recipe, info, device.ranks())
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


def fit(run: Run, recipe: Recipe, prepared: Prepared, info: Info | None = None, progress=True) -> None:
    """Train the remaining steps with `Model.train`; before that, make up for an evaluation that is missing."""
    rank, ranks = device.ranks()
    file, evaluation = run.history_file if rank == 0 else None, None
    history = callbacks.HistoryCallback(file, prepared.lr, device.mean_over_ranks, prepared.step)
    todo, timers = [history], [history]
    if rank == 0:
        # One rank evaluates: each has its own batch norm statistics, and the checkpoint has rank 0's.
        evaluation = callbacks.EvaluateCallback(
            prepared.network, build.test_dataset(recipe, info), file, tqdm.write if progress else print,
            recipe.evaluation_steps,
        )  # fmt: skip
        show = callbacks.ProgressCallback(recipe.data.batch_size, ranks, prepared.total_steps, evaluation, progress)
        timers.append(show)
        todo += [show, callbacks.CheckpointCallback(run, recipe.checkpoint_steps), evaluation]
    todo = callbacks.in_order(*todo, callbacks.StopCallback(prepared.total_steps, timers))

    with interrupts.stopped_at_steps():
        if evaluation and (epoch := missing_evaluation(run, recipe, prepared)):
            evaluation.evaluate(epoch)
        if prepared.step < prepared.total_steps:
            prepared.model.train(
                recipe.epochs, prepared.dataset, todo, dataset_sink_mode=recipe.dataset_sink_mode,
                initial_epoch=prepared.step // prepared.steps_per_epoch,
            )  # fmt: skip


def missing_evaluation(run: Run, recipe: Recipe, prepared: Prepared) -> float | None:
    """The epoch of the evaluation at the checkpoint's step, if one is due there and the history has none."""
    step, epoch = prepared.step, prepared.step / prepared.steps_per_epoch
    ends = epoch == int(epoch) or step >= prepared.total_steps
    due = math.ceil(epoch) if ends else round(epoch, 4)
    wanted = step > 0 and (ends or (recipe.evaluation_steps and step % recipe.evaluation_steps == 0))
    return due if wanted and due not in [record["epoch"] for record in run.evaluations()] else None
