#!/usr/bin/env python
"""Get CIFAR-10 (binary version) by download or import, or make the offline sample, and check it.

    python data_scripts/cifar10.py download|import|sample|split|check

The data folder appears only once it is complete and checked: everything is prepared in a hidden
folder next to it, which is renamed at the end.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works before labkit is installed
from data_scripts.download import ARCHIVE, OFFICIAL_MD5, URLS, discard, fetch
from data_scripts.shared import (
    BAD_ARCHIVE,
    Commands,
    Failure,
    alone,
    already_there,
    damaged,
    file_md5,
    force_option,
    out_option,
    require_space,
    summary,
)
from labkit.data import cifar10_files as files
from labkit.data.files import publish, staging, write_source
from labkit.system.environment import data_root

OFFICIAL_SOURCE = "CIFAR-10, official binary archive"
WANTED = (*files.TRAIN_FILES, files.TEST_FILE, files.META_FILE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """CIFAR-10 in its binary version: download it, import it, or make a small offline sample.

    \b
    Example: python data_scripts/cifar10.py sample
    """


@main.command()
@out_option
@click.option(
    "--url", "urls", multiple=True,
    help="URL to try instead of the built-in ones; repeatable.",
)  # fmt: skip
@click.option("--md5", default=OFFICIAL_MD5, show_default=True, help="Checksum of the archive.")
@click.option(
    "--retries", default=4, show_default=True, type=click.IntRange(min=0),
    help="Retries per URL without any progress.",
)  # fmt: skip
@click.option(
    "--timeout", default=30.0, show_default=True, type=click.FloatRange(min=0.1),
    help="Seconds to wait for the server.",
)  # fmt: skip
@force_option
def download(out, urls, md5, retries, timeout, force):
    """Download the official archive (162 MiB), or the same file from a mirror.

    You can interrupt it at any time: the same command resumes it.

    \b
    Example: python data_scripts/cifar10.py download --out ~/data
    """
    md5 = md5.lower()
    if not re.fullmatch("[0-9a-f]{32}", md5):
        raise click.BadParameter("an MD5 has 32 hexadecimal digits", param_hint="--md5")
    root = out or data_root()
    folder = root / files.FOLDER
    if already_there(folder, files.check, force):
        return
    root.mkdir(parents=True, exist_ok=True)
    part = root / f"{ARCHIVE}.part"
    with alone(root, "download"):
        url = fetch(urls or URLS, part, md5, retries, timeout)
        source = OFFICIAL_SOURCE if md5 == OFFICIAL_MD5 else f"downloaded from {url}"
        click.echo(f"checksum is correct (MD5 {md5}); unpacking")
        try:
            install(part, folder, source, force)
        except files.DataError:
            discard(part)  # the right archive with wrong contents is useless
            raise
        discard(part)


@main.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@out_option
@click.option("--source", help="Description of the data, in one line.  [default: imported from PATH]")
@force_option
def import_(path, out, source, force):
    """Import the batches from an archive (.tar.gz, .tar, .zip) or a folder that you already have.

    They may be in subfolders, such as train/ and eval/.

    \b
    Example: python data_scripts/cifar10.py import ~/Downloads/cifar-10-binary.tar.gz
    """
    folder = (out or data_root()) / files.FOLDER
    if folder.exists() and path.resolve() == folder.resolve():
        raise Failure(f"{path}: this is the data folder itself; use `check` to examine it")
    if source is None:
        source = f"imported from {path.resolve().name}"
        if path.is_file():
            md5 = file_md5(path)
            if md5 == OFFICIAL_MD5:
                source = OFFICIAL_SOURCE
                click.echo(f"{path}: the official archive (MD5 {md5})")
            elif path.name == ARCHIVE:
                click.echo(f"{path}: MD5 {md5}, so not the official archive of that name", err=True)
    install(path, folder, source, force)


@main.command()
@out_option
@force_option
def sample(out, force):
    """Make the sample: scikit-learn's handwritten digits in CIFAR-10's layout. Needs no network.

    \b
    Example: python data_scripts/cifar10.py sample
    """
    folder = (out or data_root()) / "sample" / files.FOLDER
    if not already_there(folder, files.check, force):
        summary("ready", files.write_sample(folder, force))


@main.command()
@out_option
@force_option
def split(out, force):
    """Make data/arena from CIFAR-10: the last tenth of the training images takes the test images' place.

    Choose settings with these, so that the test images stay unseen.

    \b
    Example: python data_scripts/cifar10.py split
    """
    root = out or data_root()
    folder = root / "arena" / files.FOLDER
    if already_there(folder, files.check, force):
        return
    info = files.check(root / files.FOLDER)
    batches = [np.fromfile(info.folder / name, np.uint8) for name in files.TRAIN_FILES]
    records = np.concatenate(batches).reshape(-1, files.RECORD_BYTES)
    train, test = np.split(records, [len(records) * 9 // 10])
    with staging(folder) as staged:
        for name, part in zip(files.TRAIN_FILES, np.array_split(train, len(files.TRAIN_FILES)), strict=True):
            part.tofile(staged / name)
        test.tofile(staged / files.TEST_FILE)
        shutil.copyfile(info.folder / files.META_FILE, staged / files.META_FILE)
        taken = f"{len(train):,} of the training images, and {len(test):,} others to test on"
        write_source(staged, f"{info.name}; {taken}")
        publish(staged, folder, files.check, force)
    summary("ready", files.check(folder))


@main.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
def check(path):
    """Read every record and print files, images, classes and the checksum.

    Without PATH: the data and the sample in $LABKIT_DATA, or in data/ of the repository.

    \b
    Example: python data_scripts/cifar10.py check data/sample
    """
    if path is None:
        places = [data_root() / files.FOLDER, data_root() / "sample" / files.FOLDER]
        folders = [place for place in places if place.exists()] or places[:1]
    else:
        folders = [path / files.FOLDER if (path / files.FOLDER).exists() else path]
    for number, folder in enumerate(folders):
        click.echo("\n" * bool(number), nl=False)
        show_table(files.check(folder))
    if path is None and places[0] not in folders:
        click.echo(f"\n{places[0]}: CIFAR-10 itself is missing; `download` gets it")


def show_table(info: files.Info) -> None:
    folder = info.folder
    click.echo(f"{folder}: {info.name}")
    click.echo(f"\n{'file':<18}{'images':>8}")
    for name, count in info.files:
        click.echo(f"{name:<18}{count:>8,}")
    splits = [files.read(folder, split)[1] for split in ("train", "test")]
    train, test = (np.bincount(labels, minlength=10) for labels in splits)
    click.echo(f"\n{'class':<18}{'train':>8}{'test':>8}")
    for name, *counts in zip(info.classes, train, test, strict=True):
        click.echo(f"{name:<18}{counts[0]:>8,}{counts[1]:>8,}")
    click.echo(f"{'all':<18}{info.train_images:>8,}{info.test_images:>8,}")
    click.echo(f"\nsha256 {info.sha256}")
    if info.note:
        click.echo(f"note: {info.note}")


# -- Unpack --------------------------------------------------------------------------------------


def install(origin: Path, folder: Path, source: str, force: bool) -> None:
    """Take the batches from an archive or folder, check them, and make them `folder`."""
    with staging(folder) as staged:
        try:
            unpack(origin, staged)
            files.check(staged)
        except files.DataError as error:
            # The staged file is gone when the user reads this, so name its origin.
            raise files.DataError(str(error).replace(f"{staged}{os.sep}", f"{origin}: ")) from None
        write_source(staged, source)
        if publish(staged, folder, files.check, force):
            summary("ready", files.check(folder))
            return
    name = files.check(folder).name
    if source != name and not source.startswith("imported from"):
        write_source(folder, source)  # the same bytes, with a better description
    summary("already there, the same data", files.check(folder))


def unpack(origin: Path, target: Path) -> None:
    """Copy the wanted files of an archive or folder into `target`.

    Only contents are copied, to fixed names: no path, link or mode in an archive reaches the disk.
    DataError for an archive that is damaged or has paths leading outside.
    """
    try:
        for name, length, content in members(origin):
            inside = PurePosixPath(name.replace("\\", "/"))
            if not origin.is_dir() and (inside.is_absolute() or ".." in inside.parts):
                raise files.DataError(f"{origin}: {name!r} leads outside the archive; not unpacked")
            if inside.name == "data_batch_1":
                raise files.DataError(
                    f"{origin}: the version for Python; labkit reads the binary one, {ARCHIVE}"
                )
            if inside.name not in WANTED:
                continue
            require_space(target.parent, length)
            is_duplicate = (target / inside.name).exists()
            copy = target / (f".{inside.name}" if is_duplicate else inside.name)
            with content() as data, copy.open("wb") as file:
                shutil.copyfileobj(data, file, 1 << 20)
            if is_duplicate:  # some folders contain a batch twice, which is fine if both are equal
                if not filecmp.cmp(copy, target / inside.name, shallow=False):
                    raise files.DataError(f"{origin}: contains two different files {inside.name}")
                copy.unlink()
    except BAD_ARCHIVE as error:
        raise damaged(origin, error) from None
    except OSError as error:
        if error.errno is None:  # for a bad stream, gzip and bz2 raise an OSError without a number
            raise damaged(origin, error) from None
        raise
    if not any((target / name).exists() for name in WANTED):
        raise files.DataError(f"{origin}: contains none of CIFAR-10's files ({', '.join(WANTED)})")


def members(origin: Path) -> Iterator[tuple]:
    """Yield (path inside, bytes, function that opens it) of every regular file in `origin`."""
    if origin.is_dir():
        for path in sorted(origin.rglob("*")):
            if path.name in WANTED and path.is_file():
                inside = path.relative_to(origin)
                if not any(part.startswith(".") for part in inside.parts):  # skip our hidden folder
                    yield inside.as_posix(), path.stat().st_size, lambda path=path: path.open("rb")
    elif zipfile.is_zipfile(origin) and not tarfile_gz(origin):
        with zipfile.ZipFile(origin) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, lambda entry=entry: archive.open(entry)
    else:
        with tarfile.open(origin) as archive:
            for entry in archive:
                if entry.isfile():  # no links, devices or folders
                    yield entry.name, entry.size, lambda entry=entry: archive.extractfile(entry)
            # The compressed stream's checksum is at its end, which tarfile does not read.
            while archive.fileobj.read(1 << 20):
                pass


def tarfile_gz(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


if __name__ == "__main__":
    main()
