"""Submissions: a folder or a zip with a notebook, a folder or a zip for each learner.

Whatever cannot be used becomes a one-line problem of that learner.
"""

import hashlib
import lzma
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit.system.errors import LabkitError

NOTEBOOKS = (".ipynb", ".md")
MOODLE = re.compile(r"(.+?_\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")  # in a download of all submissions
RUN_FILES = {"history.jsonl", "summary.json", "provenance.json", "checkpoints"}  # not next to the lab's own recipe.yaml
LONGEST_NAME = 120  # bytes, less than the 255 that a file name may have
MOST_FILES = 10_000  # per learner
MOST_BYTES = 1_000_000_000  # of a learner's unpacked zip
DEEPEST = 50  # nested folders
BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError)


class SubmissionsError(LabkitError):
    """The submissions cannot be graded at all: one line that names the file."""


class Unreadable(Exception):
    """A learner's submission cannot be used: one line with the reason, for the learner's page."""


def find(place: Path, scratch: Path) -> dict[str, list[Path]]:
    """Each learner's files, by name; unpacks a zip into `scratch`. Raises SubmissionsError."""
    if place.suffix.lower() == ".zip" and place.is_file():
        try:
            with zipfile.ZipFile(place) as packed:
                _unpack_class(packed, scratch)
        except (*BROKEN, OSError) as error:
            raise SubmissionsError(f"{place}: cannot be unpacked: {error}") from None
        folder = scratch
        if [entry.name for entry in _visible(folder)] == [place.stem] and (folder / place.stem).is_dir():
            folder = folder / place.stem
    elif place.is_dir():
        folder = place
    else:
        raise SubmissionsError(f"{place}: there is no such folder or zip")
    by_learner = {}
    for entry in _visible(folder):
        by_learner.setdefault(_learner(entry), []).append(entry)
    if not by_learner:
        raise SubmissionsError(f"{place}: contains no submissions")
    return dict(sorted(by_learner.items()))


def _unpack_class(packed, folder):
    """Unpack a class. If a learner's files cannot be unpacked, leave an empty file, which is reported as unreadable."""
    folder.mkdir()
    broken = set()
    for entry in packed.infolist():
        try:
            packed.extract(entry, folder)
        except (*BROKEN, OSError):
            broken.add(entry.filename.partition("/")[0])
    for name in broken - {"", ".", ".."}:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name[:60]).write_bytes(b"")


@contextmanager
def opened(entries: list[Path], scratch: Path) -> Iterator[tuple[list[Path], list[Path]]]:
    """A learner's notebooks and Runs; zips are unpacked in `scratch` until the end. Raises Unreadable."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        if len(entries) > 1 and not all(MOODLE.match(entry.name) for entry in entries):
            raise Unreadable(f"more than one submission: {', '.join(entry.name for entry in entries)}")
        notebooks, runs, archives = [], [], []
        for entry in entries:
            _collect(entry, notebooks, runs, archives)
        for number, archive in enumerate(archives):  # zips in folders, but not zips in zips
            _collect(_unpacked(archive, Path(folder, str(number))), notebooks, runs, [])
        if not notebooks:
            raise Unreadable(f"{entries[0].name}: neither a notebook (.ipynb or .md) nor a folder or zip with one")
        trained = [run for run in runs if any(run.glob("checkpoints/*.ckpt"))]  # excludes the lab's recorded Runs
        yield notebooks, trained or runs


def _collect(place, notebooks, runs, archives):
    """Sort the files at a place into the three lists; files in a Run are not notebooks."""
    paths, count = [place], 0
    while paths:
        path = paths.pop()
        count += 1
        if count > MOST_FILES:
            raise Unreadable(f"more than {MOST_FILES:,} files")
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a link may lead anywhere, a pipe never ends
            raise Unreadable(f"{path.name}: a link or a device; hand in the file itself")
        if stat.S_ISDIR(mode):
            inner = _visible(path)
            paths += inner[::-1]
            names = {entry.name for entry in inner}
            if "recipe.yaml" in names and names & RUN_FILES:
                runs.append(path)
        elif any(run in path.parents for run in runs):
            continue
        elif path.suffix.lower() in NOTEBOOKS:
            notebooks.append(path)
        elif path.suffix.lower() == ".zip":
            archives.append(path)


def _unpacked(archive, folder):
    """Unpack a learner's zip into a folder; zipfile writes nothing outside of it, and no links."""
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = packed.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > MOST_FILES or size > MOST_BYTES:
                raise Unreadable(f"{archive.name}: {len(entries):,} files of {size / 1e6:,.0f} MB are too much")
            if any(entry.filename.count("/") > DEEPEST for entry in entries):
                raise Unreadable(f"{archive.name}: nested folders, more than {DEEPEST} deep")
            packed.extractall(folder)
    except BROKEN as error:
        raise Unreadable(f"{archive.name}: damaged, or not a zip that opens without a password ({error})") from None
    return folder


def _visible(folder):
    """A folder's entries without .DS_Store, .ipynb_checkpoints and the like, and what macOS adds to a zip."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX")))


def _learner(entry):
    """A learner's name, unique and valid as a file name: the first part of Moodle's names, a file's without suffix."""
    text = unicodedata.normalize("NFC", entry.name)
    moodle = MOODLE.match(text)
    whole = moodle[1] if moodle else text if entry.is_dir() else Path(text).stem
    name = "".join(letter if letter.isprintable() and letter not in '\\/:*?"<>|' else "_" for letter in whole)
    name = name.encode()[:LONGEST_NAME].decode(errors="ignore").strip()
    digest = hashlib.sha256(whole.encode(errors="backslashreplace")).hexdigest()[:8]
    return name if name == whole else f"{name}-{digest}"
