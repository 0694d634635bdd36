"""An object server: the primitives of esdk-obs-python, each a request or a listing of several pages.

Content goes to the SDK as a stream: from bytes it would always build a text for its log, which takes three times the
memory.
"""

from __future__ import annotations  # Store has a method list

import base64
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from labkit.obs import access, sdk
from labkit.obs.checksums import BLOCK
from labkit.obs.local_files import memory
from labkit.obs.place import CloudError
from labkit.obs.retrying import TRANSIENT, Retrying

OBS_HOSTS = (".myhuaweicloud.com", ".myhuaweicloud.eu")  # these accept the signature of OBS; others use S3's
PAGE = 1000  # entries per page of a listing
BYTES, ETAG = "application/octet-stream", ("etag",)


@dataclass(frozen=True)
class Entry:
    """An object: its key, size in bytes, ETag without quotes, and what labkit stored with it.

    sha256: of the content. upload: "PART-TOKEN", the size of the parts that it was uploaded in, and a random token.
    encrypted: the server encrypts this object, so its ETag is not a checksum of the content. modified: time in the
    server's format.
    """

    key: str
    size: int
    etag: str
    sha256: str | None = None
    upload: str | None = None
    encrypted: bool = False
    modified: str | None = field(default=None, compare=False)

    @property
    def part(self) -> int | None:
        """Size of the parts that labkit uploaded it in, whose MD5s decide its ETag; None if this is unknown."""
        part = int(self.upload.partition("-")[0]) if self.upload and not self.encrypted else None
        return part if part and self.etag.endswith(f"-{-(-self.size // part)}") else None  # not copied by another tool


