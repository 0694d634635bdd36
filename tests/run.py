"""Run the tests, one stage after the other: python tests/run.py [--all] [arguments for pytest ...]

`make test` is what a contributor runs before a commit; `make test-all` (--all) runs every test there is. Arguments go
to the tests of the code. The end says what took how long, what was not run, and what to install for it.
"""

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
MOST_AT_ONCE = 4  # test processes; one takes up to 2 GB
# Several processes, a file's tests in one of them, files in the order of conftest.py.
PARALLEL = ["--dist", "loadfile", "--no-loadscope-reorder"]
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=600",
         "--nbval-sanitize-with=tests/notebooks/sanitize.cfg"]  # fmt: skip
# What nbval executes a second time before every commit: the labs, and of each part a chapter that soon ends. The others
# are executed by the book alone, and what they show is compared with tests/notebooks/references.
AGAIN_LIVE = ["labs/cifar10/lab", "labs/imagenet/lab", "labs/thor/lab", "book/1-cifar10/callbacks",
              "book/2-migration/input-pipeline", "book/3-thor/fisher", "book/4-cloud/object-storage"]  # fmt: skip
NO_TESTS = 5  # pytest's exit status


def pytest(processes: int, *arguments) -> list[str]:
    return [sys.executable, "-m", "pytest", "-n", str(processes), *PARALLEL, *arguments]


def stages(everything: bool, arguments: list[str]) -> list[tuple[str, list[str]]]:
    """Titles and commands. Tests of the code often wait, for a server or a launch: one process more than cores."""
    from labkit.system.environment import cores

    processes, programs = min(cores(), MOST_AT_ONCE), Path(sys.executable).parent
    chosen = [] if everything else ["-m", "not slow"]
    notebooks = ["_build/executed"] if everything else [f"_build/executed/{name}.ipynb" for name in AGAIN_LIVE]
    return [
        ("style (ruff)", [str(programs / "ruff"), "check", "."]),
        ("style (import-linter)", [str(programs / "lint-imports"), "--no-cache", "--no-logo"]),
        ("code (pytest)", pytest(min(cores() + 1, MOST_AT_ONCE), "tests", "--ignore=tests/notebooks",
                                 "--ignore=tests/book", "--ignore=tests/grader", *chosen, *arguments)),
        # where memory is used up on purpose: in processes of their own
        ("grading (pytest)", pytest(processes, "tests/grader", *chosen, *arguments)),
        ("book (warnings are errors)", [sys.executable, "book/build.py", "--language", "zh_CN"]),
        ("notebooks and pages (nbval, pytest)", pytest(processes, *NBVAL, *chosen, "tests/notebooks", *notebooks,
                                                       "tests/book")),
    ]  # fmt: skip


def _finished(process):
    """Its exit status. Ctrl-C reaches it as well: it then has the time to write down what has passed."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests, one stage after the other.")
    parser.add_argument("--all", action="store_true", help="those of `make test-all`, too")
    options, arguments = parser.parse_known_args()
    name = "make test-all" if options.all else "make test"
    compileall.compile_dir(REPO / "labkit", quiet=2)  # for sources that changed since `make env` did the same
    table, failed, began = [], [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="labkit-tests-", ignore_cleanup_errors=True) as temporary:
        report = Path(temporary, "not-run")
        environment = os.environ | {"TMPDIR": temporary, "LABKIT_TESTS_REPORT": str(report)}
        for title, command in stages(options.all, arguments):
            print(f"\n=== {name}: {title}", flush=True)
            if title.startswith("notebooks") and not (REPO / "_build" / ".complete").exists():
                print(f"{name}: no complete book, so its notebooks and pages are not tested")
                continue
            start = time.monotonic()
            status = _finished(subprocess.Popen(command, cwd=REPO, env=environment))
            if status and not (status == NO_TESTS and report.exists()):  # it says why there was nothing to run
                failed.append(title)
            table.append(f"  {title:36} {'FAILED' if title in failed else 'passed'}  {time.monotonic() - start:5.0f} s")
        not_run = Counter()
        for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else []:
            why, count = json.loads(line)
            not_run[why] += count
    executed = len(list((REPO / "_build" / "executed").rglob("*.ipynb")))
    if not options.all and executed:
        not_run["chapters that only `make test-all` executes a second time"] = executed - len(AGAIN_LIVE)
    print(f"\n=== {name}: stages", *table, sep="\n")
    if not_run:
        print(f"{name}: {sum(not_run.values()):,} tests and chapters were not run")
        for why, count in not_run.most_common():
            print(f"  {count:6,}  {why}")
    print(f"{name}: {'FAILED' if failed else 'passed'} in {(time.monotonic() - began) / 60:.1f} minutes")
    return bool(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nmake test: stopped; what passed is not run again unless something changes", file=sys.stderr)
        sys.exit(130)
