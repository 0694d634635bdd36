"""Copying between this machine and a bucket: parallel, resumable, verified. It never deletes what it did not write.

What is to be copied is known, and its names are checked, before anything is written; transfers.py carries each file.
"""

import os
import shutil
import stat as modes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from labkit.cloud.place import CloudError, Local, Remote, parse, require_no_collisions, require_safe
from labkit.cloud.store import Entry, GivenUp, Store
from labkit.cloud.transfers import HIDDEN, Transfers, digest, held, matches


@dataclass(frozen=True)
class Report:
    """What a copy did: files copied, files that were there already, (name, error) of the others, bytes sent or got."""

    copied: int
    skipped: int
    failed: tuple[tuple[str, Exception], ...]
    bytes: int


class CopyError(CloudError):
    """Some files failed; `report` names them and counts the others. Status, code and request id are the first one's."""

    def __init__(self, report):
        name, error = report.failed[0]
        others = f" (and {len(report.failed) - 1} more)" if len(report.failed) > 1 else ""
        super().__init__(f"{name}: {error}{others}; {report.copied} copied, {report.skipped} there already")
        self.report = report
        self.status, self.code, self.request_id = error.status, error.code, error.request_id


@dataclass(frozen=True)
class Item:
    """A file to copy: its name below the folder (of a single file: its own), its size, and where it is an object."""

    name: str
    size: int
    at: Path | Entry


def copy(src, dst, *, jobs=8, resume=True, verify=True, incremental=True, dry_run=False, include=(), exclude=(),
         progress: Callable[[int, int], None] | None = None, deadline=300.0, store=None) -> Report:  # fmt: skip
    """Copy a file, or what is in a folder, between this machine, obs:// and s3://; to the same place: nothing.

    A file goes into a folder that is there, or whose name ends with "/"; else dst is its new name.
    jobs: requests at a time. resume: go on where an earlier copy was cut off. verify: compare checksums afterwards.
    incremental: leave what is there already, by size and checksum. dry_run: only say what would be done. include,
    exclude: patterns of names below a folder (`*.bin`; `*` passes "/"). progress: called with bytes done and bytes to
    do. deadline: seconds without success after which a request is given up. A file that fails does not stop the
    others, unless the server refuses us or is not there.
    Raises CloudError, for an empty source as well; CopyError where files failed.
    """

    def chosen(name):
        return _any(name, include or ("*",)) and not _any(name, exclude)

    return _copy(src, dst, chosen, dry_run, incremental, deadline, store, jobs, resume, verify, progress)


def copy_parallel(src_url, dst_url, file_list=None, threads=16, is_processing=True) -> Report:
    """moxing's: copy what is in a folder, or of it the names in file_list only; an empty source is an error here."""
    names = None if file_list is None else {str(PurePosixPath(name)) for name in file_list}
    if names is not None and (missing := names - {item.name for item in ls(src_url)}):
        raise CloudError(f"{src_url}: no {min(missing)}")
    return _copy(src_url, dst_url, lambda name: names is None or name in names, jobs=threads)


def ls(place, *, store=None) -> list[Item]:
    """The file, or what is below the folder; empty where there is nothing."""
    place = parse(place)
    return _items(place, _connected(store, place))[0]


def exists(place, *, store=None) -> bool:
    """Whether there is a file or folder; of a bucket, whether there is anything in it."""
    place = parse(place)
    if isinstance(place, Local):
        return place.path.exists()
    store = _connected(store, place)
    if store.head(place.bucket, place.key):
        return True
    return any(store.list(place.bucket, _prefix(place)))


def stat(place, *, store=None) -> Entry:
    """Size and checksum of a file or object; CloudError where there is none."""
    place = parse(place)
    if isinstance(place, Remote):
        found = _connected(store, place).head(place.bucket, place.key)
    else:
        path = place.path
        found = Entry(str(path), path.stat().st_size, "", digest(path, "sha256")) if path.is_file() else None
    if not found:
        raise CloudError(f"{place}: there is no such file")
    return found


