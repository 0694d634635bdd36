#!/usr/bin/env python
"""Get CIFAR-10 (binary version) by download or import, or make the offline sample, and check it.

    python data_scripts/cifar10.py download|import|sample|check

Data appears in its folder whole and checked, or not at all: everything is prepared in a hidden
folder beside it, which is renamed at the end.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click
import numpy as np
import requests
import urllib3
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works before labkit is installed
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
from labkit.system.environment import data_root

ARCHIVE = "cifar-10-binary.tar.gz"
OFFICIAL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # https://www.cs.toronto.edu/~kriz/cifar.html
OFFICIAL_SOURCE = "CIFAR-10, official binary archive"
URLS = (
    f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",
    # From MindSpore's documentation, and from its course material.
    f"https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/{ARCHIVE}",
    f"https://mindspore-courses.obs.cn-north-4.myhuaweicloud.com/LLMDatasets/Parallel/{ARCHIVE}",
    # From the data sets of Swift for TensorFlow.
    f"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/{ARCHIVE}",
)
WANTED = (*files.TRAIN_FILES, files.TEST_FILE, files.META_FILE)
CHUNK = 1 << 16
UNKNOWN_HOST = "host name not found"


class Broken(Exception):
    """A download stopped in a way that may go better next time."""


class Refused(Exception):
    """This address will not give the archive."""


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
    help="Address to try instead of the built-in ones; can be repeated.",
)  # fmt: skip
@click.option("--md5", default=OFFICIAL_MD5, show_default=True, help="Checksum of the archive.")
@click.option(
    "--retries", default=4, show_default=True, type=click.IntRange(min=0),
    help="New tries at an address that gives nothing more.",
)  # fmt: skip
@click.option(
    "--timeout", default=30.0, show_default=True, type=click.FloatRange(min=0.1),
    help="Seconds to wait for the server.",
)  # fmt: skip
@force_option
def download(out, urls, md5, retries, timeout, force):
    """Download the official archive (162 MiB), or the same file from a mirror.

    Interrupt it at any time: the same command continues where it stopped.

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
        click.echo(f"checksum is right (MD5 {md5}); unpacking")
        try:
            install(part, folder, source, force)
        except files.DataError:
            discard(part)  # the right archive with wrong contents: no use to keep it
            raise
        discard(part)


@main.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@out_option
@click.option("--source", help="What the data is, in one line.  [default: imported from PATH]")
@force_option
def import_(path, out, source, force):
    """Take the batches out of an archive (.tar.gz, .tar, .zip) or a folder that you already have.

    They may lie in folders of their own, such as train/ and eval/.

    \b
    Example: python data_scripts/cifar10.py import ~/Downloads/cifar-10-binary.tar.gz
    """
    folder = (out or data_root()) / files.FOLDER
    if folder.exists() and path.resolve() == folder.resolve():
        raise Failure(f"{path}: this is the data folder itself; look at it with `check`")
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
@click.argument("path", type=click.Path(path_type=Path), required=False)
def check(path):
    """Read every record and print what there is: files, images, classes, checksum.

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
        click.echo(f"\n{places[0]}: CIFAR-10 itself is not there; `download` gets it")


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


# -- Download ------------------------------------------------------------------------------------


def fetch(urls, part: Path, md5: str, retries: int, timeout: float) -> str:
    """Bring the archive with checksum `md5` into `part`, from the first address that gives it.

    A later address continues what an earlier one began: they hold the same file, and if one does
    not, the checksum tells.
    """
    if part.exists() and file_md5(part) == md5:  # killed between download and unpacking
        return noted(part).get("url", "an unknown address")
    failures = []
    for url in urls:
        click.echo(f"{'continuing' if size(part) else 'downloading'} {url}", err=True)
        try:
            fetch_from(url, part, md5, retries, timeout)
            return url
        except Refused as error:
            click.echo(f"  {error}", err=True)
            failures.append(f"{url} ({error})")
    raise Failure(
        f"no address gave the archive: {'; '.join(failures)}. Try again later (it continues);"
        " or fetch the file in a browser and `import` it; or use `sample`, which needs no network"
    )


def fetch_from(url: str, part: Path, md5: str, retries: int, timeout: float) -> None:
    """Download from one address with new tries and growing pauses; Refused when it will not do."""
    tries, most, restarted = 0, size(part), False
    while True:
        try:
            continued = transfer(url, part, timeout)
        except Broken as error:
            if size(part) > most:  # progress: a long, shaky download may break often
                most, tries = size(part), 0
            tries += 1
            if tries > retries:
                raise Refused(str(error)) from None
            pause = min(0.5 * 2 ** (tries - 1), 30)
            click.echo(f"  {error}; new try {tries} of {retries} in {pause:g} s", err=True)
            time.sleep(pause)
            continue
        found = file_md5(part)
        if found == md5:
            return
        discard(part)
        if restarted or not continued:
            raise Refused(f"wrong checksum: MD5 {found}, not {md5}")
        click.echo("  wrong checksum after a continued download; starting over", err=True)
        restarted, most = True, 0


def transfer(url: str, part: Path, timeout: float) -> bool:
    """One request for what `part` lacks; True if it kept what was there. Raises Broken, Refused.

    On return the file has the length that the server says; whether it is right, its checksum tells.
    """
    have = size(part)
    # identity: a compressing proxy would count and cut other bytes than the file's.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        note = noted(part)
        if note.get("url") == url and note.get("validator"):
            headers["If-Range"] = note["validator"]  # the whole file instead, if it changed since
    try:
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as answer:
            status = answer.status_code
            if status == 416:  # nothing after our bytes: the file is whole, or another one
                return True
            if status == 429 or status >= 500:
                raise Broken(f"HTTP {status} {answer.reason}")
            if status not in (200, 206):
                raise Refused(f"HTTP {status} {answer.reason}")
            if answer.headers.get("Content-Type", "").startswith("text/html"):
                raise Refused("answered with a web page instead of the archive")
            given = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            if status == 206 and (not given or int(given[1]) != have):
                discard(part)
                raise Broken("answered with another part of the file than the one asked for")
            start = have if status == 206 else 0  # 200: the server sends it all again
            length = answer.headers.get("Content-Length", "")
            total = start + int(length) if length.isdigit() else None
            if total:
                # The rest of the archive, and the batches, a little larger than their archive.
                require_space(part.parent, total - start + int(1.1 * total))
            write_note(part, url, answer.headers)
            bar = tqdm(
                total=total, initial=start, unit="B", unit_scale=True, unit_divisor=1024,
                desc="  " + ARCHIVE, mininterval=0.2 if sys.stderr.isatty() else 10,
            )  # fmt: skip
            with bar, part.open("ab" if start else "wb") as file:
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)  # larger than its buffer: a killed process keeps what it had
                    bar.update(len(chunk))
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        if isinstance(error, ValueError):  # how requests classes a malformed address
            raise Refused(f"no valid address: {error}") from None
        reason = plain_reason(error, timeout)
        if reason == UNKNOWN_HOST and not have:  # no network at all: do not wait for it
            raise Refused(reason) from None
        raise Broken(reason) from None
    if total is not None and size(part) < total:  # urllib3 1 does not notice
        raise Broken(f"connection closed after {size(part):,} of {total:,} bytes")
    return start > 0


def plain_reason(error: Exception, timeout: float) -> str:
    """A network error in a few words; the library's own text spans lines and nests three errors."""
    text = f"{type(error).__name__} {error}"
    for sign, words in {
        "timed out": f"no answer for {timeout:g} s",
        "timeout": f"no answer for {timeout:g} s",
        "NameResolution": UNKNOWN_HOST,
        "certificate": "the server's certificate was not accepted",
        "ProxyError": "the proxy did not answer",
        "refused": "connection refused",
        "unreachable": "network unreachable",
        "IncompleteRead": "connection broken",
        "reset": "connection broken",
        "Connection aborted": "connection broken",
    }.items():
        if sign.lower() in text.lower():
            return words
    return f"connection failed ({type(error).__name__})"


