"""Reading all of a data folder: which images are bad, and digests of their contents.

Of a large folder each file is read once: what was found of a class, or of a MindRecord file, is kept until a name, size
or time of modification in it changes. Nothing here needs MindSpore.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from PIL import Image
from tqdm import tqdm

from labkit.system.files import atomic_write

STAMP_FILE = ".labkit-scan.json"
LARGE_FILES, LARGE_BYTES = 10_000, 1 << 30  # less is read again in seconds, so nothing is kept of it
THREADS = 16  # more than there are cores: reading waits for the disk
FORMATS = ("JPEG", "PNG")


def examine(path: str | Path, decode: bool = False) -> str | None:
    """What is wrong with an image file, in a few words; None for a good one: JPEG or PNG, 8 bits a channel.

    Grey, CMYK and palette images are good: torchvision's `convert("RGB")` and MindData's decoder give the same pixels.
    Beginning and end of the file are read; with `decode`, all of it.
    """
    return read(path, decode)[0]


def read(path: str | Path, decode: bool = False, contents: bool = False) -> tuple[str | None, bytes]:
    """What `examine` says of a file, and the SHA-256 of its content, empty unless `contents`."""
    size, digest = 0, b""
    try:
        with open(path, "rb") as file:
            if contents:
                content = file.read()
                file, digest = io.BytesIO(content), hashlib.sha256(content).digest()
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            with Image.open(file, formats=FORMATS) as image:
                if image.mode in ("I", "I;16", "I;16B", "F"):
                    return "16 bits a channel, which the decoders read differently", digest
                # Entropy-coded JPEG has no end marker (0xFFD9) inside; some files have a few bytes after it.
                file.seek(max(0, size - 4096))
                ends = (b"IEND" if image.format == "PNG" else b"\xff\xd9") in file.read()
                if decode or not ends:
                    image.load()
    except Image.UnidentifiedImageError:
        return "not a JPEG or PNG image" if size else "empty", digest
    except IsADirectoryError:
        return "a folder among the images", digest
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        return str(getattr(error, "strerror", None) or error).splitlines()[0], digest
    return None, digest


def digest_of(rows) -> str:
    """SHA-256 over rows of a path and other values."""
    digest = hashlib.sha256()
    for path, *values in rows:
        digest.update(os.fsencode(path) + "".join(f"\t{value}" for value in values).encode() + b"\n")
    return digest.hexdigest()


def scan(folder: Path, classes: dict[str, list], decode=False, contents=False) -> tuple[dict, str | None, list[str]]:
    """({path: what is wrong} of bad images, a digest of all others' contents or None unless `contents`, notes).

    `classes`: {"train/CLASS": [(path in the folder, bytes, mtime in ns)]}.
    """
    stamp = Stamp(folder, [size for rows in classes.values() for _, size, _ in rows])
    keys = {name: digest_of(rows) for name, rows in classes.items()}

    def known(name):
        found = stamp.found(name, keys[name])
        return found and found.get("decoded", False) >= decode and (found.get("sha256") or not contents)

    todo = [name for name in classes if not known(name)]
    rows = list(chain.from_iterable(classes[name] for name in todo))
    pieces = [rows[start : start + 64] for start in range(0, len(rows), 64)]
    pool = ThreadPoolExecutor(THREADS)
    results = chain.from_iterable(
        pool.map(lambda piece: [read(folder / row[0], decode, contents) for row in piece], pieces)
    )
    try:
        with tqdm(total=len(rows), desc=f"checking {folder}", unit=" images", delay=5, leave=False) as bar:
            for name in todo:
                bad, good = {}, []
                for (path, *_), (what, digest) in zip(classes[name], results):
                    if what:
                        bad[path] = what
                    else:
                        good.append((path, digest.hex()))
                    bar.update()
                sha256 = digest_of(good) if contents else None
                stamp.keep(name, {"key": keys[name], "decoded": decode, "bad": bad, "sha256": sha256})
    finally:  # Ctrl-C loses no more than a class
        pool.shutdown(cancel_futures=True)
        notes = stamp.write(keys) if todo else []
    found = {name: stamp.found(name, keys[name]) for name in classes}
    bad = {path: what for one in found.values() for path, what in one["bad"].items()}
    return bad, digest_of((name, one["sha256"]) for name, one in found.items()) if contents else None, notes


def digests(folder: Path, names: list[str]) -> tuple[dict[str, str], list[str]]:
    """SHA-256 of files of a folder, by name, and notes."""
    sizes = {name: (folder / name).stat() for name in names}
    stamp = Stamp(folder, [status.st_size for status in sizes.values()])
    keys = {name: digest_of([(name, status.st_size, status.st_mtime_ns)]) for name, status in sizes.items()}
    todo = [name for name in names if not stamp.found(name, keys[name])]
    try:
        for name in tqdm(todo, desc=f"checking {folder}", unit=" files", delay=5, leave=False):
            digest = hashlib.sha256()
            with open(folder / name, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
            stamp.keep(name, {"key": keys[name], "bad": {}, "sha256": digest.hexdigest()})
    finally:
        notes = stamp.write(keys) if todo else []
    return {name: stamp.found(name, keys[name])["sha256"] for name in names}, notes


class Stamp:
    """What was found in a large folder, by part: in the folder itself or, where that is read-only, in the user's cache.

    A stamp that is missing, damaged or of another form holds nothing: the parts are read again.
    """

    def __init__(self, folder: Path, sizes: list[int]):
        large = len(sizes) >= LARGE_FILES or sum(sizes) >= LARGE_BYTES
        cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "labkit")
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        self.places = [folder / STAMP_FILE, cache / f"scan-{name}.json"] if large else []
        self.kept = [{}, *map(self._read, self.places)]

    def _read(self, place):
        try:
            parts = json.loads(place.read_text(encoding="utf-8"))
            return {name: part for name, part in parts.items() if part["key"] and isinstance(part["bad"], dict)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def found(self, name: str, key: str) -> dict | None:
        """The most that was found of a part, unless it has changed since."""
        found = [parts[name] for parts in self.kept if parts.get(name, {}).get("key") == key]
        return max(found, key=lambda part: (bool(part.get("sha256")), part.get("decoded", False)), default=None)

    def keep(self, name: str, found: dict) -> None:
        """Note what was found of a part: {key, bad, ...}."""
        self.kept[0][name] = found

    def write(self, keys: dict[str, str]) -> list[str]:
        """Write what is known of the parts where that is possible; a note where it is not."""
        found = {name: self.found(name, key) for name, key in keys.items()}
        text = json.dumps({name: part for name, part in found.items() if part}, indent=1) + "\n"
        problem = None
        for place in self.places:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(place, text)
                return []
            except OSError as error:
                problem = problem or f"{place}: cannot be written ({error.strerror}), so every start reads all again"
        return [problem] if problem else []
