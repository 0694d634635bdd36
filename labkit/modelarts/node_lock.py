"""One copy for all processes on a machine: one process copies, the others wait, and a failure reaches all.

The system releases a lock when the process ends, for whatever reason; the next process then copies, so no lock is ever
stale. The outcome of the copy is written into the locked file; a process trusts it only if it was written while the
process waited.
"""

import math
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

from labkit.obs.copying import Report, copy
from labkit.obs.local_files import locked_file, read_json, short, write_json
from labkit.obs.place import CloudError
from labkit.system.files import user_folder


def copy_once_per_node(src, dst, *, timeout=math.inf, **options) -> Report:
    """Run copy(src, dst, **options) in one of the processes on this machine that call this; all return its report.

    A process that calls it later copies again, which is quick: existing files are skipped. timeout: seconds to wait for
    another process's copy, which may take hours; a process that has died is not waited for.
    Raises CloudError in all of them if the copy fails.
    """
    file = lock_file(src, dst)
    before = read_json(file)
    with locked_file(file, timeout) as handle:
        outcome = read_json(file)
        if outcome and outcome != before:
            if "error" in outcome:
                message, *details = outcome["error"]
                raise CloudError(f"another process on this machine failed to copy: {message}", *details)
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
