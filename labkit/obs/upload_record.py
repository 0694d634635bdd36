"""What this machine remembers of the uploads in parts that it began, so that the next try resumes its own."""

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from labkit.obs.local_files import held, own_folder, short
from labkit.obs.place import CloudError
from labkit.system import environment


class UploadRecord:
    """Id of our open upload of an object and SHA-256 of its content; held by one process of this machine at a time.

    place: what names the object. Where nothing can be written, an upload has no record and is not resumed.
    """

    def __init__(self, *place, wait=0.0, stopped: Callable[[], bool] = lambda: False):
        folder = records_folder()
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
