"""Download CIFAR-10's archive by HTTP: from several URLs, resumable, verified by checksum."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import click
import requests
import urllib3
from tqdm import tqdm

from data_scripts.shared import Failure, file_md5, require_space

ARCHIVE = "cifar-10-binary.tar.gz"
OFFICIAL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # https://www.cs.toronto.edu/~kriz/cifar.html
URLS = (
    f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",
    # MindSpore's documentation and course material use these.
    f"https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/{ARCHIVE}",
    f"https://mindspore-courses.obs.cn-north-4.myhuaweicloud.com/LLMDatasets/Parallel/{ARCHIVE}",
    # Swift for TensorFlow used this one.
    f"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/{ARCHIVE}",
)
CHUNK = 1 << 16
UNKNOWN_HOST = "host name not found"


class Broken(Exception):
    """A download failed in a way that is worth retrying."""


class Refused(Exception):
    """This URL will not give the archive."""


def fetch(urls, part: Path, md5: str, retries: int, timeout: float) -> str:
    """Download the archive with checksum `md5` to `part`, from the first URL that gives it.

    A later URL resumes what an earlier one began: they should have the same file, and if one does
    not, the checksum shows it.
    """
    if part.exists() and file_md5(part) == md5:  # killed between download and unpacking
        return noted(part).get("url", "an unknown URL")
    failures = []
    for url in urls:
        click.echo(f"{'resuming' if size(part) else 'downloading'} {url}", err=True)
        try:
            fetch_from(url, part, md5, retries, timeout)
            return url
        except Refused as error:
            click.echo(f"  {error}", err=True)
            failures.append(f"{url} ({error})")
    raise Failure(
        f"no URL gave the archive: {'; '.join(failures)}. Try again later (this resumes);"
        " or download the file in a browser and `import` it; or use `sample`, which needs no network"
    )


def fetch_from(url: str, part: Path, md5: str, retries: int, timeout: float) -> None:
    """Download from one URL with retries and growing pauses; Refused if that does not help."""
    tries, most, restarted = 0, size(part), False
    while True:
        try:
            resumed = transfer(url, part, timeout)
        except Broken as error:
            if size(part) > most:  # progress: a long, unreliable download may break often
                most, tries = size(part), 0
            tries += 1
            if tries > retries:
                raise Refused(str(error)) from None
            pause = min(0.5 * 2 ** (tries - 1), 30)
            click.echo(f"  {error}; retry {tries} of {retries} in {pause:g} s", err=True)
            time.sleep(pause)
            continue
        actual = file_md5(part)
        if actual == md5:
            return
        discard(part)
        if restarted or not resumed:
            raise Refused(f"wrong checksum: MD5 {actual}, not {md5}")
        click.echo("  wrong checksum after a resumed download; starting over", err=True)
        restarted, most = True, 0


def transfer(url: str, part: Path, timeout: float) -> bool:
    """Request the rest of `part`; True if this resumed it. Raises Broken, Refused.

    On return the file has the length that the server reports; check its checksum.
    """
    have = size(part)
    # identity: a compressing proxy would count the bytes of the compressed file.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        note = noted(part)
        if note.get("url") == url and note.get("validator"):
            headers["If-Range"] = note["validator"]  # get the whole file if it has changed
    try:
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as answer:
            status = answer.status_code
            if status == 416:  # nothing after our bytes: the file is complete, or a different one
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
                raise Broken("answered with a part of the file that was not requested")
            start = have if status == 206 else 0  # 200: the server sends the whole file again
            length = answer.headers.get("Content-Length", "")
            total = start + int(length) if length.isdigit() else None
            if total:
                # The rest of the archive, and the batches, which are slightly larger.
                require_space(part.parent, total - start + int(1.1 * total))
            write_note(part, url, answer.headers)
            bar = tqdm(
                total=total, initial=start, unit="B", unit_scale=True, unit_divisor=1024,
                desc="  " + ARCHIVE, mininterval=0.2 if sys.stderr.isatty() else 10,
            )  # fmt: skip
            with bar, part.open("ab" if start else "wb") as file:
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)  # larger than the buffer, so a killed process loses nothing
                    bar.update(len(chunk))
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        if isinstance(error, ValueError):  # raised by requests for a malformed URL
            raise Refused(f"invalid URL: {error}") from None
        reason = plain_reason(error, timeout)
        if reason == UNKNOWN_HOST and not have:  # probably no network at all: do not retry
            raise Refused(reason) from None
        raise Broken(reason) from None
    if total is not None and size(part) < total:  # urllib3 1.x does not notice
        raise Broken(f"connection closed after {size(part):,} of {total:,} bytes")
    return start > 0


def plain_reason(error: Exception, timeout: float) -> str:
    """A network error in a few words; the library's message spans lines and nests three errors."""
    text = f"{type(error).__name__} {error}"
    for pattern, reason in {
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
        if pattern.lower() in text.lower():
            return reason
    return f"connection failed ({type(error).__name__})"


def write_note(part: Path, url: str, headers) -> None:
    etag = headers.get("ETag", "")
    strong = etag if etag.startswith('"') else None  # If-Range needs a strong tag (RFC 9110, 13.1.5)
    note = {"url": url, "validator": strong or headers.get("Last-Modified")}
    part.with_suffix(".part.json").write_text(json.dumps(note), encoding="utf-8")


def noted(part: Path) -> dict:
    """The URL that `part` comes from and its validator; {} if the note is missing or damaged."""
    try:
        return dict(json.loads(part.with_suffix(".part.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}  # the checksum is compared anyway


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    part.with_suffix(".part.json").unlink(missing_ok=True)
