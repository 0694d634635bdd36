"""What runs in the sandbox: `python -m grader.inside` reads one JSON document, has nbval execute its notebook
cell by cell, and writes a line of JSON as each cell begins and ends, with the values that its probe emitted.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Execute the notebook that stdin brings: {"notebook", "seconds": {cell: limit}, "memory", "processes"}."""
    signal.signal(signal.SIGINT, lambda *_: None)
    document = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the kernel inherits them
        os.dup2(nothing, stream)
    sys.path[:] = [place for place in sys.path if place and Path(place).resolve() != Path.cwd()]
    # nbformat's validator would load it, for addresses on the web that no notebook here has: a second's work.
    sys.modules["rfc3987_syntax"] = None
    from grader.nbval_report import Report

    report = Report(document, out)
    try:
        status = run_pytest(document["notebook"], report)
        report.write(**({"complete": True} if status in (0, 1, 2) else {"failed": f"pytest ended with {status}"}))
    except Exception as error:
        report.write(failed=f"{type(error).__name__}: {error}")
    os._exit(0)  # all is written; the sandbox ends with this process, and what is left in it


def run_pytest(notebook: dict, report) -> int:
    """pytest with nbval and nothing else, in this process; its exit status."""
    import pytest

    place = Path(tempfile.mkdtemp(dir=Path.cwd()))
    file = place / "lab.ipynb"
    file.write_text(json.dumps(notebook))
    os.chdir("/")  # pytest goes back to where it was, which an answer could have deleted
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    arguments = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "--rootdir", place,
                 "--capture=no", "--assert=plain", "--nbval-lax", "--nbval-current-env", file]  # fmt: skip
    return int(pytest.main([str(argument) for argument in arguments], plugins=[report]))


if __name__ == "__main__":
    main()
