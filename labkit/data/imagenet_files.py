"""ImageNet as files, or any image folder: list the images, find the bad ones, make a small offline sample.

A data folder holds `train/<class>/*` and `val/<class>/*`; classes are numbered by name, as torchvision's ImageFolder
does. Or it holds the same as MindRecord files (`data_scripts/imagenet.py mindrecord`). Nothing here needs MindSpore.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from labkit.data import files
from labkit.data.files import DataError, Info

FOLDER = "imagenet"
SPLITS = {"train": "train", "test": "val"}  # what the pipelines call it -> what ImageNet calls it
CLASSES_FILE = "classes.txt"  # optional: class folder, a tab, what people call it
RECORDS_FILE = "mindrecord.json"  # what the MindRecord files hold; written when they are whole
STAMP_FILE = ".labkit-scan.json"  # which files of a large folder are bad, so that it is scanned once
STAMP_FROM = 10_000  # images; fewer are scanned in a second or two
THREADS = 16  # more than there are cores: a scan waits for the disk
FORMATS = ("JPEG", "PNG")
SAMPLE_SOURCE = "scikit-learn digits, 64x64, as an image folder"
SAMPLE_TRAIN, SAMPLE_VAL = 400, 100
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
UNKNOWN_SOURCE = "image folder, source unknown"
GET_DATA = (
    "`python data_scripts/imagenet.py arrange` (or `sample`, which needs no download), "
    "or put images of your own there: train/CLASS/NAME.jpg and val/CLASS/NAME.jpg"
)


def check(folder: str | Path, bad_images: str = "error", decode: bool = False) -> Info:
    """Look at every image of a data folder and say what is there; sha256 is over path and size of each image.

    Beginning and end of each file are read; with `decode`, all of it. A bad image raises DataError or, with
    bad_images "skip", is left out and listed in `skipped`. DataError also: no such folder or split; a class without
    images, or one in val that train has not; MindRecord files that are missing or cut short.
    """
    folder = Path(folder)
    _require_choice(bad_images)
    held, bad, notes = records(folder), {}, []
    if held:
        counts = {split: held[split]["images"] for split in SPLITS}
        classes, sha256 = held["classes"], held["sha256"]
        parts = [(name, count) for split in SPLITS for name, count, _ in held[split]["files"]]
    else:
        classes, images, bad, notes = _scan(folder, bad_images, decode)
        counts = {split: len(images[split]) for split in SPLITS}
        parts = [(SPLITS[split], counts[split]) for split in SPLITS]
        sha256 = _digest((path, size) for split in SPLITS for path, _, size, _ in images[split])
        if bad:
            notes.append(f"{len(bad):,} of {len(bad) + sum(counts.values()):,} images are bad and skipped")
    named = dict(line.split("\t", 1) for line in files.lines(folder / CLASSES_FILE) if "\t" in line)
    source = files.lines(folder / files.SOURCE_FILE)
    return Info(
        folder=folder,
        name=source[0] if source else UNKNOWN_SOURCE,
        classes=tuple(named.get(name, name) for name in classes),
        train_images=counts["train"],
        test_images=counts["test"],
        sha256=sha256,
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
    """What the MindRecord files of a folder hold; None for a folder with images. Raises DataError.

    {classes: folder names, sha256: of the images they are made of, train, test: {images, files: [name, images, bytes]}}
    """
    folder = Path(folder)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {problem}; get the data with {GET_DATA}")
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{held}: cannot be read ({error}); convert the images again") from None
    for name, _, size in wanted:
        found = (folder / name).stat().st_size if (folder / name).exists() else None
        if found != size or not (folder / f"{name}.db").exists():
            what = "missing" if found is None else f"{found:,} bytes instead of {size:,}"
            what = "without its index, the .db file" if found == size else what
            raise DataError(f"{folder / name}: {what}; convert the images again")
    return content


def examine(path: str | Path, decode: bool = False) -> str | None:
    """What is wrong with an image file, in a few words; None for a good one: JPEG or PNG, 8 bits a channel.

    Grey, CMYK and palette images are good: torchvision's `convert("RGB")` and MindData's decoder give the same pixels.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.mode in ("I", "I;16", "I;16B", "F"):
                return "16 bits a channel, which the decoders read differently"
            # Entropy-coded JPEG has no end marker (0xFFD9) inside; some files have a few bytes after it.
            image.fp.seek(max(0, os.fstat(image.fp.fileno()).st_size - 4096))
            ends = (b"IEND" if image.format == "PNG" else b"\xff\xd9") in image.fp.read()
            if decode or not ends:
                image.load()
    except Image.UnidentifiedImageError:
        return "not a JPEG or PNG image" if Path(path).stat().st_size else "empty"
    except IsADirectoryError:
        return "a folder among the images"
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        return str(getattr(error, "strerror", None) or error).splitlines()[0]
    return None


def photographs() -> tuple[Path, Path]:
    """The two photographs that scikit-learn brings, 640x427 JPEG files: a temple and a flower."""
    from sklearn import datasets

    folder = Path(datasets.__file__).parent / "images"
    return folder / "china.jpg", folder / "flower.jpg"


