"""Which tests run: a plugin of pytest, loaded by conftest.py.

- `slow.yaml` lists what only `make test-all` runs, with the reason why nobody needs it before every commit.
- `require("PyTorch")`, called by fixtures, skips a test where something optional is missing.
- A test that passed is not run again until a file of the project, a package or the book changes (`AGAIN=1` runs it).

The last is kept in `_build/tests`. With `LABKIT_TESTS_REPORT` set, what was not run is appended there.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
import yaml

from book import chromium
from labkit.system.environment import version_of

REPO = Path(__file__).resolve().parent.parent
SLOW = Path(__file__).with_name("slow.yaml")
PASSED = REPO / "_build" / "tests" / f"passed-{sys.version_info[1]}-{version_of('mindspore')}.json"  # by environment
PACKAGES = ("requirements.txt", "requirements-dev.txt")  # not PyTorch: what needs it is skipped without it, not passed


# -- What a test may need, and what to do where it is missing ------------------------------------------


def _pytorch():
    from labkit.parity import pytorch

    try:
        pytorch.torchvision()
    except pytorch.NoTorchError as error:
        return str(error)


def _bubblewrap():
    from grader import sandbox

    return sandbox.unavailable()


def _chromium():
    if not all(chromium.browser()):
        return "Chromium or its chromedriver is not installed (Debian: apt install chromium chromium-driver)"


NEEDS = {
    "PyTorch": _pytorch, "bubblewrap": _bubblewrap, "Chromium": _chromium,
    "Chinese font": partial(chromium.no_font, "zh"),
}  # fmt: skip
why_missing = cache(lambda need: NEEDS[need]())


def require(need: str) -> None:
    """Skip the test that asks where one of NEEDS is missing; fail it if $LABKIT_TESTS_NEED names it, as in CI."""
    if reason := why_missing(need):
        needed = os.environ.get("LABKIT_TESTS_NEED", "").split(",")
        (pytest.fail if need in needed else pytest.skip)(reason)


def torch_or_none():
    """The module torch for a test file's top, None without it: its tests that use it ask for the fixture `pytorch`."""
    from labkit.parity import pytorch

    return None if why_missing("PyTorch") else pytorch.torch()


# -- Which tests are slow ------------------------------------------------------------------------------


@cache
def slow() -> dict[str, str]:
    """Beginnings of test names, from the project's folder, each with the reason why it is in `make test-all` only."""
    groups = yaml.safe_load(SLOW.read_text(encoding="utf-8"))
    return {f"tests/{name}": group["why"] for group in groups for name in group["tests"]}


def is_slow(name: str) -> bool:
    """True for a test in the list, where a folder, a file or a test's name stands for all that begins with it."""
    return any(name == begin or name.startswith((f"{begin}/", f"{begin}::", f"{begin}[")) for begin in slow())


# -- What passed before --------------------------------------------------------------------------------


def state() -> str:
    """A digest of the project's files, the Python and the pinned packages; empty where git cannot list the files.

    It does not cover what `require` names, the built book, the data, the object servers and the environment variables.
    """
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = hashlib.sha256(sys.version.encode())
    for name in sorted(set(filter(None, done.stdout.split("\0")))):
        path = REPO / name
        found.update(name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b""))
    for name in (line.partition("==")[0] for file in PACKAGES for line in _lines(REPO / file)):
        found.update(f"{name} {version_of(name)}".encode())
    return found.hexdigest()


def _lines(file):
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def book_state() -> str:
    """A digest of the built book."""
    found = hashlib.sha256()
    for path in sorted([*REPO.glob("_build/executed/**/*.ipynb"), *REPO.glob("_build/html*/**/*.html")]):
        found.update(path.read_bytes())
    return found.hexdigest()


def key_of(name: str) -> str:
    """What decides whether a test has to run again, by its name as pytest has it; empty where that is not known."""
    path = REPO / name.partition("::")[0]
    if not (key := os.environ["LABKIT_TESTS_STATE"]):
        return ""
    if path.suffix == ".ipynb":
        return key + hashlib.sha256(path.read_bytes()).hexdigest()
    return key + (os.environ["LABKIT_TESTS_BOOK"] if name.startswith(("tests/book", "tests/notebooks")) else "")


def read_passed() -> dict[str, str]:
    """Names of the tests that passed, each with its key then."""
    try:
        return json.loads(PASSED.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}


# -- The plugin ----------------------------------------------------------------------------------------

SLOW_ONLY = "only `make test-all` runs them (tests/slow.yaml says why)"
UNCHANGED = "passed before, and nothing has changed since (AGAIN=1 runs them all the same)"
_passed, _failed, _left_out = set(), set(), Counter()


def _process():
    """The name of this test process; None for the one that starts the others and receives their reports."""
    return os.environ.get("PYTEST_XDIST_WORKER")


def pytest_configure():
    if "LABKIT_TESTS_STATE" not in os.environ:  # once, for the processes to come
        os.environ |= {"LABKIT_TESTS_STATE": state(), "LABKIT_TESTS_BOOK": book_state()}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker("slow")
    if os.environ.get("AGAIN"):
        return
    before = read_passed()
    again = {item.nodeid for item in items if not (key := key_of(item.nodeid)) or before.get(item.nodeid) != key}
    notebooks = {item.path for item in items if item.path.suffix == ".ipynb" and item.nodeid in again}
    kept = [item for item in items if item.nodeid in again or item.path in notebooks]  # a notebook's cells all or none
    _left_out[UNCHANGED] += len(items) - len(kept)
    items[:] = kept


def pytest_deselected(items):
    _left_out[SLOW_ONLY] += sum(item.get_closest_marker("slow") is not None for item in items)


def pytest_runtest_logreport(report):
    if report.outcome == "passed":
        if report.when == "teardown":
            _passed.add(report.nodeid)
        return
    _failed.add(report.nodeid)
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        _left_out[report.longrepr[2].removeprefix("Skipped: ")] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    collected = _process() in (None, "gw0")  # all processes collect the same, and only the first hears what they report
    if report := os.environ.get("LABKIT_TESTS_REPORT"):
        with open(report, "a", encoding="utf-8") as file:
            for why, count in _left_out.items():
                if count and (collected if why in (SLOW_ONLY, UNCHANGED) else _process() is None):
                    file.write(json.dumps([why, count]) + "\n")
    left_behind = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not _failed  # conftest.py looks for that
    if _process() is None and not left_behind:
        passed = {name: key for name, key in read_passed().items() if name not in _failed}
        passed |= {name: key for name in _passed - _failed if (key := key_of(name))}
        PASSED.parent.mkdir(parents=True, exist_ok=True)
        new = PASSED.with_suffix(".new")
        new.write_text(json.dumps(passed), encoding="utf-8")
        new.replace(PASSED)
