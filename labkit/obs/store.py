"""One object server: the primitives of esdk-obs-python, with TLS that verifies, errors that are raised, and retries.

The SDK returns HTTP errors as results and lets network errors through; a 429 or a body cut short it does not retry, its
default TLS verifies nothing. So its retries are off, and every request goes through `Store._ask`. Content is handed to
it as a stream: of bytes it would make a text for its log, which takes three times the memory, log or no log.
"""

from __future__ import annotations  # Store has a method list

import base64
import hashlib
import io
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import ip_address
from urllib.parse import urlsplit

from labkit.obs import access, sdk
from labkit.obs.place import CloudError

# Statuses that may be another at the next try: these and all from 500 on, but "not implemented" and "HTTP version".
TRANSIENT, FINAL = {408, 429}, {501, 505}
# Damaged on the way, or said with another status than it should have.
TRANSIENT_CODES = {"BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# Of TLS, when the other side speaks none, or one that nobody should speak any more.
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL"}
OBS_HOSTS = (".myhuaweicloud.com", ".myhuaweicloud.eu")  # which know the signature of OBS; others have S3's
LONGEST_WAIT = 20.0  # seconds between two tries
SLOWEST = 10_000  # bytes a second that a slow line brings; below that a request is cut off
QUIET = 5.0  # seconds without an answer before it is told, and between two times that it is
CHUNK = 1 << 20
PAGE = 1000  # entries of a listing that are asked for at once


@dataclass(frozen=True)
class Entry:
    """An object: its key, size in bytes, ETag without quotes, and the SHA-256 that labkit gave it.

    encrypted: the server said so of this object; its ETag is then no checksum of the content.
    """

    key: str
    size: int
    etag: str
    sha256: str | None = None
    encrypted: bool = False


class GivenUp(CloudError):
    """The server was not there, or busy, until the deadline, for all requests: another would fare no better."""


class _TryAgain(Exception):
    """What may have passed at the next try: the CloudError to raise if not, and seconds to wait at least."""

    def __init__(self, error, wait=0.0):
        super().__init__(str(error))
        self.error, self.wait = error, wait


class Store:
    """A server. deadline: seconds without success after which a request is given up.

    tell: called with a line of text now and then while a request is not answered and tried again.
    """

    def __init__(self, client, url, deadline=300.0, tell: Callable[[str], None] | None = None, keys=()):
        self.client, self.url, self.deadline, self.tell, self._keys = client, url, deadline, tell, keys
        self._stopped, self._answered, self._told, self._under_way = threading.Event(), 0.0, 0.0, set()

    def apart(self):
        """The same server and account; `stop` of this one does not stop the other."""
        return Store(self.client, self.url, self.deadline, self.tell, self._keys)

    def stop(self):
        """Give up all requests: those under way are cut off, others do not wait for their next try."""
        self._stopped.set()
        for cut in list(self._under_way):
            cut()

    @classmethod
    def connect(cls, environment=os.environ, deadline=300.0, tell=None):
        """The server and the account that the environment names; raises CloudError. No request is made yet."""
        url, keys = access.obs_url(environment), access.credentials(environment)
        host = urlsplit(url).hostname
        by_path = host == "localhost" or _is_address(host)
        signature = environment.get("OBS_SIGNATURE") or ("obs" if host.endswith(OBS_HOSTS) else "v4")
        if signature not in ("obs", "v2", "v4"):
            raise CloudError(f"OBS_SIGNATURE: must be obs, v2 or v4, not {signature!r}")
        client = sdk.client(
            *keys[:2], server=url, security_token=keys[2], signature=signature, path_style=by_path,
            region=environment.get("OBS_REGION", "us-east-1"), max_retry_count=0, timeout=30,
        )  # fmt: skip
        if url.startswith("https://"):
            client.context = access.tls(environment, "OBS_CA_FILE")
        return cls(client, url, deadline, tell, keys)

    def head(self, bucket, key) -> Entry | None:
        """The object, or None where there is none."""
        if not key:
            return None
        found = self._ask(
            _place(bucket, key),
            lambda: self.client.getObjectMetadata(bucket, key),
            whole=lambda body: bool(body and body.etag and body.contentLength is not None),
            missing=True,
        )
        if found is None:
            return None
        sha256 = {name.lower(): value for name, value in found.header}.get("sha256", "")  # without its x-amz-meta-
        known = sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else None
        encrypted = bool(found.body.sseKms or found.body.sseC)
        return Entry(key, int(found.body.contentLength), _unquoted(found.body.etag), known, encrypted)

    def list(self, bucket, prefix="") -> Iterator[Entry]:
        """All objects whose keys begin with the prefix, in the order of their keys."""
        marker = None
        while True:
            page = self._ask(
                f"obs://{bucket}/{prefix}",
                lambda after=marker: self.client.listObjects(bucket, prefix, after, PAGE, encoding_type="url"),
                # of HTML that happens to be XML as well, the SDK makes an empty listing without a name
                whole=lambda body: body and body.name == bucket and all(one.key and one.etag for one in body.contents),
            ).body
            for item in page.contents:
                yield Entry(item.key, int(item.size), _unquoted(item.etag))
            if not page.is_truncated:
                return
            following = page.next_marker or (page.contents[-1].key if page.contents else "")
            if following <= (marker or ""):
                raise CloudError(f"obs://{bucket}/{prefix}: the listing does not go on where it said it would")
            marker = following

    def put(self, bucket, key, content: bytes, sha256) -> str:
        """Write an object in one request; returns its ETag."""
        from obs import PutObjectHeader

        headers = PutObjectHeader(
            md5=_base64(hashlib.md5(content)), contentType="application/octet-stream", contentLength=len(content)
        )
        done = self._ask(
            _place(bucket, key),
            lambda: self.client.putContent(bucket, key, io.BytesIO(content), {"sha256": sha256}, headers),
            whole=lambda body: bool(body and body.etag),
            size=len(content),
        )
        return _unquoted(done.body.etag)

    def get(self, bucket, key, start, end, etag) -> bytes:
        """Bytes start to end (excluded) of the object that has this ETag; CloudError where it is another by now."""
        from obs import GetObjectHeader

        if start == end:
            return b""
        headers = GetObjectHeader(range=f"{start}-{end - 1}", if_match=etag)

        def request():
            result = self.client.getObject(bucket, key, headers=headers)
            if result.status < 300:
                if result.status == 206:
                    self._answered = time.monotonic()  # whatever becomes of its body
                response = result.body.response
                try:
                    result.body = _read(response.result, end - start)  # the SDK's own reader raises a bare Exception
                finally:
                    response.close()
            return result

        return self._ask(
            _place(bucket, key), request, whole=lambda body: len(body) == end - start, size=end - start
        ).body

    def delete(self, bucket, key) -> None:
        """Remove an object, if it is there."""
        self._ask(_place(bucket, key), lambda: self.client.deleteObject(bucket, key), missing=True)

    # -- Uploads in parts ------------------------------------------------------------------------------

    def create_multipart_upload(self, bucket, key, sha256) -> str:
        """Open an upload in parts; returns its id."""
        begun = self._ask(
            _place(bucket, key),
            lambda: self.client.initiateMultipartUpload(
                bucket, key, metadata={"sha256": sha256}, contentType="application/octet-stream"
            ),
            whole=lambda body: bool(body and body.uploadId),
        )
        return begun.body.uploadId

    def list_parts(self, bucket, key, upload) -> dict[int, str] | None:
        """ETags of the parts that the server has, by number from 1; None where the upload is gone."""
        found, marker = {}, None
        while True:
            page = self._ask(
                _place(bucket, key),
                lambda after=marker: self.client.listParts(bucket, key, upload, PAGE, after, encoding_type="url"),
                whole=lambda body: body and body.uploadId == upload,
                missing=True,
            )
            if page is None:
                return None
            found |= {int(part.partNumber): _unquoted(part.etag) for part in page.body.parts or ()}
            if not page.body.isTruncated:
                return found
            following = page.body.nextPartNumberMarker or 0
            if following <= (marker or 0):
                raise CloudError(f"{_place(bucket, key)}: the list of parts does not go on where it said it would")
            marker = following

    def upload_part(self, bucket, key, upload, number, content: bytes, md5=None) -> str:
        """Write a part; returns its ETag. md5: hashlib's, of the content, where it is known."""
        checksum = _base64(md5 or hashlib.md5(content))
        done = self._ask(
            f"{_place(bucket, key)}, part {number}",
            lambda: self.client.uploadPart(
                bucket, key, number, upload, content=io.BytesIO(content), partSize=len(content), md5=checksum
            ),
            whole=lambda body: bool(body and body.etag),
            size=len(content),
        )
        return _unquoted(done.body.etag)

    def complete_multipart_upload(self, bucket, key, upload, etags: list[str]) -> None:
        """Make the object of its parts. An answer that is lost may have been a yes: look at the object, not at this."""
        from obs import CompleteMultipartUploadRequest, CompletePart

        asked = CompleteMultipartUploadRequest(
            [CompletePart(partNum=number, etag=etag) for number, etag in enumerate(etags, start=1)]
        )
        self._ask(
            _place(bucket, key),
            lambda: self.client.completeMultipartUpload(bucket, key, upload, asked),
            whole=lambda body: bool(body and body.etag),
            missing=True,
        )

    def abort_multipart_upload(self, bucket, key, upload) -> None:
        """Give an upload up; its parts go."""
        self._ask(
            _place(bucket, key), lambda: self.client.abortMultipartUpload(bucket, key, upload), missing=True
        )

    # -- Every request ---------------------------------------------------------------------------------

    def _ask(self, place, request, *, whole=None, missing=False, size=0):
        """The SDK's result, after as many tries as the deadline allows; raises CloudError.

        whole: says of a body whether it is all that was asked for. missing: None where there is nothing (404). size:
        bytes to be moved, for which a try may take longer than the deadline.
        """
        begun, tries = time.monotonic(), 0
        while True:
            try:
                with self.client.within(self.deadline + size / SLOWEST) as cut:
                    self._under_way.add(cut)
                    try:
                        return self._once(place, request, whole, missing)
                    finally:
                        self._under_way.discard(cut)
            except _TryAgain as trouble:
                tries += 1
                self._tell(begun, trouble.error, tries)
                wait = max(trouble.wait, random.uniform(0, min(LONGEST_WAIT, 0.2 * 2**tries)))  # full jitter
                if time.monotonic() + wait - begun > self.deadline:
                    known = trouble.error
                    message = f"{known.message}; given up after {tries} tries in {time.monotonic() - begun:.0f} s"
                    kind = GivenUp if self._answered < begun else CloudError  # else it is about this request only
                    raise kind(message, known.status, known.code, known.request_id) from None
                if self._stopped.wait(wait):
                    raise GivenUp(f"{place}: stopped") from None

    def _tell(self, begun, error, tries):
        now = time.monotonic()
        if self.tell and now - max(begun, self._told) >= QUIET:
            self._told = now
            host = urlsplit(self.url).netloc
            said = f"{host} answers with status {error.status}" if error.status else f"no answer from {host} yet"
            self.tell(f"{said}, trying again ({tries})")

    def _once(self, place, request, whole, missing):
        try:
            result = request()
        except ssl.SSLCertVerificationError as error:
            raise CloudError(f"{place}: {self.url}: certificate refused: {error.verify_message}") from None
        except socket.gaierror as error:
            unknown = CloudError(f"{place}: {self.url}: {error.strerror}")
            raise unknown if error.errno == socket.EAI_NONAME else _TryAgain(unknown) from None
        except UnicodeError as error:  # of a host's name, in IDNA
            raise CloudError(f"{place}: {self.url}: no host has such a name: {error}") from None
        except sdk.ErrorBody as error:
            known = CloudError(f"{place}: {self._clean(str(error))}", 200, error.code)
            raise _TryAgain(known) if error.code in TRANSIENT_CODES else known from None
        except (OSError, HTTPException) as error:
            no_tls = getattr(error, "reason", None) in NO_TLS
            hint = "; it speaks no https: does OBS_ENDPOINT begin with http://?" if no_tls else ""
            hint = "; is the server of OBS_ENDPOINT running?" if isinstance(error, ConnectionRefusedError) else hint
            known = CloudError(f"{place}: {self.url}: {type(error).__name__}: {error}{hint}")
            raise known if no_tls else _TryAgain(known) from None
        busy = result.status in TRANSIENT or (result.status >= 500 and result.status not in FINAL)
        usable = result.status >= 300 or not whole or whole(result.body)
        if usable and not busy:
            self._answered = time.monotonic()
        if missing and result.status == 404:
            return None
        if result.status >= 300:
            reason = result.errorMessage or result.reason
            if result.status < 400:
                there = next((urlsplit(url).netloc for name, url in result.header if name.lower() == "location"), "")
                reason = f"{reason}: {there or 'another server'} has it; is OBS_ENDPOINT of the bucket's region?"
            error = CloudError(f"{place}: {self._clean(reason)}", result.status, result.errorCode, result.requestId)
            if busy or result.errorCode in TRANSIENT_CODES:
                raise _TryAgain(error, _retry_after(result))
            raise error
        if not usable:
            raise _TryAgain(CloudError(f"{place}: the answer is not whole", result.status, None, result.requestId))
        return result


    def _clean(self, message):
        return access.cleaned(message, self._keys)


def _place(bucket, key):
    """URL of an object; CloudError where there is no key: the request would be about the bucket, even a delete."""
    try:
        known = bool(key.encode())
    except UnicodeEncodeError:  # of a file whose name is not UTF-8
        known = False
    if not known:
        raise CloudError(f"obs://{bucket}/{ascii(key)[1:-1]}: {'not UTF-8' if key else 'no key'}")
    return f"obs://{bucket}/{key if key.isprintable() else ascii(key)[1:-1]}"


def _is_address(host):
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _base64(checksum):
    return base64.b64encode(checksum.digest()).decode()


def _unquoted(etag):
    return etag.strip('"')


def _read(stream, size):
    """At most one byte more than size of the stream; in one buffer: blocks and their sum are twice as much."""
    content, done = bytearray(size + 1), 0
    with memoryview(content) as view:
        while done <= size and (count := stream.readinto(view[done : done + CHUNK])):
            done += count
    del content[done:]
    return content


def _retry_after(result):
    """Seconds that the server asks for."""
    return next((float(value) for name, value in result.header if name.lower() == "retry-after"), 0.0)
