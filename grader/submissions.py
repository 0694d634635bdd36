"""Submissions: a folder or a zip with a notebook, a folder or a zip for each learner.

What cannot be used is left out and named; it costs its own part, not the rest of the submission.
"""

import errno
import hashlib
import lzma
import os
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
USABLE = (*NOTEBOOKS, ".zip", ".ckpt")
ARCHIVES = (".rar", ".7z", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")  # not unpacked, but named
PLATFORM = (  # names in downloads: all with the same first part are one learner's
    re.compile(r"(.+?_\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)"),  # Moodle: NAME_ID_...
    re.compile(r"([^_\W]+)(?:_LATE)?(_\d{4,})_\d{5,}_.+"),  # Canvas: NAME_ID_SUBMISSION_FILE
)
RUN_FILES = {"history.jsonl", "summary.json", "provenance.json", "checkpoints"}  # not next to the lab's own recipe.yaml
NOTHING = "neither a notebook (.ipynb or .md) nor a folder or zip with one"
LONGEST_NAME = 120  # bytes, less than the 255 that a file name may have
MOST_FILES = 10_000  # usable ones in a learner's zips
MOST_BYTES = 1_000_000_000  # of these files, unpacked
MOST_LEARNERS = 100  # times as much may be in the zip of a class
DEEPEST = 50  # nested folders
OURS = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES}  # faults of this machine
BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError)


class Unreadable(Exception):
    """A learner's submission cannot be used: one line with the reason, for the learner's page."""


def find(place: Path, scratch: Path, notify=lambda line: None) -> dict[str, list[Path]]:
    """Each learner's files, by name as handed in; unpacks a zip into `scratch`. Raises LabkitError.

    notify: called with a line for each file of the zip that cannot be unpacked.
    """
    folder, is_zip = place, place.suffix.lower() == ".zip" and place.is_file()
    if is_zip:
        folder = scratch
        try:
            _unpack(place, folder, notify, [MOST_FILES * MOST_LEARNERS, MOST_BYTES * MOST_LEARNERS], of_class=True)
        except Unreadable as error:
            raise LabkitError(f"{place.parent / str(error)}") from None
    elif not place.is_dir():
        raise LabkitError(f"{place}: there is no such folder or zip")
    inner = level = _visible(folder)
    while len(level) == 1 and level[0].is_dir() and not level[0].is_symlink():
        only, level = level[0], _visible(level[0])
        inner = level if is_zip and inner == [only] and only.name == place.stem else inner
    if inner != level and _are_several(level):
        several = "several notebooks or zips; give that folder if it is a class, a zip of it if it is a learner's"
        raise LabkitError(f"{place}: its only folder, {only.relative_to(folder)}, has {several}")
    by_learner = {}
    for entry in inner:
        by_learner.setdefault(_learner(entry), []).append(entry)
    if not by_learner:
        raise LabkitError(f"{place}: contains no submissions")
    return dict(sorted(by_learner.items()))


def file_name(student: str) -> str:
    """A learner's name as the name of a file: printable, not too long, and different for different names."""
    name = "".join(letter if letter.isprintable() and letter not in '\\/:*?"<>|' else "_" for letter in student)
    name = name.encode()[:LONGEST_NAME].decode(errors="ignore").strip()
    digest = hashlib.sha256(student.encode(errors="backslashreplace")).hexdigest()[:8]
    return name if name == student else f"{name}-{digest}"


def shown(text) -> str:
    """A text that is safe in any file or page: control and direction characters and lone surrogates become U+FFFD."""
    unsafe = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(unsafe, "\ufffd", str(text).replace("\r\n", "\n"))


