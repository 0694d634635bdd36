"""Putting the pieces together: train and evaluate. The same MindSpore calls that the chapters show, in a row."""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.amp import FixedLossScaleManager
from mindspore.train import Accuracy, Model, Top5CategoricalAccuracy
from tqdm import tqdm

from labkit import callbacks, runtime
from labkit import run as runs
from labkit.data import cifar10, cifar10_files, imagenet, imagenet_files
from labkit.data.files import Info
from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet, initialise_as_guide, mixed_precision, use_fast_gradients
from labkit.optimizers import momentum
from labkit.recipe import Recipe, RecipeError, require_same
from labkit.run import Run
from labkit.schedules import SCHEDULES, damping, updates
from labkit.thor import TRACE_RULES, Thor, ThorStep


def check_data(recipe: Recipe, ranks=1) -> Info:
    """Check what must be there before a Run is made: the data, of which the sample is made where it is missing.

    Raises DataError, RecipeError, LabkitError.
    """
    folder, data = recipe.data_folder(), recipe.data
    files, options = cifar10_files, {}
    if data.format == "image_folder":
        files, options = imagenet_files, {"bad_images": data.bad_images}
    if data.folder.startswith("sample/") and not folder.exists():
        files.write_sample(folder)
    info = files.check(folder, **options)
    if len(info.classes) != recipe.network.num_classes:
        raise RecipeError(f"network.num_classes: {recipe.network.num_classes}, but {folder} has {len(info.classes)}")
    shard = -(-info.train_images // ranks)  # images for each process
    if recipe.data.batch_size > shard:
        each = f", {shard} for each of {ranks} processes" if ranks > 1 else ""
        raise RecipeError(
            f"data.batch_size: {recipe.data.batch_size}, but {folder} has {info.train_images} images{each}"
        )
    learning_rates(recipe, shard // recipe.data.batch_size)
    return info


def create_network(recipe: Recipe):
    """The recipe's network in its precision, initialised from MindSpore's global seed. Raises RecipeError."""
    net = create_resnet(recipe.network.name, recipe.network.num_classes, recipe.network.stem)
    last, count = (recipe.all_reduce_fusion or [0])[-1], len(net.trainable_params())
    if last >= count:
        raise RecipeError(f"all_reduce_fusion: {last}, but {recipe.network.name} has {count} parameters, from 0 on")
    if recipe.network.init == "guide":
        initialise_as_guide(net)
    # labkit's gradient is for float32 on a CPU; elsewhere MindSpore's own gives the same values.
    if recipe.network.fast_gradient and ms.get_context("device_target") == "CPU" and recipe.amp_level == "O0":
        use_fast_gradients(net)
    return mixed_precision(net, recipe.amp_level)


def train_dataset(recipe: Recipe, rank=0, ranks=1):
    """Batches to train on, shuffled and augmented: those of process `rank` of `ranks`."""
    data = recipe.data
    if data.format == "image_folder":
        image_transforms = imagenet.train_transforms(data.image_size, data.route, data.crop_scale, data.flip)
    else:
        image_transforms = cifar10.train_transforms(data.image_size, data.crop_padding, data.flip)
    return _dataset(recipe, "train", data.batch_size, image_transforms, rank, ranks)


def test_dataset(recipe: Recipe):
    """Every test image once, in the order of the file."""
    data = recipe.data
    if data.format == "image_folder":
        image_transforms = imagenet.evaluation_transforms(data.image_size, data.resize, data.route)
    else:
        image_transforms = cifar10.normalize_transforms(data.image_size)
    return _dataset(recipe, "test", data.eval_batch_size, image_transforms)


def _dataset(recipe, split, batch_size, image_transforms, rank=0, ranks=1):
    data = recipe.data
    pipeline, options = cifar10, {}
    if data.format == "image_folder":
        pipeline, options = imagenet, {"bad_images": data.bad_images}
    return pipeline.create_dataset(
        recipe.data_folder(), split, batch_size, image_transforms=image_transforms, seed=recipe.seed,
        rank=rank, ranks=ranks, num_workers=data.workers, **options,
    )  # fmt: skip


def learning_rates(recipe: Recipe, steps_per_epoch: int) -> np.ndarray:
    """The recipe's schedule: a value per step. Raises RecipeError."""
    schedule = recipe.schedule.model_dump(exclude_none=True)
    try:
        return SCHEDULES[schedule.pop("name")](recipe.epochs, steps_per_epoch, **schedule)
    except ValueError as error:
        raise RecipeError(f"schedule: {error}") from None


def metrics(num_classes: int) -> dict:
    """What is measured on the test images, 0 to 1: top-1 accuracy; top-5 where there are more than five classes."""
    return {"accuracy": Accuracy()} | ({"top_5_accuracy": Top5CategoricalAccuracy()} if num_classes > 5 else {})


def create_model(recipe: Recipe, lr: np.ndarray) -> Model:
    """Network, loss, optimizer and metrics, put together; lr has a value per step."""
    net = create_network(recipe)
    loss = CrossEntropySmooth(recipe.network.num_classes, recipe.loss.smoothing)
    measured = metrics(recipe.network.num_classes)
    options = recipe.optimizer.model_dump(include={"momentum", "weight_decay", "clip_norm"})
    if recipe.optimizer.name == "thor":
        optimizer = momentum(net, lr, **options)  # over the plain network's parameters; gradients come unscaled
        step = ThorStep(net, loss, optimizer, create_thor(recipe, net, len(lr) // recipe.epochs))
        evaluation = nn.WithEvalCell(net, loss)
        return Model(step, metrics=measured, eval_network=evaluation, eval_indexes=[0, 1, 2])
    optimizer = momentum(net, lr, **options, loss_scale=recipe.loss_scale)
    scale = FixedLossScaleManager(recipe.loss_scale, drop_overflow_update=False)
    return Model(net, loss, optimizer, measured, loss_scale_manager=scale)


def create_thor(recipe: Recipe, net, steps_per_epoch: int) -> Thor:
    """THOR by the recipe's optimizer, for a training of its epochs; changes the network."""
    thor = recipe.optimizer
    return Thor(
        net,
        damping(recipe.epochs, steps_per_epoch, thor.damping, thor.damping_decay),
        updates(recipe.epochs * steps_per_epoch, thor.update_interval, thor.final_interval),
        block_size=thor.block_size,
        thresholds=TRACE_RULES[thor.trace_rule],
        factor_average=thor.factor_average,
        loss_scale=recipe.loss_scale,
    )


def restore(run: Run, train_network) -> int:
    """Load the Run's last checkpoint, and on rank 0 cut the history off there; return its step, 0 without one."""
    place = {"step": 0, "history_bytes": 0}
    if run.checkpoint.exists():
        place = callbacks.load_checkpoint(run, train_network)
    if runtime.ranks()[0] == 0:
        run.history_file.touch()
        if run.history_file.stat().st_size < place["history_bytes"]:
            raise runs.RunError(f"{run.history_file}: shorter than it was at the last checkpoint, so lines are lost")
        os.truncate(run.history_file, place["history_bytes"])
    return place["step"]


def start(out: Path, recipe: Recipe, keys: tuple[str, ...], leads_host=False) -> Run:
    """The Run at `out`: a new one by `recipe`, or the one that is there, which must agree in `keys` of the recipe.

    For the start file of a job, in one process or in each of several, of which rank 0 makes the Run. leads_host: this
    is its machine's first process, which makes one for the others there where machines share no folder.
    Raises RecipeError, RunError, DataError.
    """
    runtime.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = runtime.ranks()
    if rank == 0 and not (out / "recipe.yaml").exists():
        check_data(recipe, ranks)
        runs.create(out, recipe)
    runtime.wait_for_all()
    if leads_host and not (out / "recipe.yaml").exists():
        runs.create(out, recipe)
    runtime.wait_for_all()
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
    runtime.setup(recipe.seed, recipe.all_reduce_fusion)
    rank, ranks = runtime.ranks()
    with runs.alone(run) if rank == 0 else nullcontext():
        if rank == 0:
            info = check_data(recipe, ranks)
            dataset = {"name": info.name, "sha256": info.sha256, "train_images": info.train_images}
            runs.keep_provenance(run, dataset, ranks)
            runs.require_same_data(run, info)
            runs.require_same_processes(run, ranks)
            (run.path / "evaluation.json").unlink(missing_ok=True)  # of a checkpoint that will be written over
        runtime.wait_for_all()

        dataset = train_dataset(recipe, rank, ranks)
        steps_per_epoch = dataset.get_dataset_size()
        lr = learning_rates(recipe, steps_per_epoch)
        model = create_model(recipe, lr)
        step = restore(run, model.train_network)
        runtime.share_weights(model.predict_network.get_parameters())
        # Replay the data stream up to `step`, augmentation included, instead of jumping (MindData's "fast" recovery).
        ds.config.set_fast_recovery(False)
        dataset.set_init_step(step)

        total_steps = min(recipe.epochs * steps_per_epoch, recipe.max_steps or sys.maxsize)
        todo = [
            callbacks.StartAt(step),
            callbacks.HistoryCallback(run.history_file if rank == 0 else None, lr, runtime.mean_over_ranks),
            callbacks.StopAt(total_steps),
        ]
        if rank == 0:
            if recipe.optimizer.name == "thor":
                todo.append(callbacks.UpdateCallback(run.history_file, model.train_network))
            report = tqdm.write if progress else print
            # One rank evaluates: batch norm's statistics are its own on each, and the checkpoint has rank 0's.
            evaluation = callbacks.EvaluateCallback(model, test_dataset(recipe), run.history_file, report)
            todo += [
                callbacks.PerformanceCallback(recipe.data.batch_size, ranks, report),
                evaluation,
                callbacks.CheckpointCallback(run, recipe.checkpoint_steps),
            ]
            if progress:
                todo.append(callbacks.ProgressCallback(total_steps, recipe.epochs, evaluation))
        todo.append(callbacks.StopWhenAsked())  # when the others have kept the step
        if step < total_steps:
            with runtime.stopped_at_steps():
                model.train(
                    recipe.epochs, dataset, todo, dataset_sink_mode=recipe.sink, initial_epoch=step // steps_per_epoch
                )
        if rank == 0:
            runs.write_summary(run)
        runtime.wait_for_all()


def predict(net, dataset) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, K) and labels (N,) of a data set, in its order, with the network in evaluation mode."""
    net.set_train(False)
    batches = [
        (net(images).asnumpy(), labels.asnumpy()) for images, labels in dataset.create_tuple_iterator(num_epochs=1)
    ]
    logits, labels = zip(*batches, strict=True)
    return np.concatenate(logits), np.concatenate(labels)


def test_logits(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, K) and labels (N,) of the test images under the Run's checkpoint.

    Raises RunError, RecipeError, DataError; RunError where the data is not what the Run was trained on.
    """
    runs.require_checkpoint(run)
    runs.require_same_data(run, check_data(run.recipe))
    return checkpoint_logits(run.recipe, run.checkpoint)


def checkpoint_logits(recipe: Recipe, file: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same under any checkpoint file that holds the recipe's network, of data already checked."""
    runtime.setup(recipe.seed)
    net = create_network(recipe)
    callbacks.load_weights(file, net)
    return predict(net, test_dataset(recipe))


def evaluate(run: Run) -> dict:
    """Test the Run's checkpoint and keep the result, as `score` gives it, in its evaluation.json.

    Raises as `test_logits` does.
    """
    runs.require_checkpoint(run)
    info = check_data(run.recipe)
    runs.require_same_data(run, info)
    result = score(*checkpoint_logits(run.recipe, run.checkpoint), info.classes)
    runs.write_whole(run.path / "evaluation.json", json.dumps(result, indent=1) + "\n")
    return result


def score(logits, labels, names) -> dict:
    """Top-1 and top-5 accuracy (0 to 1) of logits (N, K) for labels (N,) and the K classes' names.

    {accuracy, correct, images, top_5_accuracy (more than five classes), classes: [name, accuracy, correct, images],
    confusion: K x K counts, true class by row}.
    """
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)

    def share(correct, images):
        return {"accuracy": float(correct / images) if images else None, "correct": int(correct), "images": int(images)}

    in_top_5 = (np.argsort(-logits, axis=1)[:, :5] == labels[:, None]).any(axis=1)
    return {
        **share(confusion.trace(), confusion.sum()),
        **({"top_5_accuracy": float(in_top_5.mean())} if len(names) > 5 else {}),
        "classes": [{"name": n, **share(row[i], row.sum())} for i, (n, row) in enumerate(zip(names, confusion))],
        "confusion": confusion.tolist(),
    }
