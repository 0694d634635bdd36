"""ImageNet2012's three archives: check them, read the development kit, unpack images into one folder per class."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
from tqdm import tqdm

from data_scripts.shared import BAD_ARCHIVE, Failure, damaged, file_md5
from labkit.data.files import DataError
from labkit.system.files import atomic_write

DEVKIT, TRAIN, VAL = "ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
MD5 = {  # torchvision.datasets.imagenet's ARCHIVE_META
    DEVKIT: "fa75699e90414af021442c21a62c3abf",
    TRAIN: "1d675b47d978889d74fa0da5fadfb00e",
    VAL: "29b22e2961454d5413ddabcf34fc5622",
}
VERIFIED = ".verified.json"


def require_archives(archives: Path) -> None:
    """Raise Failure if one of the three archives is not in the folder."""
    for name in MD5:
        if not (archives / name).is_file():
            raise Failure(f"{archives / name}: missing; download it from https://image-net.org/download (login needed)")


def verify(archives: Path, work: Path) -> None:
    """Compare the archives' MD5, unless `work` records that this has been done. Raises Failure."""
    done = work / VERIFIED
    verified = json.loads(done.read_text()) if done.exists() else {}
    for name, md5 in MD5.items():
        status = (archives / name).stat()
        if verified.get(name) == [status.st_size, status.st_mtime_ns]:
            continue
        actual = file_md5(archives / name, progress=True)
        if actual != md5:
            raise Failure(f"{archives / name}: MD5 {actual}, not {md5}; download it again (or use --no-verify)")
        verified[name] = [status.st_size, status.st_mtime_ns]
        atomic_write(done, json.dumps(verified))


