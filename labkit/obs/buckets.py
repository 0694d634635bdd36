"""What a bucket has besides objects: itself, and uploads that were begun and neither completed nor aborted."""

from dataclasses import dataclass
from datetime import datetime

from labkit.obs.listing import moment
from labkit.obs.place import CloudError
from labkit.obs.store import PAGE


def make(bucket, store, region=None) -> bool:
    """Make a private bucket, in the server's own region or this one; whether it is new. Raises CloudError."""
    try:
        store.ask(f"obs://{bucket}", lambda: store.client.createBucket(bucket, location=region))
    except CloudError as error:
        if error.code == "BucketAlreadyOwnedByYou":
            return False
        raise
    return True


@dataclass(frozen=True)
class OpenUpload:
    """An upload in parts that is under way, or was cut off. begun: None where the server does not say."""

    key: str
    id: str
    begun: datetime | None


def open_uploads(place, store) -> list[OpenUpload]:
    """The open uploads of an object, and of all below a folder or bucket."""
    from obs import ListMultipartUploadsRequest

    found, after = [], (None, None)
    while True:
        asked = ListMultipartUploadsRequest(None, place.key, PAGE, *after)
        page = store.ask(
            str(place), lambda asked=asked: store.client.listMultipartUploads(place.bucket, asked, encoding_type="url"),
            whole=lambda body: body and body.bucket == place.bucket,
        ).body  # fmt: skip
        for one in page.upload or ():
            if one.key == place.key or one.key.startswith(place.prefix):
                found.append(OpenUpload(one.key, one.uploadId, moment(one.initiated)))
        if not page.isTruncated:
            return found
        ends = [(one.key, one.uploadId) for one in (page.upload or ())[-1:]]  # Swift does not name the next page
        following = (page.nextKeyMarker, page.nextUploadIdMarker) if page.nextKeyMarker else (*ends, ("", ""))[0]
        if not following[0] or following == after or following[0] < (after[0] or ""):
            raise CloudError(f"{place}: the next page of the listing does not begin where this one ends")
        after = following
