"""Random images in CIFAR-10's layout, and the pipelines of them."""

import numpy as np
import streams

from labkit.data import cifar10_files
from labkit.data.cifar10 import create_dataset, normalize_transforms, train_transforms

MEAN = np.array([0.4914, 0.4822, 0.4465])  # the CIFAR-10 seed
STD = np.array([0.2023, 0.1994, 0.2010])


def random_data(folder):
    """5 x 12 images to train, 25 to test. Returns (folder, records by split)."""
    rng = np.random.default_rng(0)
    records = {"train": rng.integers(1, 256, (60, 3073)), "test": rng.integers(1, 256, (25, 3073))}
    for split in records.values():
        split[:, 0] = rng.integers(0, 10, len(split))
    for number, name in enumerate(cifar10_files.TRAIN_FILES):
        (folder / name).write_bytes(records["train"][12 * number : 12 * number + 12].astype(np.uint8).tobytes())
    (folder / cifar10_files.TEST_FILE).write_bytes(records["test"].astype(np.uint8).tobytes())
    return folder, records


def pixels(records):
    """(N, 3, 32, 32) as the files have it: three planes, row by row."""
    return records[:, 1:].reshape(-1, 3, 32, 32)


def normalized(planes):
    return (planes / 255 - MEAN[:, None, None]) / STD[:, None, None]


def training(folder, batch_size=20, *, padding=0, flip=0.0, seed=0, **options):
    images = cifar10_files.read(folder, "train")
    return create_dataset(images, batch_size, train_transforms(32, padding, flip), seed=seed, **options)


def evaluation(folder, batch_size=10, **options):
    return create_dataset(cifar10_files.read(folder, "test"), batch_size, normalize_transforms(32), **options)


def raw(images):
    return streams.denormalized(images, MEAN, STD).astype(np.uint8)


def which(images, records):
    """Numbers of the records that the unaugmented images are."""
    numbers = {image.astype(np.uint8).tobytes(): number for number, image in enumerate(pixels(records))}
    return [numbers[image.tobytes()] for image in raw(images)]
