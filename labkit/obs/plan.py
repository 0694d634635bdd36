"""The plan of a copy: which files, where each one goes, and what is there already; made before anything is written."""

import os
import stat as modes
from collections.abc import Container
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from labkit.obs.checksums import digest, matches
from labkit.obs.place import CloudError, Local, Remote, as_cloud_errors, parse, why_no_file, why_outside
from labkit.obs.server_copies import same_content
from labkit.obs.store import Entry
from labkit.obs.transfers import UNFINISHED
from labkit.system.files import require_replaceable

NO_CHECKSUM = "no checksum to compare"


@dataclass(frozen=True)
class Item:
    """A file to copy: its name below the folder (of a single file: its own), its size, and where it is."""

    name: str
    size: int
    at: Path | Entry


@dataclass(frozen=True)
class Chosen:
    """Which names below a folder are copied: those like a pattern of `include`, none like one of `exclude`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    names: Container[str] | None = None

    def __call__(self, name):
        wanted = _any(name, self.include or ("*",)) and not _any(name, self.exclude)
        return wanted and (self.names is None or name in self.names)

    def none_below(self, folder):
        """Whether a pattern excludes all that a folder can have."""
        return _any(f"{folder}/", [pattern for pattern in self.exclude if pattern.endswith("*")])


def _any(name, patterns):
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Plan:
    """The files of a source, where each one goes, and how it differs from what is there.

    odd: gets the names of what is no file in the source, with the reason. Raises CloudError without it, where there is
    nothing to copy, or where a name would lead out of the target.
    """

    def __init__(self, src, dst, store, chosen: Chosen = Chosen(), odd: dict | None = None):
        self.source, self.target, self._store = parse(src), parse(dst), store
        self.items, self.single = files_below(self.source, store, chosen, odd)
        if not (self.items or odd):
            raise CloudError(f"{self.source}: nothing to copy: there is no such object, or nothing in the folder")
        self._here = isinstance(self.target, Local)
        is_folder = self.target.path.is_dir() if self._here else not self.target.key
        self._into_folder = not self.single or str(dst).endswith("/") or is_folder
        for item in self.items:
            key = item.name if self._here else self.end(item)
            if reason := why_outside(item.name) or why_outside(key):
                raise CloudError(f"{key!r}: {reason}; exclude it to copy the others")
        self._impossible, self._root = {}, None
        if self._here and self._into_folder:
            self._root = resolved(self.target.path)
            self._impossible = _impossible([item.name for item in self.items], self.target.path)
        self._there = None if self._here else self._objects_there()  # one request: wrong keys fail here

    def end(self, item) -> Path | str:
        """Where an item goes, a path or a key; CloudError where it cannot be."""
        if not self._here:
            return (self.target.below(item.name) if self._into_folder else self.target).key
        if reason := self._impossible.get(item.name):
            raise CloudError(f"{item.name!r}: {reason}")
        end = self.target.path / item.name if self._into_folder else self.target.path
        require_replaceable(end)
        if not self._into_folder:
            return end
        if not self.single and not resolved(end.parent).is_relative_to(self._root):
            raise CloudError(f"{end}: a link leads out of {self.target}")
        return end

    def difference(self, item, end=None) -> str | None:
        """How what is at an item's end differs from it; None where it is the same, by checksum."""
        if item.name in self._impossible:
            return self._impossible[item.name]
        end = end or self.end(item)
        if self._here:
            found = Entry(str(end), end.stat().st_size, "") if end.is_file() else None
        else:
            found = self._there.get(end)
        if found is None:
            return "missing"
        if found.size != item.size:
            return f"{found.size} bytes instead of {item.size}"
        same = self._same(item, end, found)
        return NO_CHECKSUM if same is None else None if same else "another content"

    def _same(self, item, end, found):
        """Whether an item and what is at its end, of the same size, are equal; None where there is no checksum."""
        if isinstance(self.source, Local):
            if not self._here:
                return matches(self._store, self.target.bucket, found, item.at)
            return os.path.samefile(item.at, end) or digest(item.at, "sha256") == digest(end, "sha256")
        if self._here:
            return matches(self._store, self.source.bucket, item.at, end)
        return same_content(self._store, item.at, self.source.bucket, found, self.target.bucket)

    def onto_itself(self) -> bool:
        """Whether each object would be copied to where it is."""
        if self._here or isinstance(self.source, Local) or self.source.bucket != self.target.bucket:
            return False
        return all(self.end(item) == item.at.key for item in self.items)

    def _objects_there(self):
        bucket = self.target.bucket
        if self.single:
            end = self.end(self.items[0])
            found = [self._store.head(bucket, end)]
            if not (found[0] or self._into_folder):
                require_no_folder(self._store, bucket, end)
        else:
            found = self._store.list(bucket, self.target.prefix)
        return {entry.key: entry for entry in found if entry}


