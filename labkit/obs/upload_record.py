"""Records of the multipart uploads that this machine has started, so that the next try can resume them."""

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.obs.local_files import locked_file, read_json, short, user_folder, write_json


class UploadRecord:
    """Id of our open upload of an object, and the SHA-256 of its content."""

    def __init__(self, path, handle):
        self._handle = handle
        self.sha256, self.upload = read_json(path) or (None, None)

    def write(self, sha256, upload):
        self.sha256, self.upload = sha256, upload
        with suppress(OSError):  # the disk is full: this upload is completed now, or never resumed
            write_json(self._handle, [sha256, upload])

    def clear(self):
        self.sha256 = self.upload = None


@contextmanager
def open_record(*place, wait=0.0):
    """The UploadRecord of the object that `place` names, locked until the end; wait: see `locked_file`."""
    path = records_folder() / f"{short(*place)}.json"
    with locked_file(path, wait) as handle:
        record = UploadRecord(path, handle)
        try:
            yield record
        finally:
            if not record.upload:
                path.unlink()


def records_folder() -> Path:
    """The folder of the records: in the user's cache or, if that is not writable, in the temporary folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "labkit", "uploads")
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(cache, os.W_OK):  # left by root
            raise PermissionError(cache)
    except OSError:
        cache = user_folder(tempfile.gettempdir()) / "uploads"
        cache.mkdir(exist_ok=True)
    return cache
