"""Places that are copied between: files and folders of this machine, objects and prefixes of a bucket."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.system.errors import LabkitError

BUCKET = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # OBS and S3 alike


class CloudError(LabkitError):
    """What went wrong in the cloud, or on the way: the place, and the server's status, code and request id."""

    def __init__(self, message, status=None, code=None, request_id=None):
        details = [f"status {status}" if status else "", code or "", f"request {request_id}" if request_id else ""]
        details = ", ".join(filter(None, details))
        message = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
        super().__init__(f"{message} ({details})" if details else message)
        self.message, self.status, self.code, self.request_id = message, status, code, request_id

    def reworded(self, message, kind=None):
        """An error of this kind (CloudError) with another message and the same status, code and request id."""
        return (kind or CloudError)(message, self.status, self.code, self.request_id)


def cloud_error(error) -> CloudError:
    """The CloudError of an error: itself, or for one of the file system FILE: reason."""
    if isinstance(error, CloudError):
        return error
    reason = error.strerror or str(error)
    return CloudError(f"{error.filename}: {reason}" if error.filename else reason)


@contextmanager
def as_cloud_errors():
    """Inside this context, errors of the file system become CloudErrors."""
    try:
        yield
    except OSError as error:
        raise cloud_error(error) from None


@dataclass(frozen=True)
class Local:
    """A file or folder of this machine."""

    path: Path

    def __str__(self):
        return str(self.path)


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
        """What the keys of all objects below it begin with; "" for a bucket."""
        return f"{self.key.rstrip('/')}/" if self.key.strip("/") else ""

    def below(self, name):
        """The object `name` in this folder."""
        return Remote(self.scheme, self.bucket, f"{self.key.rstrip('/')}/{name}" if self.key else name)


def parse(place) -> Local | Remote:
    """The place that a path, file://DIR, obs://BUCKET/KEY or s3://BUCKET/KEY names; raises CloudError."""
    text = str(place)
    scheme, colon, rest = text.partition("://")
    if not colon:
        if re.match(r"(obs|s3|file):", text):
            raise CloudError(f"{text}: a URL begins with {text.partition(':')[0]}://")
        scheme, rest = "file", text
    if scheme == "file":
        if not rest or "\0" in rest:
            raise CloudError(f"{text!r}: no path")
        return Local(Path(rest))
    if scheme not in ("obs", "s3"):
        raise CloudError(f"{text}: {scheme}:// is none of obs://, s3:// and file://")
    bucket, _, key = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise CloudError(f"{text}: {bucket!r} is no bucket's name: 3 to 63 of a-z, 0-9, dot and hyphen")
    return Remote(scheme, bucket, key)


def why_outside(name: str) -> str | None:
    """Why `name`, put below a folder, would not stay below it; None where it does."""
    if name.startswith("/"):
        return "an absolute path"
    return "leads out of the folder" if ".." in name.split("/") else None


def why_no_file(name: str) -> str | None:
    """Why no file of this machine can have the name of an object below a prefix; None where one can."""
    if {"", "."} & set(name.split("/")):
        return "a part of the name is empty"
    return "the name has a NUL character" if "\0" in name else None
