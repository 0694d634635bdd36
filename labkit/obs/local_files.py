"""Files on this machine that one process at a time may lock, and memory for their parts."""

import hashlib
import json
import mmap
import os
import time
from contextlib import contextmanager

from labkit.obs.place import CloudError
from labkit.system.files import lock


@contextmanager
def locked_file(path, wait=0.0):
    """Lock a file, created if necessary, until the end of the `with` block; yields its descriptor.

    wait: seconds to wait for another process that has locked it; after that, CloudError.
    """
    end = time.monotonic() + wait
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if lock(handle):
                if is_at(handle, path):  # not renamed or removed by the process that locked it before
                    yield handle
                    return
            elif time.monotonic() >= end:
                raise CloudError(f"{path}: locked by another process with the same copy; gave up after {wait:g} s")
            else:
                time.sleep(0.05)
        finally:
            os.close(handle)


def is_at(handle, path):
    """Whether an open file is still at this path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def read_json(path):
    """The JSON document in a file; None if there is none, or only a part of one."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def write_json(handle, document) -> None:
    """Replace the contents of a locked file by a document."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(document).encode(), 0)


def short(*parts) -> str:
    """A name made of a hash of the parts, short enough for any file system."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def memory(size) -> memoryview:
    """A buffer that is returned to the system when no longer used; malloc would keep megabytes for each thread."""
    return memoryview(mmap.mmap(-1, size))


def read_part(path, part, number, buffer) -> memoryview:
    """Part `number` of a file, counting from 1, in a buffer."""
    content, done = buffer[:part], 0
    with open(path, "rb", buffering=0) as file:
        file.seek((number - 1) * part)
        while count := file.readinto(content[done:]):
            done += count
    return content[:done]


def write_at(handle, content, offset) -> None:
    """Write all of a content to an open file, from an offset on."""
    with memoryview(content) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(handle, view[done:], offset + done)
