"""Formats: what depends on a recipe's `data.format`. Checking files needs no MindSpore; making batches imports it."""

from __future__ import annotations

from pathlib import Path

from labkit.data import cifar10_files, imagenet_files
from labkit.data.files import Info
from labkit.system import environment


class Format:
    """A data folder, and the keys of a recipe's `data`; without these keys, it can only be checked."""

    _files = None  # the module that checks and writes such folders
    options = {}

    def __init__(self, folder: str | Path, data=None):
        self.folder, self.data = Path(folder), data

    def require_folder(self) -> None:
        """Raise DataError for a wrong folder, at once, in any process; a missing folder passes. `check` reads files."""

    def check(self, make_sample: bool = False) -> Info:
        """Contents of the folder; make_sample: if it is missing, make the sample there first. Raises DataError."""
        if make_sample and not self.folder.exists():
            self._files.write_sample(self.folder)
        return self._files.check(self.folder, **self.options)

    def random_workers(self) -> int | None:
        """Number of workers, if the training batches depend on it; None if they are the same for any number."""
        return None


class Cifar10(Format):
    """CIFAR-10's binary layout: six files of records of 3,073 bytes."""

    _files = cifar10_files

    def test_labels(self):
        """Labels (N,) in the order of the test batches. Raises DataError."""
        return cifar10_files.read(self.folder, "test")[1]

    def create_dataset(self, split: str, batch_size: int, **stream):
        """Batches of "train" or "test", as `cifar10.create_dataset` makes them; stream: seed, rank, ranks."""
        from labkit.data import cifar10

        data = self.data
        steps = cifar10.normalize_transforms(data.image_size)
        if split == "train":
            steps = cifar10.train_transforms(data.image_size, data.crop_padding, data.flip)
        stream |= {"image_transforms": steps, "num_workers": data.workers}
        return cifar10.create_dataset(self.folder, split, batch_size, **stream)


class ImageFolder(Format):
    """train/CLASS/* and val/CLASS/*."""

    _files = imagenet_files

    def __init__(self, folder, data=None):
        super().__init__(folder, data)
        self.options = {"bad_images": data.bad_images} if data else {}

    def require_folder(self):
        """Raise DataError if a split is missing."""
        if self.folder.exists():
            imagenet_files.require_splits(self.folder)

    def test_labels(self):
        """Labels (N,) in the order of the test batches. Raises DataError."""
        return imagenet_files.listing(self.folder, "test", **self.options)[1]

    def create_dataset(self, split: str, batch_size: int, **stream):
        """Batches of "train" or "test", as `imagenet.create_dataset` makes them; stream: seed, rank, ranks."""
        from labkit.data import imagenet

        data = self.data
        steps = imagenet.evaluation_transforms(data.image_size, data.resize, data.route)
        if split == "train":
            steps = imagenet.train_transforms(data.image_size, data.route, data.crop_scale, data.flip)
        stream |= {"image_transforms": steps, "num_workers": data.workers, **self.options}
        return imagenet.create_dataset(self.folder, split, batch_size, **stream)

    def random_workers(self):
        """Workers of the fast route have their own random numbers; on the exact route each image has its own."""
        return None if self.data.route == "exact" else environment.workers(self.data.workers)


FORMATS = {"cifar10": Cifar10, "image_folder": ImageFolder}


def format_of(recipe, folder: str | Path | None = None) -> Format:
    """A recipe's data, in its own folder or in another one."""
    return FORMATS[recipe.data.format](folder or recipe.data_folder(), recipe.data)
