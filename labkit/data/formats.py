"""Formats: one class for each `data.format` of a recipe, with everything that depends on it.

Checking files needs no MindSpore; a pipeline's module is imported only to make batches.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from labkit.data import cifar10_files, imagenet_files
from labkit.data.files import Info
from labkit.system import environment


class Format:
    """A data folder, and the keys of a recipe's `data`; without these keys, its files can only be checked.

    Each format has `test_labels()`, the labels (N,) in the order of the test batches, and MindData's operations on an
    image: `train_transforms()`, some of them random, and `test_transforms()`.
    """

    _files = None  # the module that checks, reads and writes such folders
    _pipeline = ""  # the module that makes batches of them, which imports MindSpore

    def __init__(self, folder: str | Path, data=None):
        self.folder, self.data, self.options = Path(folder), data, {}

    @property
    def batches(self):
        """The pipeline's module."""
        return importlib.import_module(self._pipeline)

    def require_folder(self) -> None:
        """Raise DataError for a wrong folder, at once, in any process; a missing folder passes. `check` reads files."""

    def check(self, make_sample: bool = False) -> Info:
        """Contents of the folder; make_sample: if it is missing, make the sample there first. Raises DataError."""
        if make_sample and not self.folder.exists():
            self._files.write_sample(self.folder)
        return self._files.check(self.folder, **self.options)

    def create_dataset(self, split: str, batch_size: int, *, seed=0, rank=0, ranks=1):
        """Batches of "train" or "test": (N, 3, H, W) float32 images, (N,) int32 labels. Raises DataError."""
        steps = self.train_transforms() if split == "train" else self.test_transforms()
        return self.batches.create_dataset(
            self.folder, split, batch_size, image_transforms=steps, seed=seed, rank=rank, ranks=ranks,
            num_workers=self.data.workers, **self.options,
        )  # fmt: skip

    def random_workers(self) -> int | None:
        """Number of workers, if the training batches depend on it; None if they are the same for any number."""
        return None


class Cifar10(Format):
    """CIFAR-10's binary layout: six files of records of 3,073 bytes."""

    _files, _pipeline = cifar10_files, "labkit.data.cifar10"

    def test_labels(self):
        """Labels of the test file. Raises DataError."""
        return cifar10_files.read(self.folder, "test")[1]

    def train_transforms(self):
        """Crop, flip, normalise."""
        return self.batches.train_transforms(self.data.image_size, self.data.crop_padding, self.data.flip)

    def test_transforms(self):
        """Normalise."""
        return self.batches.normalize_transforms(self.data.image_size)


class ImageFolder(Format):
    """train/CLASS/* and val/CLASS/*, or the same as MindRecord files."""

    _files, _pipeline = imagenet_files, "labkit.data.imagenet"

    def __init__(self, folder, data=None):
        super().__init__(folder, data)
        self.options = {"bad_images": data.bad_images} if data else {}

    def require_folder(self):
        """Raise DataError if a split is missing, unless there are MindRecord files."""
        if self.folder.exists() and not imagenet_files.records(self.folder):
            imagenet_files.require_splits(self.folder)

    def test_labels(self):
        """Labels of the images in val/, by their folders' names. Raises DataError."""
        return imagenet_files.listing(self.folder, "test", **self.options)[1]

    def train_transforms(self):
        """A random part of the image, flipped or not, normalised."""
        data = self.data
        return self.batches.train_transforms(data.image_size, data.route, data.crop_scale, data.flip)

    def test_transforms(self):
        """The middle of the image, normalised."""
        return self.batches.evaluation_transforms(self.data.image_size, self.data.resize, self.data.route)

    def random_workers(self):
        """Workers of the fast route have their own random numbers; on the exact route each image has its own."""
        return None if self.data.route == "exact" else environment.workers(self.data.workers)


FORMATS = {"cifar10": Cifar10, "image_folder": ImageFolder}


def format_of(recipe, folder: str | Path | None = None) -> Format:
    """A recipe's data, in its own folder or in another one."""
    return FORMATS[recipe.data.format](folder or recipe.data_folder(), recipe.data)
