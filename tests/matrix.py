"""The quick tests with each combination of Python and MindSpore that the course supports: `make matrix`.

    python tests/matrix.py [CELL ...]      such as 3.12-2.10.0; all of them without a name

Each cell gets an environment of its own, _build/matrix/CELL, by `make env`, without PyTorch. Its result becomes a row
of book/appendix/matrix.md, which the set-up page includes; rows of other cells stay. Exits with status 1 if one failed.
Needs only the standard library, of Python 3.7 or newer. Python X.Y is $PYTHON_X_Y, or pythonX.Y on PATH, or one of
pyenv's versions.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
FOLDER = REPO / "_build" / "matrix"
TABLE = REPO / "book" / "appendix" / "matrix.md"
OTHERS = ("book", "notebooks", "grading", "obs", "modelarts")  # of no or little MindSpore, or of the built book
TESTS = ("tests", *(f"--ignore=tests/{name}" for name in OTHERS))
_versions = runpy.run_path(str(REPO / "labkit" / "system" / "versions.py"))
_oldest, *_, _newest = PYTHONS = _versions["PYTHONS"]
_default, _next, _latest = (f"{series}.0" for series in _versions["MINDSPORES"])
# Both ends of each list with the default MindSpore; every other MindSpore once.
CELLS = {
    f"{python}-{mindspore}": (python, mindspore)
    for python, mindspore in ((_oldest, _default), (_newest, _default), (PYTHONS[1], _next), (_newest, _latest))
}
HEAD = """% Written by `make matrix`; edits by hand are lost.

| Python | MindSpore | passed | failed | skipped | time | date | commit |
| --- | --- | ---: | ---: | ---: | ---: | --- | --- |
"""


def output_of(*command) -> str:
    """What a command prints, stripped; nothing if it fails or is missing."""
    try:
        return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def find_python(series) -> tuple[str, str] | None:
    """(path, version) of an interpreter of the series, None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        os.environ.get(f"PYTHON_{series.replace('.', '_')}"),
        shutil.which(f"python{series}"),
        *sorted(pyenv.glob(f"versions/{series}.*/bin/python"), reverse=True),
    ]
    for python in filter(None, candidates):  # pyenv's python3.12 on PATH works only where that version is switched on
        version = output_of(python, "-c", "import platform; print(platform.python_version())")
        if version.startswith(f"{series}."):
            return str(python), version
    return None


def commit() -> str:
    """The commit that is tested, with a + if tracked files other than the table have changed since."""
    others = f":!{TABLE.relative_to(REPO)}"
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ".", others)
    return (output_of("git", "rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


def counts(report: Path) -> tuple[int, int, int]:
    """Tests that passed, failed (errors included) and were skipped, by pytest's report in JUnit's format."""
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total, failed, skipped = (
        sum(numbers) for numbers in zip(*(
            (int(s.get("tests")), int(s.get("failures")) + int(s.get("errors")), int(s.get("skipped"))) for s in suites
        ))
    )  # fmt: skip
    return total - failed - skipped, failed, skipped


def run_cell(name, python) -> tuple[bool, tuple]:
    """Make a cell's environment and run its tests; whether all passed, and what its row says of them."""
    venv, report = FOLDER / name, FOLDER / f"{name}.xml"
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV")  # of the make that runs this
    clean = {key: value for key, value in os.environ.items() if key not in ours}
    make = ["make", "sample", f"VENV={venv}", f"PYTHON={python}", f"MINDSPORE={CELLS[name][1]}"]
    report.unlink(missing_ok=True)
    began = time.monotonic()
    if subprocess.run(make, cwd=REPO, env=clean).returncode:
        return False, ("no environment", "", "", "")
    start = time.monotonic()
    status = subprocess.run(
        [venv / "bin/python", "-m", "pytest", *TESTS, "-q", "-m", "not slow", f"--junitxml={report}",
         "-n", "logical", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder"],
        cwd=REPO, env=clean | {"VIRTUAL_ENV": str(venv), "AGAIN": "yes"},
    ).returncode  # fmt: skip
    times = f"{time.monotonic() - start:.0f} s, plus {start - began:.0f} s to install"
    if not report.exists():
        return False, ("no result", "", "", times)
    return status == 0, (*(f"{number:,}" for number in counts(report)), times)


def rows() -> dict[str, str]:
    """The table's lines by cell."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    found = {}
    for line in lines:
        python, mindspore = [*map(str.strip, line.split("|")), "", ""][1:3]
        found[f"{python.rpartition('.')[0]}-{mindspore}"] = line
    return {name: found[name] for name in CELLS if name in found}


def record(name, version, result, tested):
    """Put a cell's row into the table; the others stay."""
    today = datetime.now(timezone.utc).date().isoformat()
    line = f"| {' | '.join((version, CELLS[name][1], *result, today, tested))} |"
    kept = rows() | {name: line}
    TABLE.write_text(HEAD + "".join(f"{kept[cell]}\n" for cell in CELLS if cell in kept), encoding="utf-8")


def main(chosen) -> int:
    """Run the chosen cells, all of them if none is named; 1 if one failed or its Python is missing."""
    if unknown := [name for name in chosen if name not in CELLS]:
        print(f"make matrix: no cell {unknown[0]}; there are {', '.join(CELLS)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    chosen, summary, failed = chosen or list(CELLS), [], False
    for number, name in enumerate(chosen, 1):
        series, mindspore = CELLS[name]
        print(f"\n=== make matrix: {number} of {len(chosen)}, Python {series} with MindSpore {mindspore}", flush=True)
        found = find_python(series)
        if found is None:
            result = f"no Python {series} here: install it, or name it: PYTHON_{series.replace('.', '_')}=/path/to/it"
            print(f"make matrix: {result}", file=sys.stderr)
            passed = False
        else:
            tested = commit()  # now: somebody may go on working meanwhile
            passed, cells = run_cell(name, found[0])
            record(name, found[1], cells, tested)
            result = "{} passed, {} failed, {} skipped, {}".format(*cells) if cells[1] else cells[0]
        failed |= not passed
        summary.append(f"  {name:12} {'passed' if passed else 'FAILED'}  {result}")
    print("\n=== make matrix: cells", *summary, f"make matrix: {'FAILED' if failed else 'passed'}", sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