def rm(place, *, recursive=False, store=None) -> int:
    """Remove an object, or all below a folder; returns how many. CloudError where there is none, and for a bucket."""
    place = parse(place)
    if isinstance(place, Local):
        raise CloudError(f"{place}: only objects are removed, no files of this machine")
    if not place.key.strip("/"):
        raise CloudError(f"{place}: a whole bucket is not emptied")
    store = _connected(store, place)
    if recursive:
        keys = [entry.key for entry in store.list(place.bucket, _prefix(place))]
    else:
        keys = [place.key] if store.head(place.bucket, place.key) else []
    if not keys:
        raise CloudError(f"{place}: there is no such object{'' if recursive else '; a folder is removed recursively'}")
    for key in keys:
        store.delete(place.bucket, key)
    return len(keys)


def verify(src, dst, *, store=None) -> list[str]:
    """What of src is missing in dst or is another there, a line for each; empty: all is there, by checksum."""
    source, target = parse(src), parse(dst)
    store = _connected(store, source, target)
    items, single = _items(source, store)
    if not items:
        raise CloudError(f"{source}: nothing to compare")
    there, differences = _there(target, str(dst), items, single, store), []
    for item in items:
        end = _end(target, str(dst), item, single)
        found = _found(end, there)
        if found is None:
            differences.append(f"{item.name}: missing")
        elif found.size != item.size:
            differences.append(f"{item.name}: {found.size} bytes instead of {item.size}")
        elif (same := _same(source, item, target, end, found, store)) is not True:
            differences.append(f"{item.name}: {'no checksum to compare' if same is None else 'another content'}")
    return differences


# -- What a copy does ------------------------------------------------------------------------------


def _copy(src, dst, chosen, dry_run=False, incremental=True, deadline=300.0, store=None, jobs=8, resume=True,
          verify=True, progress=None):  # fmt: skip
    source, target = parse(src), parse(dst)
    if isinstance(source, Remote) and isinstance(target, Remote):
        raise CloudError(f"{source} to {target}: one of the two must be on this machine")
    if jobs < 1:
        raise CloudError(f"jobs: {jobs}: at least 1")
    store = _connected(store, source, target, deadline=deadline)
    items, single = _items(source, store, chosen)
    if not items:
        raise CloudError(f"{source}: nothing to copy")
    require_no_collisions([require_safe(item.name) for item in items])
    if isinstance(source, Local) and isinstance(target, Local):
        if _resolved(source.path) == _resolved(target.path):
            return Report(0, len(items), (), 0)
        _require_apart(source.path, target.path, single)
    there = _there(target, str(dst), items, single, store)  # one request: wrong keys fail here
    lock, copied, skipped, failed, hopeless = threading.Lock(), [], [], [], []
    work = Transfers(store, jobs, resume, verify, sum(item.size for item in items), progress)

    def one(item):
        try:
            if hopeless:
                raise hopeless[0]
            end = _end(target, str(dst), item, single)
            if isinstance(target, Local) and not single:
                _require_inside(target.path, end)
            found = _found(end, there)
            if incremental and found and found.size == item.size and (
                _same(source, item, target, end, found, store) is True
            ):  # fmt: skip
                work.count(item.size, moved=False)
                where = skipped
            else:
                if not dry_run:
                    _carry(work, source, item, target, end)
                where = copied
            with lock:
                where.append(item)
        except (CloudError, OSError) as error:
            known = error if isinstance(error, CloudError) else CloudError(f"{error.strerror}: {error.filename}")
            with lock:
                failed.append((item.name, known))
                if isinstance(known, GivenUp) or known.status in (401, 403):
                    hopeless.append(known)

    with work, ThreadPoolExecutor(jobs) as files:
        for future in [files.submit(one, item) for item in items]:
            future.result()
    moved = sum(item.size for item in copied) if dry_run else work.moved
    report = Report(len(copied), len(skipped), tuple(sorted(failed, key=lambda pair: pair[0])), moved)
    if failed:
        raise CopyError(report)
    return report


