"""Runs in the sandbox: `python -m grader.inside` reads one JSON document, has nbval execute its notebook cell by cell,
and writes a line of JSON when each cell begins and ends, with the values that its probe emitted.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Execute the notebook from stdin: {"notebook", "seconds": {cell: limit}, "memory", "processes"}."""
    signal.signal(signal.SIGINT, lambda *_: None)
    document = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the kernel inherits them
        os.dup2(nothing, stream)
    sys.path[:] = [place for place in sys.path if place and Path(place).resolve() != Path.cwd()]
    # Loading this module takes nbformat's validator a second, for URLs that no notebook here has.
    sys.modules["rfc3987_syntax"] = None
    from grader.nbval_report import Report

    report = Report(document, out)
    try:
        status = run_pytest(document["notebook"], report)
        report.write(**({"complete": True} if status in (0, 1, 2) else {"failed": f"pytest ended with {status}"}))
    except Exception as error:
        report.write(failed=f"{type(error).__name__}: {error}")
    os._exit(0)  # everything is written; the sandbox, with all other processes, ends with this one


def run_pytest(notebook: dict, report) -> int:
    """Run pytest with nbval and no other plugin, in this process; return its exit status."""
    import pytest

    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    file = folder / "lab.ipynb"
    file.write_text(json.dumps(notebook))
    os.chdir("/")  # pytest returns to its working directory, which an answer could have deleted
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    arguments = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "--rootdir", folder,
                 "--capture=no", "--assert=plain", "--nbval-lax", "--nbval-current-env", file]  # fmt: skip
    return int(pytest.main([str(argument) for argument in arguments], plugins=[report]))


if __name__ == "__main__":
    main()
