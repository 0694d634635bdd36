"""One copy for all processes of a machine: one copies, the others wait, and a failure reaches all.

The lock is the system's own (flock): it goes with the process that holds it, however that ends, so the next one copies
and no lock is ever stale. What the copy came to is in the locked file; a process believes it only if it was written
while the process waited.
"""

import fcntl
import json
import math
import os
import tempfile
import time
import uuid
from dataclasses import asdict
from pathlib import Path

from labkit.cloud.copying import Report, copy
from labkit.cloud.notes import short
from labkit.cloud.place import CloudError


def copy_once_per_node(src, dst, *, timeout=math.inf, **options) -> Report:
    """copy(src, dst, **options) by one of the processes of this machine that call it; all return its report.

    A process that comes when all is done copies again, which is quick: what is there stays. timeout: seconds to wait
    for another's copy, which may take hours; one that has died is not waited for.
    Raises CloudError in all of them where the copy fails.
    """
    handle = os.open(_lock_file(src, dst), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(handle).st_uid != os.getuid():
            raise CloudError(f"{_lock_file(src, dst)}: belongs to another user")
        before = _read(handle)
        _wait(handle, f"{src} to {dst}", timeout)
        known = _read(handle)
        return _told(known) if known and known != before else _copy(handle, src, dst, options)
    finally:
        os.close(handle)


def _copy(handle, src, dst, options):
    outcome = {"id": uuid.uuid4().hex, "report": None, "error": None}
    try:
        report = copy(src, dst, **options)
        outcome["report"] = asdict(report)
        return report
    except Exception as error:
        known = error if isinstance(error, CloudError) else CloudError(f"{type(error).__name__}: {error}")
        outcome["error"] = [known.args[0], known.status, known.code, known.request_id]
        raise
    finally:
        if outcome["report"] or outcome["error"]:
            content = json.dumps(outcome).encode()
            os.ftruncate(handle, 0)
            os.pwrite(handle, content, 0)


def _told(outcome):
    if outcome["report"]:
        return Report(**outcome["report"] | {"failed": ()})
    message, status, code, request_id = outcome["error"]
    error = CloudError(f"the copy by another process of this machine failed: {message}")
    error.status, error.code, error.request_id = status, code, request_id
    raise error


def _wait(handle, what, timeout):
    """Until this process has the lock."""
    if timeout == math.inf:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise CloudError(f"{what}: another process here has not copied it in {timeout:g} s") from None
            time.sleep(0.05)


def _read(handle):
    """The outcome in the file; None where there is none, or half of one."""
    try:
        return json.loads(os.pread(handle, os.fstat(handle).st_size, 0))
    except ValueError:
        return None


def _lock_file(src, dst):
    target = str(dst) if "://" in str(dst) else str(Path(dst).absolute())
    return Path(tempfile.gettempdir(), f"labkit-{os.getuid()}-{short(str(src), target)}.lock")
