"""What a copy would take, and where each file would go; links that lead out of a folder are refused."""

import os
import stat as modes
from dataclasses import dataclass
from pathlib import Path

from labkit.obs.place import CloudError, Local, Remote, as_cloud_errors, require_safe
from labkit.obs.store import Entry
from labkit.obs.transfers import HIDDEN


@dataclass(frozen=True)
class Item:
    """A file to copy: its name below the folder (of a single file: its own), its size, and where it is an object."""

    name: str
    size: int
    at: Path | Entry


def items_of(place, store, chosen=lambda name: True):
    """The chosen files below a place, and whether it is a single file; names are below the place."""
    if isinstance(place, Local):
        if place.path.is_dir():
            with as_cloud_errors():
                return list(_walk(place.path, place.path, chosen)), False
        if not place.path.exists():
            raise CloudError(f"{place}: there is no such file or folder")
        if not place.path.is_file():
            raise CloudError(f"{place}: neither a file nor a folder")
        return [Item(place.path.name, place.path.stat().st_size, place.path)], True
    if place.key and not place.key.endswith("/") and (entry := store.head(place.bucket, place.key)):
        return [Item(place.key.rpartition("/")[2], entry.size, entry)], True
    prefix = prefix_of(place)
    found = [Item(entry.key[len(prefix) :], entry.size, entry) for entry in store.list(place.bucket, prefix)]
    return [item for item in found if chosen(item.name) and not _marks_a_folder(item)], False


def _marks_a_folder(item):
    return not item.size and (not item.name or item.name.endswith("/"))


def _walk(folder, root, chosen):
    """Items below a folder, in the order of their names; CloudError for links that lead out, and links to folders."""
    for found in sorted(os.scandir(folder), key=lambda one: one.name):
        path = Path(found.path)
        name = path.relative_to(root).as_posix()
        if found.is_dir(follow_symlinks=False):
            yield from _walk(path, root, chosen)
        elif not chosen(name) or (found.name.startswith(HIDDEN) and found.name.endswith(".part")):
            continue
        elif found.is_symlink() and not resolved(path).is_relative_to(resolved(root)):
            raise CloudError(f"{path}: a link that leads out of {root}; copy what it leads to, or exclude it")
        elif found.is_symlink() and not found.is_file():
            what = "a folder; copy what it leads to, or exclude it" if found.is_dir() else "nothing"
            raise CloudError(f"{path}: a link to {what}")
        elif not modes.S_ISREG(found.stat().st_mode):
            raise CloudError(f"{path}: neither a file nor a folder")
        else:
            yield Item(name, found.stat().st_size, path)


def end_of(target, text, item, single):
    """Where an item goes: a key, or a path."""
    into = not single or text.endswith("/")
    if isinstance(target, Remote):
        return require_safe(target.below(item.name).key if into or not target.key else target.key)
    return target.path / item.name if into or target.path.is_dir() else target.path


def there_at(target, text, items, single, store):
    """Objects that are at the target already, by key; of this machine, files are looked at one by one."""
    if isinstance(target, Local):
        return None
    if single:
        entry = store.head(target.bucket, end_of(target, text, items[0], single))
        return {entry.key: entry} if entry else {}
    return {entry.key: entry for entry in store.list(target.bucket, prefix_of(target))}


def found_at(end, there):
    """The object or file at an end, or None."""
    if there is not None:
        return there.get(end)
    return Entry(str(end), end.stat().st_size, "") if end.is_file() else None


def prefix_of(place):
    """What the keys of all objects below a folder begin with."""
    return f"{place.key.rstrip('/')}/" if place.key.strip("/") else ""


def require_inside(root, end):
    """CloudError where links would lead a file out of the folder it is copied into."""
    if not resolved(end.parent).is_relative_to(resolved(root)):
        raise CloudError(f"{end}: a link leads out of {root}")


def require_apart(source, target, single):
    """CloudError where one folder is inside the other."""
    inner, outer = resolved(target), resolved(source)
    if not single and (inner.is_relative_to(outer) or outer.is_relative_to(inner)):
        raise CloudError(f"{source} to {target}: one is inside the other")


def resolved(path):
    """The path without links; CloudError where they go in circles."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise CloudError(f"{path}: {error}") from None