def require_no_folder(store, bucket, key) -> None:
    """CloudError where a key that is no object is a folder."""
    if any(store.list(bucket, f"{key}/")):
        place = f"obs://{bucket}/{key}"
        raise CloudError(f"{place}: there is a folder of this name; write {place}/ to copy into it")


def _impossible(names, folder):
    """Names that cannot be files of this folder, or not next to the others, with the reason."""
    fold = str.casefold if ignores_case(folder) else str
    folders = {fold(name[:place]) for name in names for place, letter in enumerate(name) if letter == "/"}
    first, found = {}, {}
    for name in names:
        other = first.setdefault(fold(name), name)
        if reason := why_no_file(name):
            found[name] = reason
        elif fold(name) in folders:
            found[name] = "there is a folder of this name too"
        elif other != name:
            found[name] = f"the same file as {other!r}, as case does not matter there"
    return found


def ignores_case(folder) -> bool:
    """Whether names that differ in case are one file in a folder, there or not, as far as its files show that."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    for path in (*(there.iterdir() if os.access(there, os.R_OK) else ()), there):
        other = Path(path.parent, path.name.swapcase())
        if other.name != path.name:
            return other.exists() and other.samefile(path)
    return False


def files_below(place, store, chosen=Chosen(), odd=None) -> tuple[list[Item], bool]:
    """The chosen files below a place, with names below it, and whether it is a single file. odd: as of Plan."""
    if isinstance(place, Local):
        if place.path.is_dir():
            with as_cloud_errors():
                return list(_walk(place.path, chosen, odd)), False
        if not place.path.exists():
            raise CloudError(f"{place}: there is no such file or folder")
        if not place.path.is_file():
            raise CloudError(f"{place}: neither a file nor a folder")
        return [Item(place.path.name, place.path.stat().st_size, place.path)], True
    if place.key and not place.key.endswith("/") and (entry := store.head(place.bucket, place.key)):
        return [Item(place.key.rpartition("/")[2], entry.size, entry)], True
    below = len(place.prefix)
    found = [Item(entry.key[below:], entry.size, entry) for entry in store.list(place.bucket, place.prefix)]
    return [item for item in found if chosen(item.name) and not _marks_a_folder(item)], False


def _marks_a_folder(item):
    return not item.size and (not item.name or item.name.endswith("/"))


def _walk(root, chosen, odd):
    """Items below a folder, by name. What is no file is a CloudError or, where odd is given, an entry there."""
    waiting = _entries(root, root, odd)
    while waiting:  # by a list, as folders may be deeper than Python's calls
        found = waiting.pop()
        path = Path(found.path)
        name = path.relative_to(root).as_posix()
        if found.is_dir(follow_symlinks=False):
            if not chosen.none_below(name):
                waiting += _entries(path, root, odd)
        elif not chosen(name) or UNFINISHED.fullmatch(found.name):
            continue
        elif not (reason := _why_odd(found, path, root)):
            yield Item(name, found.stat().st_size, path)
        elif odd is None:
            raise CloudError(f"{path}: {reason}")
        else:
            odd[name] = reason


def _entries(folder, root, odd):
    """What is in a folder, the last name first."""
    try:
        return sorted(os.scandir(folder), key=lambda one: one.name, reverse=True)
    except PermissionError as error:
        if odd is None or folder == root:
            raise
        odd[folder.relative_to(root).as_posix()] = error.strerror
        return []


def _why_odd(found, path, root):
    """Why an entry of a folder is not copied; None for files and for links to files of the folder."""
    try:
        if found.is_symlink() and not path.resolve().is_relative_to(resolved(root)):
            return f"a link that leads out of {root}; copy what it leads to, or exclude it"
    except (OSError, RuntimeError) as error:
        return f"a link in circles ({error})"
    if found.is_symlink() and not found.is_file():
        return f"a link to {'a folder; copy what it leads to, or exclude it' if found.is_dir() else 'nothing'}"
    return None if modes.S_ISREG(found.stat().st_mode) else "neither a file nor a folder"


def require_possible(source, target, single=None) -> None:
    """CloudError where one folder is inside the other. single: whether the source is a file, where that is known."""
    if isinstance(source, Remote) and isinstance(target, Remote) and source.bucket == target.bucket:
        single = bool(source.key and not source.key.endswith("/")) if single is None else single
        outer, inner = sorted((source.prefix, target.prefix), key=len)
        if not single and outer != inner and inner.startswith(outer):
            raise CloudError(f"{source} to {target}: one is inside the other")
    if isinstance(source, Local) and isinstance(target, Local) and source.path.is_dir() and not same(source, target):
        outer, inner = resolved(source.path), resolved(target.path)
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise CloudError(f"{source} to {target}: one is inside the other")


def same(source, target) -> bool:
    """Whether both are one place of this machine."""
    here = isinstance(source, Local) and isinstance(target, Local)
    return here and resolved(source.path) == resolved(target.path)


def resolved(path) -> Path:
    """The path without links; CloudError where they go in circles."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise CloudError(f"{path}: {error}") from None
