"""ImageNet as files, or any image folder: list the images, find the bad ones, make a small offline sample.

A data folder holds `train/<class>/*` and `val/<class>/*`; classes are numbered by name, as torchvision's ImageFolder
does. Or it holds the images as MindRecord files (`data_scripts/imagenet.py mindrecord`). Nothing here needs MindSpore.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from labkit.data import files
from labkit.data.files import DataError, Info
from labkit.data.scan import digest_of, read_records, scan

FOLDER = "imagenet"
SPLITS = {"train": "train", "test": "val"}  # the pipelines' name -> ImageNet's name
CLASSES_FILE = "classes.txt"  # optional: class folder, a tab, its readable name
RECORDS_FILE = "mindrecord.json"  # contents of the MindRecord files; written once they are complete
SAMPLE_SOURCE = "scikit-learn digits, 64x64, as an image folder"
SAMPLE_TRAIN, SAMPLE_VAL = 400, 100
UNKNOWN_SOURCE = "image folder, source unknown"
GET_DATA = (
    "`python data_scripts/imagenet.py arrange` (or `sample`, which needs no download), "
    "or put images of your own there: train/CLASS/NAME.jpg and val/CLASS/NAME.jpg"
)


def check(folder: str | Path, bad_images: str = "error", decode: bool = False) -> Info:
    """Read every image of a data folder and describe its contents.

    `sha256` covers path and size of each image (older Runs have only this one); `contents` covers path and bytes. In a
    large folder, such as ImageNet's 150 GB, each file is read once, and again only after its size or modification time
    has changed. An image is judged by its beginning and end or, with `decode`, by all of it. A bad one raises DataError
    or, with bad_images "skip", is left out and listed in `skipped`. Raises DataError also if the folder or a split is
    missing, a class has no images or is in val only, or MindRecord files are missing or changed since the conversion.
    """
    folder = Path(folder)
    _require_choice(bad_images)
    held, bad = records(folder), {}
    if held:
        counts = {split: held[split]["images"] for split in SPLITS}
        classes, sha256, contents = held["classes"], held["sha256"], held.get("contents")
        parts = [(name, count) for split in SPLITS for name, count, _ in held[split]["files"]]
        found, notes = digests(folder, list(held.get("digests", {})))  # none, if an older labkit converted it
        for name, digest in found.items():
            if held["digests"][name] != digest:
                raise DataError(f"{folder / name}: not what the conversion wrote; convert the images again")
    else:
        classes, images, bad, contents, notes = _scan(folder, bad_images, decode, contents=True)
        counts = {split: len(images[split]) for split in SPLITS}
        parts = [(SPLITS[split], counts[split]) for split in SPLITS]
        sha256 = digest_of((path, size) for split in SPLITS for path, _, size in images[split])
        if bad:
            notes.append(f"{len(bad):,} of {len(bad) + sum(counts.values()):,} images are bad and skipped")
    named = dict(line.split("\t", 1) for line in files.lines(folder / CLASSES_FILE) if "\t" in line)
    return Info(
        folder=folder,
        name=files.source_of(folder, UNKNOWN_SOURCE),
        classes=tuple(named.get(name, name) for name in classes),
        train_images=counts["train"],
        test_images=counts["test"],
        sha256=sha256,
        contents=contents,
        files=tuple(parts),
        note="; ".join(notes) or None,
        skipped=tuple(bad.items()),
    )


def listing(folder: str | Path, split: str, bad_images: str = "error") -> tuple[list[str], np.ndarray]:
    """Paths and labels (N,) int32 of the images of split "train" or "test", by class and then by name.

    Raises DataError as `check` does; ValueError for another split.
    """
    require_split(split)
    _require_choice(bad_images)
    folder = Path(folder)
    rows = _scan(folder, bad_images)[1][split]
    return [str(folder / path) for path, *_ in rows], np.array([label for _, label, *_ in rows], np.int32)


def records(folder: str | Path) -> dict | None:
    """Contents of a folder's MindRecord files; None for a folder with images. Raises DataError.

    {classes: folder names, sha256, contents: of the images they are made of, digests: {name: SHA-256 of a file},
    train, test: {images, files: [name, images, bytes]}}; older conversions lack contents and digests
    """
    folder = Path(folder)
    files.require_folder(folder, GET_DATA)
    held = folder / RECORDS_FILE
    shards = sorted(path.name for path in folder.glob("*.mindrecord*"))
    if not shards and not held.exists():
        return None
    images = [name for name in SPLITS.values() if (folder / name).exists()]
    if images:
        raise DataError(f"{folder}: holds MindRecord files and {images[0]}/, and they may differ; keep one of the two")
    if not held.exists():
        raise DataError(f"{held}: missing, so {shards[0]} may be half-written; convert the images again")
    try:
        content = json.loads(held.read_text(encoding="utf-8"))
        wanted = [(name, count, size) for split in SPLITS for name, count, size in content[split]["files"]]
        _ = content["classes"], content["sha256"], [content[split]["images"] for split in SPLITS]
        if not set(content.get("digests", {})) <= {name for name, *_ in wanted}:
            raise ValueError("digests of other files")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{held}: cannot be read ({error}); convert the images again") from None
    for name, _, size in wanted:
        found = (folder / name).stat().st_size if (folder / name).exists() else None
        if found != size or not (folder / f"{name}.db").exists():
            what = "missing" if found is None else f"{found:,} bytes instead of {size:,}"
            what = "without its index, the .db file" if found == size else what
            raise DataError(f"{folder / name}: {what}; convert the images again")
    return content


def digests(folder: Path, names: list[str]) -> tuple[dict[str, str], list[str]]:
    """Digests of MindRecord files, by name, and notes."""
    status = {name: (folder / name).stat() for name in names}
    parts = {name: [(name, one.st_size, one.st_mtime_ns)] for name, one in status.items()}
    found, notes = scan(folder, parts, read_records)
    return {name: part["sha256"] for name, part in found.items()}, notes


def photographs() -> tuple[Path, Path]:
    """The two photographs that come with scikit-learn, 640x427 JPEG files: a temple and a flower."""
    from sklearn import datasets

    folder = Path(datasets.__file__).parent / "images"
    return folder / "china.jpg", folder / "flower.jpg"


def write_sample(folder: str | Path, force: bool = False) -> Info:
    """Write scikit-learn's handwritten digits (8x8) as 64x64 JPEG files: 400 to train, 100 to validate.

    Writes the same bytes each time (with the same libjpeg). Raises DataError if `folder` already holds other or damaged
    data, unless `force`.
    """
    grey, labels, train, val = files.digits(SAMPLE_VAL, SAMPLE_TRAIN)
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


def require_split(split: str) -> None:
    """Raise ValueError for an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"split is 'train' or 'test', not {split!r}")


