"""The training loop: the same MindSpore calls that the chapters show, in a row."""

import sys
from contextlib import nullcontext
from pathlib import Path

import mindspore.dataset as ds
from tqdm import tqdm

from labkit.data.formats import format_of
from labkit.system import device, interrupts
from labkit.training import build, callbacks, checkpoint, runs
from labkit.training.recipes import Recipe, require_same
from labkit.training.runs import Run


def start(out: Path, recipe: Recipe, keys: tuple[str, ...], leads_host=False) -> Run:
    """The Run at `out`: a new one by `recipe`, or the one that is there, which must agree in `keys` of the recipe.

    For the start file of a job, in one process or in each of several, of which rank 0 makes the Run. leads_host: this
    is its machine's first process, which makes one for the others there where machines share no folder.
    Raises RecipeError, RunError, DataError.
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
    """Train a Run's recipe, evaluating after every epoch; goes on from the Run's checkpoint where there is one.

    A resumed training repeats what was lost since the checkpoint and ends as if it had never stopped.
    One of several processes trains on its share of the images with averaged gradients; only rank 0 evaluates, prints
    and writes. All must see the Run's directory, and one that fails must end the others (`labkit launch` does).
    Raises RecipeError, RunError, DataError, DivergedError; RunError for a complete Run, which is never changed.
    """
    recipe = run.recipe
    device.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = device.ranks()
    with runs.alone(run) if rank == 0 else nullcontext():
        if rank == 0:
            info = build.check_data(recipe, ranks)
            runs.keep_provenance(run, info.dataset, ranks, format_of(recipe).random_workers())
            runs.require_same_data(run, info)
            runs.require_same_processes(run, ranks)
            (run.path / "evaluation.json").unlink(missing_ok=True)  # of a checkpoint that will be written over
        device.wait_for_all()

        recipe = build.with_same_workers(run)
        dataset = build.train_dataset(recipe, rank, ranks)
        steps_per_epoch = dataset.get_dataset_size()
        lr = build.learning_rates(recipe, steps_per_epoch)
        model = build.create_model(recipe, lr)
        step = checkpoint.restore(run, model.train_network)
        device.share_weights(model.predict_network.get_parameters())
        # Replay the data stream up to `step`, augmentation included, instead of jumping (MindData's "fast" recovery).
        ds.config.set_fast_recovery(False)
        dataset.set_init_step(step)

        total_steps = min(recipe.epochs * steps_per_epoch, recipe.max_steps or sys.maxsize)
        todo = [
            callbacks.StartAt(step),
            callbacks.HistoryCallback(run.history_file if rank == 0 else None, lr, device.mean_over_ranks),
            callbacks.StopAt(total_steps),
        ]
        if rank == 0:
            if recipe.optimizer.name == "thor":
                todo.append(callbacks.UpdateCallback(run.history_file, model.train_network))
            report = tqdm.write if progress else print
            # One rank evaluates: batch norm's statistics are its own on each, and the checkpoint has rank 0's.
            evaluation = callbacks.EvaluateCallback(model, build.test_dataset(recipe), run.history_file, report)
            todo += [
                callbacks.PerformanceCallback(recipe.data.batch_size, ranks, report),
                evaluation,
                checkpoint.CheckpointCallback(run, recipe.checkpoint_steps),
            ]
            if progress:
                todo.append(callbacks.ProgressCallback(total_steps, recipe.epochs, evaluation))
        todo.append(callbacks.StopWhenAsked())  # when the others have kept the step
        if step < total_steps:
            with interrupts.stopped_at_steps():
                model.train(
                    recipe.epochs, dataset, todo, dataset_sink_mode=recipe.sink, initial_epoch=step // steps_per_epoch
                )
        if rank == 0:
            runs.write_summary(run)
        device.wait_for_all()
