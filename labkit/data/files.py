"""What all data folders share: errors, a summary of the contents, and writing a folder whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write

# Classes of the samples.
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SOURCE_FILE = "SOURCE.txt"  # one line that says what the data is; written by the data scripts


class DataError(LabkitError):
    """Data that is missing, damaged or not what it should be: one line that names the file."""


@dataclass(frozen=True)
class Info:
    """What a checked data folder holds."""

    folder: Path
    name: str  # what the data is, from SOURCE.txt
    classes: tuple[str, ...]
    train_images: int
    test_images: int
    sha256: str  # the `check` that computes it says what it covers
    files: tuple[tuple[str, int], ...]  # (file or folder, images)
    note: str | None = None  # something the user should know that is not an error
    skipped: tuple[tuple[str, str], ...] = ()  # (file, what is wrong with it) of images left out
    contents: str | None = None  # SHA-256 over all bytes of the images, if `sha256` does not cover them
    images: dict | None = field(default=None, repr=False, compare=False)  # (pixels or paths, labels) of train and test

    @property
    def dataset(self) -> dict:
        """What a Run's provenance keeps: name, sha256, contents if there is one, train_images."""
        contents = {"contents": self.contents} if self.contents else {}
        return {"name": self.name, "sha256": self.sha256, **contents, "train_images": self.train_images}


def same_data(first: dict, second: dict) -> bool:
    """Whether the data sets of two provenances have the same checksums."""
    return all(first.get(key) == second.get(key) for key in ("sha256", "contents"))


def require_folder(folder: Path, get_data: str) -> None:
    """Raise DataError if there is no such folder, and say how to get the data."""
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {problem}; get the data with {get_data}")


def source_of(folder: Path, unknown: str) -> str:
    """Description of the data in a folder, from its SOURCE.txt; `unknown` if there is none."""
    return next(iter(lines(folder / SOURCE_FILE)), unknown)


def write_source(folder: Path, text: str) -> None:
    """Describe the data in `folder` in one line; `check` returns it as the data's name."""
    atomic_write(folder / SOURCE_FILE, " ".join(text.split()) + "\n")


@contextmanager
def staging(folder: str | Path) -> Iterator[Path]:
    """Yield a new folder for incomplete files, in a hidden one next to `folder` that is deleted afterwards."""
    folder = real(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".unfinished", dir=folder.parent) as hidden:
        staged = Path(hidden, "new")
        staged.mkdir()
        yield staged


def publish(staged: Path, folder: str | Path, check: Callable[[Path], Info], force: bool = False) -> bool:
    """Check `staged` and rename it to `folder`; False if the same data is there already and not `force`.

    Raises DataError if `staged` is bad or, without `force`, if `folder` is bad or holds other data.
    """
    new, shown, folder = check(staged), folder, real(folder)
    if force and folder.is_dir():
        with staging(folder) as aside:
            folder.replace(aside / "replaced")
            staged.replace(folder)
        return True
    try:
        staged.replace(folder)  # also in place of an empty folder
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    try:
        old = check(folder)
    except DataError as error:
        raise DataError(f"{error}; --force replaces the folder") from None
    if not same_data(old.dataset, new.dataset):
        raise DataError(f"{shown}: holds other data ({old.name}); --force replaces it")
    return False


def digits(test_size: int, train_size: int | None = None):
    """scikit-learn's handwritten digits: images (N, 8, 8) uint8, labels (N,), indices to train and to test on."""
    import numpy as np
    from sklearn.datasets import load_digits  # takes a second
    from sklearn.model_selection import train_test_split

    data = load_digits()
    grey = np.rint(data.images * (255 / 16)).astype(np.uint8)  # ink is 0 to 16
    parts = {"test_size": test_size, "train_size": train_size, "stratify": data.target, "random_state": 0}
    return grey, data.target, *train_test_split(np.arange(len(grey)), **parts)


def real(folder: str | Path) -> Path:
    """The folder itself, with symbolic links resolved: whoever links it to a larger disk wants the data there."""
    return Path(os.path.realpath(folder))


def lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank; none if there is no such file."""
    text = path.read_text(encoding="utf-8-sig", errors="replace") if path.exists() else ""
    return [line.strip() for line in text.splitlines() if line.strip()]
