"""One file's way up or down, in parts that several threads carry; cut off anywhere, the next try goes on from there.

Up: a file of one part is one request. A larger one is an upload in parts, which the server keeps; a record on this
machine says which open upload is ours, so others' are neither used nor given up. Down: parts go into a hidden file
beside the target, behind whose content a byte for each part says that it is there; it is renamed when its checksum is
right.
"""

import hashlib
import os
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress

from labkit.obs.place import CloudError
from labkit.obs.store import CHUNK, Entry
from labkit.obs.upload_record import UploadRecord, held, short

PART = 8 << 20  # bytes
MOST_PARTS = 10_000  # of an upload, on OBS and S3
LIKELY_PARTS = [size << 20 for size in (8, 5, 9, 10, 15, 16, 20, 50, 64, 100)]  # of other tools
HIDDEN = ".labkit-"  # how the name of a download that is under way begins


class Transfers:
    """What the files of one copy share: the server, threads, room in memory for `jobs` parts, and the counts."""

    def __init__(self, store, jobs=8, resume=True, verify=True, total=0, progress=None, deadline=300.0):
        self.store, self.resume, self.verify = store, resume, verify
        self._deadline = store.deadline if store else deadline
        self.total, self.progress, self.done, self.moved = total, progress, 0, 0
        self._room, self._threads = threading.Semaphore(jobs), ThreadPoolExecutor(jobs)
        self._lock, self._stale, self._stopped = threading.Lock(), {}, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._threads.shutdown()

    def count(self, size, moved=True):
        """So many bytes are where they should be; moved: by this copy."""
        with self._lock:
            self.done += size
            self.moved += size if moved else 0
            if self.progress:
                self.progress(self.done, self.total)

    def stop(self) -> CloudError:
        """Have no further part begin; returns what the files under way fail with."""
        self._stopped = CloudError("stopped")
        if self.store:
            self.store.stop()
        return self._stopped

    def held(self, path):
        """The hidden file, which no other process holds; its turn is waited for until the deadline."""
        return held(path, self._deadline, lambda: self._stopped)

    # -- Up --------------------------------------------------------------------------------------------

    def upload(self, path, bucket, key) -> None:
        """Make the file the object; raises CloudError, also where the file changes meanwhile."""
        state = _state(path)
        size = state[0]
        if size > PART:
            self._upload_parts(path, state, bucket, key)
            return
        with self._room:
            with open(path, "rb") as file:
                content = file.read(size + 1)
            _require_unchanged(path, state, len(content))
            sha256 = hashlib.sha256(content).hexdigest()
            etag = self.store.put(bucket, key, content, sha256)
            if self.verify and etag != hashlib.md5(content).hexdigest():  # as a server that encrypts may say
                self._require_there(bucket, key, size, sha256, None, etag)
        self.count(size)

    def _upload_parts(self, path, state, bucket, key):
        size, part = state[0], part_size(state[0])
        count = -(-size // part)
        sha256 = digest(path, "sha256", stopped=lambda: self._stopped)
        _require_unchanged(path, state)
        wait, stopped = self._deadline, lambda: self._stopped
        with UploadRecord(self.store.url, bucket, key, wait=wait, stopped=stopped) as record:
            upload, etags = self._open(record, path, part, count, bucket, key, sha256)
            self.count(sum(min(part, size - (number - 1) * part) for number in etags), moved=False)
            own = dict(etags)  # those of the parts that are there have been compared

            def send(number):
                with self._room:
                    content = read_part(path, part, number)
                    md5 = hashlib.md5(content)
                    etags[number] = self.store.upload_part(bucket, key, upload, number, content, md5)
                    own[number] = md5.hexdigest()
                self.count(len(content))

            try:
                self._each(send, [number for number in range(1, count + 1) if number not in etags])
                _require_unchanged(path, state)
            except (_Changed, OSError):
                self.store.abort_multipart_upload(bucket, key, upload)
                record.clear()
                raise
            sent, said = ([found[number] for number in range(1, count + 1)] for found in (own, etags))
            self.store.complete_multipart_upload(bucket, key, upload, said)
            self._require_there(bucket, key, size, sha256, etag_of_parts(sent), etag_of_parts(said))
            record.clear()

    def _require_there(self, bucket, key, size, sha256, sent, said):
        """CloudError where the object is not what was sent. Of one that the server encrypts, the ETag says nothing.

        sent: the ETag of that; said: what the server has made of it. If that is there, it is removed: it was damaged on
        its way, but has the file's SHA-256, so the next copy would take it for the file.
        """
        found, place = self.store.head(bucket, key), f"obs://{bucket}/{key}"
        if found is None:
            raise CloudError(f"{place}: uploaded, but not there: somebody has removed it, or the upload")
        if (found.size, found.sha256) == (size, sha256):
            if found.encrypted or found.etag == sent:
                return
            if found.etag == said:
                self.store.delete(bucket, key)
                raise CloudError(f"{place}: damaged on its way up, which the server did not see; removed there")
        raise CloudError(f"{place}: uploaded, but the server has another object there")

    def _open(self, record, path, part, count, bucket, key, sha256):
        """Id of our open upload of this content, begun if there is none, and the ETags that it has by number."""
        parts = self.store.list_parts(bucket, key, record.upload) if record.upload else None
        if parts is not None and self.resume and record.sha256 == sha256:
            there = {number: etag for number, etag in parts.items() if 1 <= number <= count}
            return record.upload, {
                number: etag for number, etag in there.items()
                if etag == hashlib.md5(read_part(path, part, number)).hexdigest()
            }  # fmt: skip
        if parts is not None:
            self.store.abort_multipart_upload(bucket, key, record.upload)
        # If the answer is lost, this upload stays, without parts.
        upload = self.store.create_multipart_upload(bucket, key, sha256)
        record.write(sha256, upload)
        return upload, {}

    # -- Down ------------------------------------------------------------------------------------------

    def download(self, entry: Entry, bucket, path) -> None:
        """Make the object the file; raises CloudError, also where the object changes meanwhile."""
        if path.is_dir():
            raise CloudError(f"{path}: there is a folder of this name")
        size, part = entry.size, part_size(entry.size)
        name = short(path.name)
        hidden = path.with_name(f"{HIDDEN}{name}-{short(self.store.url, bucket, entry, part)}.part")
        stale = self._left_behind(path.parent, name)
        with self.held(hidden) as handle:
            for again in (not self.resume, True):
                try:
                    self._fetch(entry, bucket, handle, part, again)
                except CloudError as error:
                    if error.status in (404, 412):
                        hidden.unlink()
                        raise CloudError(
                            f"obs://{bucket}/{entry.key}: changed or removed meanwhile",
                            error.status, error.code, error.request_id,
                        ) from None  # fmt: skip
                    raise
                if not self.verify or matches(self.store, bucket, entry, hidden, lambda: self._stopped) is not False:
                    break
                self.count(-size, moved=False)
            else:
                hidden.unlink()
                raise CloudError(f"obs://{bucket}/{entry.key}: came with a wrong checksum, twice")
            os.ftruncate(handle, size)
            os.fsync(handle)
            os.replace(hidden, path)
        for other in stale - {hidden}:
            with suppress(OSError, CloudError), held(other):  # unless another process goes on with it
                other.unlink()

    def _fetch(self, entry, bucket, handle, part, again):
        size, count = entry.size, -(-entry.size // part)
        length = os.fstat(handle).st_size
        if length == size and size and not again:  # only its last step, the name, was missing
            self.count(size, moved=False)
            return
        if length != size + count or again:
            os.ftruncate(handle, 0)
            os.ftruncate(handle, size + count)
        there = os.pread(handle, count, size)
        missing = [number for number in range(count) if not there[number]]
        self.count(size - sum(min(part, size - number * part) for number in missing), moved=False)

        def fetch(number):
            begin, end = number * part, min(size, (number + 1) * part)
            with self._room:
                content = self.store.get(bucket, entry.key, begin, end, entry.etag)
                _write(handle, content, begin)
            _write(handle, b"\1", size + number)
            self.count(end - begin)

        self._each(fetch, missing)

    def _left_behind(self, folder, name):
        """Hidden files of earlier downloads to this target; a folder is looked through once."""
        with self._lock:
            if folder not in self._stale:
                self._stale[folder] = list(folder.glob(f"{HIDDEN}*.part"))
        return {path for path in self._stale[folder] if path.name.startswith(f"{HIDDEN}{name}-")}

    def _each(self, function, numbers):
        """Call the function with each number, in the threads; the first error ends it."""

        def one(number):
            if self._stopped:
                raise self._stopped
            function(number)

        futures = [self._threads.submit(one, number) for number in numbers]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)


class _Changed(CloudError):
    """The file is another than it was when its upload began."""


def part_size(size) -> int:
    """Bytes of a part: PART, or more where there would be too many."""
    part = PART
    while part * MOST_PARTS < size:
        part *= 2
    return part


def read_part(path, part, number) -> bytes:
    """Part `number`, from 1, of a file."""
    with open(path, "rb") as file:
        file.seek((number - 1) * part)
        return file.read(part)


def digest(path, algorithm, size=None, begin=0, stopped=lambda: None) -> str:
    """Checksum of `size` bytes of a file, or of all, from `begin` on. stopped: the error to stop with, or None."""
    found, left = hashlib.new(algorithm), os.stat(path).st_size if size is None else size
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while left and (block := file.read(min(left, CHUNK))):
            if error := stopped():
                raise error
            found.update(block)
            left -= len(block)
    return found.hexdigest()


def etag_of_parts(etags) -> str | None:
    """ETag of an object that was made of parts with these; None where they are no MD5s."""
    try:
        joined = bytes.fromhex("".join(etags))
    except ValueError:
        return None
    return f"{hashlib.md5(joined).hexdigest()}-{len(etags)}"


def matches(store, bucket, entry: Entry, path, stopped=lambda: None) -> bool | None:
    """Whether a file begins with the object's content, by checksum; None where nothing tells.

    An ETag without a hyphen is an MD5, unless the server encrypts. Of an object in parts by another tool, which has no
    SHA-256, the likely sizes of parts are tried: the ETag proves that it is the same, never that it is another.
    """
    whole = "-" not in entry.etag
    if not entry.sha256 and whole and digest(path, "md5", entry.size, stopped=stopped) == entry.etag:
        return True
    found = entry if entry.sha256 else store.head(bucket, entry.key)
    if found and found.etag == entry.etag and found.sha256:
        return digest(path, "sha256", entry.size, stopped=stopped) == found.sha256
    if whole:
        return None if found and found.encrypted else False
    return _made_of_parts(path, entry.size, entry.etag) or None


def _made_of_parts(path, size, etag):
    """Whether a file's first bytes, in parts of a size that other tools take, have this ETag."""
    for part in LIKELY_PARTS:
        begins = range(0, size, part)
        if etag.endswith(f"-{len(begins)}") and etag == etag_of_parts(
            [digest(path, "md5", min(part, size - begin), begin) for begin in begins]
        ):  # fmt: skip
            return True
    return False


def _state(path):
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _require_unchanged(path, state, size=None):
    if _state(path) != state or size not in (None, state[0]):
        raise _Changed(f"{path}: changed while it was copied")


def _write(handle, content, place):
    with memoryview(content) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(handle, view[done:], place + done)
