"""Shared by the data scripts: one-line errors, one process at a time, disk space, checksums."""

from __future__ import annotations

import errno
import hashlib
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import click
from tqdm import tqdm

from labkit.data.files import DataError, Info
from labkit.system.errors import LabkitError, first_line, of_file_system
from labkit.system.files import locked

# RuntimeError is zipfile's, for an archive with a password.
BAD_ARCHIVE = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError,
)  # fmt: skip


class Failure(click.ClickException):
    """An error for the user: one line on stderr, exit status 1."""

    def show(self, file=None):
        click.echo(f"error: {self.message}", err=True)


class Commands(click.Group):
    """A command group that shows damaged data and file system errors as one line."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except LabkitError as error:
            raise Failure(str(error)) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # output piped into `head`; click exits quietly
                raise
            raise Failure(of_file_system(error)) from None


out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for data sets.  [default: $LABKIT_DATA, or data/ in the repository]",
)
force_option = click.option("--force", is_flag=True, help="Replace other or damaged data.")


def alone(folder: Path, work: str):
    """Lock `folder` against a second process that does the same work."""
    return locked(folder, Failure(f"{folder}: another {work} into this folder is under way"))


def already_there(folder: Path, check: Callable[[Path], Info], force: bool) -> bool:
    """Whether `folder` contains good data and need not be replaced; prints so."""
    if force or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        info = check(folder)
    except DataError as error:
        raise DataError(f"{error}; --force replaces the folder") from None
    summary("already there, nothing to do (--force replaces it)", info)
    return True


def summary(status: str, info: Info) -> None:
    images = f"{info.train_images:,} + {info.test_images:,} images"
    click.echo(f"{status}: {info.folder} ({info.name}; {images})")
    if info.note:
        click.echo(f"note: {info.note}", err=True)


def damaged(origin: Path, error: Exception) -> DataError:
    return DataError(f"{origin}: not a complete .tar.gz, .tar or .zip archive ({first_line(error)}); get it again")


def require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        gib = 1 << 30
        raise Failure(
            f"{folder}: {needed / gib:.1f} GiB needed, but only {free / gib:.1f} GiB free;"
            " free some space, or choose another folder with --out"
        )


def file_md5(path: Path, progress: bool = False) -> str:
    digest = hashlib.md5(usedforsecurity=False)  # only guards against accidents; MD5s are published
    bar = tqdm(
        total=path.stat().st_size, unit="B", unit_scale=True, desc=f"  MD5 of {path.name}", delay=1,
        disable=not progress,
    )
    with bar, path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()
