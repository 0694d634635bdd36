"""One object server: the primitives of esdk-obs-python, each a request or a listing of several pages.

Content is handed to the SDK as a stream: of bytes it would make a text for its log, which takes three times the memory,
log or no log.
"""

from __future__ import annotations  # Store has a method list

import base64
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from labkit.obs import access, sdk
from labkit.obs.checksums import BLOCK
from labkit.obs.local_files import memory
from labkit.obs.place import CloudError
from labkit.obs.retrying import Retrying

OBS_HOSTS = (".myhuaweicloud.com", ".myhuaweicloud.eu")  # which know the signature of OBS; others have S3's
PAGE = 1000  # entries of a listing that are asked for at once
BYTES, ETAG = "application/octet-stream", ("etag",)


@dataclass(frozen=True)
class Entry:
    """An object: its key, size in bytes, ETag without quotes, and the SHA-256 that labkit gave it.

    encrypted: the server said so of this object; its ETag is then no checksum of the content. modified: when, as the
    server writes it; see listing.moment.
    """

    key: str
    size: int
    etag: str
    sha256: str | None = None
    encrypted: bool = False
    modified: str | None = field(default=None, compare=False)


class Store(Retrying):
    """A server and an account."""

    @classmethod
    def connect(cls, environment=os.environ, deadline=300.0, notice=None):
        """The server and the account that the environment names; raises CloudError. No request is made yet."""
        url, keys = access.obs_url(environment), access.credentials(environment)
        host = urlsplit(url).hostname
        by_path = host == "localhost" or _is_address(host)
        signature = environment.get("OBS_SIGNATURE") or ("obs" if host.endswith(OBS_HOSTS) else "v4")
        if signature not in ("obs", "v2", "v4"):
            raise CloudError(f"OBS_SIGNATURE: must be obs, v2 or v4, not {signature!r}")
        client = sdk.client(
            *keys[:2], server=url, security_token=keys[2], signature=signature, path_style=by_path, max_retry_count=0,
            region=environment.get("OBS_REGION") or "us-east-1", timeout=30, **access.proxy(url),
        )  # fmt: skip
        if notice and keys[2] and access.in_the_clear(url):
            notice(
                f"{host}: http://, so anybody on the way can read and use your token; begin OBS_ENDPOINT with https://"
            )
        if url.startswith("https://"):
            client.context = access.tls(environment, "OBS_CA_FILE")  # the SDK's default verifies nothing
        return cls(client, url, deadline, notice, keys)

    def head(self, bucket, key) -> Entry | None:
        """The object, or None where there is none."""
        if not key:
            return None
        try:
            answer = self._object("getObjectMetadata", bucket, key, needs=("etag", "contentLength"), missing=True)
        except CloudError as error:
            if error.status == 403:  # such an answer has no body that says why: that of a GET has
                self.get(bucket, key, 0, 1, None)
            raise
        if answer is None:
            return None
        sha256 = {name.lower(): value for name, value in answer.header}.get("sha256", "")  # without its x-amz-meta-
        known = sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else None
        encrypted = bool(answer.body.sseKms or answer.body.sseC)
        size = _size(_place(bucket, key), answer.body.contentLength)
        return Entry(key, size, _unquoted(answer.body.etag), known, encrypted, answer.body.lastModified)

    def list(self, bucket, prefix="", delimiter=None) -> Iterator[Entry]:
        """All objects whose keys begin with the prefix, in the order of their keys.

        delimiter: "/" for those of one level and, after those of its page, an entry without an ETag for each folder.
        """

        def folders(page):
            return [one.prefix or "" for one in page.commonPrefixs or ()]

        def following(page):
            if page.is_truncated:
                return page.next_marker or max((*(one.key for one in page.contents), *folders(page)), default="")
            return None

        pages = self._pages(
            f"obs://{bucket}/{prefix}",
            lambda after: self.client.listObjects(bucket, prefix, after, PAGE, delimiter, encoding_type="url"),
            following,
            # of HTML that happens to be XML as well, the SDK makes an empty listing without a name
            whole=lambda body: body and body.name == bucket and all(one.key and one.etag for one in body.contents),
        )
        for page in pages:
            for key in (*(item.key for item in page.contents), *folders(page)):
                if not key.startswith(prefix):
                    raise CloudError(f"obs://{bucket}/{prefix}: the listing has {key!r}, which is not below it")
            for item in page.contents:
                size, etag = _size(_place(bucket, item.key), item.size), _unquoted(item.etag)
                yield Entry(item.key, size, etag, modified=item.lastModified)
            yield from (Entry(folder, 0, "") for folder in folders(page))

    def put(self, bucket, key, content: bytes, sha256) -> str:
        """Write an object in one request; returns its ETag."""
        from obs import PutObjectHeader

        headers = PutObjectHeader(md5=_base64(hashlib.md5(content)), contentType=BYTES, contentLength=len(content))
        metadata = {"sha256": sha256}
        done = self._object("putContent", bucket, key, content=content, metadata=metadata, headers=headers, needs=ETAG)
        return _unquoted(done.body.etag)

    def get(self, bucket, key, start, end, etag) -> bytes | memoryview:
        """Bytes start to end (excluded) of the object that has this ETag; CloudError where it is another by now."""
        from obs import GetObjectHeader

        size = end - start
        if not size:
            return b""
        headers = GetObjectHeader(range=f"{start}-{end - 1}", if_match=etag)

        def request():
            result = self.client.getObject(bucket, key, headers=headers)
            if result.status < 300:
                if result.status == 206:
                    self._answered = time.monotonic()  # whatever becomes of its body
                response = result.body.response
                try:
                    result.body = _read(response.result, size)  # the SDK's own reader raises a bare Exception
                finally:
                    response.close()
            return result

        return self.ask(_place(bucket, key), request, whole=lambda body: len(body) == size, size=size).body

    def delete(self, bucket, key) -> None:
        """Remove an object, if it is there."""
        self._object("deleteObject", bucket, key, missing=True)

    def make_bucket(self, bucket, region=None) -> bool:
        """Make a private bucket, in the server's own region or this one; whether it is new."""
        try:
            self.ask(f"obs://{bucket}", lambda: self.client.createBucket(bucket, location=region))
        except CloudError as error:
            if error.code == "BucketAlreadyOwnedByYou":
                return False
            raise
        return True

    # -- Uploads in parts ------------------------------------------------------------------------------

    def create_multipart_upload(self, bucket, key, sha256) -> str:
        """Open an upload in parts; returns its id. sha256: of all of them together."""
        more = {"metadata": {"sha256": sha256}, "contentType": BYTES}
        return self._object("initiateMultipartUpload", bucket, key, **more, needs=("uploadId",)).body.uploadId

    def list_parts(self, bucket, key, upload) -> dict[int, str] | None:
        """ETags of the parts that the server has, by number from 1; None where the upload is gone."""
        etags = {}
        pages = self._pages(
            _place(bucket, key),
            lambda after: self.client.listParts(bucket, key, upload, PAGE, after, encoding_type="url"),
            lambda page: page.nextPartNumberMarker or 0 if page.isTruncated else None,
            whole=lambda body: body and body.uploadId == upload,
            missing=True,
        )
        for page in pages:
            if page is None:
                return None
            etags |= {int(part.partNumber): _unquoted(part.etag) for part in page.parts or ()}
        return etags

    def upload_part(self, bucket, key, upload, number, content: bytes, md5) -> str:
        """Write a part; returns its ETag. md5: hashlib's, of the content."""
        more = {"partSize": len(content), "md5": _base64(md5)}
        done = self._object("uploadPart", bucket, key, number, upload, content=content, **more, needs=ETAG)
        return _unquoted(done.body.etag)

    def complete_multipart_upload(self, bucket, key, upload, etags: list[str]) -> None:
        """Make the object of its parts. An answer that is lost may have been a yes: look at the object, not at this."""
        from obs import CompleteMultipartUploadRequest, CompletePart

        parts = [CompletePart(partNum=number, etag=etag) for number, etag in enumerate(etags, start=1)]
        asked = CompleteMultipartUploadRequest(parts)
        self._object("completeMultipartUpload", bucket, key, upload, asked, needs=ETAG, missing=True)

    def abort_multipart_upload(self, bucket, key, upload) -> None:
        """Give an upload up; its parts go."""
        self._object("abortMultipartUpload", bucket, key, upload, missing=True)

    # -- What they share -------------------------------------------------------------------------------

    def _object(self, method, bucket, key, *arguments, content=None, needs=(), missing=False, **more):
        """The result of the SDK's method for an object. content: bytes to send.

        needs: what the answer's body must have; somebody else's with status 200, such as a login page, has none of it.
        """

        def request():
            stream = {} if content is None else {"content": _Stream(content)}
            return getattr(self.client, method)(bucket, key, *arguments, **stream, **more)

        def whole(body):
            return not needs or (bool(body) and all(getattr(body, name) not in (None, "") for name in needs))

        return self.ask(_place(bucket, key), request, whole=whole, missing=missing, size=len(content or b""))

    def _pages(self, place, request, following, **how):
        """Bodies of a listing's pages; None where there is nothing. following: where the next page begins, or None."""
        marker = None
        while True:
            page = self.ask(place, lambda after=marker: request(after), **how)
            if page is None:
                yield None
                return
            yield page.body
            after = following(page.body)
            if after is None:
                return
            if not after or (marker and after <= marker):
                raise CloudError(f"{place}: the next page of the listing does not begin where this one ends")
            marker = after