def write_note(part: Path, url: str, headers) -> None:
    etag = headers.get("ETag", "")
    strong = etag if etag.startswith('"') else None  # If-Range takes no weak tag (RFC 9110, 13.1.5)
    note = {"url": url, "validator": strong or headers.get("Last-Modified")}
    part.with_suffix(".part.json").write_text(json.dumps(note), encoding="utf-8")


def noted(part: Path) -> dict:
    """The address that `part` comes from and its validator; {} if the note is lost or cut off."""
    try:
        return dict(json.loads(part.with_suffix(".part.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}  # the checksum still guards the result


# -- Unpack --------------------------------------------------------------------------------------


def install(origin: Path, folder: Path, source: str, force: bool) -> None:
    """Take the batches from an archive or folder, check them, and make them `folder`."""
    with files.staging(folder) as staged:
        try:
            unpack(origin, staged)
            files.check(staged)
        except files.DataError as error:
            # The staged file is gone when this is read: name where it came from.
            raise files.DataError(str(error).replace(f"{staged}{os.sep}", f"{origin}: ")) from None
        files.write_source(staged, source)
        if files.publish(staged, folder, force):
            summary("ready", files.check(folder))
            return
    known = files.check(folder).name
    if source != known and not source.startswith("imported from"):
        files.write_source(folder, source)  # the same bytes, now known better
    summary("already there, the same data", files.check(folder))


def unpack(origin: Path, target: Path) -> None:
    """Copy the wanted files of an archive or folder into `target`.

    Only contents are taken, under names of our own: no path, link or mode of an archive reaches
    the disk. DataError for an archive that is damaged or has paths leading outside.
    """
    try:
        for name, length, content in members(origin):
            inside = PurePosixPath(name.replace("\\", "/"))
            if not origin.is_dir() and (inside.is_absolute() or ".." in inside.parts):
                raise files.DataError(f"{origin}: {name!r} leads outside the archive; not unpacked")
            if inside.name not in WANTED:
                continue
            require_space(target.parent, length)
            again = (target / inside.name).exists()
            copy = target / (f".{inside.name}" if again else inside.name)
            with content() as data, copy.open("wb") as file:
                shutil.copyfileobj(data, file, 1 << 20)
            if again:  # some folders hold a batch twice, which is fine if it is the same
                if not filecmp.cmp(copy, target / inside.name, shallow=False):
                    raise files.DataError(f"{origin}: holds two different files {inside.name}")
                copy.unlink()
    except BAD_ARCHIVE as error:
        raise damaged(origin, error) from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report a bad stream as an OSError without number
            raise damaged(origin, error) from None
        raise
    if not any((target / name).exists() for name in WANTED):
        raise files.DataError(f"{origin}: holds none of CIFAR-10's files ({', '.join(WANTED)})")


def members(origin: Path) -> Iterator[tuple]:
    """Yield (path inside, bytes, function that opens it) of every regular file in `origin`."""
    if origin.is_dir():
        for path in sorted(origin.rglob("*")):
            if path.name in WANTED and path.is_file():
                inside = path.relative_to(origin)
                if not any(part.startswith(".") for part in inside.parts):  # not our own staging
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
            # The compressed stream's own checksum stands at its end, where tarfile does not go.
            while archive.fileobj.read(1 << 20):
                pass


def tarfile_gz(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


# -- Small things --------------------------------------------------------------------------------


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    part.with_suffix(".part.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
