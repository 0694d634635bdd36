"""Evaluation: logits of the test images under a checkpoint, accuracy overall and by class."""

import json
from pathlib import Path

import numpy as np

from labkit.system import device
from labkit.system.files import atomic_write
from labkit.training import build, checkpoint, runs
from labkit.training.recipes import Recipe
from labkit.training.runs import Run

WORST = 8  # so many of the worst mistakes are kept


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

    Raises RunError, RecipeError, DataError; RunError also if the data is not what the Run was trained on.
    """
    return _test(run)[0]


def evaluate(run: Run) -> dict:
    """Evaluate the Run's checkpoint and keep the result of `score` in the Run's evaluation.json.

    Raises as `test_logits` does.
    """
    (logits, labels), classes = _test(run)
    result = score(logits, labels, classes)
    atomic_write(run.path / "evaluation.json", json.dumps(result, indent=1) + "\n")
    return result


def _test(run):
    """(logits, labels) under the Run's checkpoint, and the names of the classes."""
    runs.require_checkpoint(run)
    recipe = run.recipe
    info = build.check_data(recipe)
    runs.require_same_data(run, info)
    return checkpoint_logits(recipe, run.checkpoint), info.classes


def checkpoint_logits(recipe: Recipe, file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels as from `test_logits`, under any checkpoint of the recipe's network; data is not checked."""
    device.setup(recipe.seed)
    net = build.create_network(recipe)
    checkpoint.load_weights(file, net)
    return predict(net, build.test_dataset(recipe))


def score(logits, labels, names) -> dict:
    """Accuracy of logits (N, K) for labels (N,) and the K classes' names, and what the network got wrong.

    {accuracy, correct, images, top_5_accuracy (more than five classes), classes: [name, accuracy, correct, images],
    confusion: K x K counts, true class by row, worst: [image, class, answer, class_probability,
    answer_probability]}. Accuracies and probabilities are from 0 to 1. The worst mistakes are the `WORST` whose true
    class got the lowest probability; `image` is the number of the image in the test set, from 0.
    """
    answers = logits.argmax(axis=1)
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (labels, answers), 1)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    every = np.arange(len(labels))
    worst = [i for i in probabilities[every, labels].argsort(kind="stable") if answers[i] != labels[i]][:WORST]

    def share(correct, images):
        return {"accuracy": float(correct / images) if images else None, "correct": int(correct), "images": int(images)}

    in_top_5 = (np.argsort(-logits, axis=1)[:, :5] == labels[:, None]).any(axis=1)
    return {
        **share(confusion.trace(), confusion.sum()),
        **({"top_5_accuracy": float(in_top_5.mean())} if len(names) > 5 else {}),
        "classes": [{"name": n, **share(row[i], row.sum())} for i, (n, row) in enumerate(zip(names, confusion))],
        "confusion": confusion.tolist(),
        "worst": [
            {
                "image": int(i),
                "class": names[labels[i]],
                "answer": names[answers[i]],
                "class_probability": float(f"{probabilities[i, labels[i]]:.4g}"),
                "answer_probability": float(f"{probabilities[i, answers[i]]:.4g}"),
            }
            for i in worst
        ],
    }
