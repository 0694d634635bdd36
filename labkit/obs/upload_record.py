"""Files that one process at a time holds, and what this machine remembers of the uploads that it began."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from labkit.obs.place import CloudError
from labkit.system import environment
from labkit.system.files import lock


class UploadRecord:
    """Which open upload of an object is ours, and of what content; held by one process of this machine at a time.

    place: what names the object. Where nothing can be written, an upload goes without a record, and is not resumed.
    """

    def __init__(self, *place, wait=0.0, stopped: Callable[[], bool] = lambda: False):
        folder = _folder()
        self.place, self.path = place, folder and folder / f"{short(*place)}.json"
        self.sha256 = self.upload = None
        self._held = held(self.path.with_suffix(".lock"), wait, stopped) if folder else nullcontext()

    def __enter__(self):
        self._held.__enter__()
        if self.path:
            with suppress(OSError, ValueError, LookupError, TypeError):  # none, or damaged
                known = json.loads(self.path.read_text())
                self.sha256, self.upload = known["sha256"], known["upload"]
        return self

    def __exit__(self, *_):
        if self.path:
            self.path.with_suffix(".lock").unlink(missing_ok=True)
        self._held.__exit__(None, None, None)

    def write(self, sha256, upload):
        self.sha256, self.upload = sha256, upload
        if self.path:
            fresh = self.path.with_suffix(".new")
            with suppress(OSError):  # a full disk: then it is not resumed
                fresh.write_text(json.dumps({"place": self.place, "sha256": sha256, "upload": upload}))
                os.replace(fresh, self.path)

    def clear(self):
        if self.path:
            self.path.unlink(missing_ok=True)


def _folder():
    """Where records are kept: in the user's cache, or where that cannot be written in the temporary folder, or None."""

    def cache():
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "labkit")

    for top in (cache, lambda: Path(tempfile.gettempdir(), f"labkit-{environment.user_id()}")):
        with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
            folder = top() / "uploads"
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)
            if folder.stat().st_uid == environment.user_id() and os.access(folder, os.W_OK):
                return folder
    return None


@contextmanager
def held(path, wait=0.0, stopped: Callable[[], bool] = lambda: False):
    """File descriptor of this file, made if need be, which no other process holds until the end.

    wait: seconds after which, where another holds it, CloudError is raised; at once when stopped() says so.
    """
    end = time.monotonic() + wait
    while True:
        handle = open_file(path)
        try:
            if lock(handle):
                if _is(handle, path):  # not renamed or removed by who held it before
                    yield handle
                    return
            elif time.monotonic() >= end or stopped():
                raise CloudError(f"{path}: held by another process, which copies the same")
            else:
                time.sleep(0.05)
        finally:
            os.close(handle)


def open_file(path, mode=0o666) -> int:
    """File descriptor of a file that may be read and written, made if need be; OSError where it is a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), mode)  # Windows lacks the flag


def _is(handle, path):
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def short(*parts) -> str:
    """A name for these, short enough for a file system."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
