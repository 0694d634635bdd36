"""Sources and targets of copies: files and folders on this machine, objects and prefixes in a bucket."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.system.errors import LabkitError, of_file_system

BUCKET = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # OBS and S3 alike


class CloudError(LabkitError):
    """An error of the cloud or the network: names the place, with the server's status, code and request id."""

    def __init__(self, message, status=None, code=None, request_id=None):
        details = [f"status {status}" if status else "", code or "", f"request {request_id}" if request_id else ""]
        details = ", ".join(filter(None, details))
        message = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
        super().__init__(f"{message} ({details})" if details else message)
        self.message, self.status, self.code, self.request_id = message, status, code, request_id

    def reworded(self, message, error_class=None):
        """An error of this class (CloudError) with another message and the same status, code and request id."""
        return (error_class or CloudError)(message, self.status, self.code, self.request_id)


def cloud_error(error) -> CloudError:
    """A CloudError unchanged; an OSError as CloudError with the message FILE: reason."""
    return error if isinstance(error, CloudError) else CloudError(of_file_system(error))


@contextmanager
def as_cloud_errors():
    """Inside this context, file system errors become CloudErrors."""
    try:
        yield
    except OSError as error:
        raise cloud_error(error) from None


@dataclass(frozen=True)
class Remote:
    """An object, all objects below a prefix, or (key "") a whole bucket."""

    scheme: str  # obs or s3
    bucket: str
    key: str

    def __str__(self):
        return f"{self.scheme}://{self.bucket}/{self.key}"

    @property
    def prefix(self) -> str:
        """The common prefix of the keys of all objects below it, as typed, with a "/"; "" for a bucket."""
        return self.key if not self.key or self.key.endswith("/") else f"{self.key}/"


def parse(place) -> Path | Remote:
    """The place that a path, file://DIR, obs://BUCKET/KEY or s3://BUCKET/KEY names; raises CloudError."""
    text = str(place)
    scheme, colon, rest = text.partition("://")
    if not colon:
        if re.match(r"(obs|s3|file):", text):
            raise CloudError(f"{text}: a URL must begin with {text.partition(':')[0]}://")
        scheme, rest = "file", text
    if scheme == "file":
        if not rest or "\0" in rest:
            raise CloudError(f"{text!r}: not a path")
        return Path(rest.removeprefix("localhost") if colon and rest.startswith("localhost/") else rest)
    if scheme not in ("obs", "s3"):
        raise CloudError(f"{text}: must begin with obs://, s3:// or file://, not {scheme}://")
    bucket, _, key = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise CloudError(f"{text}: invalid bucket name {bucket!r}: use 3 to 63 of a-z, 0-9, dot and hyphen")
    return Remote(scheme, bucket, key)


def why_outside(name: str) -> str | None:
    """Why a file called `name` in a folder would be outside of it; None if it is inside."""
    if name.startswith("/"):
        return "an absolute path"
    return "leads out of the folder" if ".." in name.split("/") else None


def why_no_file(name: str) -> str | None:
    """Why no file on this machine can have the name of an object below a prefix; None if one can."""
    if {"", "."} & set(name.split("/")):
        return "a part of the name is empty"
    return "the name contains a NUL character" if "\0" in name else None
