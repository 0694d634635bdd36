"""One copy for all processes of a machine: one copies, the others wait, and a failure reaches all.

The system releases the lock when the process that holds it ends, however it ends, so the next one copies and no lock is
ever stale. The outcome of the copy is written into the locked file; a process believes it only if it was written while
the process waited.
"""

import json
import math
import os
import tempfile
import time
import uuid
from dataclasses import asdict
from pathlib import Path

from labkit.obs.copying import Report, copy
from labkit.obs.place import CloudError
from labkit.obs.upload_record import open_file, short
from labkit.system import environment
from labkit.system.files import lock


def copy_once_per_node(src, dst, *, timeout=math.inf, **options) -> Report:
    """copy(src, dst, **options) by one of the processes of this machine that call it; all return its report.

    A process that comes when all is done copies again, which is quick: what is there stays. timeout: seconds to wait
    for another's copy, which may take hours; one that has died is not waited for.
    Raises CloudError in all of them where the copy fails.
    """
    handle = open_file(_lock_file(src, dst), 0o600)
    try:
        if os.fstat(handle).st_uid != environment.user_id():
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
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, content)


def _told(outcome):
    if outcome["report"]:
        return Report(**outcome["report"] | {"failed": ()})
    message, status, code, request_id = outcome["error"]
    error = CloudError(f"the copy by another process of this machine failed: {message}")
    error.status, error.code, error.request_id = status, code, request_id
    raise error


def _wait(handle, what, timeout):
    """Until this process has the lock."""
    end = time.monotonic() + timeout
    while not lock(handle):
        if time.monotonic() > end:
            raise CloudError(f"{what}: another process here has not copied it in {timeout:g} s")
        time.sleep(0.05)


def _read(handle):
    """The outcome in the file; None where there is none, or half of one."""
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        return json.loads(os.read(handle, os.fstat(handle).st_size))
    except ValueError:
        return None


def _lock_file(src, dst):
    target = str(dst) if "://" in str(dst) else str(Path(dst).absolute())
    return Path(tempfile.gettempdir(), f"labkit-{environment.user_id()}-{short(str(src), target)}.lock")