def _require_choice(bad_images):
    if bad_images not in ("error", "skip"):
        raise ValueError(f"bad_images is 'error' or 'skip', not {bad_images!r}")


def _scan(folder, bad_images, decode=False, contents=False):
    """(classes, {split: [(path in the folder, label, bytes)] of good images}, {path: what is wrong}, digest, notes)"""
    images, classes, rows = {}, None, {}
    require_splits(folder)
    for name in SPLITS.values():
        place = folder / name
        found = sorted(entry.name for entry in _entries(place) if entry.is_dir())
        classes = found if classes is None else classes
        unknown = sorted(set(found) - set(classes))
        if unknown:
            raise DataError(f"{place / unknown[0]}: {folder / SPLITS['train']} has no such class")
        rows |= {f"{name}/{kind}": _files_of(place / kind, f"{name}/{kind}/") for kind in found}
    found, notes = scan(folder, rows, decode=decode, contents=contents)
    bad = {path: what for part in found.values() for path, what in part["bad"].items()}
    contents = digest_of((name, part["sha256"]) for name, part in found.items()) if contents else None
    if bad and bad_images == "error":
        path, what = next(iter(bad.items()))
        more = f" ({len(bad) - 1:,} more are bad)" if len(bad) > 1 else ""
        raise DataError(f"{folder / path}: {what}{more}; fix or remove it, or skip bad images (data.bad_images=skip)")
    for split, name in SPLITS.items():
        images[split] = [
            (path, label, size)
            for label, kind in enumerate(classes)
            for path, size, _ in rows.get(f"{name}/{kind}", ())
            if path not in bad
        ]
        filled = {label for _, label, _ in images[split]}
        empty = [kind for number, kind in enumerate(classes) if number not in filled]
        if not filled or (empty and split == "train"):
            raise DataError(f"{folder / name / (empty or [''])[0]}: no image to read")
    return classes, images, bad, contents, notes


def require_splits(folder: Path) -> None:
    """Raise DataError if a split's folder is missing."""
    for name in SPLITS.values():
        if not (folder / name).is_dir():
            raise DataError(_no_split(folder, folder / name))


def _no_split(folder, place):
    """The error for a missing split; the folder given may be that of one split, or hold ilsvrc/ and ilsvrc_eval/."""
    held = {entry.name for entry in _entries(folder)}
    if not held & {"train"} and {folder.name, *held} & {"train", "val", "ilsvrc", "ilsvrc_eval"}:
        hint = "train/ and val/ (the original documents' ilsvrc/ and ilsvrc_eval/, renamed; links will do)"
        return f"{folder}: must be the folder that holds {hint}"
    return f"{place}: there is no such folder; get the data with {GET_DATA}"


def _entries(place) -> Iterator[os.DirEntry]:
    """Entries of a folder, without hidden files."""
    try:
        with os.scandir(place) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({error.strerror})") from None


def _files_of(place, prefix):
    """[(prefix + name, bytes, mtime in ns)] of a class folder, sorted; -1 bytes for a link that leads nowhere."""
    found = []
    for entry in _entries(place):
        try:
            status = entry.stat()
        except FileNotFoundError:
            found.append((prefix + entry.name, -1, 0))
        else:
            found.append((prefix + entry.name, status.st_size, status.st_mtime_ns))
    return sorted(found)
