"""Copying between this machine and a bucket: parallel, resumable, verified. It never deletes what it did not write.

What is to be copied is known, and its names are checked, before anything is written; transfers.py carries each file.
"""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from labkit.obs.listing import (
    Item,
    end_of,
    found_at,
    items_of,
    prefix_of,
    require_apart,
    require_inside,
    resolved,
    there_at,
)
from labkit.obs.place import (
    CloudError,
    Local,
    Remote,
    as_cloud_errors,
    cloud_error,
    parse,
    require_no_collisions,
    require_safe,
)
from labkit.obs.store import Entry, GivenUp, Store
from labkit.obs.transfers import HIDDEN, Transfers, digest, matches
from labkit.obs.upload_record import short

MOST_REFUSALS = 10  # files that the server refuses, with none copied, after which the others are not tried


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


class RemoveError(CloudError):
    """Some objects stay: `failed` has (key, error) of these, `removed` the keys of the others."""

    def __init__(self, place, removed, failed):
        error = failed[0][1]
        super().__init__(f"{place}: {len(removed)} objects removed, {len(failed)} not: {error}")
        self.removed, self.failed = removed, failed
        self.status, self.code, self.request_id = error.status, error.code, error.request_id


def copy(src, dst, *, jobs=8, resume=True, verify=True, incremental=True, dry_run=False, include=(), exclude=(),
         progress: Callable[[int, int], None] | None = None, each: Callable[[Item, str], None] | None = None,
         deadline=300.0, store=None) -> Report:  # fmt: skip
    """Copy a file, or what is in a folder, between this machine, obs:// and s3://; to the same place: nothing.

    A file goes into a folder that is there, or whose name ends with "/"; else dst is its new name.
    jobs: requests at a time. resume: go on where an earlier copy was cut off. verify: compare checksums afterwards.
    incremental: leave what is there already, by size and checksum. dry_run: only say what would be done. include,
    exclude: patterns of names below a folder (`*.bin`; `*` passes "/"). progress: called with bytes done and bytes to
    do. each: called with a file and what became of it: "copied" or "skipped". deadline: seconds without success after
    which a request is given up, or a file that another process copies; a `store` that is given has its own. A file
    that fails does not stop the others, unless the server is not there or refuses them all.
    Raises CloudError, for an empty source as well; CopyError where files failed.
    """

    def chosen(name):
        return _any(name, include or ("*",)) and not _any(name, exclude)

    return _copy(src, dst, chosen, dry_run, incremental, deadline, store, jobs, resume, verify, progress, each)


def copy_parallel(src_url, dst_url, file_list=None, threads=16, is_processing=True) -> Report:
    """moxing's: copy what is in a folder, or of it the names in file_list only; an empty source is an error here.

    threads: requests at a time. is_processing: ignored, as there are no processes to choose in place of threads.
    """
    names = None if file_list is None else {str(PurePosixPath(name)) for name in file_list}
    if names is not None and (missing := names - {item.name for item in ls(src_url)}):
        raise CloudError(f"{src_url}: no {min(missing)}")
    return _copy(src_url, dst_url, lambda name: names is None or name in names, jobs=threads)


def ls(place, *, store=None) -> list[Item]:
    """The object or file, or what is below the folder; empty for a bucket or prefix without objects."""
    place = parse(place)
    return items_of(place, _connected(store, place))[0]


def exists(place, *, store=None) -> bool:
    """Whether there is a file or folder; of a bucket, whether there is anything in it."""
    place = parse(place)
    if isinstance(place, Local):
        return place.path.exists()
    store = _connected(store, place)
    if store.head(place.bucket, place.key):
        return True
    return any(store.list(place.bucket, prefix_of(place)))


def stat(place, *, store=None) -> Entry:
    """Size and checksum of a file or object; CloudError where there is none."""
    place = parse(place)
    if isinstance(place, Remote):
        found = _connected(store, place).head(place.bucket, place.key)
    else:
        path = place.path
        with as_cloud_errors():
            found = Entry(str(path), path.stat().st_size, "", digest(path, "sha256")) if path.is_file() else None
    if not found:
        raise CloudError(f"{place}: there is no such file")
    return found


def rm(place, *, recursive=False, empty_bucket=False, dry_run=False, jobs=8, store=None) -> list[str]:
    """Remove an object, or all below a folder; returns their keys. CloudError where there is none.

    RemoveError where some stay. empty_bucket: the folder may be a whole bucket; the bucket itself stays. dry_run: only
    say what would go.
    """
    place = parse(place)
    if isinstance(place, Local):
        raise CloudError(f"{place}: only objects are removed, no files of this machine")
    if not place.key.strip("/") and not (recursive and empty_bucket):
        raise CloudError(f"{place}: a whole bucket is not emptied")
    store = _connected(store, place)
    if recursive:
        keys = [entry.key for entry in store.list(place.bucket, prefix_of(place))]
    else:
        keys = [place.key] if store.head(place.bucket, place.key) else []
    if not keys:
        raise CloudError(f"{place}: there is no such object{'' if recursive else '; a folder needs --recursive'}")
    if dry_run:
        return keys
    hopeless = []

    def remove(key):
        try:
            if hopeless:
                raise hopeless[0]
            store.delete(place.bucket, key)
        except CloudError as error:
            if isinstance(error, GivenUp):
                hopeless.append(error)
            return error
        return None

    with ThreadPoolExecutor(jobs) as several:
        errors = dict(zip(keys, several.map(remove, keys)))
    if failed := [(key, error) for key, error in errors.items() if error]:
        raise RemoveError(place, [key for key in keys if not errors[key]], failed)
    return keys


