"""Reading a whole folder of images: which are bad, and a digest of their contents.

Each file is read once: the findings for a class are kept until a name, size or modification time in it changes; those
for a large folder, such as ImageNet, in the user's cache. Nothing here needs MindSpore.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from PIL import Image
from tqdm import tqdm

from labkit.system import environment
from labkit.system.errors import first_line
from labkit.system.files import atomic_write

LARGE = 10_000  # files; smaller folders are read again in seconds
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # a chunk: length, name and checksum
THREADS = 16  # more than there are cores: reading waits for the disk
_findings = {}  # of this process, by folder and part


def examine(path: str | Path, decode: bool = False) -> str | None:
    """What is wrong with an image file, in a few words; None for a good one: JPEG or PNG, 8 bits a channel.

    Grey, CMYK and palette images are good: torchvision's `convert("RGB")` and MindData's decoder give the same pixels.
    Looks at the beginning and end of the file; with `decode`, at all of it.
    """
    return _read(Path(path), decode)[0]


def _defect(content, decode):
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            if image.mode in ("I", "I;16", "I;16B", "F"):
                return "16 bits a channel, which the decoders read differently"
            # A JPEG's compressed pixels, after its last SOS (0xFFDA), have no end marker (0xFFD9) inside; a thumbnail
            # before them has one.
            marker, begin = (PNG_END, 0) if image.format == "PNG" else (b"\xff\xd9", content.rfind(b"\xff\xda"))
            ends = content.find(marker, max(begin, 0)) >= 0
            if image.format == "PNG" and not ends:
                return "truncated: no end marker"  # Pillow reads it, MindData does not
            if decode or not ends:
                image.load()
    except Image.UnidentifiedImageError:
        return "not a JPEG or PNG image" if content else "empty"
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        return first_line(error)
    return None


def _read(path, decode):
    """What `examine` returns for a file, and the SHA-256 of its content."""
    try:
        if not path.is_file() and path.exists():
            return "not a file", ""
        content = path.read_bytes()
    except OSError as error:
        return error.strerror, ""
    return _defect(content, decode), hashlib.sha256(content).hexdigest()


def digest_of(rows) -> str:
    """SHA-256 over rows of a path and other values."""
    digest = hashlib.sha256()
    for path, *values in rows:
        digest.update(os.fsencode(path) + "".join(f"\t{value}" for value in values).encode() + b"\n")
    return digest.hexdigest()


def scan(folder: Path, parts: dict[str, list], decode: bool = False) -> dict[str, dict]:
    """{part: {bad: {path: what is wrong}, sha256: over paths and contents of all others}}.

    parts: {"train/CLASS" or another name: [(path in the folder, bytes, mtime in ns)]}.
    """
    place = os.path.realpath(folder)
    is_large = sum(map(len, parts.values())) >= LARGE
    known = _findings.get(place, {})
    if is_large and not known:
        with suppress(OSError, ValueError):  # a damaged one is made again
            known = json.loads(_cache(place).read_text(encoding="utf-8"))
    keys = {name: digest_of(rows) for name, rows in parts.items()}
    findings = _findings[place] = {
        name: part for name, part in known.items() if part["key"] == keys.get(name) and part["decoded"] >= decode
    }
    todo = {name: rows for name, rows in parts.items() if name not in findings}
    pool = ThreadPoolExecutor(THREADS)
    bar = tqdm(total=sum(map(len, todo.values())), desc=f"checking {folder}", unit=" files", delay=5, leave=False)
    try:
        for name, rows in todo.items():
            bad, good = {}, []
            for (path, *_), (what, digest) in zip(rows, pool.map(lambda row: _read(folder / row[0], decode), rows)):
                if what:
                    bad[path] = what
                else:
                    good.append((path, digest))
                bar.update()
            findings[name] = {"key": keys[name], "decoded": decode, "bad": bad, "sha256": digest_of(good)}
    finally:  # Ctrl-C loses at most one part
        bar.close()
        pool.shutdown(cancel_futures=True)
        if is_large and todo:
            try:
                atomic_write(_cache(place), json.dumps(findings, indent=1) + "\n")
            except OSError as error:
                print(f"{_cache(place)}: {error.strerror}, so every start reads all of {place} again", file=sys.stderr)
    return {name: findings[name] for name in parts}


def _cache(place):
    return environment.cache() / f"scan-{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}.json"
