"""What this machine remembers of the uploads in parts that it began, so that the next try resumes its own."""

import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from labkit.obs.local_files import held, own_folder, read_json, short, write_json
from labkit.obs.place import CloudError
from labkit.system import environment


class UploadRecord:
    """Id of our open upload of an object and what tells its content; held by one process of this machine at a time.

    place: what names the object. Where nothing can be written, an upload has no record and is not resumed.
    """

    def __init__(self, *place, wait=0.0, stopped: Callable[[], bool] = lambda: False):
        folder = records_folder()
        self._path = folder and folder / f"{short(*place)}.json"
        self._held = held(self._path, wait, stopped) if folder else nullcontext()
        self.content = self.upload = None

    def __enter__(self):
        self._handle = self._held.__enter__()
        known = read_json(self._path) if self._path else None
        if isinstance(known, dict):  # as earlier versions wrote it
            known = [known.get("sha256"), known.get("upload")]
        if isinstance(known, list) and len(known) == 2:
            self.content, self.upload = known
        return self

    def __exit__(self, *_):
        if self._path and not self.upload:
            self._path.unlink(missing_ok=True)
        self._held.__exit__(None, None, None)

    def write(self, content, upload):
        self.content, self.upload = content, upload
        if self._path:
            with suppress(OSError):  # a full disk: then it is not resumed
                write_json(self._handle, [content, upload])

    def clear(self):
        self.content = self.upload = None


def records_folder() -> Path | None:
    """In the user's cache, or where that cannot be written in the temporary folder; None where neither can."""

    def cache():
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "labkit")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    for top in (cache, lambda: own_folder(tempfile.gettempdir())):
        with suppress(OSError, RuntimeError, CloudError):  # RuntimeError: a user without a home
            folder = top() / "uploads"
            folder.mkdir(exist_ok=True)
            if folder.stat().st_uid == environment.user_id() and os.access(folder, os.W_OK):
                return folder
    return None
