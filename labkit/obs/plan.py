"""The plan of a copy, made before anything is written: which files, their targets, and what is already there."""

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from labkit.obs.checksums import digest, matches
from labkit.obs.place import CloudError, Remote, as_cloud_errors, parse, why_no_file, why_outside
from labkit.obs.store import Entry
from labkit.obs.transfers import UNFINISHED
from labkit.system.files import require_replaceable

NO_CHECKSUM = "no checksum to compare"


@dataclass(frozen=True)
class Item:
    """A file to copy: its name relative to the folder (or its own, if single), its size, and where it is."""

    name: str
    size: int
    at: Path | Entry


class Plan:
    """The files of a source, their targets, and how these differ from what is already there.

    include, exclude: patterns of names below a folder. Those are copied that match one in `include` and none in
    `exclude`.

    Raises CloudError if the source has nothing to copy or something other than files, or if a name would lead out of
    the target.
    """

    def __init__(self, src, dst, store, include=(), exclude=()):
        self.source, self.target, self._store = parse(src), parse(dst), store

        def chosen(name):
            included = not include or any(fnmatchcase(name, pattern) for pattern in include)
            return included and not any(fnmatchcase(name, pattern) for pattern in exclude)

        self.items, self.single = files_below(self.source, store, chosen)
        if not self.items:
            raise CloudError(f"{self.source}: nothing to copy: there is no such object, or nothing in the folder")
        self._to_local = isinstance(self.target, Path)
        is_folder = self.target.is_dir() if self._to_local else not self.target.key
        self._into_folder = not self.single or str(dst).endswith("/") or is_folder
        for item in self.items:
            key = item.name if self._to_local else self.end(item)
            if reason := why_outside(item.name) or why_outside(key):
                raise CloudError(f"{key!r}: {reason}; exclude it to copy the others")
        self._objects = {} if self._to_local else self._existing_objects()  # one request: wrong keys fail here

    def end(self, item) -> Path | str:
        """An item's target, a path or a key; CloudError if there is none."""
        if not self._to_local:
            return self.target.prefix + item.name if self._into_folder else self.target.key
        if not self._into_folder:
            require_replaceable(self.target)
            return self.target
        if reason := why_no_file(item.name):
            raise CloudError(f"{item.name!r}: {reason}")
        end = self.target / item.name
        require_replaceable(end)
        if not self.single and not resolved(end.parent).is_relative_to(resolved(self.target)):
            raise CloudError(f"{end}: a link leads out of {self.target}")
        return end

    def difference(self, item, end) -> str | None:
        """How the file or object at `end` differs from the item; None if it is the same, by checksum."""
        if self._to_local:
            target = Entry(str(end), end.stat().st_size, "") if end.is_file() else None
        else:
            target = self._objects.get(end)
        if target is None:
            return "missing"
        if target.size != item.size:
            return f"{target.size} bytes instead of {item.size}"
        same = self._same(item, end, target)
        return NO_CHECKSUM if same is None else None if same else "different content"

    def _same(self, item, end, target):
        """Whether an item and its target, of the same size, are equal; None if there is no checksum."""
        if isinstance(self.source, Remote):
            return matches(self._store, self.source.bucket, item.at, end)
        if not self._to_local:
            return matches(self._store, self.target.bucket, target, item.at)
        return os.path.samefile(item.at, end) or digest(item.at, "sha256") == digest(end, "sha256")

    def _existing_objects(self):
        if self.single:
            end = self.end(self.items[0])
            return {end: self._store.head(self.target.bucket, end)}
        return {entry.key: entry for entry in self._store.list(self.target.bucket, self.target.prefix)}


def files_below(place, store, chosen=lambda name: True) -> tuple[list[Item], bool]:
    """The chosen files below a place, with names relative to it, and whether it is a single file."""
    if isinstance(place, Path):
        if place.is_dir():
            with as_cloud_errors():
                return sorted(_walk(place, chosen), key=lambda item: item.name), False
        if not place.is_file():
            problem = "neither a file nor a folder" if place.exists() else "there is no such file or folder"
            raise CloudError(f"{place}: {problem}")
        return [Item(place.name, place.stat().st_size, place)], True
    if place.key and not place.key.endswith("/") and (entry := store.head(place.bucket, place.key)):
        return [Item(place.key.rpartition("/")[2], entry.size, entry)], True
    below = len(place.prefix)
    items = [Item(entry.key[below:], entry.size, entry) for entry in store.list(place.bucket, place.prefix)]
    return [item for item in items if chosen(item.name) and not _is_passed_over(item)], False


def _is_passed_over(item):
    """Whether an object marks a folder, or has the name of an unfinished download."""
    marks_a_folder = not item.size and (not item.name or item.name.endswith("/"))
    return marks_a_folder or UNFINISHED.fullmatch(item.name.rpartition("/")[2])


def _walk(root, chosen):
    """Items below a folder; CloudError for anything but files and folders."""

    def refuse(error):
        raise error

    for folder, folders, names in os.walk(root, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for path in (Path(folder, name) for name in names + links):
            name = path.relative_to(root).as_posix()
            if not chosen(name) or UNFINISHED.fullmatch(path.name):
                continue
            if path.is_symlink() and not resolved(path).is_relative_to(resolved(root)):
                raise CloudError(f"{path}: a link that leads out of {root}; exclude it to copy the others")
            if not path.is_file():
                problem = "not a link to a file" if path.is_symlink() else "neither a file nor a folder"
                raise CloudError(f"{path}: {problem}; exclude it to copy the others")
            yield Item(name, path.stat().st_size, path)


def require_possible(source, target) -> None:
    """CloudError if both are in buckets, or one folder is inside the other."""
    if isinstance(source, Remote) and isinstance(target, Remote):
        raise CloudError(f"{source} to {target}: cannot copy from bucket to bucket; use obsutil")
    local = isinstance(source, Path) and isinstance(target, Path)
    if local and source.is_dir() and not same(source, target):
        outer, inner = resolved(source), resolved(target)
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise CloudError(f"{source} to {target}: one is inside the other")


def same(source, target) -> bool:
    """Whether both are the same place on this machine."""
    local = isinstance(source, Path) and isinstance(target, Path)
    return local and resolved(source) == resolved(target)


def resolved(path) -> Path:
    """The absolute path with all links resolved."""
    return Path(os.path.realpath(path))
