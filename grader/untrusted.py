"""Files that strangers made: of a zip nothing is written outside, no links, and never more than is allowed; YAML that
is no larger than it looks."""

import errno
import re
import shutil
import stat
import subprocess
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import yaml

OF_THE_ZIP = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EILSEQ, errno.EINVAL)

DEEPEST = 60  # folders within folders


class Unreadable(Exception):
    """A learner's file that cannot be used: one line that says why, for the learner's page."""


def unpack(archive: Path, folder: Path, most_files: int, most_bytes: int) -> Path:
    """Unpack a zip into a new folder, and return that; Unreadable, where its list shows why before anything is written.

    OSError is for what is not the zip's fault, such as a full disk.
    """
    with _readable(archive, folder), zipfile.ZipFile(archive) as zipped:
        _unpack(zipped, _entries(zipped), folder, most_files, most_bytes)
    return folder


def unpack_each(archive: Path, folder: Path, most_files: int, most_bytes: int) -> tuple[Path, dict[str, str]]:
    """Unpack a zip of what many have handed in: the folder with an entry for each, and why some are left out, by name.

    The limits hold for each of them. A folder of the zip's own name may hold all the others, also where a browser
    has numbered the zip. Raises as `unpack`.
    """
    left_out, by_name, own = {}, {}, re.sub(r" ?\(\d+\)$", "", archive.stem)
    with _readable(archive, folder), zipfile.ZipFile(archive) as zipped:
        entries = _entries(zipped)
        shown = [_parts(entry) for entry in entries if not entry.filename.startswith(".")]
        tops = {parts[0] for parts in shown if parts}
        inner = any(parts[1:] for parts in shown) and (tops == {own} or tops == {archive.stem})
        for entry in entries:
            by_name.setdefault("".join(_parts(entry)[inner:][:1]).strip("/") or "_", []).append(entry)
        folder.mkdir(parents=True)
        for name, its in by_name.items():
            try:
                with _readable(Path(name), folder):
                    _unpack(zipped, its, folder, most_files, most_bytes)
            except Unreadable as error:
                left_out[name] = str(error)
    return folder / tops.pop() if inner else folder, left_out


@contextmanager
def _readable(what, folder):
    """Unreadable, with the name of a zip or of an entry, for whatever is its own fault."""
    try:
        yield
    except Unreadable as error:
        why = str(error)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        why = f"damaged, or not a zip ({' '.join(str(error).split()) or 'it ends too early'})"
    except OSError as error:  # a name that is too long, a folder that is a file too
        if error.errno not in (None, errno.EEXIST, *OF_THE_ZIP):
            raise
        name = str(error.filename or folder).removeprefix(f"{folder}/")
        why = f"holds {name} twice" if error.errno == errno.EEXIST else f"{name}: {error.strerror or error}"
    else:
        return
    raise Unreadable(f"{what.name}: {why}")


def _entries(zipped):
    for entry in zipped.infolist():
        entry.filename = entry.filename.replace("\\", "/")  # some programs of Windows write these
    return [entry for entry in zipped.infolist() if not entry.filename.startswith("__MACOSX/")]


def _parts(entry):
    return PurePosixPath(entry.filename).parts


def _unpack(zipped, entries, folder, most_files, most_bytes):
    if len(entries) > most_files:
        raise Unreadable(f"{len(entries):,} files are more than {most_files:,}")
    size = sum(entry.file_size for entry in entries)
    if size > most_bytes:
        raise Unreadable(f"{size / 1e6:,.0f} MB unpacked are more than {most_bytes / 1e6:,.0f} MB")
    for entry in entries:
        _require_harmless(entry)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        _extract(zipped, entry, folder / entry.filename)


def _require_harmless(entry):
    name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name[1:2] == ":" or not path.parts:
        raise Unreadable(f"{name}: leads out of the zip")
    if len(path.parts) > DEEPEST:
        raise Unreadable(f"folders within folders, more than {DEEPEST} deep")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Unreadable(f"{name}: {'a link' if kind == stat.S_IFLNK else 'not a file'}")
    if entry.flag_bits & 1:
        raise Unreadable(f"{name}: needs a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable(f"{name}: compressed in another way than zips mostly are")


def _extract(zipped, entry, target):
    """zipfile reads no more of an entry than its list says, so the sum of sizes holds."""
    folder = target if entry.is_dir() else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    if not entry.is_dir():
        with zipped.open(entry) as source, open(target, "xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)


def remove(folder: Path) -> None:
    """Remove a folder of what strangers made, however deep it is: Python's own way ends at its recursion limit."""
    subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)


def require_plain_yaml(text: str) -> None:
    """Unreadable where YAML has aliases (ten lines with them can fill the memory) or is nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise Unreadable("it has YAML aliases")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 20:
            raise Unreadable("YAML that is nested too deeply")
