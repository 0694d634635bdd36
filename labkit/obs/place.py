"""Places that are copied between, and the names that may travel: folders of this machine and objects of a bucket."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.system.errors import LabkitError

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # OBS and S3 alike
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*[. ]")  # names that Windows cannot hold


class CloudError(LabkitError):
    """What went wrong in the cloud, or on the way: the place, and the server's status, code and request id."""

    def __init__(self, message, status=None, code=None, request_id=None):
        told = [f"status {status}" if status else "", code or "", f"request {request_id}" if request_id else ""]
        told = ", ".join(word for word in told if word)
        super().__init__(f"{message} ({told})" if told else message)
        self.message, self.status, self.code, self.request_id = message, status, code, request_id


def cloud_error(error) -> CloudError:
    """The CloudError of an error: itself, or for one of the file system FILE: reason."""
    if isinstance(error, CloudError):
        return error
    reason = error.strerror or str(error)
    return CloudError(f"{error.filename}: {reason}" if error.filename else reason)


@contextmanager
def as_cloud_errors():
    """Within, errors of the file system are CloudErrors."""
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
        if not text or "\0" in text:
            raise CloudError(f"{text!r}: no path")
        return Local(Path(text))
    if scheme == "file":
        if not rest:
            raise CloudError(f"{text}: no path")
        return Local(Path(rest))
    if scheme not in ("obs", "s3"):
        raise CloudError(f"{text}: {scheme}:// is none of obs://, s3:// and file://")
    bucket, _, key = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise CloudError(f"{text}: {bucket!r} is no bucket's name: 3 to 63 of a-z, 0-9, dot and hyphen")
    return Remote(scheme, bucket, key)


def require_safe(name: str) -> str:
    """The name of an object below a prefix, if a file below a folder may have it; raises CloudError otherwise."""
    parts = name.split("/")
    if any("\ud800" <= character <= "\udfff" for character in name):
        reason = "it is not UTF-8"
    elif name.startswith("/") or re.match(r"[A-Za-z]:", name):
        reason = "it is absolute"
    elif ".." in parts:
        reason = "it leads out of the folder"
    elif "\\" in name:
        reason = "it has a backslash, which separates folders on some machines"
    elif any(ord(character) < 32 or ord(character) == 127 for character in name):
        reason = "it has a control character"
    elif "" in parts or "." in parts:
        reason = "a part of it is empty"
    elif any(len(part.encode()) > 255 for part in parts):
        reason = "a part of it is longer than 255 bytes"
    elif any(RESERVED.fullmatch(part) for part in parts):
        reason = "not every machine can hold it"
    else:
        return name
    raise CloudError(f"{name!r}: not copied as a file: {reason}")


def require_no_collisions(names) -> None:
    """CloudError where two names would be one file on some machine: by case, or a file and a folder."""
    seen, folders = {}, {}
    for name in names:
        folded = name.casefold()
        if folded in seen:
            raise CloudError(f"{seen[folded]!r} and {name!r}: one file where case does not matter")
        seen[folded] = name
        while "/" in folded:
            folded = folded.rpartition("/")[0]
            folders.setdefault(folded, name)
    for folded in seen.keys() & folders.keys():
        raise CloudError(f"{seen[folded]!r} and {folders[folded]!r}: a file and a folder of one name")
