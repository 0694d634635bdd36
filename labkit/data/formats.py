"""Formats: one class for each `data.format` of a recipe, which does all that depends on it.

Looking at files needs no MindSpore; a pipeline's module is imported where batches are made.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labkit.data import cifar10_files, imagenet_files
from labkit.data.files import Info
from labkit.system import environment


class Format:
    """A data folder, and the keys of a recipe's `data`; without these its files can be looked at, no more."""

    files = None  # the module that checks, reads and writes such folders

    def __init__(self, folder: str | Path, data=None):
        self.folder, self.data = Path(folder), data

    def check(self, make_sample: bool = False) -> Info:
        """What the folder holds; make_sample: where it is missing, make the sample there first. Raises DataError."""
        if make_sample and not self.folder.exists():
            self.files.write_sample(self.folder)
        return self.files.check(self.folder, **self._options())

    def test_labels(self) -> np.ndarray:
        """Labels (N,) of the test images, in the order of the test batches. Raises DataError."""
        raise NotImplementedError

    def train_transforms(self) -> list:
        """MindData's operations on a training image, random ones among them."""
        raise NotImplementedError

    def test_transforms(self) -> list:
        """MindData's operations on a test image."""
        raise NotImplementedError

    def create_dataset(self, split: str, batch_size: int, *, seed=0, rank=0, ranks=1):
        """Batches of "train" or "test": (N, 3, H, W) float32 images, (N,) int32 labels. Raises DataError."""
        steps = self.train_transforms() if split == "train" else self.test_transforms()
        return self._pipeline().create_dataset(
            self.folder, split, batch_size, image_transforms=steps, seed=seed, rank=rank, ranks=ranks,
            num_workers=self.data.workers, **self._options(),
        )  # fmt: skip

    def random_workers(self) -> int | None:
        """Number of workers that training batches depend on; None where they are the same for any number."""
        return None

    def _options(self):
        return {}

    def _pipeline(self):
        raise NotImplementedError


class Cifar10(Format):
    """CIFAR-10's binary layout: six files of records of 3,073 bytes."""

    files = cifar10_files

    def test_labels(self):
        return cifar10_files.read(self.folder, "test")[1]

    def train_transforms(self):
        return self._pipeline().train_transforms(self.data.image_size, self.data.crop_padding, self.data.flip)

    def test_transforms(self):
        return self._pipeline().normalize_transforms(self.data.image_size)

    def _pipeline(self):
        from labkit.data import cifar10

        return cifar10


class ImageFolder(Format):
    """train/CLASS/* and val/CLASS/*, or the same as MindRecord files."""

    files = imagenet_files

    def test_labels(self):
        return imagenet_files.listing(self.folder, "test", **self._options())[1]

    def train_transforms(self):
        data = self.data
        return self._pipeline().train_transforms(data.image_size, data.route, data.crop_scale, data.flip)

    def test_transforms(self):
        data = self.data
        return self._pipeline().evaluation_transforms(data.image_size, data.resize, data.route)

    def random_workers(self):
        return None if self.data.route == "exact" else environment.workers(self.data.workers)

    def _options(self):
        return {"bad_images": self.data.bad_images} if self.data else {}

    def _pipeline(self):
        from labkit.data import imagenet

        return imagenet


FORMATS = {"cifar10": Cifar10, "image_folder": ImageFolder}


def format_of(recipe, folder: str | Path | None = None) -> Format:
    """A recipe's data, in its own folder or in another one."""
    return FORMATS[recipe.data.format](folder or recipe.data_folder(), recipe.data)
