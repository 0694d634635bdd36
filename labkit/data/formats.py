"""Formats: what depends on a recipe's `data.format`. Checking files needs no MindSpore; making batches imports it."""

from __future__ import annotations

from pathlib import Path

from labkit.data import cifar10_files, imagenet_files
from labkit.data.files import Info
from labkit.system import environment


class Format:
    """A data folder, and the keys of a recipe's `data`; without these keys, it can only be checked."""

    _files = None  # the module that checks, reads and writes such folders
    options = {}

    def __init__(self, folder: str | Path, data=None):
        self.folder, self.data = Path(folder), data

    def require_folder(self) -> None:
        """Raise DataError for a wrong folder, at once, in any process; a missing folder passes. `check` reads files."""

    def make_sample(self) -> Format:
        """The same, after writing the sample if there is no such folder."""
        if not self.folder.exists():
            self._files.write_sample(self.folder)
        return self

    def check(self) -> Info:
        """Contents of the folder. Raises DataError."""
        return self._files.check(self.folder, **self.options)

    def images(self, split: str, info: Info | None = None) -> tuple:
        """(images, labels) of "train" or "test", from what `check` returned if given, or read now. Raises DataError."""
        return info.images[split] if info else self._files.read(self.folder, split, **self.options)

    def require_decodable(self, info: Info) -> None:
        """Raise DataError for an image that passed the check, but cannot be decoded."""

    def random_workers(self) -> int | None:
        """Number of workers, if the training batches depend on it; None if they are the same for any number."""
        return None


class Cifar10(Format):
    """CIFAR-10's binary layout: six files of records of 3,073 bytes."""

    _files = cifar10_files

    def create_dataset(self, images: tuple, batch_size: int, seed=None, shard=(0, 1)):
        """Batches of `images`, as `cifar10.create_dataset` makes them: with a seed to train on, without to test on."""
        from labkit.data import cifar10

        data, steps = self.data, cifar10.normalize_transforms(self.data.image_size)
        if seed is not None:
            steps = cifar10.train_transforms(data.image_size, data.crop_padding, data.flip)
        return cifar10.create_dataset(images, batch_size, steps, seed=seed, shard=shard, num_workers=data.workers)


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

    def create_dataset(self, images: tuple, batch_size: int, seed=None, shard=(0, 1)):
        """Batches of `images`, as `imagenet.create_dataset` makes them: with a seed to train on, without to test on."""
        from labkit.data import imagenet

        data, steps = self.data, imagenet.evaluation_transforms(self.data.image_size, self.data.resize, self.data.route)
        if seed is not None:
            steps = imagenet.train_transforms(data.image_size, data.route, data.crop_scale, data.flip)
        return imagenet.create_dataset(images, batch_size, steps, seed=seed, shard=shard, num_workers=data.workers)

    def require_decodable(self, info):
        """Raise DataError for an image that passed the check, of its beginning and end, but cannot be decoded."""
        for path in (*info.images["train"][0], *info.images["test"][0]):
            if not Path(path).is_file():
                raise imagenet_files.DataError(f"{path}: no longer there")
        known = dict(info.skipped)
        for path, what in imagenet_files.check(self.folder, "skip", decode=True).skipped:
            if path not in known:
                raise imagenet_files.DataError(f"{self.folder / path}: {what}; fix or remove it")

    def random_workers(self):
        """Workers of the fast route have their own random numbers; on the exact route each image has its own."""
        return None if self.data.route == "exact" else environment.workers(self.data.workers)


FORMATS = {"cifar10": Cifar10, "image_folder": ImageFolder}


def format_of(recipe, folder: str | Path | None = None) -> Format:
    """A recipe's data, in its own folder or in another one."""
    return FORMATS[recipe.data.format](folder or recipe.data_folder(), recipe.data)