class Store(Retrying):
    """A server and an account."""

    @classmethod
    def connect(cls, environment=os.environ, deadline=300.0, notice=None):
        """The server and account that the environment names; raises CloudError. Makes no request yet."""
        url, keys = access.obs_url(environment), access.credentials(environment)
        host = urlsplit(url).hostname
        signature = environment.get("OBS_SIGNATURE") or ("obs" if host.endswith(OBS_HOSTS) else "v4")
        if signature not in ("obs", "v2", "v4"):
            raise CloudError(f"OBS_SIGNATURE: must be obs, v2 or v4, not {signature!r}")
        client = sdk.client(
            *keys[:2], server=url, security_token=keys[2], signature=signature, max_retry_count=0,
            path_style=host == "localhost",  # the SDK itself does so for an address
            region=environment.get("OBS_REGION") or "us-east-1", timeout=min(30, deadline), **access.proxy(url),
        )  # fmt: skip
        if notice and keys[2] and access.is_unencrypted(url):
            notice(f"{host}: http:// lets others on the network read and use your token; use https:// in OBS_ENDPOINT")
        if url.startswith("https://"):
            client.context = access.tls(environment, "OBS_CA_FILE")  # the SDK's default verifies nothing
        return cls(client, url, deadline, notice, keys)

    def head(self, bucket, key) -> Entry | None:
        """The object, or None if there is none."""
        if not key:
            return None
        try:
            answer = self._object("getObjectMetadata", bucket, key, needs=("etag", "contentLength"), missing=True)
        except CloudError as error:
            # The answer to a HEAD has no body with the reason; that to a GET does.
            if 400 <= (error.status or 0) < 500 and error.status not in TRANSIENT:
                self.get(bucket, key, 0, 1, None)
            raise
        if answer is None:
            return None
        kept = {name.lower(): value for name, value in answer.header}  # without their x-amz-meta-
        sha256, upload = kept.get("sha256", ""), kept.get("upload", "")
        sha256 = sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else None
        upload = upload if re.fullmatch("[1-9][0-9]{0,11}-[0-9a-f]{16}", upload) else None
        encrypted = bool(answer.body.sseKms or answer.body.sseC)
        size, etag = answer.body.contentLength, _unquoted(answer.body.etag)
        return Entry(key, size, etag, sha256, upload, encrypted, answer.body.lastModified)

    def list(self, bucket, prefix="", delimiter=None) -> Iterator[Entry]:
        """All objects whose keys begin with the prefix, sorted by key.

        delimiter: "/" for one level only; each page's folders then follow its objects, as entries without an ETag.
        """

        def folders(page):
            return [folder.prefix or "" for folder in page.commonPrefixs or ()]

        def following(page):
            if page.is_truncated:
                return page.next_marker or max((*(item.key for item in page.contents), *folders(page)), default="")
            return None

        pages = self._pages(
            f"obs://{bucket}/{prefix}",
            lambda after: self.client.listObjects(bucket, prefix, after, PAGE, delimiter, encoding_type="url"),
            following,
            # The SDK reads HTML that is also valid XML as an empty listing without a name.
            whole=lambda body: body and body.name == bucket and all(item.key and item.etag for item in body.contents),
        )
        for page in pages:
            for key in (*(item.key for item in page.contents), *folders(page)):
                if not key.startswith(prefix):
                    raise CloudError(f"obs://{bucket}/{prefix}: the listing contains {key!r}, which is not below it")
            for item in page.contents:
                if item.size is None or item.size < 0:  # None: the SDK's value for one that is not a number
                    raise CloudError(f"{_place(bucket, item.key)}: the server's size is not a number of bytes")
                yield Entry(item.key, item.size, _unquoted(item.etag), modified=item.lastModified)
            yield from (Entry(folder, 0, "") for folder in folders(page))

    def put(self, bucket, key, content: bytes, sha256, md5=None) -> str:
        """Write an object in one request; returns its ETag. md5: hashlib object of the content, if there is one."""
        from obs import PutObjectHeader

        md5 = _base64(md5 or hashlib.md5(content))
        headers = PutObjectHeader(md5=md5, contentType=BYTES, contentLength=len(content))
        metadata = {"sha256": sha256}
        done = self._object("putContent", bucket, key, content=content, metadata=metadata, headers=headers, needs=ETAG)
        return _unquoted(done.body.etag)

    def get(self, bucket, key, start, end, etag, buffer=None) -> bytes | memoryview:
        """Bytes start to end (exclusive) of the object with this ETag, in `buffer`; CloudError if it was replaced."""
        from obs import GetObjectHeader

        size = end - start
        if not size:
            return b""
        headers = GetObjectHeader(range=f"{start}-{end - 1}", if_match=etag)

        def request():
            result = self.client.getObject(bucket, key, headers=headers)
            if result.status < 300:
                if result.status == 206:
                    self._answered = time.monotonic()  # even if reading the body fails
                response = result.body.response
                try:
                    result.body = _read(response.result, size, buffer)  # the SDK's own reader raises a bare Exception
                finally:
                    response.close()
            return result

        return self.ask(_place(bucket, key), request, whole=lambda body: len(body) == size, size=size).body

    def delete(self, bucket, key) -> None:
        """Remove an object if it exists."""
        self._object("deleteObject", bucket, key, missing=True)

    # -- Uploads in parts ------------------------------------------------------------------------------

    def create_multipart_upload(self, bucket, key, metadata: dict) -> str:
        """Start a multipart upload; returns its id. metadata: what `head` returns, `upload` and perhaps `sha256`."""
        options = {"metadata": metadata, "contentType": BYTES}
        return self._object("initiateMultipartUpload", bucket, key, **options, needs=("uploadId",)).body.uploadId

    def list_parts(self, bucket, key, upload) -> dict[int, str] | None:
        """ETags of the parts that the server has, by number from 1; None if the upload no longer exists."""
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
        """Write a part; returns its ETag. md5: hashlib object of the content."""
        options = {"partSize": len(content), "md5": _base64(md5)}
        done = self._object("uploadPart", bucket, key, number, upload, content=content, **options, needs=ETAG)
        return _unquoted(done.body.etag)

    def complete_multipart_upload(self, bucket, key, upload, etags: list[str]) -> None:
        """Assemble the object from its parts. If the answer is lost, this may still have worked: check the object."""
        from obs import CompleteMultipartUploadRequest, CompletePart

        parts = [CompletePart(partNum=number, etag=etag) for number, etag in enumerate(etags, start=1)]
        request = CompleteMultipartUploadRequest(parts)
        self._object("completeMultipartUpload", bucket, key, upload, request, needs=ETAG, missing=True)

    def abort_multipart_upload(self, bucket, key, upload) -> None:
        """Abort a multipart upload; the server deletes its parts."""
        self._object("abortMultipartUpload", bucket, key, upload, missing=True)

    # -- Shared by all ---------------------------------------------------------------------------------

    def _object(self, method, bucket, key, *arguments, content=None, needs=(), missing=False, **options):
        """The result of the SDK's method for an object. content: bytes to send.

        needs: attributes that the answer's body must have; another page with status 200, such as a login, has none.
        """

        def request():
            stream = {} if content is None else {"content": _Stream(content)}
            return getattr(self.client, method)(bucket, key, *arguments, **stream, **options)

        def whole(body):
            return not needs or (bool(body) and all(getattr(body, name) not in (None, "") for name in needs))

        return self.ask(_place(bucket, key), request, whole=whole, missing=missing, size=len(content or b""))

    def _pages(self, place, request, following, **options):
        """Bodies of a listing's pages; a single None for a 404. following: marker of the page after a page, or None."""
        marker = None
        while True:
            page = self.ask(place, lambda after=marker: request(after), **options)
            if page is None:
                yield None
                return
            yield page.body
            after = following(page.body)
            if after is None:
                return
            if not after or (marker and after <= marker):
                raise CloudError(f"{place}: the listing's next page does not begin after this one")
            marker = after


def _place(bucket, key):
    """URL of an object; CloudError if the key is empty: a request, even a delete, would then concern the bucket."""
    try:
        valid = bool(key.encode())
    except UnicodeEncodeError:  # the key comes from a file name that is not UTF-8
        valid = False
    if not valid:
        raise CloudError(f"obs://{bucket}/{key}: {'not UTF-8' if key else 'no key'}")
    return f"obs://{bucket}/{key}"


def _base64(checksum):
    return base64.b64encode(checksum.digest()).decode()


def _unquoted(etag):
    return etag.strip('"')


def _read(stream, size, buffer):
    """At most size + 1 bytes of the stream, read into one buffer: joining blocks would need twice the memory."""
    content, done = memory(size + 1) if buffer is None else buffer, 0
    while done <= size and (count := stream.readinto(content[done : done + BLOCK])):
        done += count
    return content[:done]


class _Stream:
    """Content as a readable file; unlike io.BytesIO it makes no copy."""

    def __init__(self, content):
        self._rest = memoryview(content)

    def read(self, size):
        block, self._rest = self._rest[:size], self._rest[size:]
        return block
