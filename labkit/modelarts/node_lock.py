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


def copy_once_per_node(src, dst) -> Report:
    """Run copy(src, dst) in one of the processes on this machine that call this; all return its report.

    A process that calls it later copies again, which is quick: existing files are skipped. A copy may take hours; it is
    waited for without limit, but not if its process has died. Raises CloudError in all of them if the copy fails.
    """
    target = str(dst) if "://" in str(dst) else str(Path(dst).absolute())
    file = user_folder(tempfile.gettempdir()) / f"{short(str(src), target)}.lock"
    before = read_json(file)
    with locked_file(file, math.inf) as handle:
        outcome = read_json(file)
        if outcome and outcome != before:
            if "error" in outcome:
                raise CloudError(f"another process on this machine failed to copy: {outcome['error']}")
            return Report(**outcome["report"] | {"failed": ()})
        try:
            report = copy(src, dst)
        except CloudError as error:
            write_json(handle, {"id": uuid.uuid4().hex, "error": str(error)})
            raise
        write_json(handle, {"id": uuid.uuid4().hex, "report": asdict(report)})
        return report