@contextmanager
def opened(entries: list[Path], scratch: Path) -> Iterator[tuple[list[Path], list[Path], list[str]]]:
    """A learner's notebooks and Runs, and a line for each file left out; zips are unpacked in `scratch` until the end.

    Raises Unreadable if there is no notebook.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        notebooks, runs, archives, left_out, budget = [], [], [], [], [MOST_FILES, MOST_BYTES]
        for entry in entries:
            _collect(entry, notebooks, runs, archives, left_out)
        for number, archive in enumerate(archives):  # grows by the zips in a zip
            place = Path(folder, str(number))
            try:
                _unpack(archive, place, left_out.append, budget)
            except Unreadable as error:
                left_out.append(str(error))
            _collect(place, notebooks, runs, archives, left_out)
        if not notebooks:
            raise Unreadable("; ".join(left_out[:3]) or f"{entries[0].name}: {NOTHING}")
        trained = [run for run in runs if any(run.glob("checkpoints/*.ckpt"))]  # excludes the lab's recorded Runs
        yield notebooks, trained or runs, left_out


def _collect(place, notebooks, runs, archives, left_out):
    """Sort the files at a place into the lists. A notebook counts wherever it is."""
    paths = [place]
    for path in paths:  # grows by what folders hold
        mode, suffix = path.lstat().st_mode, path.suffix.lower()
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a link may lead anywhere, a pipe never ends
            left_out.append(f"{path.name}: a link or a device; hand in the file itself")
        elif stat.S_ISDIR(mode):
            paths += (inner := _visible(path))
            names = {entry.name for entry in inner}
            if "recipe.yaml" in names and names & RUN_FILES:
                runs.append(path)
        elif suffix in NOTEBOOKS:
            notebooks.append(path)
        elif suffix == ".zip":
            archives.append(path)
        elif path == place or path.name.lower().endswith(ARCHIVES):
            left_out.append(f"{path.name}: {NOTHING}")


def _are_several(entries):
    """Whether files or folders with .ipynb, or else .md, or else zips, have several names, so that they are a class."""
    kinds = [(_learner(entry), {path.suffix.lower() for path in (entry, *entry.rglob("[!.]*"))}) for entry in entries]
    names = ({name for name, suffixes in kinds if suffix in suffixes} for suffix in (*NOTEBOOKS, ".zip"))
    return len(next(filter(None, names), ())) > 1


def _unpack(archive, folder, notify, budget, of_class=False):
    """Unpack what can be used of a zip, and name what should be but cannot. Raises Unreadable if it is no zip.

    notify: called with a line for each file that cannot be unpacked.
    budget: [files, bytes] that may still be unpacked; this takes what it needs.
    of_class: the zip holds submissions, so a file that is not unpacked becomes an empty one: its learner has a row.
    """
    folder.mkdir()
    try:
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                name = _name(entry)
                parts = [part for part in name.split("/") if part not in ("", ".", "..")]
                if not parts or any(map(_hidden, parts)):
                    continue
                usable = Path(parts[-1]).suffix.lower() in USABLE or parts[-1] in ("recipe.yaml", *RUN_FILES)
                if not (usable or of_class or name.lower().endswith(ARCHIVES)):
                    continue
                budget[0], budget[1] = budget[0] - 1, budget[1] - entry.file_size * usable
                target = folder.joinpath(*map(_shortened, parts))
                if os.path.isfile(target):
                    notify(f"{archive.name}: {parts[-1]}: there twice; the first counts")
                    continue
                try:
                    if len(parts) > DEEPEST or min(budget) < 0:
                        raise ValueError("too many files, too large, or in too many folders")
                    (target if name.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
                    if name.endswith("/"):
                        continue
                    target.touch()
                    if stat.S_ISLNK(entry.external_attr >> 16):
                        raise ValueError("a link; hand in the file itself")
                    if usable:
                        with packed.open(entry) as content, open(target, "wb") as file:
                            shutil.copyfileobj(content, file)
                except (*BROKEN, OSError) as error:
                    if getattr(error, "errno", None) in OURS:
                        raise
                    if os.path.isfile(target):  # False for a name that is too long
                        target.write_bytes(b"") if of_class else target.unlink()
                    notify(f"{archive.name}: {parts[-1]}: {getattr(error, 'strerror', None) or error}")
    except (*BROKEN, OSError) as error:
        if getattr(error, "errno", None) in OURS:
            raise
        raise Unreadable(f"{archive.name}: damaged, or not a zip ({error})") from None


def _name(entry):
    """An entry's name. Without the flag for UTF-8, its bytes may be that, GBK (Chinese Windows), or code page 437."""
    name = entry.orig_filename.partition("\0")[0]
    if not entry.flag_bits & 0x800:
        try:
            name = name.encode("cp437").decode()
        except UnicodeDecodeError:
            chinese = name.encode("cp437").decode("gb18030", "surrogateescape")  # different bytes stay different
            # Read as code page 437, Western names have letters only, Chinese ones lines of boxes, or half a sign, "\\".
            if not re.sub("[\0-\x7f]", "", name).isalpha() or re.search(r"(?<![A-Za-z])[^\0-\x7f]\\", name):
                name = chinese
    return name.replace("\\", "/") if entry.create_system == 0 else name  # written by Windows


def _shortened(part):
    return part if len(part.encode(errors="replace")) <= 255 else file_name(Path(part).stem) + Path(part).suffix


def _hidden(name):
    """.DS_Store, .ipynb_checkpoints and the like, and what macOS adds to a zip."""
    return name.startswith((".", "__MACOSX"))


def _visible(folder):
    return sorted(entry for entry in folder.iterdir() if not _hidden(entry.name))


def _learner(entry):
    """A learner's name: the first part of a platform's name, or else a folder's name, a file's without suffix."""
    text = unicodedata.normalize("NFC", entry.name)
    platform = next(filter(None, (pattern.match(text) for pattern in PLATFORM)), None)
    name = "".join(platform.groups()) if platform else text if entry.is_dir() else Path(text).stem
    return name.strip() or text
