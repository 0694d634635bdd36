"""Claims: a name in a bucket belongs to one submission, which takes it before it copies anything.

A claim is a file CLAIM/ID below the job's folder, next to it CLAIM/begun once the job has started. In a folder it is
taken by a rename, which fails where there is one. Object servers have no such request in common. There, who sees no
claim writes its own in less than SETTLE seconds and looks again after as long: by then the claims of all others who saw
none are there, and the smallest id wins.
This machine remembers the ids of its own claims, so the same command resumes a submission that was interrupted.
"""

import hashlib
import os
import shutil
import time
import uuid
from contextlib import contextmanager, nullcontext
from pathlib import Path

from labkit.modelarts.job_io import below
from labkit.obs import copying
from labkit.obs.local_files import held, read_json, short, write_json
from labkit.obs.place import CloudError, Local, as_cloud_errors, parse
from labkit.obs.upload_record import records_folder

BEGUN = "begun"
SETTLE = 3.0  # seconds


@contextmanager
def claimed(folder: str, name: str, store=None):
    """Hold the name of a job whose folder in the bucket is here; CloudError where another submission has it.

    Gives a function to call when the job starts: from then on nobody may use the name again.
    """
    url = below(folder, "claim")
    place = parse(url)
    claim = _Folder(place.path) if isinstance(place, Local) else _Prefix(place, copying.connected(store, place))
    refusal = CloudError(
        f"{name}: another submission has this name; choose another --name (or, if it was interrupted on another "
        f"machine, remove {url})"
    )
    kept = records_folder()
    record = kept and kept / f"{short('claim', claim.where)}.json"
    with held(record, refusal=refusal) if record else nullcontext() as handle:
        with as_cloud_errors():
            begin, mine = time.monotonic(), read_json(record) if record else None
            there = claim.ids()
            if there != {mine}:
                mine = uuid.uuid4().hex
                if not there and record:
                    write_json(handle, mine)
                if there or not claim.take(mine, begin):
                    raise refusal
        yield lambda: claim.write(BEGUN)


class _Folder:
    """A claim in a folder of this machine."""

    def __init__(self, path):
        self.path, self.where = path.absolute(), str(path.resolve())

    def ids(self):
        return set(os.listdir(self.path)) if self.path.is_dir() else set()

    def take(self, mine, begin):
        """Whether the claim is this one's now. begin: when there was none."""
        new = self.path.with_name(f".claim-{mine}")
        new.mkdir(parents=True)
        Path(new, mine).touch()
        try:
            new.rename(self.path)  # not onto a folder with a file
        except OSError:
            shutil.rmtree(new)
            if not self.ids():
                raise
            return False
        return True

    def write(self, name):
        Path(self.path, name).touch()


class _Prefix:
    """A claim in a bucket of an object server."""

    def __init__(self, place, store):
        self.place, self.store, self.where = place, store, f"{store.url} {place}"

    def ids(self):
        return {entry.key.rpartition("/")[2] for entry in self.store.list(self.place.bucket, self.place.prefix)}

    def take(self, mine, begin):
        self.write(mine)
        if in_time := time.monotonic() - begin < SETTLE:
            time.sleep(SETTLE)
            if min(self.ids(), default="") == mine:
                return True
        self.store.delete(self.place.bucket, self.place.below(mine).key)
        if not in_time:  # others may have looked before it was there
            raise CloudError(f"{self.place}: two requests took more than {SETTLE:g} s; try again")
        return False

    def write(self, name):
        self.store.put(self.place.bucket, self.place.below(name).key, b"", hashlib.sha256(b"").hexdigest())
