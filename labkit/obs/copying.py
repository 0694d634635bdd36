"""Copying between this machine and a bucket: parallel, resumable, verified. Never deletes what it did not write.

plan.py decides what to copy before anything is written; transfers.py copies each file.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from labkit.obs.place import CloudError, Remote, as_cloud_errors, cloud_error, parse
from labkit.obs.plan import NO_CHECKSUM, Item, Plan, files_below, require_possible, same
from labkit.obs.retrying import GivenUp
from labkit.obs.store import Store
from labkit.obs.transfers import Transfers


@dataclass(frozen=True)
class Report:
    """What a copy did: numbers of files copied and already there, (name, error) of failed files, bytes transferred."""

    copied: int
    skipped: int
    failed: tuple[tuple[str, Exception], ...]
    bytes: int


class CopyError(CloudError):
    """Some files failed: see `report`. Status, code and request id are those of the first failure."""

    def __init__(self, report):
        name, first = report.failed[0]
        others = f" (and {len(report.failed) - 1} more)" if len(report.failed) > 1 else ""
        super().__init__(f"{name}: {first}{others}; {report.copied} copied, {report.skipped} there already")
        self.report, self.status, self.code, self.request_id = report, first.status, first.code, first.request_id


def copy(src, dst, *, jobs=8, incremental=True, dry_run=False, include=(), exclude=(),
         progress: Callable[[int, int], None] | None = None, each: Callable[[Item, str], None] | None = None,
         deadline=300.0, store=None) -> Report:  # fmt: skip
    """Copy a file, or the contents of a folder, to or from a bucket, or between folders on this machine.

    A file goes into dst if that is a folder or ends with "/"; otherwise dst is its new name. Copying something onto
    itself does nothing. An interrupted copy is resumed, and everything is verified by checksum.
    jobs: requests at a time. incremental: skip files that are already there, by size and checksum. dry_run: only report
    what would be done. include, exclude: patterns of names below a folder (`*.bin`; `*` also matches "/").
    progress: called with bytes done and the total. each: called with a file and its outcome, "copied" or "skipped".
    deadline: seconds without success before giving up a request, or the wait for another process that copies the same
    file; a given `store` uses its own deadline.

    A file that fails does not stop the others, unless the disk is full or the server is unreachable.
    Raises CloudError, also for an empty source; CopyError if files failed.
    """
    if jobs < 1:
        raise CloudError(f"jobs: must be at least 1, not {jobs}")
    source, target = parse(src), parse(dst)
    require_possible(source, target)
    store = connected(store, source, target, deadline=deadline)
    store = store and store.independent()  # stopping this copy must not stop others
    plan = Plan(src, dst, store, tuple(include), tuple(exclude))
    if same(source, target):
        return Report(0, len(plan.items), (), 0)
    lock, done, failed, fatal = threading.Lock(), {"copied": [], "skipped": []}, [], []
    total = sum(item.size for item in plan.items)
    parts, files = ThreadPoolExecutor(jobs), ThreadPoolExecutor(jobs)
    transfers = Transfers(store, parts, jobs, total, progress, deadline)

    def copy_item(item):
        try:
            if fatal:
                raise fatal[0]
            end, outcome = plan.end(item), "copied"
            if incremental and not plan.difference(item, end):
                transfers.count(item.size, moved=False)
                outcome = "skipped"
            elif not dry_run:
                _transfer(transfers, plan, item, end)
            with lock:
                done[outcome].append(item)
                if each:
                    each(item, outcome)
        except (CloudError, OSError) as error:
            failure = cloud_error(error)
            with lock:
                failed.append((item.name, failure))
                if isinstance(failure, GivenUp) or getattr(error, "errno", None) == errno.ENOSPC:
                    fatal.append(failure)

    with as_cloud_errors(), parts, files:
        try:
            for future in [files.submit(copy_item, item) for item in plan.items]:
                future.result()
        except BaseException:  # Ctrl-C, or `progress` raised: start no further files
            fatal.append(transfers.stop())
            raise
    moved = sum(item.size for item in done["copied"]) if dry_run else transfers.moved
    report = Report(len(done["copied"]), len(done["skipped"]), tuple(sorted(failed, key=lambda pair: pair[0])), moved)
    if failed:
        raise CopyError(report)
    return report


def _transfer(transfers, plan, item, end):
    if isinstance(plan.target, Remote):
        transfers.upload(item.at, plan.target.bucket, end)
    elif isinstance(plan.source, Remote):
        transfers.download(item.at, plan.source.bucket, end)
    else:
        transfers.copy_file(item.at, item.size, end)


def verify(src, dst, *, unknown: list | None = None, store=None) -> list[str]:
    """A line for each file of src that is missing or different in dst; empty if all checksums agree.

    unknown: collects the lines for files of the right size without a checksum; by default, they are returned too.
    """
    require_possible(parse(src), parse(dst))
    plan = Plan(src, dst, connected(store, parse(src), parse(dst)))
    differences = []
    with as_cloud_errors():
        for item in plan.items:
            if difference := plan.difference(item, plan.end(item)):
                lines = differences if difference != NO_CHECKSUM or unknown is None else unknown
                lines.append(f"{item.name}: {difference}")
    return differences


def ls(place, *, store=None) -> list[Item]:
    """The object or file, or all files below the folder; empty for a bucket or prefix without objects."""
    place = parse(place)
    return files_below(place, connected(store, place))[0]


def level(url, *, recursive=False, store=None) -> tuple[list[Item], list[str]]:
    """Objects at a URL and its folders, whose names end with "/"; recursive: all objects below it, and no folders.

    Raises CloudError if there are none, unless the URL is a whole bucket. A path is no URL.
    """
    place = parse(url)
    if isinstance(place, Path):
        raise CloudError(f"{url}: must begin with obs:// or s3://")
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


def exists(place, *, store=None) -> bool:
    """Whether the file or folder exists; for a bucket, whether it contains anything."""
    place = parse(place)
    if isinstance(place, Path):
        return place.exists()
    store = connected(store, place)
    return bool(store.head(place.bucket, place.key)) or any(store.list(place.bucket, place.prefix))


def rm(place, *, recursive=False, empty_bucket=False, dry_run=False, store=None) -> list[str]:
    """Remove an object, or everything below a folder; returns the keys. CloudError if there are none, or one remains.

    empty_bucket: the folder may be a whole bucket; the bucket itself stays. dry_run: only return the keys.
    """
    place = parse(place)
    if isinstance(place, Path):
        raise CloudError(f"{place}: only objects can be removed, not files on this machine")
    if not place.key and not (recursive and empty_bucket):
        raise CloudError(f"{place}: a whole bucket is emptied with --recursive and --yes; look first with --dry-run")
    store = connected(store, place)
    if recursive:
        keys = [entry.key for entry in store.list(place.bucket, place.prefix)]
    else:
        keys = [place.key] if store.head(place.bucket, place.key) else []
    if not keys:
        raise CloudError(f"{place}: there is no such object{'' if recursive else '; a folder needs --recursive'}")
    if not dry_run:
        with as_cloud_errors(), ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda key: store.delete(place.bucket, key), keys))
    return keys


def connected(store, *places, deadline=300.0, notice=None) -> Store | None:
    """The given store; if there is none, the environment's server if a place is in a bucket."""
    if store is None and any(isinstance(place, Remote) for place in places):
        return Store.connect(deadline=deadline, notice=notice)
    return store
