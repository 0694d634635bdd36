"""Upload or download one file in parts, in several threads; if interrupted, the next try resumes.

Upload: a file of one part is one request. A larger file is a multipart upload, whose parts the server keeps; a record
on this machine says which open upload is ours, so that those of others are neither used nor aborted. Download: parts go
into a hidden file next to the target. After its content, that file has a byte for each part that has arrived, and
a hash of the object they belong to. It gets its final name once its checksum is right.
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
import threading
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager, nullcontext

from labkit.obs import checksums
from labkit.obs.checksums import Changed, digest, matches, require_unchanged, state
from labkit.obs.local_files import is_at, locked_file, memory, read_part, short, write_at
from labkit.obs.place import CloudError
from labkit.obs.upload_record import open_record

PART = 8 << 20  # bytes
MOST_PARTS = 10_000  # per upload, on OBS and S3
SMALL, MOST_LARGE = 1 << 18, 8  # larger parts, in memory at the same time, are limited to 8, whatever `jobs` says
UNFINISHED = re.compile(r"\.labkit-[0-9a-f]{16}\.part")  # name of a file that is being downloaded


class _OtherETags(Exception):
    """The server's ETags are not MD5s, as if it encrypts: an object can then be compared only with a sha256."""


class Transfers:
    """The server, threads, memory and counts that the files of one copy share. threads: executor for `jobs` parts."""

    def __init__(self, store, threads, jobs, total, progress, deadline):
        self.store, self._deadline = store, store.deadline if store else deadline
        self.total, self.progress, self.done, self.moved = total, progress, 0, 0
        self._requests, self._large = threading.Semaphore(jobs), threading.Semaphore(MOST_LARGE)
        self._threads, self._buffers = threads, ([], [])
        self._lock, self.error, self._other_etags = threading.Lock(), None, None

    def count(self, size, moved=True):
        """Count bytes that are at the target; moved: this copy has transferred them."""
        with self._lock:
            self.done += size
            self.moved += size if moved else 0
            if self.progress:
                self.progress(self.done, self.total)

    def stop(self) -> CloudError:
        """Start no further parts; returns the error with which unfinished files will fail."""
        self.error = CloudError("stopped")
        if self.store:
            self.store.stop()
        return self.error

    @contextmanager
    def _room(self, size):
        """Wait for room for one request; yields memory for a byte more, used again since new memory is slow."""
        is_large = size > SMALL
        with self._large if is_large else nullcontext(), self._requests:
            try:
                buffer = self._buffers[is_large].pop()
            except IndexError:
                buffer = b""
            buffer = buffer if len(buffer) > size else memory(size + 1)
            yield buffer
            self._buffers[is_large].append(buffer)

    # -- Up --------------------------------------------------------------------------------------------

    def upload(self, path, bucket, key) -> None:
        """Upload a file; raises CloudError, also if the file changes meanwhile."""
        before = state(path)
        size = before[0]
        if size > PART:
            try:
                self._upload_parts(path, before, bucket, key, self._other_etags and digest(path, "sha256"))
            except _OtherETags:
                self._other_etags = True
                self._upload_parts(path, before, bucket, key, digest(path, "sha256"))
            return
        with self._room(size) as buffer:
            content = read_part(path, size + 1, 1, buffer)
            require_unchanged(path, before, len(content))
            sha256, md5 = hashlib.sha256(content).hexdigest(), hashlib.md5(content)
            etag = self.store.put(bucket, key, content, sha256, md5)
        if etag.lower() != md5.hexdigest():  # possible if the server encrypts
            self._verify_upload(bucket, key, md5.hexdigest(), size, sha256)
        self.count(size)

    def _upload_parts(self, path, before, bucket, key, sha256):
        """Upload a large file, each part read and hashed once, by the thread that sends it; raises _OtherETags."""
        size, part = before[0], part_size(before[0])
        numbers, md5s = range(1, -(-size // part) + 1), {}
        with open_record(self.store.url, bucket, key, wait=self._deadline) as record:
            etags, token = self._open_upload(record, bucket, key, part, sha256)

            def send(number):
                with self._room(part) as buffer:
                    content = read_part(path, part, number, buffer)
                    md5, sent = hashlib.md5(content), len(content)
                    md5s[number] = md5.hexdigest()
                    if not (is_there := etags.get(number, "").lower() == md5s[number]):
                        etags[number] = self.store.upload_part(bucket, key, record.id, number, content, md5)
                if etags[number].lower() != md5s[number] and not sha256:
                    raise _OtherETags
                self.count(sent, moved=not is_there)

            try:
                self._each(send, numbers)
                require_unchanged(path, before)
            except (Changed, OSError, _OtherETags):
                self.store.abort_multipart_upload(bucket, key, record.id)
                record.id = None
                raise
            self.store.complete_multipart_upload(bucket, key, record.id, [etags[number] for number in numbers])
            sent = checksums.etag_of_parts([md5s[number] for number in numbers])
            record.id = None
            self._verify_upload(bucket, key, sent, size, sha256, token)

    def _open_upload(self, record, bucket, key, part, sha256) -> tuple[dict[int, str], str]:
        """Our open upload, in the record, or a new one: ETags of its parts, by number, and its token.

        One with a sha256 is of one content only, so it is not resumed, and its token is not recorded.
        """
        parts = self.store.list_parts(bucket, key, record.id) if record.id else None
        if parts is not None and record.token.startswith(f"{part}-") and not sha256:
            return parts, record.token
        if parts is not None:
            self.store.abort_multipart_upload(bucket, key, record.id)
        token = f"{part}-{secrets.token_hex(8)}"
        # If the answer is lost, an upload without parts remains.
        metadata = {"upload": token, **({"sha256": sha256} if sha256 else {})}
        record.write(self.store.create_multipart_upload(bucket, key, metadata), "" if sha256 else token)
        return {}, token

    def _verify_upload(self, bucket, key, sent, size, sha256, upload=None):
        """CloudError if the object is not what was sent; _OtherETags if that cannot be known without a sha256.

        sent: the ETag of what was sent; a different one proves nothing yet, so the object is read, unless the server
        encrypts. size, sha256, upload: see `store.Entry`. A damaged object is removed: the next copy would believe what
        is stored with it.
        """
        entry, place = self.store.head(bucket, key), f"obs://{bucket}/{key}"
        if entry is None or (entry.upload, entry.sha256) != (upload, sha256) or (not upload and entry.size != size):
            raise CloudError(f"{place}: uploaded, but it was then removed or overwritten by somebody else")
        if entry.size == size and (entry.etag.lower() == sent or (entry.encrypted and sha256)):
            return
        if entry.size == size and not sha256:
            raise _OtherETags
        if entry.size != size or self._sha256(bucket, entry) != sha256:
            self.store.delete(bucket, key)
            raise CloudError(f"{place}: damaged during the upload, unnoticed by the server; removed")

    def _sha256(self, bucket, entry):
        """SHA-256 of an object's content."""
        checksum = hashlib.sha256()
        for begin in range(0, entry.size, PART):
            with self._room(PART) as buffer:
                part = begin, min(begin + PART, entry.size), entry.etag
                checksum.update(self.store.get(bucket, entry.key, *part, buffer))
        return checksum.hexdigest()

    # -- Down ------------------------------------------------------------------------------------------

    def download(self, entry, bucket, path) -> None:
        """Download an object to `path`; raises CloudError, also if the object changes meanwhile."""
        place = f"obs://{bucket}/{entry.key}"
        changed = f"{place}: changed or removed meanwhile"
        if not checksums.md5_of(entry.etag):  # a listing does not say how it was uploaded
            etag, entry = entry.etag, self.store.head(bucket, entry.key)
            if entry is None or entry.etag != etag:
                raise CloudError(changed)
        with self._hidden(path) as (hidden, handle):
            for again in (False, True):
                try:
                    etags = self._fetch(entry, bucket, handle, again)
                except CloudError as error:
                    if error.status in (404, 412):
                        hidden.unlink()
                        raise error.reworded(changed) from None
                    raise
                if entry.etag.lower() in etags or matches(self.store, bucket, entry, hidden) is not False:
                    break
                self.count(-entry.size, moved=False)
            else:
                hidden.unlink()
                raise CloudError(f"{place}: downloaded twice, both times with a wrong checksum")
            os.fsync(handle)
            os.ftruncate(handle, entry.size)
            _replace(path, hidden, handle)

    def copy_file(self, source, size, path) -> None:
        """Copy a file on this machine; raises CloudError, also if it changes meanwhile."""
        with self._hidden(path) as (hidden, handle):
            try:
                shutil.copyfile(source, hidden)
                os.fsync(handle)
                if digest(hidden, "sha256") != digest(source, "sha256"):
                    raise CloudError(f"{source}: changed while it was copied")
                _replace(path, hidden, handle)
            except BaseException:
                hidden.unlink(missing_ok=True)
                raise
        self.count(size)

    @contextmanager
    def _hidden(self, path):
        """Path and descriptor of the file that becomes the target once it is complete.

        Waits until the deadline for another process that has locked it.
        """
        if path.is_dir():
            raise CloudError(f"{path}: there is a folder of this name")
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".labkit-{short(path.name)}.part")
        with locked_file(hidden, self._deadline) as handle:
            if path.exists():  # its replacement must not be more readable, but must be writable to grow
                os.chmod(hidden, stat.S_IMODE(path.stat().st_mode) & 0o777 | 0o600)
            yield hidden, handle

    def _fetch(self, entry, bucket, handle, again):
        """Fetch the parts that are missing from the hidden file (again: all), each hashed by the thread that has it.

        Returns the ETags that an object of these parts can have.
        """
        size, part = entry.size, part_size(entry.size)
        count, identity = -(-size // part), short(self.store.url, bucket, entry.key, size, entry.etag, part).encode()
        if os.pread(handle, len(identity) + 1, size + count) != identity or again:
            os.ftruncate(handle, 0)
            write_at(handle, identity, size + count)
        arrived, md5s = os.pread(handle, count, size), {}

        def fetch(number):
            begin, end = number * part, min(size, (number + 1) * part)
            with self._room(end - begin) as buffer:
                if arrived[number]:
                    content = buffer[: os.preadv(handle, [buffer[: end - begin]], begin)]
                else:
                    content = self.store.get(bucket, entry.key, begin, end, entry.etag, buffer)
                    write_at(handle, content, begin)
                md5s[number] = hashlib.md5(content).hexdigest()
            if not arrived[number]:
                write_at(handle, b"\1", size + number)
            self.count(end - begin, moved=not arrived[number])

        self._each(fetch, range(count))
        whole = [md5s[number] for number in range(count)]
        return {*whole[: count == 1], *([checksums.etag_of_parts(whole)] if entry.part == part else [])}

    def _each(self, function, numbers):
        """Call the function with each number, in the threads, until one raises an error."""

        def call(number):
            if self.error:
                raise self.error
            function(number)

        futures = [self._threads.submit(call, number) for number in numbers]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)


def _replace(path, hidden, handle):
    """Replace the target by the complete hidden file, which gets the target's mode."""
    if not is_at(handle, hidden):
        raise CloudError(f"{hidden}: removed or replaced meanwhile")
    if path.exists():
        os.chmod(hidden, stat.S_IMODE(path.stat().st_mode))
    os.replace(hidden, path)


def part_size(size) -> int:
    """Size of a part in bytes: PART, or more if there would be too many parts."""
    part = PART
    while part * MOST_PARTS < size:
        part *= 2
    return part
