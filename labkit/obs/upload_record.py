"""Records of the multipart uploads that this machine has started, so that the next try can resume them."""

from contextlib import contextmanager, suppress

from labkit.obs.local_files import locked_file, read_json, short, write_json
from labkit.system import environment


class UploadRecord:
    """Id of our open upload of an object, and its "PART-TOKEN" (see `store.Entry`)."""

    def __init__(self, path, handle):
        self._handle = handle
        self.id = self.token = None
        with suppress(TypeError, ValueError):  # somebody else has written it
            self.id, self.token = map(str, read_json(path))

    def write(self, id, token):
        self.id, self.token = id, token
        with suppress(OSError):  # the disk is full: this upload is completed now, or never resumed
            write_json(self._handle, [id, token])


@contextmanager
def open_record(*place, wait=0.0):
    """The UploadRecord of the object that `place` names, locked until the end, and removed then if its id is None.

    wait: see `locked_file`.
    """
    folder = environment.cache() / "uploads"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{short(*place)}.json"
    with locked_file(path, wait) as handle:
        record = UploadRecord(path, handle)
        try:
            yield record
        finally:
            if not record.id:
                path.unlink(missing_ok=True)
