"""Listings of a bucket for people: one level with its folders, and dates."""

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from labkit.obs.copying import connected
from labkit.obs.place import CloudError, Local, parse
from labkit.obs.plan import Item, files_below


def below(url, *, recursive=False, store=None) -> tuple[list[Item], list[str]]:
    """Objects at a URL and its folders, whose names end with "/"; recursive: all objects below it, and no folders.

    CloudError if there are none, unless the URL is a whole bucket, or if it is a path.
    """
    place = parse(url)
    if isinstance(place, Local):
        raise CloudError(f"{url}: must be obs://BUCKET/KEY or s3://BUCKET/KEY")
    store, names = connected(store, place), []
    if recursive or (place.key and not place.key.endswith("/") and store.head(place.bucket, place.key)):
        files = files_below(place, store)[0]
    else:
        entries = [(entry.key[len(place.prefix) :], entry) for entry in store.list(place.bucket, place.prefix, "/")]
        files = [Item(name, entry.size, entry) for name, entry in entries if name and not name.endswith("/")]
        names = sorted(name for name, _ in entries if name.endswith("/"))
    if not (files or names) and place.prefix:
        raise CloudError(f"{url}: there is no such object or folder")
    return files, names


def moment(text) -> datetime | None:
    """The time in a listing (2026-11-21T12:00:00.000Z) or a header (Sat, 21 Nov 2026 12:00:00 GMT); None for none."""
    try:
        if text and text[:1].isdigit():
            return datetime.fromisoformat(text.partition(".")[0].rstrip("Z")).replace(tzinfo=timezone.utc)
        return parsedate_to_datetime(text).astimezone(timezone.utc)
    except (TypeError, ValueError):
        return None
