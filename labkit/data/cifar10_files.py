"""CIFAR-10 as files: check them, read them, and make a small offline sample in the same layout.

A data folder holds five training batches and one test batch. A batch is a sequence of records of
3,073 bytes: one label (0 to 9), then 1,024 red, 1,024 green and 1,024 blue values, each plane row by row
(https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version"). Nothing here needs MindSpore.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from labkit.data import files
from labkit.data.files import DataError, Info

FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILE = "test_batch.bin"
FILES_OF = {"train": TRAIN_FILES, "test": (TEST_FILE,)}
META_FILE = "batches.meta.txt"  # the class names, one a line
RECORD_BYTES = 1 + 3 * 32 * 32
# Per channel (R, G, B) over the training images, in units of 0..1 (the original lab's).
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SAMPLE_SOURCE = "scikit-learn digits, 32x32, in CIFAR-10's binary layout"
UNKNOWN_SOURCE = "CIFAR-10 layout, source unknown"
GET_DATA = "`python data_scripts/cifar10.py download` or `import PATH` (the profile sample makes its own)"
AGAIN = f"get the data again with {GET_DATA}"


def check(folder: str | Path) -> Info:
    """Read every record of a data folder and describe it; sha256 covers names and contents of the six batches.

    Raises DataError if the folder is missing; if a batch is missing, empty, cut short or has a label above 9; if only
    some of the batches have CIFAR-10's 10,000 images; or if the number of class names is not ten.
    """
    folder = Path(folder)
    files.require_folder(folder, GET_DATA)
    digest, batches = hashlib.sha256(), {name: _records(folder / name) for name in (*TRAIN_FILES, TEST_FILE)}
    for name, records in batches.items():
        digest.update(name.encode())
        digest.update(records)
    counts = {name: len(records) for name, records in batches.items()}
    classes, note = _class_names(folder / META_FILE)
    # A batch that lost whole records still has a valid layout; only the count shows the loss.
    short = [f"{folder / name} ({count:,})" for name, count in counts.items() if count != 10_000]
    if 0 < len(short) < len(counts):
        raise DataError(f"{', '.join(short)}: the other batches hold 10,000 images; {AGAIN}")
    return Info(
        folder=folder,
        name=files.source_of(folder, UNKNOWN_SOURCE),
        classes=classes,
        train_images=sum(counts[name] for name in TRAIN_FILES),
        test_images=counts[TEST_FILE],
        sha256=digest.hexdigest(),
        files=tuple(counts.items()),
        note=note,
        images={split: _images([batches[name] for name in names]) for split, names in FILES_OF.items()},
    )


def read(folder: str | Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 32, 32, 3) RGB and labels (N,), both uint8, of split 'train' or 'test'.

    Raises DataError as `check` does, for the files that it reads.
    """
    return _images([_records(Path(folder) / name) for name in FILES_OF[split]])


def write_sample(folder: str | Path, force: bool = False) -> Info:
    """Write scikit-learn's handwritten digits (8x8) as 32x32 RGB: 1,437 to train, 360 to test.

    Writes the same bytes each time. Both parts have the same writers, so the accuracy is flattering: it shows that
    training works, not how good a network is. Raises DataError if `folder` already holds other or damaged data,
    unless `force`.
    """
    from PIL import Image

    grey, labels, train, test = files.digits(test_size=360)
    large = [Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC) for image in grey]
    pixels = np.stack([np.asarray(image).reshape(-1) for image in large])  # (N, 1024)
    records = np.hstack([labels.astype(np.uint8)[:, None], pixels, pixels, pixels])
    with files.staging(folder) as staged:
        for name, rows in zip(TRAIN_FILES, np.array_split(train, 5), strict=True):
            records[rows].tofile(staged / name)
        records[test].tofile(staged / TEST_FILE)
        (staged / META_FILE).write_text("\n".join(files.DIGITS) + "\n", encoding="utf-8")
        files.write_source(staged, SAMPLE_SOURCE)
        files.publish(staged, folder, check, force)
    return check(folder)


def _images(batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What `read` returns, from the records of some batches."""
    records = np.concatenate(batches)
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].copy()


def _records(path: Path) -> np.ndarray:
    """The records of one batch, (N, 3073) uint8, label first."""
    if not path.is_file():
        raise DataError(f"{path}: this batch is missing; {_instead(path.parent) or AGAIN}")
    data = np.fromfile(path, np.uint8)
    count, rest = divmod(len(data), RECORD_BYTES)
    if rest or not count:
        raise DataError(f"{path}: record {count} is cut short after {rest:,} of {RECORD_BYTES:,} bytes; {AGAIN}")
    records = data.reshape(count, RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] > 9)
    if len(wrong):
        label = records[wrong[0], 0]
        raise DataError(f"{path}: record {wrong[0]} has label {label}, but labels are 0 to 9; {AGAIN}")
    return records


def _instead(folder):
    """What to do with a folder that is not the data itself; "" if it says nothing."""
    if (folder / "data_batch_1").exists():
        return f"the folder has the version for Python, not the binary one; {AGAIN}"
    deeper = next(folder.glob(f"*/{TEST_FILE}"), None)
    return f"the batches are in {deeper.parent}" if deeper else ""


def _class_names(path: Path) -> tuple[tuple[str, ...], str | None]:
    """The ten names in batches.meta.txt, or CIFAR-10's with a note when there is no such file."""
    if not path.exists():
        return CLASSES, f"no {META_FILE}: CIFAR-10's own class names are assumed"
    names = files.lines(path)
    if len(names) != 10:
        raise DataError(f"{path}: {len(names)} class names, but ten are needed, one on each line")
    return tuple(names), None
