"""Files that one process at a time holds, and what this machine remembers of the uploads that it began."""

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path


class Note:
    """Which open upload of an object is ours, and of what content; held by one process of this machine at a time."""

    def __init__(self, *place):
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.place, self.path = place, Path(cache, "labkit", "uploads", f"{short(*place)}.json")
        self.sha256 = self.upload = None

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = held(self.path.with_suffix(".lock"))
        self._lock.__enter__()
        with suppress(OSError, ValueError, KeyError):
            known = json.loads(self.path.read_text())
            self.sha256, self.upload = known["sha256"], known["upload"]
        return self

    def __exit__(self, *_):
        self.path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.__exit__(None, None, None)

    def write(self, sha256, upload):
        self.sha256, self.upload = sha256, upload
        told = {"place": self.place, "sha256": sha256, "upload": upload}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(told))
        os.replace(fresh, self.path)

    def clear(self):
        self.path.unlink(missing_ok=True)


@contextmanager
def held(path, wait=True):
    """File descriptor of this file, made if need be, which no other process holds until the end."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                pass  # a file system without locks: two at once are then not told apart
            if _is(handle, path):  # not renamed or removed by who held it before
                yield handle
                return
        finally:
            os.close(handle)


def _is(handle, path):
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def short(*parts) -> str:
    """A name for these, short enough for a file system."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
