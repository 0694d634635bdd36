"""Zips that strangers made: nothing is written outside, no links, and never more than is allowed."""

import errno
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath


class ArchiveError(Exception):
    """A zip that is not unpacked: one line that says why, and names the entry."""


def unpack(archive: Path, folder: Path, most_files: int, most_bytes: int) -> None:
    """Unpack a zip into a new folder; raises ArchiveError, before anything is written where its list tells it.

    OSError is for what is not the zip's fault, such as a full disk.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            entries = [entry for entry in zipped.infolist() if not _macos(entry.filename)]
            if len(entries) > most_files:
                raise ArchiveError(f"{len(entries):,} files are more than {most_files:,}")
            size = sum(entry.file_size for entry in entries)
            if size > most_bytes:
                raise ArchiveError(f"{size / 1e6:,.0f} MB unpacked are more than {most_bytes / 1e6:,.0f} MB")
            for entry in entries:
                _require_harmless(entry)
            folder.mkdir(parents=True)
            for entry in entries:
                _extract(zipped, entry, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArchiveError(f"damaged, or not a zip ({' '.join(str(error).split()) or 'it ends too early'})") from None
    except FileExistsError as error:
        raise ArchiveError(f"holds {_tail(error.filename, folder)} twice") from None
    except OSError as error:  # a name that is too long, a folder that is a file too
        if error.errno not in (None, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EILSEQ, errno.EINVAL):
            raise  # a full disk is not the zip's fault
        raise ArchiveError(f"{_tail(error.filename, folder)}: {error.strerror or error}") from None


def _require_harmless(entry):
    name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or name[1:2] == ":" or not path.parts:
        raise ArchiveError(f"{name}: leads out of the zip")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveError(f"{name}: {'a link' if kind == stat.S_IFLNK else 'not a file'}")
    if entry.flag_bits & 1:
        raise ArchiveError(f"{name}: needs a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(f"{name}: compressed in another way than zips mostly are")


def _extract(zipped, entry, folder):
    """zipfile reads no more of an entry than its list says, so the sum of sizes holds."""
    target = folder / entry.filename
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipped.open(entry) as source, open(target, "xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _macos(name):
    return name.startswith("__MACOSX/")


def _tail(path, folder):
    return str(path or folder).removeprefix(f"{folder}/")
