"""ImageNet as files, or any image folder: list the images, find the bad ones, make a small offline sample.

A data folder holds `train/<class>/*` and `val/<class>/*`; classes are numbered by name, as torchvision's ImageFolder
does. Nothing here needs MindSpore.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from labkit.data import files
from labkit.data.files import DataError, Info
from labkit.data.scan import digest_of, scan

FOLDER = "imagenet"
SPLITS = {"train": "train", "test": "val"}  # the pipelines' name -> ImageNet's name
CLASSES_FILE = "classes.txt"  # optional: class folder, a tab, its readable name
SAMPLE_SOURCE = "scikit-learn digits, 64x64, as an image folder"
UNKNOWN_SOURCE = "image folder, source unknown"
GET_DATA = "`python data_scripts/imagenet.py arrange` or `sample`, or put your own images into train/CLASS, val/CLASS"


def check(folder: str | Path, bad_images: str = "error", decode: bool = False) -> Info:
    """Read every image of a data folder and describe its contents.

    `sha256` covers path and size of each image, `contents` path and bytes. A file is read again only after its size or
    modification time has changed. An image is judged by its beginning and end or, with `decode`, by all of it. A bad
    one raises DataError or, with bad_images "skip", is left out and listed in `skipped`. Raises DataError also if a
    folder is missing, or if a class has no images or is in val only.
    """
    folder = Path(folder)
    classes, images, bad, contents = _scan(folder, bad_images, decode)
    counts = {split: len(rows) for split, rows in images.items()}
    named = dict(line.split("\t", 1) for line in files.lines(folder / CLASSES_FILE) if "\t" in line)
    return Info(
        folder=folder,
        name=files.source_of(folder, UNKNOWN_SOURCE),
        classes=tuple(named.get(name, name) for name in classes),
        train_images=counts["train"],
        test_images=counts["test"],
        sha256=digest_of((path, size) for rows in images.values() for path, _, size in rows),
        contents=contents,
        files=tuple((SPLITS[split], count) for split, count in counts.items()),
        note=f"{len(bad):,} of {len(bad) + sum(counts.values()):,} images are bad and skipped" if bad else None,
        skipped=tuple(bad.items()),
        images={
            split: ([os.path.join(folder, path) for path, *_ in rows], np.array([row[1] for row in rows], np.int32))
            for split, rows in images.items()
        },
    )


def read(folder: str | Path, split: str, bad_images: str = "error") -> tuple[list[str], np.ndarray]:
    """Paths and labels (N,) int32 of the images of split "train" or "test", by class and then by name.

    Raises DataError as `check` does.
    """
    return check(folder, bad_images).images[split]


def photographs() -> tuple[Path, Path]:
    """The two photographs that come with scikit-learn, 640x427 JPEG files: a temple and a flower."""
    from sklearn import datasets

    folder = Path(datasets.__file__).parent / "images"
    return folder / "china.jpg", folder / "flower.jpg"


def write_sample(folder: str | Path, force: bool = False) -> Info:
    """Write scikit-learn's handwritten digits (8x8) as 64x64 JPEG files: 400 to train, 100 to validate.

    Writes the same bytes each time (with the same libjpeg). Raises DataError as `cifar10_files.write_sample` does.
    """
    grey, labels, train, val = files.digits(test_size=100, train_size=400)
    with files.staging(folder) as staged:
        for split, numbers in (("train", train), ("val", val)):
            for number in numbers:
                place = staged / split / str(labels[number])
                place.mkdir(parents=True, exist_ok=True)
                large = Image.fromarray(grey[number]).resize((64, 64), Image.Resampling.BICUBIC)
                large.convert("RGB").save(place / f"{number:04}.JPEG", quality=90)
        names = "".join(f"{number}\t{name}\n" for number, name in enumerate(files.DIGITS))
        (staged / CLASSES_FILE).write_text(names, encoding="utf-8")
        files.write_source(staged, SAMPLE_SOURCE)
        files.publish(staged, folder, check, force)
    return check(folder)


def require_splits(folder: Path) -> None:
    """Raise DataError if the folder of a split is missing."""
    files.require_folder(folder, GET_DATA)
    for name in SPLITS.values():
        if not (folder / name).is_dir():
            deeper = next(folder.glob(f"*/{name}/"), None)
            instead = f"{name} is in {deeper.parent}" if deeper else "images are in train/CLASS/ and val/CLASS/"
            raise DataError(f"{folder / name}: there is no such folder; {instead}")


def _scan(folder, bad_images, decode=False):
    """(classes, {split: [(path in the folder, label, bytes)] of good images}, {path: what is wrong}, digest)"""
    require_splits(folder)
    classes = _names(folder / "train")
    if unknown := sorted({*_names(folder / "val")} - {*classes}):
        raise DataError(f"{folder / 'val' / unknown[0]}: {folder / 'train'} has no such class")
    if not _names(folder / "val") and any((folder / "val").glob("*.*")):
        raise DataError(f"{folder / 'val'}: no folder of a class (Kaggle's has none): sort the images into val/CLASS/")
    parts = {f"{name}/{kind}": _files_of(folder, f"{name}/{kind}") for name in SPLITS.values() for kind in classes}
    findings = scan(folder, parts, decode)
    bad = {path: what for part in findings.values() for path, what in part["bad"].items()}
    if bad and bad_images == "error":
        path, what = next(iter(bad.items()))
        more = f" ({len(bad) - 1:,} more are bad)" if len(bad) > 1 else ""
        raise DataError(f"{folder / path}: {what}{more}; fix or remove it, or skip bad images (data.bad_images=skip)")
    images = {}
    for split, name in SPLITS.items():
        of_class = [[row for row in parts[f"{name}/{kind}"] if row[0] not in bad] for kind in classes]
        empty = [kind for kind, rows in zip(classes, of_class) if not rows]
        if len(empty) == len(classes) or (empty and split == "train"):
            raise DataError(f"{folder / name / (empty or [''])[0]}: no image to read")
        images[split] = [(path, label, size) for label, rows in enumerate(of_class) for path, size, _ in rows]
    return classes, images, bad, digest_of((name, part["sha256"]) for name, part in findings.items())


def _names(place):
    """Folders of classes in that of a split, sorted; none of them hidden."""
    return sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and not entry.name.startswith("."))


def _files_of(folder, name):
    """[(NAME/FILE, bytes, mtime in ns)] of a class folder, sorted; -1 bytes for a link that leads nowhere."""
    rows = []
    if (folder / name).is_dir():  # a class may have no image in val
        for entry in os.scandir(folder / name):
            if not entry.name.startswith("."):
                status = entry.stat() if os.path.exists(entry) else None
                rows.append((f"{name}/{entry.name}", *((status.st_size, status.st_mtime_ns) if status else (-1, 0))))
    return sorted(rows)
