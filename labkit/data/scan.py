"""Reading a whole data folder: which images are bad, and digests of their contents.

Each file of a large folder is read once: the findings for a class, or for a MindRecord file, are kept until a name,
size or modification time in it changes. Nothing here needs MindSpore.
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
LARGE_FILES, LARGE_BYTES = 10_000, 1 << 30  # smaller folders are read again in seconds, so nothing is kept
THREADS = 16  # more than there are cores: reading waits for the disk
FORMATS = ("JPEG", "PNG")


def examine(path: str | Path, decode: bool = False) -> str | None:
    """What is wrong with an image file, in a few words; None for a good one: JPEG or PNG, 8 bits a channel.

    Grey, CMYK and palette images are good: torchvision's `convert("RGB")` and MindData's decoder give the same pixels.
    Reads the beginning and end of the file; with `decode`, all of it.
    """
    return read(path, decode)[0]


def read(path: str | Path, decode: bool = False, contents: bool = False) -> tuple[str | None, bytes]:
    """What `examine` returns for a file, and the SHA-256 of its content, empty unless `contents`."""
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


def read_records(path: Path, *_) -> tuple[None, bytes]:
    """The SHA-256 of a MindRecord file, which may be larger than memory, in the form that `read` returns."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return None, digest.digest()


def digest_of(rows) -> str:
    """SHA-256 over rows of a path and other values."""
    digest = hashlib.sha256()
    for path, *values in rows:
        digest.update(os.fsencode(path) + "".join(f"\t{value}" for value in values).encode() + b"\n")
    return digest.hexdigest()


def scan(folder: Path, parts: dict[str, list], look=None, decode=False, contents=True) -> tuple[dict, list[str]]:
    """({part: {bad: {path: what is wrong}, sha256: over paths and contents of all others, if `contents`}}, notes).

    `parts`: {"train/CLASS" or another name: [(path in the folder, bytes, mtime in ns)]}. `look`: `read`, for images.
    """
    look = look or read
    stamp = Stamp(folder, [size for rows in parts.values() for _, size, _ in rows])
    asked = {name: (digest_of(rows), decode, contents) for name, rows in parts.items()}
    todo = [name for name in parts if not stamp.found(name, *asked[name])]
    rows = [row for name in todo for row in parts[name]]
    pieces = [rows[start : start + 64] for start in range(0, len(rows), 64)]
    pool, notes = ThreadPoolExecutor(THREADS), []
    results = chain.from_iterable(
        pool.map(lambda piece: [look(folder / row[0], decode, contents) for row in piece], pieces)
    )
    try:
        with tqdm(total=len(rows), desc=f"checking {folder}", unit=" files", delay=5, leave=False) as bar:
            for name in todo:
                bad, good = {}, []
                for (path, *_), (what, digest) in zip(parts[name], results):
                    if what:
                        bad[path] = what
                    else:
                        good.append((path, digest.hex()))
                    bar.update()
                sha256 = digest_of(good) if contents else None
                stamp.kept[0][name] = {"key": asked[name][0], "decoded": decode, "bad": bad, "sha256": sha256}
    finally:  # Ctrl-C loses at most one part
        pool.shutdown(cancel_futures=True)
        if todo:
            notes = stamp.write(asked)
    return {name: stamp.found(name, *asked[name]) for name in parts}, notes


class Stamp:
    """Findings for a large folder, by part: stored in the folder itself or, if that is read-only, in the user's cache.

    If a stamp is missing, damaged or of another form, the parts are read again.
    """

    def __init__(self, folder: Path, sizes: list[int]):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "labkit")
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        large = len(sizes) >= LARGE_FILES or sum(sizes) >= LARGE_BYTES
        self.places = [folder / STAMP_FILE, cache / f"scan-{name}.json"] if large else []
        self.kept = [{}, *map(self._read, self.places)]  # new first

    def _read(self, place):
        try:
            parts = json.loads(place.read_text(encoding="utf-8"))
            return {name: part for name, part in parts.items() if isinstance(part["bad"], dict)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def found(self, name: str, key: str, decode: bool = False, contents: bool = False) -> dict | None:
        """Findings for a part, unless it has changed since or was checked less thoroughly."""
        for part in (parts[name] for parts in self.kept if name in parts):
            if part.get("key") == key and part.get("decoded", 0) >= decode and (part.get("sha256") or not contents):
                return part
        return None

    def write(self, asked: dict[str, tuple]) -> list[str]:
        """Write the findings to the first place that is writable; returns a note if none is."""
        found = {name: self.found(name, key) for name, (key, *_) in asked.items()}
        text = json.dumps({name: part for name, part in found.items() if part}, indent=1) + "\n"
        notes = []
        for place in self.places:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(place, text)
                return []
            except FileNotFoundError:  # another process wrote it at the same time, and renamed the file of both
                return []
            except OSError as error:
                notes.append(f"{place}: cannot be written ({error.strerror}), so every start reads all files again")
        return notes[:1]
