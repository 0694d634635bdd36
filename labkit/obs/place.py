"""Places that are copied between: files and folders of this machine, objects and prefixes of a bucket."""

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.system.errors import LabkitError

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # OBS and S3 alike
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*[. ]")  # no file of Windows is called so


class CloudError(LabkitError):
    """What went wrong in the cloud, or on the way: the place, and the server's status, code and request id.

    A name in the message may have any character; those that cannot be printed are escaped.
    """

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
    """Inside this context, file system errors and failing to start a thread become CloudErrors."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RecursionError):
            raise CloudError("folders are nested too deeply for Python") from None
        if "start new thread" not in str(error):
            raise
        raise CloudError("this machine starts no further thread: choose a smaller --jobs") from None
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
    """A path, file://DIR, obs://BUCKET/KEY or s3://BUCKET/KEY; raises CloudError."""
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
    absolute, parts = name.startswith("/"), name.split("/")
    if sys.platform == "win32":
        absolute, parts = absolute or re.match(r"[A-Za-z]:|\\", name), re.split(r"[/\\]", name)
    if absolute:
        return "an absolute path"
    return "leads out of the folder" if ".." in parts else None


def why_no_file(name: str) -> str | None:
    """Why no file of this machine can have the name of an object below a prefix; None where one can."""
    parts = name.split("/")
    if "" in parts or "." in parts:
        return "a part of the name is empty"
    if "\0" in name:
        return "the name has a NUL character"
    if any(len(part.encode(errors="surrogatepass")) > 255 for part in parts):
        return "a part of the name is longer than 255 bytes"
    if sys.platform == "win32" and ("\\" in name or any(map(RESERVED.fullmatch, parts))):
        return "Windows has no such name"
    return None
