"""Run the tests, one stage after the other: python tests/run.py [--all]

`make test` is what a contributor runs before a commit; `make test-all` (--all) runs the slow tests as well. A stage
that has passed is not run again until a file of the project, Python, MindSpore or the built book changes: until then,
only tests that were skipped for want of something run, once that is there. The end says what took how long, and what
was not run.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from selection import why_missing

from labkit.system.environment import cores, version_of

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "_build"
STAMPS = BUILD / "tests"
MOST_AT_ONCE = 4  # test processes; one takes up to 2 GB
PYTEST = [sys.executable, "-m", "pytest", "-n", str(min(cores(), MOST_AT_ONCE)), "--dist", "loadfile"]
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=600",
         "--nbval-sanitize-with=tests/notebooks/sanitize.cfg"]  # fmt: skip
PAGES = ["tests/notebooks", "tests/book"]
STAGES = {
    "style": [str(Path(sys.executable).with_name("ruff")), "check", "."],
    "imports": [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
    "code": [*PYTEST, "-m", "not slow", "tests", *(f"--ignore={folder}" for folder in PAGES)],
    "book": [sys.executable, "book/build.py", "--language", "zh_CN"],
    "labs and pages": [*PYTEST, *NBVAL, "-m", "not slow", *PAGES, "_build/executed/labs"],
    "slow tests": [*PYTEST, "-m", "slow", "tests"],
}
OF_THE_BOOK = ("labs and pages", "slow tests")


def main() -> int:
    everything, began = "--all" in sys.argv[1:], time.monotonic()
    name = "make test-all" if everything else "make test"
    rows, not_run, failed = [], Counter(), False
    with tempfile.TemporaryDirectory(prefix="labkit-tests-", ignore_cleanup_errors=True) as temporary:
        os.environ |= {"TMPDIR": temporary, "IPYTHONDIR": f"{temporary}/ipython"}
        for title, command in STAGES.items():
            if title == "slow tests" and not everything:
                continue
            print(f"\n=== {name}: {title}", flush=True)
            start = time.monotonic()
            outcome, reasons = run(title, command)
            rows.append(f"  {title:16} {time.monotonic() - start:5.0f} s  {outcome}")
            not_run.update(reasons)
            failed |= outcome.startswith("FAILED")
    print(f"\n=== {name}: stages", *rows, sep="\n")
    if not everything:
        print(f"{name}: the slow tests were not run, `make test-all` does")
    if not_run:
        print(f"{name}: skipped", *(f"  {count:6,}  {why}" for why, count in not_run.most_common()), sep="\n")
    print(f"{name}: {'FAILED' if failed else 'passed'} in {(time.monotonic() - began) / 60:.1f} minutes")
    return int(failed)


def run(title: str, command: list[str]) -> tuple[str, list[str]]:
    """What came of a stage, and for each of its tests that was skipped the reason."""
    if title in OF_THE_BOOK and not (BUILD / ".complete").exists():
        return "FAILED: there is no complete book", []
    if command[: len(PYTEST)] != PYTEST:
        return ("FAILED" if subprocess.call(command, cwd=REPO) else "passed"), []
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp, chosen, report = (STAMPS / f"{title.replace(' ', '-')}.{ending}" for ending in ("json", "txt", "xml"))
    now, skipped = state(title), {}
    if now and stamp.exists() and (before := json.loads(stamp.read_text()))["state"] == now:
        skipped = {test: why for test, why in before["skipped"].items() if still_missing(why)}
        if not (again := before["skipped"].keys() - skipped):
            return "passed before, nothing has changed (rm -r _build/tests runs it again)", [*skipped.values()]
        chosen.write_text("\n".join(sorted(again)))
        command = [*PYTEST, f"@{chosen}"]
    stamp.unlink(missing_ok=True)
    if subprocess.call([*command, f"--junitxml={report}"], cwd=REPO):
        return "FAILED", []
    for case in ElementTree.parse(report).iter("testcase"):
        if (element := case.find("skipped")) is not None:
            skipped[f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"] = element.get("message")
    stamp.write_text(json.dumps({"state": now, "skipped": skipped}))
    return "passed", [*skipped.values()]


def state(title: str) -> str:
    """A digest of what decides the outcome of a stage's tests, less what they may need; "" where git cannot list it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    files = {REPO / name for name in done.stdout.split("\0")}
    files |= set((BUILD / "executed").rglob("*.ipynb")) if title in OF_THE_BOOK else set()
    digest = hashlib.sha256(f"{sys.version} {version_of('mindspore')}".encode())
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def still_missing(why: str) -> bool:
    """Whether a test that was skipped would be skipped again. A reason that `require` did not give stays one."""
    need = re.match("needs ([^:]+):", why)
    return not need or bool(why_missing(need[1]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nmake test: stopped; stages that have passed are not run again unless something changes")
