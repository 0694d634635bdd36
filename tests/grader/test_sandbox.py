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
    code = "import sys; print(open('a/b/c.txt').read(), sys.stdin.read()); sys.exit('first\\nlast')"
    ended = python(run, code, files={"a/b/c.txt": b"file"}, stdin=b"given")
    assert ended == limits.Ended(1, b"file given\n", "", "last")


def test_stdin_that_nobody_reads(run):
    assert run("true", stdin=bytes(5_000_000)).status == 0


def test_time(run):
    start = time.monotonic()
    ended = run("sleep", "1000", limits=Limits(seconds=1, memory_mb=300))
    assert ended.stopped == "time"
    assert ended.status != 0
    assert time.monotonic() - start < 20


def test_memory(run):
    ended = python(run, "kept = []\nwhile True: kept.append(bytearray(b'x' * 1_000_000))")
    assert ended.stopped == "memory" or ended.message == "MemoryError"


def test_memory_that_processes_share_counts_once(run):
    code = "import os, time\nkept = bytearray(b'x') * 150_000_000\nfor _ in range(5):\n    if os.fork() == 0:\n" \
           "        time.sleep(2); os._exit(0)\nfor _ in range(5): os.wait()\nprint('done')"  # fmt: skip
    ended = python(run, code)
    assert (ended.stopped, ended.output) == ("", b"done\n")


PAGES = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for _ in range(300):  # pages that are only read are one page of zeros, but each has its place in a table
    place = libc.mmap(None, ctypes.c_size_t(1 << 30), 1, 0x22, -1, ctypes.c_long(0))
    libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(1 << 30), 15)  # in small pages
    for offset in range(0, 1 << 30, 1 << 21):
        ctypes.c_char.from_address(place + offset).value
time.sleep(20)  # it has more than it may only at the end: not gone before somebody looks
"""
SOCKETS = """
import os, socket, time
kept = []
{pairs}
for _ in range(5):
    if os.fork():
        continue
    for _ in range(number):  # as many as are needed, and no more: this memory is nobody's whom the system could end
        one, other = pair()
        kept.append((one, other))
        one.setblocking(False)
        try:
            while one.send(bytes(60_000)):
                pass
        except BlockingIOError:
            pass
    break
time.sleep(20)
"""
UNIX = "number, pair = 200, lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)"
TCP = """
number, server = 20, socket.create_server(("127.0.0.1", 0))
def pair():
    one = socket.create_connection(server.getsockname())
    return one, server.accept()[0]
