"""One file's way up or down, in parts that several threads send; cut off anywhere, the next try resumes it.

Up: a file of one part is one request. A larger one is an upload in parts, which the server keeps; a record on this
machine says which open upload is ours, so others' are neither used nor aborted. Down: parts go into a hidden file
next to the target. Behind its content that file has a byte for each part that is there; it gets its final name when its
checksum is right.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from labkit.obs import checksums
from labkit.obs.checksums import Changed, digest, digests, matches, require_unchanged, state
from labkit.obs.local_files import held, memory, short
from labkit.obs.place import CloudError
from labkit.obs.upload_record import UploadRecord

PART = 8 << 20  # bytes
MOST_PARTS = 10_000  # of an upload, on OBS and S3
ROOM = 8 * PART  # bytes of parts and small files that a copy has in memory at a time, whatever its `jobs`
HIDDEN = ".labkit-"  # how the name of a download that is under way begins
UNFINISHED = re.compile(re.escape(HIDDEN) + r"[0-9a-f]{16}-([0-9a-f]{16}|local)\.part")


class Transfers:
    """What the files of one copy share: the server, threads, room in memory, and the counts."""

    def __init__(self, store, jobs=8, resume=True, verify=True, total=0, progress=None, deadline=300.0):
        self.store, self.resume, self.verify = store, resume, verify
        self._deadline = store.deadline if store else deadline
        self.total, self.progress, self.done, self.moved = total, progress, 0, 0
        self._room, self._threads = _Room(jobs, ROOM), ThreadPoolExecutor(jobs)
        self._lock, self._leftovers, self.error, self._full = threading.Lock(), {}, None, False

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

    def stop(self, error=None) -> CloudError:
        """Have no further part begin; returns what the files under way fail with."""
        self.error = error or CloudError("stopped")
        if self.store:
            self.store.stop()
        return self.error

    def _stopped(self):
        return self.error

    def record(self, *place) -> UploadRecord:
        """What is known of our open upload to a place."""
        return UploadRecord(self.store.url, *place, wait=self._deadline, stopped=self._stopped)

    # -- Up --------------------------------------------------------------------------------------------

    def upload(self, path, bucket, key) -> None:
        """Make the file the object; raises CloudError, also where the file changes meanwhile."""
        before = state(path)
        size = before[0]
        if size > PART:
            self._upload_parts(path, before, bucket, key)
            return
        with self._room.for_bytes(size):
            content = read_part(path, size + 1, 1)
            require_unchanged(path, before, len(content))
            sha256 = hashlib.sha256(content).hexdigest()
            etag = self.store.put(bucket, key, content, sha256)
            md5 = hashlib.md5(content).hexdigest()
            del content  # before others take the room
        if self.verify and etag.lower() != md5:  # as a server that encrypts may say
            self._verify_upload(bucket, key, size, sha256, md5)
        self.count(size)

    def _upload_parts(self, path, before, bucket, key):
        size, part = before[0], part_size(before[0])
        numbers = range(1, -(-size // part) + 1)
        sha256, md5s = digests(path, part, self._stopped)
        require_unchanged(path, before)
        md5s = dict(zip(numbers, md5s))
        with self.record(bucket, key) as record:
            upload, there = self.open_upload(record, sha256, bucket, key, sha256)
            etags = {n: etag for n, etag in there.items() if checksums.md5_of(etag) == md5s.get(n, "")}
            self.count(sum(min(part, size - (number - 1) * part) for number in etags), moved=False)

            def send(number):
                with self._room.for_bytes(part):
                    content = read_part(path, part, number)
                    md5 = hashlib.md5(content)
                    if md5.hexdigest() != md5s[number]:  # by a memory map, say, which leaves the file's times alone
                        raise Changed(f"{path}: changed while it was copied")
                    etags[number] = self.store.upload_part(bucket, key, upload, number, content, md5)
                    sent = len(content)
                    del content  # before another takes the room
                self.count(sent)

            try:
                self._each(send, [number for number in numbers if number not in etags])
                require_unchanged(path, before)
            except (Changed, OSError):
                self.store.abort_multipart_upload(bucket, key, upload)
                record.clear()
                raise
            etags = [etags[number] for number in numbers]
            self.store.complete_multipart_upload(bucket, key, upload, etags)
            self._verify_upload(bucket, key, size, sha256, checksums.etag_of_parts(md5s.values()))
            record.clear()

    def open_upload(self, record, content, bucket, key, sha256) -> tuple[str, dict[int, str]]:
        """Id of our open upload, begun if there is none, and the ETags of its parts by number.

        content: a text that differs for other content and for parts of another size.
        """
        parts = self.store.list_parts(bucket, key, record.upload) if record.upload else None
        if parts is not None and self.resume and record.content == content:
            return record.upload, parts
        if parts is not None:
            self.store.abort_multipart_upload(bucket, key, record.upload)
        # If the answer is lost, this upload stays, without parts.
        upload = self.store.create_multipart_upload(bucket, key, sha256)
        record.write(content, upload)
        return upload, {}

    def _verify_upload(self, bucket, key, size, sha256, sent):
        """CloudError where the object is not what was sent.

        sent: the ETag of what was sent. One that is no MD5, as of a server that encrypts, says nothing. Another
        that may be an MD5 proves nothing yet, so the object is read: if it is damaged it is removed, because it has the
        file's SHA-256 and the next copy would take it for the file.
        """
        found, place = self.store.head(bucket, key), f"obs://{bucket}/{key}"
        if found is None:
            raise CloudError(f"{place}: uploaded, but not there: somebody has removed it, or the upload")
        if (found.size, found.sha256) == (size, sha256):
            told = checksums.md5_of(found.etag) or checksums.md5_of(found.etag.partition("-")[0])
            if found.encrypted or not told or found.etag.lower() == sent or self._sha256(bucket, found) == sha256:
                return
            self.store.delete(bucket, key)
            raise CloudError(f"{place}: damaged on its way up, which the server did not see; removed there")
        raise CloudError(f"{place}: uploaded, but the server has another object there")

    def _sha256(self, bucket, entry):
        """SHA-256 of an object's content."""
        found = hashlib.sha256()
        for begin in range(0, entry.size, PART):
            with self._room.for_bytes(PART):
                found.update(self.store.get(bucket, entry.key, begin, min(begin + PART, entry.size), entry.etag))
        return found.hexdigest()

    # -- Down ------------------------------------------------------------------------------------------

    def download(self, entry, bucket, path) -> None:
        """Make the object the file; raises CloudError, also where the object changes meanwhile."""
        part, place, name = part_size(entry.size), f"obs://{bucket}/{entry.key}", short(path.name)
        leftovers = self._left_behind(path.parent, name)
        with self._hidden(path, f"{name}-{short(self.store.url, bucket, entry, part)}") as (hidden, handle):
            for again in (not self.resume, True):
                try:
                    self._fetch(entry, bucket, handle, part, again)
                except CloudError as error:
                    if error.status in (404, 412):
                        hidden.unlink()
                        raise error.reworded(f"{place}: changed or removed meanwhile") from None
                    raise
                if not self.verify or matches(self.store, bucket, entry, hidden, self._stopped) is not False:
                    break
                self.count(-entry.size, moved=False)
            else:
                hidden.unlink()
                raise CloudError(f"{place}: came with a wrong checksum, twice")
            os.ftruncate(handle, entry.size)
            os.fsync(handle)
            _replace(path, hidden)
        for other in leftovers - {hidden}:
            with suppress(OSError, CloudError), held(other):  # unless another process resumes it
                other.unlink()

    def copy_file(self, source, size, path) -> None:
        """Copy a file of this machine; raises CloudError, also where it changes meanwhile."""
        with self._hidden(path, f"{short(path.name)}-local") as (hidden, handle):
            try:
                shutil.copyfile(source, hidden)
                os.fsync(handle)
                if self.verify and digest(hidden, "sha256") != digest(source, "sha256"):
                    raise CloudError(f"{source}: changed while it was copied")
                _replace(path, hidden)
            except BaseException:
                hidden.unlink(missing_ok=True)
                raise
        self.count(size)

    @contextmanager
    def _hidden(self, path, name):
        """Path and descriptor of the file that becomes the target when it is whole; no other process holds it.

        Its turn is waited for until the deadline.
        """
        if path.is_dir():
            raise CloudError(f"{path}: there is a folder of this name")
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f"{HIDDEN}{name}.part")
        with held(hidden, self._deadline, self._stopped) as handle:
            if path.exists():  # what takes its place is no more readable than it was; to grow, it must be writable
                os.chmod(hidden, stat.S_IMODE(path.stat().st_mode) & 0o777 | 0o600)
            try:
                yield hidden, handle
            except OSError as error:
                if not is_full(error):
                    raise
                self._full = True
                raise OSError(error.errno, error.strerror, str(path)) from None
            finally:
                if self._full:  # nothing half may stay, of the files under way either
                    hidden.unlink(missing_ok=True)

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
            with self._room.for_bytes(end - begin):
                content = self.store.get(bucket, entry.key, begin, end, entry.etag)
                _write(handle, content, begin)
                del content
            _write(handle, b"\1", size + number)
            self.count(end - begin)

        self._each(fetch, missing)

    def _left_behind(self, folder, name):
        """Hidden files of earlier downloads to this target; a folder is looked through once."""
        with self._lock:
            if folder not in self._leftovers:
                self._leftovers[folder] = list(folder.glob(f"{HIDDEN}*.part"))
        return {path for path in self._leftovers[folder] if path.name.startswith(f"{HIDDEN}{name}-")}

    def _each(self, function, numbers):
        """Call the function with each number, in the threads; the first error ends it."""

        def one(number):
            if self.error:
                raise self.error
            function(number)

        futures = [self._threads.submit(one, number) for number in numbers]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)


