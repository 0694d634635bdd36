"""Files of this machine that one process at a time may hold, and a user's own folder among those of others."""

import hashlib
import json
import mmap
import os
import time
from contextlib import contextmanager
from pathlib import Path

from labkit.obs.place import CloudError
from labkit.system.files import lock


def own_folder(top) -> Path:
    """This user's folder in one that all users write to, made if need be; CloudError where it is somebody else's."""
    folder = Path(top, f"labkit-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise CloudError(f"{folder}: belongs to another user")
    return folder


@contextmanager
def held(path, wait=0.0):
    """File descriptor of this file, made if need be, which no other process holds until the end.

    wait: seconds after which, where another holds it, CloudError is raised.
    """
    end = time.monotonic() + wait
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if lock(handle):
                if _is(handle, path):  # not renamed or removed by who held it before
                    yield handle
                    return
            elif time.monotonic() >= end:
                raise CloudError(f"{path}: held by another process, which copies the same; given up after {wait:g} s")
            else:
                time.sleep(0.05)
        finally:
            os.close(handle)


def _is(handle, path):
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def read_json(path):
    """The document in a file; None where there is none, or half of one."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def write_json(handle, document) -> None:
    """Write a document into a file that is held, in place of what it has."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(document).encode(), 0)


def short(*parts) -> str:
    """A name for these, short enough for a file system."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def memory(size) -> memoryview:
    """So many bytes that go back to the system once nobody uses them; malloc would keep megabytes for each thread."""
    return memoryview(mmap.mmap(-1, size))
