"""The training loop: the MindSpore calls of labs/cifar10/plain.py, for any recipe, with a Run that can be resumed."""

import gc
import math
import sys
from contextlib import nullcontext

import mindspore.dataset as ds
from tqdm import tqdm

from labkit.data.files import Info
from labkit.data.formats import format_of
from labkit.system import device, interrupts
from labkit.training import build, callbacks, checkpoint, runs
from labkit.training.recipes import Recipe
from labkit.training.runs import Run


def train(run: Run, *, recipe: Recipe | None = None, info: Info | None = None, progress=True) -> None:
    """Train a Run's recipe, evaluating after every epoch; resumes at the Run's checkpoint if there is one.

    Each of several processes trains on its share of the images with averaged gradients; only rank 0 evaluates, prints
    and writes. recipe, info: the Run's recipe and what `build.prepare_data` returned, where they are known already.
    Raises RecipeError, DataError, DivergedError; RunError also for a complete Run, which is never changed.
    """
    recipe = recipe or run.recipe
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = device.ranks()
    with runs.alone(run) if rank == 0 else nullcontext():
        if rank == 0:
            info = info or build.prepare_data(recipe, ranks)
            runs.begin(run, info, ranks, format_of(recipe).random_workers())
        device.wait_for_all()

        gc.collect()  # were an earlier network freed only in a later step, MindSpore would compile again there
        dataset = build.train_dataset(recipe, info, (rank, ranks))
        steps_per_epoch = dataset.get_dataset_size()
        lr = build.learning_rates(recipe, steps_per_epoch)
        total = min(len(lr), recipe.max_steps or sys.maxsize)
        network = build.create_network(recipe)
        model = build.create_model(recipe, lr, network)
        step = checkpoint.restore(run, model.train_network)
        device.share_weights(network.get_parameters())
        # Replay the data stream up to `step`, augmentation included, instead of jumping (MindData's "fast" recovery).
        ds.config.set_fast_recovery(False)
        dataset.set_init_step(step)

        history = callbacks.HistoryCallback(run.history_file if rank == 0 else None, lr, device.mean_over_ranks, step)
        timers, others = [history], []
        if rank == 0:
            # One rank evaluates: each has its own batch norm statistics, and the checkpoint has rank 0's.
            evaluation = callbacks.EvaluateCallback(
                network, build.test_dataset(recipe, info), run.history_file, tqdm.write if progress else print,
                recipe.evaluation_steps,
            )  # fmt: skip
            timers.append(callbacks.ProgressCallback(recipe.data.batch_size, ranks, total, evaluation, progress))
            others = [callbacks.CheckpointCallback(run, recipe.checkpoint_steps), evaluation]
        todo = [*timers, *others, callbacks.StopCallback(total, timers)]

        with build.naming_damage(recipe, info), interrupts.stopped_at_steps():
            # A training that was stopped while it evaluated has the checkpoint of that step, and no result.
            missing = step and callbacks.evaluation_epoch(step, steps_per_epoch, total, recipe.evaluation_steps)
            if rank == 0 and missing and missing not in [record["epoch"] for record in run.evaluations()]:
                evaluation.evaluate(missing)
            if step < total:
                model.train(
                    math.ceil(recipe.epochs), dataset, todo, dataset_sink_mode=recipe.dataset_sink_mode,
                    initial_epoch=step // steps_per_epoch,
                )  # fmt: skip
        if rank == 0:
            runs.write_summary(run)
        device.wait_for_all()