def _replace(path, hidden):
    """Make the whole file the target, with its mode."""
    if path.exists():
        os.chmod(hidden, stat.S_IMODE(path.stat().st_mode))
    os.replace(hidden, path)


class _Room:
    """Room for so many requests with content, and for so many bytes of it; who finds none waits."""

    def __init__(self, requests, size):
        self._requests, self._size, self._free = threading.Semaphore(requests), size, size
        self._changed = threading.Condition()

    @contextmanager
    def for_bytes(self, size):
        """Room for one request with this content; one that is larger than all the room gets all of it."""
        size = min(size, self._size)
        with self._requests:
            with self._changed:
                self._changed.wait_for(lambda: self._free >= size)
                self._free -= size
            try:
                yield
            finally:
                with self._changed:
                    self._free += size
                    self._changed.notify_all()


def is_full(error) -> bool:
    """Whether a disk has no room left, or the user's share of it: then no other file has any either."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def part_size(size) -> int:
    """Bytes of a part: PART, or more where there would be too many."""
    part = PART
    while part * MOST_PARTS < size:
        part *= 2
    return part


def read_part(path, part, number) -> memoryview:
    """Part `number`, from 1, of a file."""
    content, done = memory(part), 0
    with open(path, "rb", buffering=0) as file:
        file.seek((number - 1) * part)
        while count := file.readinto(content[done:]):
            done += count
    return content[:done]


def _write(handle, content, place):
    with memoryview(content) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(handle, view[done:], place + done)