def write_sample(folder: str | Path, force: bool = False) -> Info:
    """Write scikit-learn's handwritten digits (8x8) as 64x64 JPEG files: 400 to train, 100 to validate.

    The same bytes each time (with the same libjpeg). Raises DataError if `folder` already holds other or damaged data
    and not `force`.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8); ink is 0 to 16
    train, val = train_test_split(
        np.arange(len(grey)), train_size=SAMPLE_TRAIN, test_size=SAMPLE_VAL, stratify=digits.target, random_state=0
    )
    with files.staging(folder) as staged:
        for split, numbers in (("train", train), ("val", val)):
            for number in numbers:
                place = staged / split / str(digits.target[number])
                place.mkdir(parents=True, exist_ok=True)
                large = Image.fromarray(grey[number]).resize((64, 64), Image.Resampling.BICUBIC)
                large.convert("RGB").save(place / f"{number:04}.JPEG", quality=90)
        names = "".join(f"{number}\t{name}\n" for number, name in enumerate(DIGITS))
        (staged / CLASSES_FILE).write_text(names, encoding="utf-8")
        files.write_source(staged, SAMPLE_SOURCE)
        publish(staged, folder, force)
    return check(folder)


def publish(staged: Path, folder: str | Path, force: bool = False) -> bool:
    """`labkit.data.files.publish` of an image folder or of MindRecord files."""
    return files.publish(staged, folder, check, force)


def require_split(split: str) -> None:
    """ValueError for what is no split."""
    if split not in SPLITS:
        raise ValueError(f"split is 'train' or 'test', not {split!r}")


def _require_choice(bad_images):
    if bad_images not in ("error", "skip"):
        raise ValueError(f"bad_images is 'error' or 'skip', not {bad_images!r}")


def _scan(folder, bad_images, decode=False):
    """(classes, {split: [(path in the folder, label, bytes, mtime)] of good images}, {path: what is wrong}, notes)"""
    images, classes = {}, None
    for split, name in SPLITS.items():
        place = folder / name
        if not place.is_dir():
            raise DataError(f"{place}: there is no such folder; get the data with {GET_DATA}")
        found = sorted(entry.name for entry in _entries(place) if entry.is_dir())
        classes = found if classes is None else classes
        unknown = sorted(set(found) - set(classes))
        if unknown:
            raise DataError(f"{place / unknown[0]}: {folder / SPLITS['train']} has no such class")
        labels = {name: number for number, name in enumerate(classes)}
        images[split] = [
            (f"{name}/{kind}/{file}", labels[kind], size, mtime)
            for kind in found
            for file, size, mtime in _files_of(place / kind)
        ]
    bad, notes = _find_bad(folder, [row for split in SPLITS for row in images[split]], decode)
    if bad and bad_images == "error":
        path, what = next(iter(bad.items()))
        more = f" ({len(bad) - 1:,} more are bad)" if len(bad) > 1 else ""
        raise DataError(f"{folder / path}: {what}{more}; mend or remove it, or skip bad images (data.bad_images=skip)")
    for split, name in SPLITS.items():
        images[split] = [row for row in images[split] if row[0] not in bad]
        filled = {label for _, label, *_ in images[split]}
        empty = [kind for number, kind in enumerate(classes) if number not in filled]
        if not filled or (empty and split == "train"):
            raise DataError(f"{folder / name / (empty or [''])[0]}: no image to read")
    return classes, images, bad, notes


def _digest(rows):
    """SHA-256 over rows of a path and numbers."""
    digest = hashlib.sha256()
    for path, *numbers in rows:
        digest.update(os.fsencode(path) + "".join(f"\t{number}" for number in numbers).encode() + b"\n")
    return digest.hexdigest()


def _entries(place) -> Iterator[os.DirEntry]:
    """What is in a folder, hidden files left out."""
    try:
        with os.scandir(place) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({error.strerror})") from None


def _files_of(place):
    """[(name, bytes, mtime in ns)] of a class folder, sorted by name; -1 bytes for a link that leads nowhere."""
    found = []
    for entry in _entries(place):
        try:
            status = entry.stat()
        except FileNotFoundError:
            found.append((entry.name, -1, 0))
        else:
            found.append((entry.name, status.st_size, status.st_mtime_ns))
    return sorted(found)


def _find_bad(folder, rows, decode):
    """({path: what is wrong}, notes); looked up in the folder's stamp where nothing changed since."""
    stamp = folder / STAMP_FILE
    key = _digest((path, size, mtime) for path, _, size, mtime in rows)
    try:
        kept = json.loads(stamp.read_text(encoding="utf-8"))
        if kept["key"] == key and kept["decoded"] >= decode:
            return dict(kept["bad"]), []
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no stamp, or not one of ours: then look at the images
    bad = {}
    pieces = [rows[start : start + 64] for start in range(0, len(rows), 64)]
    pool = ThreadPoolExecutor(THREADS)
    try:
        with tqdm(total=len(rows), desc=f"checking {folder}", unit=" images", delay=5, leave=False) as bar:
            for piece, found in zip(
                pieces, pool.map(lambda piece: [examine(folder / row[0], decode) for row in piece], pieces)
            ):
                bad |= {row[0]: what for row, what in zip(piece, found) if what}
                bar.update(len(piece))
    finally:
        pool.shutdown(cancel_futures=True)
    if len(rows) < STAMP_FROM:
        return bad, []
    try:
        files.atomic_write(stamp, json.dumps({"key": key, "decoded": decode, "bad": bad}, indent=1) + "\n")
    except OSError as error:
        return bad, [f"{stamp}: cannot be written ({error.strerror}), so every start looks at all images again"]
    return bad, []
