"""A command under limits: what stops it, what is left of it, and where bubblewrap cannot be used."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from grader import handout, limits, sandbox
from grader.limits import Limits
from tests.grader.conftest import write

LIMITS = Limits(seconds=30, memory_mb=300, processes=40, output_mb=1)


@pytest.fixture(params=[True, False], ids=["sandbox", "no sandbox"])
def run(request, tmp_path, monkeypatch):
    """`sandbox.run` with limits, in bubblewrap and without; no temporary file may be left."""
    if request.param:
        request.getfixturevalue("sandboxed")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def run(*command, limits=LIMITS, **options):
        return sandbox.run(list(command), limits=limits, sandboxed=request.param, **options)

    yield run
    assert not list(folder.iterdir())


def python(run, code, **options):
    return run(sandbox.python(), "-c", code, **options)


def test_files_output_and_status(run):
    code = "import sys; print(open('c.txt').read(), sys.stdin.read()); sys.exit('first\\nlast')"
    ended = python(run, code, files={"c.txt": b"file"}, stdin=b"given")
    assert ended == limits.Ended(1, b"file given\n", "", "last")


def test_time(run):
    start = time.monotonic()
    ended = run("sleep", "1000", limits=Limits(seconds=1, memory_mb=300))
    assert ended.stopped == "time"
    assert ended.status != 0
    assert time.monotonic() - start < 20


def test_memory(run):
    ended = python(run, "kept = []\nwhile True: kept.append(bytearray(b'x' * 1_000_000))")
    assert ended.stopped == "memory" or ended.message == "MemoryError"


def test_output(run):
    assert run("yes").stopped == "output"


def test_processes(sandboxed):
    code = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(98766.5)"
    ended = sandbox.run([sandbox.python(), "-c", code], limits=LIMITS)
    assert ended.stopped == "processes" or "BlockingIOError" in ended.message
    wait_until(lambda: not _running("98766.5"))


def test_the_environment_is_the_labs_own(run, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    ended = python(run, "import os, labkit; print(os.environ.keys()); print(os.getcwd() == os.environ['HOME'])")
    assert b"SECRET_TOKEN" not in ended.output
    assert ended.output.endswith(b"True\n")


def test_nothing_outlives_a_grader_that_is_killed(sandboxed):
    """In the sandbox: without it nobody is left who could end what a killed grader leaves."""
    command = ["sh", "-c", "sleep 98767.5 & exec sleep 98767.5"]
    code = f"from grader import sandbox\nsandbox.run({command}, limits=sandbox.Limits(100, 300))"
    grader = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: len(_running("98767.5")) >= 2)
    grader.kill()
    grader.wait()
    wait_until(lambda: not _running("98767.5"))


def test_a_grader_that_is_interrupted_leaves_nothing(run):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            run("sh", "-c", "sleep 98768.5 & exec sleep 98768.5")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: not _running("98768.5"))


def test_somebody_who_is_not_root(sandboxed, monkeypatch):
    """The same arguments in a user namespace; where root runs the tests, as nobody, whom root's Python is closed to."""
    somebody = []
    if os.geteuid() == 0:
        somebody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        monkeypatch.setattr(sandbox, "_project", lambda: [])
    check = "id -u; for place in / /dev /etc /usr; do touch $place/x 2>/dev/null && echo wrote $place; done; " \
            "touch /tmp/x /dev/shm/x x && echo own; unshare -U true 2>/dev/null && echo unshared; " \
            "grep -c : /proc/net/dev; ulimit -u; grep CapEff /proc/self/status"  # fmt: skip
    arguments = [*sandbox._bubblewrap(()), *sandbox._sealed(), *limits.prlimit(["bash", "-c", check], LIMITS)]
    found = subprocess.run(somebody + arguments, capture_output=True, text=True, cwd="/")
    if "No permissions to create" in found.stderr or "Operation not permitted" in found.stderr:
        pytest.skip(f"no user namespaces here: {found.stderr.strip()}")
    assert found.stderr == ""
    user = "65534" if somebody else str(os.geteuid())
    assert found.stdout.splitlines() == [user, "own", "1", "40", "CapEff:\t0000000000000000"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is PATH, with some programs only; what was found out before is forgotten."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("git", "prlimit", "setpriv", "sh"):
        (folder / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(folder))
    sandbox.unavailable.cache_clear()
    yield folder
    sandbox.unavailable.cache_clear()


def test_bubblewrap_that_is_missing_or_refused(programs):
    assert sandbox.unavailable() == "bwrap is not installed (package bubblewrap)"
    sandbox.unavailable.cache_clear()
    (programs / "bwrap").write_text("#!/bin/sh\necho bwrap: not allowed >&2; exit 1\n")
    (programs / "bwrap").chmod(0o755)
    assert sandbox.unavailable() == "bwrap: not allowed"


def _running(word):
    return [process for process in psutil.process_iter(["cmdline", "status"]) if word in str(process.info["cmdline"])
            and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid()]  # fmt: skip


def test_of_a_lab_it_sees_what_learners_have(sandboxed, tmp_path, monkeypatch):
    for folder in ("labkit", "grader"):
        (tmp_path / folder).mkdir()
    lab = tmp_path / "labs" / "tiny"
    learners = {"recipe.yaml", "train.py", "runs/mine/history.jsonl", "parity/a/report.json", "scripts/run_eval.sh"}
    instructors = {"lab.md", "lab.md.bak", "lab.md~", "lab-old.md", "grading.yaml", "grading.old.yaml", "lab.ipynb",
                   "handed-in/ann/lab.ipynb", "handed-in/ann/recipe.yaml", "graded/grades.json", "runs/lab.md.bak",
                   ".lab.md.swp", "runs/mine/checkpoints/note.json", ".ipynb_checkpoints/train.py"}  # fmt: skip
    write(lab, *learners, *instructors)
    monkeypatch.setattr(sandbox, "REPO", tmp_path)
    code = f"import os\nfor folder, _, names in os.walk({str(lab)!r}):\n" \
           "    for name in names: print(os.path.join(folder, name))"  # fmt: skip
    ended = sandbox.run([sandbox.python(), "-c", code], limits=LIMITS)
    assert {str(Path(line).relative_to(lab)) for line in ended.output.decode().splitlines()} == learners
    assert {str(file.relative_to(lab)) for file in handout.handed_out(lab)} == learners


def test_a_python_that_is_found_by_links(sandboxed, tmp_path, monkeypatch):
    """As where an environment was made with a Python that is itself a link, in a folder that no sandbox sees."""
    for folder in ("env/bin", "links"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "links" / "python3").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "env" / "bin" / "python").symlink_to("../../links/python3")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    ended = sandbox.run([sandbox.python(), "-c", "print('found')"], limits=LIMITS)
    assert ended.output == b"found\n", ended
