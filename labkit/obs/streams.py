"""An object made of standard input, or written to standard output: in parts that are in memory, and never on a disk."""

import hashlib
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from labkit.obs import transfers
from labkit.obs.checksums import etag_of_parts, md5_of
from labkit.obs.place import CloudError, as_cloud_errors
from labkit.obs.plan import require_no_folder
from labkit.obs.retrying import GivenUp

MOST = 8  # parts in memory at a time


class _Sums:
    """Checksums of content that goes by in parts."""

    def __init__(self):
        self.size, self.sha256, self.md5, self._parts = 0, hashlib.sha256(), hashlib.md5(), []

    def add(self, content):
        """Returns the MD5 of this part."""
        self.size += len(content)
        self.sha256.update(content)
        self.md5.update(content)
        self._parts.append(hashlib.md5(content))
        return self._parts[-1]

    def agree(self, entry) -> bool | None:
        """Whether the object has this content, by checksum; None where its checksums say nothing about that."""
        if entry.etag.lower() in (self.md5.hexdigest(), etag_of_parts([md5.hexdigest() for md5 in self._parts])):
            return True
        if entry.sha256:
            return entry.sha256 == self.sha256.hexdigest()
        return False if md5_of(entry.etag) and not entry.encrypted else None


def upload(stream, place, store, jobs=8, progress=lambda done, total: None) -> int:
    """Make what a stream has the object; returns its bytes. Raises CloudError, also where the stream has none.

    Nothing can be sent again, so what fails is given up. A stream may have as much as an upload in parts of 8 MiB.
    """
    if not store.head(place.bucket, place.key):
        require_no_folder(store, place.bucket, place.key)
    sums, content = _Sums(), stream.read(transfers.PART)
    if not content:
        raise CloudError(f"{place}: not written, as there is nothing on standard input")
    following = stream.read(transfers.PART) if len(content) == transfers.PART else b""
    if not following:
        sums.add(content)
        store.put(place.bucket, place.key, content, sums.sha256.hexdigest())
    else:
        number = store.create_multipart_upload(place.bucket, place.key)
        try:
            etags = _send(stream, [content, following], place, number, store, min(jobs, MOST), sums, progress)
            store.complete_multipart_upload(place.bucket, place.key, number, etags)
        except BaseException as error:
            if not isinstance(error, GivenUp):  # then the server is not there
                store.abort_multipart_upload(place.bucket, place.key, number)
            raise
    found = store.head(place.bucket, place.key)
    if found is None or found.size != sums.size or sums.agree(found) is False:
        raise CloudError(
            f"{place}: not what was sent: damaged on its way, or somebody has written another object there"
        )
    progress(sums.size, sums.size)
    return sums.size


def _send(stream, ready, place, upload, store, jobs, sums, progress):
    """Send all parts, `ready` and then what the stream has; returns their ETags."""
    room, lock, etags, errors, done = threading.Semaphore(jobs), threading.Lock(), {}, [], 0

    def send(number, content, md5):
        nonlocal done
        try:
            etags[number] = store.upload_part(place.bucket, place.key, upload, number, content, md5)
            with lock:
                done += len(content)
                progress(done, None)
        except BaseException as error:
            errors.append(error)
        finally:
            room.release()

    number = 0
    with as_cloud_errors(), ThreadPoolExecutor(jobs) as threads:
        while not errors and (content := ready.pop(0) if ready else stream.read(transfers.PART)):
            number += 1
            if number > transfers.MOST_PARTS:
                raise CloudError(f"{place}: more than {transfers.MOST_PARTS:,} parts: write it to a file and copy that")
            room.acquire()
            threads.submit(send, number, content, sums.add(content))
    if errors:
        raise errors[0]
    return [etags[number] for number in sorted(etags)]


def download(stream, place, store, jobs=8, progress=lambda done, total: None) -> int:
    """Write the object to a stream; returns its bytes. CloudError, where a checksum differs after the last byte."""
    entry = store.head(place.bucket, place.key)
    if entry is None:
        raise CloudError(f"{place}: there is no such object")
    begins, waiting, sums = iter(range(0, entry.size, transfers.PART)), deque(), _Sums()

    def fetch(begin):
        return store.get(place.bucket, place.key, begin, min(begin + transfers.PART, entry.size), entry.etag)

    with ThreadPoolExecutor(min(jobs, MOST)) as threads:

        def ask():
            if (begin := next(begins, None)) is not None:
                waiting.append(threads.submit(fetch, begin))

        try:
            for _ in range(min(jobs, MOST)):
                ask()
            while waiting:
                content = waiting.popleft().result()
                ask()
                sums.add(content)
                stream.write(content)
                progress(sums.size, entry.size)
        except CloudError as error:
            if error.status in (404, 412):
                raise error.reworded(f"{place}: changed or removed meanwhile") from None
            raise
        finally:
            for future in waiting:
                future.cancel()
    stream.flush()
    if sums.agree(entry) is False:
        raise CloudError(f"{place}: came with a wrong checksum; do not use what was written")
    return entry.size
