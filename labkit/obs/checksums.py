"""Checksums of files and objects: digests, ETags, and whether a file has the content of an object."""

import hashlib
import os
import re

from labkit.obs.place import CloudError

BLOCK = 1 << 17  # bytes that are read at once, by each of many threads


def digest(path, algorithm, size=None) -> str:
    """Checksum of a file, or of its first `size` bytes."""
    checksum = hashlib.new(algorithm)
    for block in _blocks(path, 0, os.stat(path).st_size if size is None else size):
        checksum.update(block)
    return checksum.hexdigest()


def digests(path, part) -> tuple[str, list[str]]:
    """SHA-256 of a file, and the MD5 of each of its parts of this size."""
    sha256, md5s = hashlib.sha256(), []
    for begin in range(0, os.stat(path).st_size, part):
        md5 = hashlib.md5()
        for block in _blocks(path, begin, part):
            sha256.update(block)
            md5.update(block)
        md5s.append(md5.hexdigest())
    return sha256.hexdigest(), md5s


def _blocks(path, begin, size):
    """At most `size` bytes of a file from `begin` on, block by block."""
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while size and (block := file.read(min(size, BLOCK))):
            yield block
            size -= len(block)


def md5_of(etag) -> str | None:
    """The MD5 that an ETag may be by its form; None for that of an upload in parts, and of other vendors."""
    return etag.lower() if re.fullmatch("[0-9a-fA-F]{32}", etag) else None


def etag_of_parts(md5s) -> str:
    """ETag of an object that was made of parts with these MD5s."""
    return f"{hashlib.md5(bytes.fromhex(''.join(md5s))).hexdigest()}-{len(md5s)}"


def matches(store, bucket, entry, path) -> bool | None:
    """Whether a file begins with the object's content, by checksum; None where there is none to compare.

    An ETag of an MD5's form is one, unless the server encrypts. What another tool uploaded in parts has no SHA-256.
    """
    md5 = md5_of(entry.etag)
    if md5 and digest(path, "md5", entry.size) == md5:  # whatever a SHA-256 of another tool says
        return True
    known = entry if entry.sha256 else store.head(bucket, entry.key)
    if known and known.etag == entry.etag and known.sha256:
        return digest(path, "sha256", entry.size) == known.sha256
    return False if md5 and not (known and known.encrypted) else None


def state(path) -> tuple[int, ...]:
    """What changes when a file does: its size first, its time of modification, and which file it is."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev


class Changed(CloudError):
    """The file is not what it was when its copy began."""


def require_unchanged(path, before, size=None):
    """Changed where the file's state is not what it was before, or its size not this one."""
    if state(path) != before or size not in (None, before[0]):
        raise Changed(f"{path}: changed while it was copied")
