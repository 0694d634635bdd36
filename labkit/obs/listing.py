"""Listings for people: one level with its folders, and dates."""

import os
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from labkit.obs.copying import connected
from labkit.obs.place import CloudError, Local, as_cloud_errors, parse
from labkit.obs.plan import Item, files_below


def below(place, *, recursive=False, store=None) -> tuple[list[Item], list[str]]:
    """Files in a place and its subfolders, whose names end with "/"; recursive: all files below it, and no folders.

    CloudError if there are none, unless the place is a whole bucket or a folder on this machine.
    """
    text, place = place, parse(place)
    store = connected(store, place)
    if recursive or (isinstance(place, Local) and not place.path.is_dir()):
        files, folders = files_below(place, store)[0], []
    else:
        files, folders = _level(place, store)
    if not (files or folders or isinstance(place, Local)) and place.prefix:
        raise CloudError(f"{text}: there is no such object or folder")
    return files, folders


def _level(place, store):
    if isinstance(place, Local):
        with as_cloud_errors():
            entries = sorted(os.scandir(place.path), key=lambda entry: entry.name)
            files = [Item(entry.name, entry.stat().st_size, entry) for entry in entries if entry.is_file()]
            return files, [f"{entry.name}/" for entry in entries if entry.is_dir(follow_symlinks=False)]
    if place.key and not place.key.endswith("/") and store.head(place.bucket, place.key):
        return files_below(place, store)[0], []
    entries = [(entry.key[len(place.prefix) :], entry) for entry in store.list(place.bucket, place.prefix, "/")]
    files = [Item(name, entry.size, entry) for name, entry in entries if name and not name.endswith("/")]
    return files, sorted(name for name, _ in entries if name.endswith("/"))


def modified(item) -> datetime | None:
    """When a file was last written; None if its server does not say."""
    if isinstance(item.at, os.PathLike):
        return datetime.fromtimestamp(item.at.stat().st_mtime, timezone.utc)
    return moment(item.at.modified)


def moment(text) -> datetime | None:
    """The time in a listing (2026-11-21T12:00:00.000Z) or a header (Sat, 21 Nov 2026 12:00:00 GMT)."""
    try:
        if text and text[:1].isdigit():
            return datetime.fromisoformat(text.partition(".")[0].rstrip("Z")).replace(tzinfo=timezone.utc)
        return parsedate_to_datetime(text).astimezone(timezone.utc)
    except (TypeError, ValueError):
        return None
