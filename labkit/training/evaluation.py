"""Evaluation: logits of the test images under a checkpoint, accuracy overall and by class."""

import json
from pathlib import Path

import numpy as np

from labkit.system import device, interrupts
from labkit.system.files import atomic_write
from labkit.training import build, checkpoint, runs
from labkit.training.recipes import Recipe
from labkit.training.runs import Run

WORST = 8  # so many of the worst mistakes are kept


def predict(net, dataset) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, K) and labels (N,) of a data set, in its order, with the network in evaluation mode."""
    net.set_train(False)
    logits, labels = [], []
    for batch, batch_labels in dataset.create_tuple_iterator(num_epochs=1):
        logits.append(net(batch).asnumpy())
        labels.append(batch_labels.asnumpy())
        interrupts.raise_if_stopped()
    return np.concatenate(logits), np.concatenate(labels)


def accuracies(logits, labels) -> dict:
    """{accuracy, top_5_accuracy (more than five classes)} of logits (N, K) for labels (N,), from 0 to 1."""
    shares = {"accuracy": float((logits.argmax(axis=1) == labels).mean())}
    if logits.shape[1] > 5:
        top_5 = np.argsort(-logits, axis=1)[:, :5]
        shares["top_5_accuracy"] = float((top_5 == labels[:, None]).any(axis=1).mean())
    return shares


def test_logits(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, K) and labels (N,) of the test images under the Run's checkpoint. Raises RunError, DataError."""
    return _test(run)[0]


def evaluate(run: Run) -> dict:
    """Keep the result of `score` for the Run's checkpoint in evaluation.json. Raises RunError, DataError."""
    (logits, labels), classes = _test(run)
    result = score(logits, labels, classes)
    atomic_write(run.path / "evaluation.json", json.dumps(result, indent=1) + "\n")
    return result


def _test(run):
    """(logits, labels) under the Run's checkpoint, and the names of the classes."""
    checkpoint.require(run.checkpoint)
    recipe = run.recipe
    info = build.prepare_data(recipe)
    runs.require_same_data(run, info)
    return checkpoint_logits(recipe, run.checkpoint, info), info.classes


def checkpoint_logits(recipe: Recipe, file: Path, info) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of checked data (`Info`), as from `test_logits`, under any checkpoint of a recipe's network."""
    device.setup(recipe.seed)
    net = build.create_network(recipe)
    checkpoint.load_weights(file, net)
    with build.naming_damage(recipe, info):
        return predict(net, build.test_dataset(recipe, info))


def score(logits, labels, names) -> dict:
    """Accuracy of logits (N, K) for labels (N,) and the K classes' names, and what the network got wrong.

    {accuracy, correct, images, top_5_accuracy (more than five classes), classes: [name, accuracy, correct, images],
    confusion: K x K counts, true class by row, worst: [image (its number), class, answer, class_probability,
    answer_probability]}: the `WORST` mistakes, whose true class got the lowest probability, from 0 to 1.
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

    return {
        **share(confusion.trace(), confusion.sum()),
        **accuracies(logits, labels),
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
