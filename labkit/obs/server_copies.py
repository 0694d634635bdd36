"""From bucket to bucket of one server: it copies by itself, and the content does not pass through this machine."""

from concurrent.futures import ThreadPoolExecutor

from labkit.obs import checksums
from labkit.obs.checksums import md5_of
from labkit.obs.place import CloudError
from labkit.obs.retrying import GivenUp
from labkit.obs.transfers import MOST_PARTS

WHOLE = 64 << 20  # bytes that are copied in one request; the server should answer soon
PARTS_AT_A_TIME = 4


def copy_object(transfers, entry, source, bucket, key) -> None:
    """Make the object of the bucket `source` the other one as well; CloudError, also where it changes meanwhile."""
    store, here = transfers.store, f"obs://{source}/{entry.key}"
    if "?versionId=" in entry.key:  # the SDK would ask for a version
        raise CloudError(f"{here}: a key with ?versionId= cannot be copied within the server")
    entry = entry if entry.sha256 else store.head(source, entry.key) or entry
    try:
        size = _size_of_parts(entry)
        if size is None:
            _whole(store, entry, source, bucket, key)
            transfers.count(entry.size)
        else:
            _parts(transfers, entry, source, bucket, key, size)
    except CloudError as error:
        if error.status in (404, 412) and error.code != "NoSuchBucket":
            raise error.reworded(f"{here}: changed or removed meanwhile") from None
        raise
    found = store.head(bucket, key)
    if found is None or (found.size, found.sha256) != (entry.size, entry.sha256):
        raise CloudError(f"obs://{bucket}/{key}: copied, but the server has another object there")


def _size_of_parts(entry):
    """Bytes of each part to copy; None for all in one request.

    Without a SHA-256, only an equal ETag can show that the copy is equal, and for that it needs equal parts.
    """
    likely = [] if entry.sha256 else checksums.LIKELY_PARTS
    for size in likely:
        if entry.etag.endswith(f"-{len(range(0, entry.size, size))}"):
            return size
    size = WHOLE
    while size * MOST_PARTS < entry.size:
        size *= 2
    return size if entry.size > WHOLE else None


def _whole(store, entry, source, bucket, key):
    from obs import CopyObjectHeader

    headers = CopyObjectHeader(if_match=entry.etag)
    _ask(store, bucket, key, lambda: store.client.copyObject(source, entry.key, bucket, key, headers=headers))


def _parts(transfers, entry, source, bucket, key, size):
    store, begins = transfers.store, range(0, entry.size, size)
    unchanged = {store.client.ha.copy_source_if_match_header(): entry.etag}

    def part(begin):
        if transfers.error:
            raise transfers.error
        end, number = min(begin + size, entry.size), begin // size + 1
        if number in there:
            return there[number]
        done = _ask(store, bucket, key, lambda: store.client.copyPart(
            bucket, key, number, upload, f"/{source}/{entry.key}", f"{begin}-{end - 1}", extensionHeaders=unchanged,
        ))  # fmt: skip
        transfers.count(end - begin)
        return done.body.etag.strip('"')

    with transfers.record(bucket, key, source, entry.key) as record:
        upload, there = transfers.open_upload(record, f"{entry.etag} {size}", bucket, key, entry.sha256)
        transfers.count(sum(min(size, entry.size - (number - 1) * size) for number in there), moved=False)
        try:
            with ThreadPoolExecutor(PARTS_AT_A_TIME) as threads:
                etags = list(threads.map(part, begins))
            store.complete_multipart_upload(bucket, key, upload, etags)
        except CloudError as error:
            if not isinstance(error, GivenUp):  # then the server is not there, and the next copy resumes it
                store.abort_multipart_upload(bucket, key, upload)
                record.clear()
            raise
        record.clear()


def _ask(store, bucket, key, request):
    return store.ask(f"obs://{bucket}/{key}", request, whole=lambda body: bool(body and body.etag))


def same_content(store, entry, bucket, other, other_bucket) -> bool | None:
    """Whether two objects of one size are equal, by checksum; None where there is none to compare."""
    if entry.etag == other.etag:
        return True
    entry, other = store.head(bucket, entry.key), store.head(other_bucket, other.key)
    if not (entry and other):
        return None
    if entry.sha256 and other.sha256:
        return entry.sha256 == other.sha256
    return False if md5_of(entry.etag) and md5_of(other.etag) and not (entry.encrypted or other.encrypted) else None
