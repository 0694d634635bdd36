"""Checks of a training pipeline that a single batch does not allow: flips, shuffling, and distribution over ranks."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from labkit.parity.measures import Difference, difference


def probe_folder(folder, images=64, size=64) -> None:
    """Write an image folder to probe a pipeline: one class per image, dark on the left, bright on the right."""
    ramp = np.broadcast_to(np.linspace(20, 235, size), (size, size)).astype(np.uint8)
    for split in ("train", "val"):
        for number in range(images):
            class_folder = Path(folder) / split / f"{number:04}"
            class_folder.mkdir(parents=True)
            Image.fromarray(ramp).convert("RGB").save(class_folder / "ramp.png")


def compare_pipeline(create, flip=0.5, ranks=2, images=64, epochs=8) -> list[Difference]:
    """Check three properties of a MindSpore training pipeline.

    create(folder, rank, ranks): a data set of (image (3, H, W), label), batched or not, over folder/train/<class>/*.
    - "flipped": share of mirrored images; should be `flip`, within four standard errors
    - "seen": how often each image occurs in an epoch, over all ranks; should be 1
    - "order": share of positions with a different image in the next epoch; should be near 1
    """
    with tempfile.TemporaryDirectory() as folder:
        probe_folder(folder, images)
        streams = [_read(create(folder, rank, ranks), epochs) for rank in range(ranks)]
    mirrored = [flipped for stream in streams for epoch in stream for _, flipped in epoch]
    error = 4 * (0.25 / len(mirrored)) ** 0.5
    first = [label for stream in streams for label, _ in stream[0]]
    seen = np.bincount(first, minlength=images)
    pairs = [pair for stream in streams for epochs in zip(stream, stream[1:]) for pair in zip(*epochs)]
    same = np.mean([label == next_label for (label, _), (next_label, _) in pairs])
    return [
        difference("flipped", flip, np.mean(mirrored), error if flip else 0.0, by="max_abs"),
        difference("seen", np.ones(images), seen, 0.0),
        difference("order", 1.0, 1 - same, 0.25, by="max_abs"),
    ]


def _read(dataset, epochs):
    """For each epoch, (label, mirrored) of every image."""
    iterator = dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    labelled = []
    for _ in range(epochs):
        epoch = []
        for pictures, labels in iterator:
            pictures, labels = (pictures[None], labels[None]) if pictures.ndim == 3 else (pictures, labels)
            half = pictures.shape[-1] // 2
            left, right = pictures[..., :half].mean((1, 2, 3)), pictures[..., -half:].mean((1, 2, 3))
            epoch += zip(labels.ravel().tolist(), (left > right).tolist())
        labelled.append(epoch)
    return labelled