"""


def test_memory_of_the_kernel_for_tables_of_pages_counts(run):
    assert python(run, PAGES).stopped == "memory"


@pytest.mark.parametrize("pairs", [UNIX, TCP], ids=["unix", "tcp"])
def test_memory_of_the_kernel_for_sockets_counts(sandboxed, pairs):
    code = SOCKETS.format(pairs=pairs)
    ended = sandbox.run([sandbox.python(), "-c", code], limits=LIMITS)
    assert (ended.stopped, ended.message) == ("memory", "")


def test_of_sockets_those_that_a_kernel_needs_can_be_made(sandboxed):
    code = "import socket\nfor name in dir(socket):\n    if name.startswith('AF_'):\n        try:\n" \
           "            socket.socket(getattr(socket, name), socket.SOCK_DGRAM).close()\n            print(name)\n" \
           "        except OSError: pass\n" \
           "a, b = socket.socketpair()\nbefore = a.getsockopt(1, 7)\na.setsockopt(1, 7, 2_000_000)\n" \
           "assert a.getsockopt(1, 7) == before\na.setsockopt(1, 9, 1)\nassert a.getsockopt(1, 9) == 1"  # fmt: skip
    ended = sandbox.run([sandbox.python(), "-c", code], limits=LIMITS)
    made = set(ended.output.decode().split())
    assert not ended.status and {"AF_UNIX", "AF_INET", "AF_NETLINK"} <= made, ended
    assert made <= {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_ROUTE"}


@pytest.mark.parametrize("call", ["semget(0, 999, 0o600)", "msgget(0, 0o600)", "sched_setaffinity(0, 1, b'1')"])
def test_what_is_nobodys_and_the_cores_of_others_cannot_be_had(sandboxed, call):
    code = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.{call}, ctypes.get_errno())"
    assert sandbox.run([sandbox.python(), "-c", code], limits=LIMITS).output == b"-1 38\n"  # ENOSYS


def test_output(run):
    assert run("yes").stopped == "output"


def test_processes(run):
    ended = python(run, "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(98766.5)")
    assert ended.stopped == "processes" or "BlockingIOError" in ended.message
    wait_until(lambda: not _running("98766.5"))


def test_a_process_that_leaves_its_group_ends_too(run):
    code = "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n" \
           "        os.execvp('sleep', ['sleep', '98766.5'])"  # fmt: skip
    assert python(run, code).status == 0
    wait_until(lambda: not _running("98766.5"))


def test_the_environment_is_the_labs_own(run, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    ended = python(run, "import os, labkit; print(os.environ.keys()); print(os.getcwd() == os.environ['HOME'])")
    assert b"SECRET_TOKEN" not in ended.output
    assert ended.output.endswith(b"True\n")


def test_a_command_that_is_not_there(run):
    ended = run("not-a-program")
    assert ended.status != 0
    assert "not-a-program" in ended.message


def test_nothing_outlives_a_grader_that_is_killed(sandboxed):
    """In the sandbox: without it nobody is left who could end what a killed grader leaves."""
    command = ["sh", "-c", "sleep 98767.5 & exec sleep 98767.5"]
    code = f"from grader import sandbox\nsandbox.run({command}, limits=sandbox.Limits(100, 300))"
    grader = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: len(_running("98767.5")) >= 2)
    grader.kill()
    grader.wait()
    wait_until(lambda: not _running("98767.5"))


def test_nothing_outlives_a_grader_that_is_killed_while_its_sandbox_starts(sandboxed, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("somebody who is not root has no other process that could end it")
    slow = tmp_path / "bwrap"
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {shutil.which("bwrap")} "$@"\n')
    slow.chmod(0o755)
    code = "from grader import sandbox\nsandbox.run(['sleep', '98769.5'], limits=sandbox.Limits(100, 300))"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    grader = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_until(lambda: any(str(slow) in str(process.cmdline()) for process in _running("98769.5")))
    grader.kill()
    grader.wait()
    time.sleep(3)
    wait_until(lambda: not _running("98769.5"))


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
    arguments = [*sandbox._bubblewrap(), *sandbox._sealed(None), *limits.prlimit(["bash", "-c", check], LIMITS)]
    found = subprocess.run(somebody + arguments, capture_output=True, text=True, cwd="/")
    if "No permissions to create" in found.stderr or "Operation not permitted" in found.stderr:
        pytest.skip(f"no user namespaces here: {found.stderr.strip()}")
    assert found.stderr == ""
    user = "65534" if somebody else str(os.geteuid())
    assert found.stdout.splitlines() == [user, "own", "1", "41", "CapEff:\t0000000000000000"]


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


def test_bubblewrap_that_is_missing(programs):
    assert sandbox.unavailable() == "bwrap is not installed (package bubblewrap)"


def test_bubblewrap_that_is_too_old(programs, monkeypatch):
    _program(programs / "bwrap", "echo bubblewrap 0.4.1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "bubblewrap 0.4.1 is too old: 0.8 or newer is needed" in sandbox.unavailable()


def test_bubblewrap_that_is_refused(programs):
    refuse = "{ echo bwrap: not allowed >&2; exit 1; }"
    _program(programs / "bwrap", f'[ "$1" = --version ] && echo bubblewrap 0.8.0 || {refuse}')
    assert sandbox.unavailable() == "bwrap: not allowed"


def _program(file: Path, text):
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def _running(word):
    return [process for process in psutil.process_iter(["cmdline", "status"]) if word in str(process.info["cmdline"])
            and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid()]  # fmt: skip


def test_what_every_sandbox_sees_is_no_place_for_a_lab(repo_root, tmp_path):
    (tmp_path / "link").symlink_to("/usr/share")
    assert sandbox.exposed([repo_root, repo_root / "labs" / "cifar10", tmp_path]) == ""
    places = [Path("/usr/src/app"), tmp_path / "link" / "handed-in", Path(sys.prefix) / "labs", repo_root / "labkit"]
    for place in places:
        assert sandbox.exposed([tmp_path, place]).startswith(f"{place}: lies in ")


def test_what_every_sandbox_sees_is_no_place_for_the_project(sandboxed, monkeypatch):
    monkeypatch.setattr(sandbox, "REPO", Path("/usr/src/app"))
    sandbox.unavailable.cache_clear()
    assert sandbox.unavailable().startswith("/usr/src/app: lies in /usr, which every sandbox sees")
    sandbox.unavailable.cache_clear()


def test_of_a_lab_it_sees_what_learners_have(sandboxed, repo_root, tmp_path, monkeypatch):
    shutil.copytree(repo_root / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    lab = tmp_path / "labs" / "tiny"
    learners = {"recipe.yaml", "train.py", "runs/mine/history.jsonl", "parity/a/report.json", "scripts/run_eval.sh"}
    instructors = {"lab.md", "lab.md.bak", "lab.md~", "lab-old.md", "grading.yaml", "grading.old.yaml", "lab.ipynb",
                   "handed-in/ann/lab.ipynb", "handed-in/ann/recipe.yaml", "graded/grades.json", "runs/lab.md.bak",
                   ".lab.md.swp", "runs/mine/checkpoints/note.json", ".ipynb_checkpoints/train.py"}  # fmt: skip
    for name in learners | instructors:
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("x")
    monkeypatch.setattr(sandbox, "REPO", tmp_path)
    code = f"import os\nfor folder, _, names in os.walk({str(lab)!r}):\n" \
           "    for name in names: print(os.path.join(folder, name))"  # fmt: skip
    ended = sandbox.run([sandbox.python(), "-c", code], limits=LIMITS)
    assert {str(Path(line).relative_to(lab)) for line in ended.output.decode().splitlines()} == learners
    assert {str(file.relative_to(lab)) for file in handout.of_the_lab(lab)} == learners


def test_a_python_that_is_found_by_links(sandboxed, tmp_path, monkeypatch):
    """As where an environment was made with a Python that is itself a link, in a folder that no sandbox sees."""
    for folder in ("env/bin", "links"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "links" / "python3").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "env" / "bin" / "python").symlink_to("../../links/python3")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    ended = sandbox.run([sandbox.python(), "-c", "print('found')"], limits=LIMITS)
    assert ended.output == b"found\n", ended