def verify(src, dst, *, unknown: list | None = None, store=None) -> list[str]:
    """What of src is missing in dst or is another there, a line for each; empty: all is there, by checksum.

    unknown: gets the lines of what has the right size and nothing else to tell by; without it, these are returned too.
    """
    source, target = parse(src), parse(dst)
    store = _connected(store, source, target)
    items, single = items_of(source, store)
    if not items:
        raise CloudError(f"{source}: nothing to compare")
    there, differences = there_at(target, str(dst), items, single, store), []
    with as_cloud_errors():
        for item in items:
            end = _end(target, str(dst), item, single)
            found = found_at(end, there)
            if found is None:
                differences.append(f"{item.name}: missing")
            elif found.size != item.size:
                differences.append(f"{item.name}: {found.size} bytes instead of {item.size}")
            elif (same := _same(source, item, target, end, found, store)) is False:
                differences.append(f"{item.name}: another content")
            elif same is None:
                (differences if unknown is None else unknown).append(f"{item.name}: no checksum to compare")
    return differences


# -- What a copy does ------------------------------------------------------------------------------


def _copy(src, dst, chosen, dry_run=False, incremental=True, deadline=300.0, store=None, jobs=8, resume=True,
          verify=True, progress=None, each=None):  # fmt: skip
    source, target = parse(src), parse(dst)
    if isinstance(source, Remote) and isinstance(target, Remote):
        raise CloudError(f"{source} to {target}: one of the two must be on this machine")
    if jobs < 1:
        raise CloudError(f"jobs: {jobs}: at least 1")
    store = _connected(store, source, target, deadline=deadline)
    store = store and store.apart()  # what stops this copy stops no other
    items, single = items_of(source, store, chosen)
    if not items:
        raise CloudError(f"{source}: nothing to copy: there is no such object, or nothing in the folder")
    require_no_collisions([require_safe(item.name) for item in items])
    if isinstance(source, Local) and isinstance(target, Local):
        if resolved(source.path) == resolved(target.path):
            return Report(0, len(items), (), 0)
        require_apart(source.path, target.path, single)
    there = there_at(target, str(dst), items, single, store)  # one request: wrong keys fail here
    lock, copied, skipped, failed, hopeless = threading.Lock(), [], [], [], []
    work = Transfers(store, jobs, resume, verify, sum(item.size for item in items), progress, deadline)

    def one(item):
        try:
            if hopeless:
                raise hopeless[0]
            end = _end(target, str(dst), item, single)
            found = found_at(end, there)
            if incremental and found and found.size == item.size and (
                _same(source, item, target, end, found, store) is True
            ):  # fmt: skip
                work.count(item.size, moved=False)
                where, outcome = skipped, "skipped"
            else:
                if not dry_run:
                    _carry(work, source, item, target, end)
                where, outcome = copied, "copied"
            with lock:
                where.append(item)
                if each:
                    each(item, outcome)
        except (CloudError, OSError) as error:
            known = cloud_error(error)
            refused = known.status in (401, 403)
            with lock:
                failed.append((item.name, known))
                if isinstance(known, GivenUp) or (refused and not copied and len(failed) >= MOST_REFUSALS):
                    hopeless.append(known)

    with work, ThreadPoolExecutor(jobs) as files:
        try:
            for future in [files.submit(one, item) for item in items]:
                future.result()
        except BaseException:  # Ctrl-C, or `progress` raised: what has not begun does not begin
            hopeless.append(work.stop())
            raise
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
    hidden = end.with_name(f"{HIDDEN}{short(end.name)}-local.part")
    with work.held(hidden) as handle:
        try:
            shutil.copyfile(item.at, hidden)
            os.fsync(handle)
            if work.verify and digest(hidden, "sha256") != digest(item.at, "sha256"):
                raise CloudError(f"{item.at}: changed while it was copied")
            os.replace(hidden, end)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
    work.count(item.size)


def _end(target, text, item, single):
    """Where an item goes; CloudError where it may not go there."""
    require_safe(item.name)
    end = end_of(target, text, item, single)
    if isinstance(target, Local) and not single:
        require_inside(target.path, end)
    return end


def _same(source, item, target, end, found, store):
    """Whether the item is what was found at its end, of the same size, by checksum; None where there is none."""
    if isinstance(source, Remote) and isinstance(target, Remote):
        return found.etag == item.at.etag or None
    if isinstance(source, Remote):
        return matches(store, source.bucket, item.at, end)
    if isinstance(target, Remote):
        return matches(store, target.bucket, found, item.at)
    return os.path.samefile(item.at, end) or digest(item.at, "sha256") == digest(end, "sha256")


def _connected(store, *places, deadline=300.0):
    if store is None and any(isinstance(place, Remote) for place in places):
        return Store.connect(deadline=deadline)
    return store


def _any(name, patterns):
    return any(fnmatchcase(name, pattern) for pattern in patterns)
