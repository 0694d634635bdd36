"""One copy for all processes of a machine: one copies, the others wait, and a failure reaches all.

The system releases the lock when the process that holds it ends, however it ends, so the next one copies and no lock is
ever stale. The outcome of the copy is written into the locked file; a process believes it only if it was written while
the process waited.
"""

import math
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

from labkit.obs.copying import Report, copy
from labkit.obs.local_files import locked_file, read_json, short, user_folder, write_json
from labkit.obs.place import CloudError


def copy_once_per_node(src, dst, *, timeout=math.inf, **options) -> Report:
    """copy(src, dst, **options) by one of the processes of this machine that call it; all return its report.

    A process that comes when all is done copies again, which is quick: what is there stays. timeout: seconds to wait
    for another's copy, which may take hours; one that has died is not waited for.
    Raises CloudError in all of them where the copy fails.
    """
    file = lock_file(src, dst)
    before = read_json(file)
    with locked_file(file, timeout) as handle:
        outcome = read_json(file)
        if outcome and outcome != before:
            if "error" in outcome:
                message, *details = outcome["error"]
                raise CloudError(f"the copy by another process of this machine failed: {message}", *details)
            return Report(**outcome["report"] | {"failed": ()})
        try:
            report = copy(src, dst, **options)
        except CloudError as error:
            details = [error.message, error.status, error.code, error.request_id]
            write_json(handle, {"id": uuid.uuid4().hex, "error": details})
            raise
        write_json(handle, {"id": uuid.uuid4().hex, "report": asdict(report)})
        return report


def lock_file(src, dst) -> Path:
    """The file that a process locks while it copies src to dst."""
    target = str(dst) if "://" in str(dst) else str(Path(dst).absolute())
    return user_folder(tempfile.gettempdir()) / f"{short(str(src), target)}.lock"
