"""What runs in the sandbox: `python -m labkit.grading.inside` reads one JSON document, has nbval execute its notebook
cell by cell, and writes a line of JSON as each cell begins and ends, with the values that its probe emitted.

Every line has the key that came with the document. The learner's kernel runs as the same user, so this process keeps
its memory and its files closed to others, and leaves no notebook on the disk.
"""

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from labkit.grading import sandbox, values

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


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


def execute(document: dict, out) -> None:
    """Have nbval execute the notebook; one line a cell's beginning, one its end."""
    key, notebook = document["key"], document["notebook"]
    probes = {cell["id"]: cell["metadata"].get("probe") for cell in notebook["cells"]}
    limits = sandbox.Limits(0, document["memory"], document["processes"])
    place = Path(tempfile.mkdtemp(dir=Path.cwd()))
    emitted = Path(tempfile.mkdtemp(dir=Path.cwd()))
    os.environ[values.FOLDER] = str(emitted)

    def write(**line):
        left = memoryview(json.dumps({"key": key, **line}).encode() + b"\n")
        while left:
            left = left[out.write(left) :]

    def say(cell, outcome, error):
        """The outcome as it was written."""
        found, stopped = {}, ""
        if outcome is None:
            _empty(emitted)
        elif outcome == "passed" and probes[cell]:
            try:
                found = values.read(emitted).get(probes[cell], {})
            except (OSError, ValueError):
                outcome, error = "error", "ValueError"
        if outcome in ("passed", "error"):  # what a cell has used up is not to be the next one's fault
            stopped = sandbox.exceeded(os.getpid(), limits)
        if stopped:
            outcome, error, found = "crashed", "", {}
        write(cell=cell, outcome=outcome, error=error, values=found, stopped=stopped)
        return outcome

    run_pytest(notebook, document["seconds"], say, place)
    write(end=True)


def run_pytest(notebook: dict, seconds: dict, say, place: Path) -> None:
    """pytest with nbval and nothing else, in this process; the notebook is on the disk only until it is read."""
    # nbformat's validator would load it, for addresses on the web that no notebook here has: a second's work.
    sys.modules["rfc3987_syntax"] = None
    import pytest

    from labkit.grading.nbval_report import Report

    file = place / "lab.ipynb"
    file.write_text(json.dumps(notebook))

    class Forget:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self):
            file.unlink()

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    arguments = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "--rootdir", place,
                 "--capture=no", "--nbval-lax", "--nbval-current-env", file]  # fmt: skip
    pytest.main([str(argument) for argument in arguments], plugins=[Report(seconds, say), Forget()])


def _empty(folder):
    """Make the folder of values anew, whatever an answer has done to it: a probe's are those that it emits itself."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


if __name__ == "__main__":
    main()
