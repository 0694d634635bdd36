"""Checksums of files and objects: digests, ETags, and whether a file equals an object."""

import hashlib
import os
import re

from labkit.obs.place import CloudError

BLOCK = 1 << 20  # bytes per read, in each of many threads


def digest(path, algorithm, size=None, begin=0) -> str:
    """Checksum of a file, or of `size` bytes of it, starting at `begin`."""
    checksum, left = hashlib.new(algorithm), os.stat(path).st_size if size is None else size
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while left and (block := file.read(min(left, BLOCK))):
            checksum.update(block)
            left -= len(block)
    return checksum.hexdigest()


def md5_of(etag) -> str | None:
    """The MD5 in an ETag, if it looks like one; an ETag of a multipart upload or of other vendors does not."""
    return etag.lower() if re.fullmatch("[0-9a-fA-F]{32}", etag) else None


def etag_of_parts(md5s) -> str:
    """ETag of an object that was uploaded in parts with these MD5s."""
    return f"{hashlib.md5(bytes.fromhex(''.join(md5s))).hexdigest()}-{len(md5s)}"


def matches(store, bucket, entry, path) -> bool | None:
    """Whether a file begins with the object's content, by checksum; None if there is no checksum to compare.

    An ETag that looks like an MD5 is one, unless the server encrypts. Multipart uploads by other tools
    say neither SHA-256 nor the size of their parts.
    """
    md5 = md5_of(entry.etag)
    if md5 and digest(path, "md5", entry.size) == md5:  # even if another tool's SHA-256 differs
        return True
    head = entry if entry.sha256 or entry.upload else store.head(bucket, entry.key)
    if head and head.etag == entry.etag and head.sha256:
        return digest(path, "sha256", entry.size) == head.sha256
    if head and head.etag == entry.etag and head.part:
        begins = range(0, entry.size, head.part)
        md5s = [digest(path, "md5", min(head.part, entry.size - begin), begin) for begin in begins]
        return etag_of_parts(md5s) == head.etag.lower()
    return False if md5 and not (head and head.encrypted) else None


def state(path) -> tuple[int, ...]:
    """What changes if a file does: first its size, then its modification time and identity."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev


class Changed(CloudError):
    """The file has changed since its copy began."""


def require_unchanged(path, before, size=None):
    """Raise Changed if the file's state differs from the one before, or its size from `size`."""
    if state(path) != before or size not in (None, before[0]):
        raise Changed(f"{path}: changed while it was copied")
