"""What all data folders share: errors, a summary of what is there, and writing a folder whole or not at all."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    sha256: str  # what goes into it says the `check` that made it
    files: tuple[tuple[str, int], ...]  # (file or folder, images)
    note: str | None = None  # what a user should know although it is no error
    skipped: tuple[tuple[str, str], ...] = ()  # (file, what is wrong with it) of images left out
    contents: str | None = None  # SHA-256 over all bytes of the images, where `sha256` is not

    @property
    def dataset(self) -> dict:
        """What a Run's provenance keeps: name, sha256, contents where there is one, train_images."""
        contents = {"contents": self.contents} if self.contents else {}
        return {"name": self.name, "sha256": self.sha256, **contents, "train_images": self.train_images}


def same_data(first: dict, second: dict) -> bool:
    """Whether two data sets of provenances are the same, by the checksums that both have: older Runs lack contents."""
    both = [key for key in ("sha256", "contents") if first.get(key) and second.get(key)]
    return all(first[key] == second[key] for key in both)


def require_folder(folder: Path, get_data: str) -> None:
    """DataError where there is no such folder, with what gets the data."""
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {problem}; get the data with {get_data}")


def source_of(folder: Path, unknown: str) -> str:
    """What the data in a folder is, by its SOURCE.txt; `unknown` where there is none."""
    return next(iter(lines(folder / SOURCE_FILE)), unknown)


def write_source(folder: Path, text: str) -> None:
    """Say in one line what the data in `folder` is; `check` gives it as the data's name."""
    atomic_write(folder / SOURCE_FILE, " ".join(text.split()) + "\n")


@contextmanager
def staging(folder: str | Path) -> Iterator[Path]:
    """Yield a new hidden folder beside `folder`, for files not complete yet; gone afterwards."""
    folder = real(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*.unfinished"):
        # What a killed process left. An hour: nobody takes that long over a file, and pids do not
        # tell who is alive on a file system that several machines share.
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    staged = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def publish(staged: Path, folder: str | Path, check: Callable[[Path], Info], force: bool = False) -> bool:
    """Check `staged` and rename it to `folder`; False if the same data was there already, and not `force`.

    Raises DataError if `staged` is no good; or `folder` is, or holds other data, and not `force`.
    """
    new, shown, folder = check(staged), folder, real(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        staged.replace(folder)
        return True
    try:
        old = check(folder)
    except DataError as error:
        if not force or not folder.is_dir():
            raise DataError(f"{error}; --force replaces the folder") from None
    else:
        if same_data(old.dataset, new.dataset) and not force:
            return False
        if not force:
            raise DataError(f"{shown}: holds other data ({old.name}); --force replaces it")
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.old.unfinished")
    folder.replace(aside)
    try:
        staged.replace(folder)
    except OSError:
        aside.replace(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return True


def digits(test_size: int, train_size: int | None = None):
    """scikit-learn's handwritten digits: images (N, 8, 8) uint8, labels (N,), which ones to train and to test on."""
    import numpy as np
    from sklearn.datasets import load_digits  # takes a second
    from sklearn.model_selection import train_test_split

    found = load_digits()
    grey = np.rint(found.images * (255 / 16)).astype(np.uint8)  # ink is 0 to 16
    parts = {"test_size": test_size, "train_size": train_size, "stratify": found.target, "random_state": 0}
    return grey, found.target, *train_test_split(np.arange(len(grey)), **parts)


def real(folder: str | Path) -> Path:
    """The folder itself, through symbolic links: who links it to a larger disk wants the data there."""
    return Path(os.path.realpath(folder))


def lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank; none if there is no such file. Raises DataError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
