"""Checksums of files and objects: digests, ETags, and whether a file has the content of an object."""

import hashlib
import os
import re

from labkit.obs.place import CloudError

BLOCK = 1 << 17  # bytes that are read at once, by each of many threads
LIKELY_PARTS = [size << 20 for size in (8, 5, 9, 10, 15, 16, 20, 50, 64, 100)]  # of other tools' uploads


def digest(path, algorithm, size=None, begin=0, stopped=lambda: None) -> str:
    """Checksum of `size` bytes of a file, or of all, from `begin` on. stopped: the error to stop with, or None."""
    found = hashlib.new(algorithm)
    for block in _blocks(path, begin, os.stat(path).st_size if size is None else size, stopped):
        found.update(block)
    return found.hexdigest()


def digests(path, part, stopped=lambda: None) -> tuple[str, list[str]]:
    """SHA-256 of a file, and the MD5 of each of its parts of this size; stopped: as of digest."""
    sha256, md5s = hashlib.sha256(), []
    for begin in range(0, os.stat(path).st_size, part):
        md5 = hashlib.md5()
        for block in _blocks(path, begin, part, stopped):
            sha256.update(block)
            md5.update(block)
        md5s.append(md5.hexdigest())
    return sha256.hexdigest(), md5s


def _blocks(path, begin, size, stopped):
    """At most `size` bytes of a file from `begin` on, block by block."""
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while size and (block := file.read(min(size, BLOCK))):
            if error := stopped():
                raise error
            yield block
            size -= len(block)


def md5_of(etag) -> str | None:
    """The MD5 that an ETag may be by its form; None for that of an upload in parts, and of other vendors."""
    return etag.lower() if re.fullmatch("[0-9a-fA-F]{32}", etag) else None


def etag_of_parts(etags) -> str | None:
    """ETag of an object that was made of parts with these; None where they are no MD5s."""
    try:
        joined = bytes.fromhex("".join(etags))
    except ValueError:
        return None
    return f"{hashlib.md5(joined).hexdigest()}-{len(etags)}"


def matches(store, bucket, entry, path, stopped=lambda: None) -> bool | None:
    """Whether a file begins with the object's content, by checksum; None where there is none to compare.

    An ETag of an MD5's form is one, unless the server encrypts. An object that another tool uploaded in parts has no
    SHA-256. Then the likely sizes of parts are tried: an equal ETag proves equal content, another one proves nothing.
    """
    md5 = md5_of(entry.etag)
    if md5 and digest(path, "md5", entry.size, stopped=stopped) == md5:  # whatever a SHA-256 of another tool says
        return True
    found = entry if entry.sha256 else store.head(bucket, entry.key)
    if found and found.etag == entry.etag and found.sha256:
        same = digest(path, "sha256", entry.size, stopped=stopped) == found.sha256
        return same or _has_etag_of_parts(path, entry.size, entry.etag)
    if md5:
        return None if found and found.encrypted else False
    return _has_etag_of_parts(path, entry.size, entry.etag) or None


def _has_etag_of_parts(path, size, etag):
    for part in LIKELY_PARTS:
        begins = range(0, size, part)
        if etag.endswith(f"-{len(begins)}") and etag == etag_of_parts(
            [digest(path, "md5", min(part, size - begin), begin) for begin in begins]
        ):  # fmt: skip
            return True
    return False


def state(path) -> tuple[int, ...]:
    """What changes when a file does: its size first, its time of modification, and which file it is."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


class Changed(CloudError):
    """The file is not what it was when its copy began."""


def require_unchanged(path, before, size=None):
    """Changed where the file's state is not what it was before, or its size not this one."""
    if state(path) != before or size not in (None, before[0]):
        raise Changed(f"{path}: changed while it was copied")