def _place(bucket, key):
    """URL of an object; CloudError where there is no key: the request would be about the bucket, even a delete."""
    try:
        known = bool(key.encode())
    except UnicodeEncodeError:  # of a file whose name is not UTF-8
        known = False
    if not known:
        raise CloudError(f"obs://{bucket}/{key}: {'not UTF-8' if key else 'no key'}")
    return f"obs://{bucket}/{key}"


def _is_address(host):
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _size(place, text):
    """A number of bytes; CloudError where a server gives another thing."""
    if not re.fullmatch("[0-9]{1,18}", str(text)):
        raise CloudError(f"{place}: the size that the server gives is no number of bytes")
    return int(text)


def _base64(checksum):
    return base64.b64encode(checksum.digest()).decode()


def _unquoted(etag):
    return etag.strip('"')


def _read(stream, size):
    """At most one byte more than size of the stream; in one buffer: blocks and their sum are twice as much."""
    content, done = memory(size + 1), 0
    while done <= size and (count := stream.readinto(content[done : done + BLOCK])):
        done += count
    return content[:done]


class _Stream:
    """Content as a file that is read, without a copy of it as in io.BytesIO."""

    def __init__(self, content):
        self._left = memoryview(content)

    def read(self, size):
        block, self._left = self._left[:size], self._left[size:]
        return block
