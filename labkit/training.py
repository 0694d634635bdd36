"""Putting the pieces together: train and evaluate. The same MindSpore calls that the chapters show, in a row."""

import json
import os
import sys

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore.train import Accuracy, Model
from tqdm import tqdm

from labkit import callbacks, runtime
from labkit import run as runs
from labkit.data import cifar10, cifar10_files
from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet, use_fast_gradients
from labkit.optimizers import momentum
from labkit.recipe import Recipe, RecipeError
from labkit.run import Run
from labkit.schedules import SCHEDULES


def check_data(recipe: Recipe) -> cifar10_files.Info:
    """Check what must be there before a Run is made: the data, of which the sample is made where it is missing.

    Raises DataError, RecipeError, LabkitError.
    """
    runtime.require_one_process()
    folder = recipe.data_folder()
    if recipe.data.folder.startswith("sample/") and not folder.exists():
        cifar10_files.write_sample(folder)
    info = cifar10_files.check(folder)
    if len(info.classes) != recipe.network.num_classes:
        raise RecipeError(f"network.num_classes: {recipe.network.num_classes}, but {folder} has {len(info.classes)}")
    if recipe.data.batch_size > info.train_images:
        raise RecipeError(f"data.batch_size: {recipe.data.batch_size}, but {folder} has {info.train_images} images")
    learning_rates(recipe, info.train_images // recipe.data.batch_size)
    return info


def create_network(recipe: Recipe):
    """The recipe's network, initialised from MindSpore's global seed."""
    net = create_resnet(recipe.network.name, recipe.network.num_classes, recipe.network.stem)
    if recipe.network.fast_gradient and ms.get_context("device_target") == "CPU":
        use_fast_gradients(net)
    return net


def train_dataset(recipe: Recipe):
    """Batches to train on, shuffled and augmented."""
    data = recipe.data
    image_transforms = cifar10.train_transforms(data.image_size, data.crop_padding, data.flip)
    return cifar10.create_dataset(
        recipe.data_folder(), "train", data.batch_size, image_transforms=image_transforms,
        seed=recipe.seed, num_workers=data.workers,
    )  # fmt: skip


def test_dataset(recipe: Recipe):
    """Every test image once, in the order of the file."""
    data = recipe.data
    image_transforms = cifar10.normalize_transforms(data.image_size)
    return cifar10.create_dataset(
        recipe.data_folder(), "test", data.eval_batch_size, image_transforms=image_transforms,
        num_workers=data.workers,
    )  # fmt: skip


def learning_rates(recipe: Recipe, steps_per_epoch: int) -> np.ndarray:
    """The recipe's schedule: a value per step. Raises RecipeError."""
    schedule = recipe.schedule.model_dump()
    try:
        return SCHEDULES[schedule.pop("name")](recipe.epochs, steps_per_epoch, **schedule)
    except ValueError as error:
        raise RecipeError(f"schedule: {error}") from None


def restore(run: Run, train_network) -> int:
    """Load the Run's last checkpoint and cut the history off there; return its step, 0 without a checkpoint."""
    run.history_file.touch()
    if not run.checkpoint.exists():
        os.truncate(run.history_file, 0)
        return 0
    place = callbacks.load_checkpoint(run, train_network)
    if run.history_file.stat().st_size < place["history_bytes"]:
        raise runs.RunError(f"{run.history_file}: shorter than it was at the last checkpoint, so lines are lost")
    os.truncate(run.history_file, place["history_bytes"])
    return place["step"]


def train(run: Run, *, progress=True) -> None:
    """Train a Run's recipe, evaluating after every epoch; goes on from the Run's checkpoint where there is one.

    A resumed training repeats what was lost since the checkpoint and ends as if it had never stopped.
    Raises RecipeError, RunError, DataError, DivergedError; RunError for a complete Run, which is never changed.
    """
    with runs.alone(run):
        recipe = run.recipe
        info = check_data(recipe)
        runs.keep_provenance(run, {"name": info.name, "sha256": info.sha256, "train_images": info.train_images})
        runs.require_same_data(run, info)
        (run.path / "evaluation.json").unlink(missing_ok=True)  # of a checkpoint that will be written over
        runtime.setup(recipe.seed)

        dataset = train_dataset(recipe)
        steps_per_epoch = dataset.get_dataset_size()
        lr = learning_rates(recipe, steps_per_epoch)
        net = create_network(recipe)
        loss = CrossEntropySmooth(recipe.network.num_classes, recipe.loss.smoothing)
        optimizer = momentum(net, lr, **recipe.optimizer.model_dump(exclude={"name"}))
        model = Model(net, loss, optimizer, metrics={"accuracy": Accuracy()})

        step = restore(run, model.train_network)
        # Replay the data stream up to `step`, augmentation included, instead of jumping (MindData's "fast" recovery).
        ds.config.set_fast_recovery(False)
        dataset.set_init_step(step)

        total_steps = min(recipe.epochs * steps_per_epoch, recipe.max_steps or sys.maxsize)
        report = tqdm.write if progress else print
        evaluation = callbacks.EvaluateCallback(model, test_dataset(recipe), run.history_file, report)
        todo = [
            callbacks.StartAt(step),
            callbacks.PerformanceCallback(recipe.data.batch_size, report=report),
            callbacks.HistoryCallback(run.history_file, lr),
            evaluation,
            callbacks.StopAt(total_steps),
            callbacks.CheckpointCallback(run, recipe.checkpoint_steps),
        ]
        if progress:
            todo.append(callbacks.ProgressCallback(total_steps, recipe.epochs, evaluation))
        if step < total_steps:
            model.train(
                recipe.epochs, dataset, todo, dataset_sink_mode=recipe.sink, initial_epoch=step // steps_per_epoch
            )
        runs.write_summary(run)


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
    recipe = run.recipe
    runs.require_same_data(run, check_data(recipe))
    runtime.setup(recipe.seed)
    net = create_network(recipe)
    callbacks.load_checkpoint(run, net)
    return predict(net, test_dataset(recipe))


def evaluate(run: Run) -> dict:
    """Test the Run's checkpoint and keep the result in its evaluation.json.

    Top-1 accuracy (0 to 1): {accuracy, correct, images, classes: [name and the same], confusion: K x K counts,
    true class by row}. Raises as `test_logits` does.
    """
    logits, labels = test_logits(run)
    names = check_data(run.recipe).classes
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)

    def score(correct, images):
        return {"accuracy": float(correct / images) if images else None, "correct": int(correct), "images": int(images)}

    result = {
        **score(confusion.trace(), confusion.sum()),
        "classes": [{"name": n, **score(row[i], row.sum())} for i, (n, row) in enumerate(zip(names, confusion))],
        "confusion": confusion.tolist(),
    }
    runs.write_whole(run.path / "evaluation.json", json.dumps(result, indent=1) + "\n")
    return result