def read_devkit(archive: Path) -> tuple[dict[str, str], list[str]]:
    """({wnid: names} of the classes, wnid of each validation image) from the development kit. Raises DataError."""
    from scipy.io import loadmat

    contents = {"data/meta.mat": None, "data/ILSVRC2012_validation_ground_truth.txt": None}
    try:
        with tarfile.open(archive) as kit:
            for entry in kit:
                name = "/".join(PurePosixPath(entry.name).parts[-2:])
                if name in contents and entry.isfile():
                    contents[name] = kit.extractfile(entry).read()
    except (*BAD_ARCHIVE, OSError) as error:
        raise damaged(archive, error) from None
    for name, content in contents.items():
        if content is None:
            raise DataError(f"{archive}: contains no {name}")
    meta, truth = contents.values()
    try:
        synsets = np.atleast_1d(loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        # The leaves of the tree are the classes; inner nodes group them.
        leaves = [row for row in synsets if row["num_children"] == 0]
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
        names = {str(row["WNID"]): " ".join(str(row["words"]).split()) for row in leaves}
        invalid = [wnid for wnid in names if not re.fullmatch(r"n\d{8}", wnid)]
        if invalid or not names:
            raise ValueError(f"{invalid[0]!r} is not a WordNet ID" if invalid else "no classes")
    except Exception as error:  # scipy raises all kinds of errors for a damaged file
        raise DataError(f"{archive}: data/meta.mat: cannot be read ({error})") from None
    try:
        return names, [wnids[int(line)] for line in truth.split()]
    except (ValueError, KeyError) as error:
        raise DataError(f"{archive}: ILSVRC2012_validation_ground_truth.txt: no class {error}") from None


def arrange(archives: Path, work: Path) -> dict[str, str]:
    """Unpack all images into work/train/<wnid>/ and work/val/<wnid>/; returns {wnid: names}. Raises DataError."""
    classes, truth = read_devkit(archives / DEVKIT)
    arrange_train(archives / TRAIN, work / "train", classes)
    arrange_val(archives / VAL, work / "val", truth)
    (work / VERIFIED).unlink(missing_ok=True)
    return classes


def arrange_train(archive: Path, place: Path, classes) -> None:
    """Unpack the tar of tars into place/<wnid>/; a class whose folder exists is complete. Raises DataError."""
    place.mkdir(exist_ok=True)
    with Archive(archive) as outer, tqdm(total=len(classes), unit=" classes", desc="  train") as bar:
        for entry in outer:
            wnid = outer.match(entry, r"(n\d{8})\.tar")
            if wnid not in classes:
                raise DataError(f"{archive}: {entry.name}: not a class in the development kit")
            if not (place / wnid).exists():
                unfinished = fresh(place / f".{wnid}.unfinished")
                with Archive(archive, outer.open(entry), entry) as inner:
                    for image in inner:
                        inner.match(image, rf"({wnid}_\d+\.JPEG)")
                        inner.save(image, unfinished)
                if not any(unfinished.iterdir()):
                    raise DataError(f"{archive}: {entry.name}: contains no images")
                unfinished.replace(place / wnid)
            bar.update()
    missing = sorted(wnid for wnid in classes if not (place / wnid).exists())
    if missing:
        raise DataError(f"{archive}: {missing[0]}.tar is missing ({len(missing):,} of {len(classes):,} classes are)")


def arrange_val(archive: Path, place: Path, truth: list[str]) -> None:
    """Unpack the flat tar into place/<wnid>/: line k of the ground truth is the class of image k. Raises DataError."""
    if place.exists():
        return
    unfinished, count = fresh(place.with_name(".val.unfinished")), 0
    with Archive(archive) as images, tqdm(total=len(truth), unit=" images", desc="  val") as bar:
        for entry in images:
            number = int(images.match(entry, r"ILSVRC2012_val_(\d{8})\.JPEG"))
            if not 1 <= number <= len(truth):
                raise DataError(f"{archive}: {entry.name}: the ground truth has {len(truth):,} images")
            images.save(entry, unfinished / truth[number - 1])
            count += 1
            bar.update()
    if count != len(truth):
        raise DataError(f"{archive}: {count:,} images, but the ground truth has {len(truth):,}")
    unfinished.replace(place)


class Archive:
    """Reads only contents from an uncompressed tar: no path, link or mode in it reaches the disk.

    Anything unexpected in it is an error that names the archive and the entry.
    """

    def __init__(self, path, file=None, within=None):
        self.path, self.shown = path, f"{path}: {within.name}" if within else str(path)
        self.file = file or path.open("rb")
        self.size = within.size if within else path.stat().st_size

    def __enter__(self):
        return self

    def __exit__(self, error_class, error, trace):
        self.file.close()
        if isinstance(error, BAD_ARCHIVE):
            raise damaged(Path(self.shown), error) from None

    def __iter__(self):
        with tarfile.open(fileobj=self.file, mode="r:") as self.tar:
            for entry in self.tar:
                if entry.offset_data + entry.size > self.size:
                    raise DataError(f"{self.shown}: {entry.name}: the archive is truncated; download it again")
                yield entry
            # tarfile stops at a damaged header as it does at the archive's end, which consists of zeros.
            self.file.seek(self.tar.offset)
            if self.file.read(512).strip(b"\0"):
                raise DataError(f"{self.shown}: damaged after {self.tar.offset:,} bytes; download it again")

    def match(self, entry, pattern):
        """The pattern's group in an entry's name; the entry must be a regular file."""
        match = re.fullmatch(rf"(?:\./)?{pattern}", entry.name)
        if not match or not entry.isfile():
            raise DataError(f"{self.shown}: {entry.name!r} is not expected in this archive; not unpacked")
        return match[1]

    def open(self, entry):
        return self.tar.extractfile(entry)

    def save(self, entry, folder):
        folder.mkdir(exist_ok=True)
        path = folder / PurePosixPath(entry.name).name
        if path.exists():
            raise DataError(f"{self.shown}: contains {entry.name} twice")
        with self.open(entry) as content, path.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)


def fresh(folder: Path) -> Path:
    """An empty folder, replacing what an interrupted run left behind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
