"""What all data folders share: errors, a summary of the contents, and writing a folder whole or not at all."""

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
    sha256: str  # the `check` that computes it says what it covers
    files: tuple[tuple[str, int], ...]  # (file or folder, images)
    note: str | None = None  # something the user should know that is not an error
    skipped: tuple[tuple[str, str], ...] = ()  # (file, what is wrong with it) of images left out
    contents: str | None = None  # SHA-256 over all bytes of the images, if `sha256` does not cover them

    @property
    def dataset(self) -> dict:
        """What a Run's provenance keeps: name, sha256, contents if there is one, train_images."""
        contents = {"contents": self.contents} if self.contents else {}
        return {"name": self.name, "sha256": self.sha256, **contents, "train_images": self.train_images}


def same_data(first: dict, second: dict) -> bool:
    """Whether the data sets of two provenances are the same, by the checksums both have; older Runs lack contents."""
    both = [key for key in ("sha256", "contents") if first.get(key) and second.get(key)]
    return all(first[key] == second[key] for key in both)


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
    """Yield a new hidden folder next to `folder` for incomplete files; it is deleted afterwards."""
    folder = real(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*.unfinished"):
        # Left by a killed process. An hour: no file takes that long, and a pid does not show whether
        # its process is alive if several machines share the file system.
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
    """Check `staged` and rename it to `folder`; False if the same data is there already and not `force`.

    Raises DataError if `staged` is bad or, without `force`, if `folder` is bad or holds other data.
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
    """scikit-learn's handwritten digits: images (N, 8, 8) uint8, labels (N,), indices to train and to test on."""
    import numpy as np
    from sklearn.datasets import load_digits  # takes a second
    from sklearn.model_selection import train_test_split

    found = load_digits()
    grey = np.rint(found.images * (255 / 16)).astype(np.uint8)  # ink is 0 to 16
    parts = {"test_size": test_size, "train_size": train_size, "stratify": found.target, "random_state": 0}
    return grey, found.target, *train_test_split(np.arange(len(grey)), **parts)


def real(folder: str | Path) -> Path:
    """The folder itself, with symbolic links resolved: whoever links it to a larger disk wants the data there."""
    return Path(os.path.realpath(folder))


def lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank; none if there is no such file. Raises DataError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