def _carry(work, source, item, target, end):
    if isinstance(target, Remote):
        work.upload(item.at, target.bucket, end)
        return
    end.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, Remote):
        work.download(item.at, source.bucket, end)
        return
    if end.is_dir():
        raise CloudError(f"{end}: there is a folder of this name")
    hidden = end.with_name(f"{HIDDEN}{os.getpid()}-{threading.get_ident()}.part")
    with held(hidden) as handle:
        try:
            shutil.copyfile(item.at, hidden)
            os.fsync(handle)
            if work.verify and digest(hidden, "sha256") != digest(item.at, "sha256"):
                raise CloudError(f"{item.at}: changed while it was copied")
            os.replace(hidden, end)
        finally:
            hidden.unlink(missing_ok=True)
    work.count(item.size)


def _same(source, item, target, end, found, store):
    """Whether the item is what was found at its end, of the same size, by checksum; None where there is none."""
    if isinstance(source, Remote) and isinstance(target, Remote):
        return found.etag == item.at.etag or None
    if isinstance(source, Remote):
        return matches(store, source.bucket, item.at, end)
    if isinstance(target, Remote):
        return matches(store, target.bucket, found, item.at)
    return os.path.samefile(item.at, end) or digest(item.at, "sha256") == digest(end, "sha256")


# -- What there is, and where it goes --------------------------------------------------------------


def _items(place, store, chosen=lambda name: True):
    """The chosen files below a place, and whether it is a single file; names are below the place."""
    if isinstance(place, Local):
        if place.path.is_dir():
            return list(_walk(place.path, place.path, chosen)), False
        if not place.path.exists():
            raise CloudError(f"{place}: there is no such file or folder")
        if not place.path.is_file():
            raise CloudError(f"{place}: neither a file nor a folder")
        return [Item(place.path.name, place.path.stat().st_size, place.path)], True
    if place.key and not place.key.endswith("/") and (entry := store.head(place.bucket, place.key)):
        return [Item(place.key.rpartition("/")[2], entry.size, entry)], True
    prefix = _prefix(place)
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
        elif found.is_symlink() and not _resolved(path).is_relative_to(_resolved(root)):
            raise CloudError(f"{path}: a link that leads out of {root}")
        elif found.is_symlink() and not found.is_file():
            raise CloudError(f"{path}: a link to no file")
        elif not modes.S_ISREG(found.stat().st_mode):
            raise CloudError(f"{path}: neither a file nor a folder")
        else:
            yield Item(name, found.stat().st_size, path)


def _end(target, text, item, single):
    """Where an item goes: a key, or a path."""
    into = not single or text.endswith("/")
    if isinstance(target, Remote):
        return target.below(item.name).key if into or not target.key else target.key
    return target.path / item.name if into or target.path.is_dir() else target.path


def _there(target, text, items, single, store):
    """Objects that are at the target already, by key; of this machine, files are looked at one by one."""
    if isinstance(target, Local):
        return None
    if single:
        entry = store.head(target.bucket, _end(target, text, items[0], single))
        return {entry.key: entry} if entry else {}
    return {entry.key: entry for entry in store.list(target.bucket, _prefix(target))}


def _found(end, there):
    if there is not None:
        return there.get(end)
    return Entry(str(end), end.stat().st_size, "") if end.is_file() else None


def _prefix(place):
    return f"{place.key.rstrip('/')}/" if place.key.strip("/") else ""


def _require_inside(root, end):
    if not _resolved(end.parent).is_relative_to(_resolved(root)):
        raise CloudError(f"{end}: a link leads out of {root}")


def _require_apart(source, target, single):
    inner, outer = _resolved(target), _resolved(source)
    if not single and (inner.is_relative_to(outer) or outer.is_relative_to(inner)):
        raise CloudError(f"{source} to {target}: one is inside the other")


def _resolved(path):
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise CloudError(f"{path}: {error}") from None


def _connected(store, *places, deadline=300.0):
    if store is None and any(isinstance(place, Remote) for place in places):
        return Store.connect(deadline=deadline)
    return store


def _any(name, patterns):
    return any(fnmatchcase(name, pattern) for pattern in patterns)
