"""What runs in the sandbox: `python -m grader.inside` reads one JSON document, has nbval execute its notebook
cell by cell, and writes a line of JSON as each cell begins and ends, with the values that its probe emitted.

Every line has the key that came with the document. The learner's kernel runs as the same user, so this process keeps
its memory and its files closed to others, and leaves no notebook on the disk.
"""

import ctypes
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from grader import limits, values

PR_SET_DUMPABLE = 4


def main() -> None:
    """Execute the notebook that stdin brings: {"key", "notebook", "seconds": {cell: limit}, "memory", "processes"}."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0)  # no other process reads /proc/PID/mem or fd of this one
    signal.signal(signal.SIGINT, lambda *_: None)
    document = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the kernel inherits them
        os.dup2(nothing, stream)
    sys.path[:] = [place for place in sys.path if place and Path(place).resolve() != Path.cwd()]
    execute(document, out)
    os._exit(0)  # all is written; the sandbox ends with this process, and what is left in it


class Cells:
    """What is written of the notebook's cells."""

    def __init__(self, document: dict, out):
        self.key, self.out, self.home = document["key"], out, Path.cwd()
        self.probes = {cell["id"]: cell["metadata"].get("probe") for cell in document["notebook"]["cells"]}
        self.limits = limits.Limits(0, document["memory"], document["processes"])
        self.emitted = self.home

    def begin(self, cell: str) -> str:
        """A cell begins; a probe emits into a folder of its own, which no answer has seen. OSError."""
        self._write(cell=cell, outcome=None)
        if not self.probes[cell]:
            return ""
        self.emitted = Path(tempfile.mkdtemp(dir=self.home))
        return f"__import__('os').environ[{values.FOLDER!r}] = {str(self.emitted)!r}\n"

    def end(self, cell: str, outcome: str, error: str, traceback: str = "") -> str:
        """The outcome as it was written."""
        found, stopped = {}, ""
        if outcome == "passed" and self.probes[cell]:
            try:
                found = values.read(self.emitted).get(self.probes[cell], {})
            except (OSError, ValueError):
                outcome, error = "error", "ValueError"
        if outcome in ("passed", "error"):  # what a cell has used up is not to be the next one's fault
            stopped = limits.exceeded(os.getpid(), self.limits)
        if stopped:
            outcome, error, traceback, found = "crashed", "", "", {}
        self._write(cell=cell, outcome=outcome, error=error, traceback=traceback, values=found, stopped=stopped)
        return outcome

    def fail(self, reason: str) -> None:
        """Nothing more is executed, for no reason that is in the notebook."""
        self._write(failed=reason)

    def complete(self) -> None:
        """All has been executed that can be."""
        self._write(complete=True)

    def _write(self, **line):
        left = memoryview(json.dumps({"key": self.key, **line}).encode() + b"\n")
        while left:
            left = left[self.out.write(left) :]


def execute(document: dict, out) -> None:
    """Have nbval execute the notebook; one line a cell's beginning, one its end, and one at the end of all."""
    cells = Cells(document, out)
    place = Path(tempfile.mkdtemp(dir=Path.cwd()))
    os.chdir("/")  # pytest goes back to where it was, which an answer could have deleted
    try:
        status = run_pytest(document["notebook"], document["seconds"], cells, place)
    except Exception as error:
        return cells.fail(f"{type(error).__name__}: {error}")
    if status in (0, 1, 2):  # passed, failed, ended by a cell
        return cells.complete()
    cells.fail(f"pytest ended with {status}")


def run_pytest(notebook: dict, seconds: dict, cells: Cells, place: Path) -> int:
    """pytest with nbval and nothing else, in this process; the notebook is on the disk only until it is read."""
    # nbformat's validator would load it, for addresses on the web that no notebook here has: a second's work.
    sys.modules["rfc3987_syntax"] = None
    import pytest

    from grader.nbval_report import Report

    file = place / "lab.ipynb"
    file.write_text(json.dumps(notebook))

    class Forget:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self):
            file.unlink()

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    arguments = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "--rootdir", place,
                 "--capture=no", "--assert=plain", "--nbval-lax", "--nbval-current-env", file]  # fmt: skip
    return int(pytest.main([str(argument) for argument in arguments], plugins=[Report(seconds, cells), Forget()]))


if __name__ == "__main__":
    main()
