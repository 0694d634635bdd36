"""Copies that are processes: killed and given again, stopped, shown on a terminal, one for all, and their memory."""

import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from copies import contents, make, objects, records, run
from faulty import answer, stall
from waiting import wait_until

from labkit.modelarts.node_lock import copy_once_per_node, lock_file
from labkit.obs import copy
from labkit.obs.checksums import digest
from labkit.obs.local_files import held
from labkit.obs.place import CloudError
from labkit.system.interrupts import die_with_parent

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')", "obs"]
PART = 8 << 20  # what the command sends at once
CONTENT = random.Random(1).randbytes(3 * PART + 12345)  # four parts
KILL_AT_THE_NAME = "import os; os.replace = lambda *_: os.kill(os.getpid(), 9); from labkit.cli import main; main()"

pytestmark = pytest.mark.usefixtures("account")


def start(*arguments, command=LABKIT, **more):
    """A process of labkit obs."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.Popen([*command, *map(str, arguments)], text=True, preexec_fn=die_with_parent, **streams)


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", {"big": CONTENT}) / "big"


@pytest.mark.parametrize("line, sent", [
    ("POST new upload", 4), ("PUT part 1", 4), ("PUT part 3", 2), ("PUT part 4", 1), ("POST completion", 0),
])  # fmt: skip
def test_an_upload_that_is_killed_is_resumed(server, source, line, sent):
    """At any moment; what has arrived is not sent again."""
    server.plant(line, stall(3))
    with start("cp", source, "obs://course/k", "--jobs", 1) as child:
        wait_until(lambda: server.requests(line))
        child.kill()
    assert objects(server) == {}
    server.clear()
    assert run("cp", source, "obs://course/k")[0] == 0
    assert objects(server) == {"k": CONTENT} and len(server.requests("PUT part")) == sent and records() == []


@pytest.mark.parametrize("line, got", [
    ("GET k, bytes 0 to", 4), (f"GET k, bytes {2 * PART} to", 2), (f"GET k, bytes {3 * PART} to", 1),
])  # fmt: skip
def test_a_download_that_is_killed_is_resumed(server, source, tmp_path, line, got):
    copy(source, "obs://course/k")
    server.plant(line, stall(3))
    with start("cp", "obs://course/k", tmp_path / "back", "--jobs", 1) as child:
        wait_until(lambda: server.requests(line))
        child.kill()
    assert not (tmp_path / "back").exists()
    server.clear()
    assert run("cp", "obs://course/k", tmp_path / "back")[0] == 0
    assert (tmp_path / "back").read_bytes() == CONTENT and len(server.requests("GET k")) == got
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "source"]


@pytest.mark.parametrize("way", ["down", "here"])
def test_killed_before_the_file_gets_its_name(server, source, tmp_path, way):
    copy(source, "obs://course/k")
    ends = ("obs://course/k" if way == "down" else source, tmp_path / "back")
    with start("obs", "cp", *ends, command=[sys.executable, "-c", KILL_AT_THE_NAME]) as child:
        assert child.wait() == -9 and not (tmp_path / "back").exists()
    assert run("cp", *ends)[0] == 0
    assert contents(tmp_path) == {"back": CONTENT, "source/big": CONTENT}


def test_killed_and_then_another_file(server, source, tmp_path):
    """Nothing of the old content is used, though the new one begins alike."""
    other = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    ways = ((source, "obs://course/k"), "PUT part 4"), (("obs://course/k", tmp_path / "back"), "GET k, bytes 8")
    for ends, line in ways:
        server.plant(line, stall(3))
        with start("cp", *ends, "--jobs", 1) as child:
            wait_until(lambda line=line: server.requests(line))
            child.kill()
        server.clear()
        source.write_bytes(other)
        copy(source, "obs://course/k")
        assert objects(server) == {"k": other} and server.uploads == {} and records() == []
        source.write_bytes(CONTENT)
    copy(*ends)
    assert contents(tmp_path) == {"back": other, "source/big": CONTENT}


def test_what_was_kept_of_a_download_was_damaged(server, source, tmp_path):
    copy(source, "obs://course/k")
    server.plant(f"GET k, bytes {2 * PART} to", stall(3))
    with start("cp", "obs://course/k", f"{tmp_path}/back/", "--jobs", 1) as child:
        wait_until(lambda: server.requests(f"GET k, bytes {2 * PART} to"))
        child.kill()
    (hidden,) = (tmp_path / "back").iterdir()
    with open(hidden, "r+b") as file:
        file.write(b"damaged")
    copy("obs://course/k", f"{tmp_path}/back/")
    assert contents(tmp_path / "back") == {"k": CONTENT}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped(server, source, number):
    """At once, without waiting for a request that takes long."""
    server.plant("PUT part", stall(20))
    with start("cp", source, "obs://course/k", "--jobs", 1) as child:
        wait_until(lambda: server.requests("PUT part"))
        child.send_signal(number)
        begun = time.monotonic()
        said, errors = child.communicate(timeout=30)
    assert (child.returncode, said, errors) == (128 + number, "", "\nstopped; the same command resumes it\n")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("terminal, more", [(True, []), (True, ["--quiet"]), (False, []), (True, ["--json"])])
def test_a_bar_on_a_terminal_and_nowhere_else(server, source, terminal, more):
    server.plant("PUT part 2", stall(1.5))
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with start("cp", source, "obs://course/k", *more, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 1 << 16):
                shown += block
        except OSError:  # how a terminal ends
            pass
        os.close(ours)
        said = child.communicate()[0]
    assert child.returncode == 0
    assert b"25.2M/25.2M" in shown if terminal and "--quiet" not in more else shown == b""
    if "--json" in more:
        assert json.loads(said)["bytes"] == len(CONTENT)
    else:
        assert said == ("" if more else f"1 file copied, {len(CONTENT):,} bytes; 0 there already\n")


MEMORY = """
import sys
from pathlib import Path
from labkit.obs.copying import copy
copy(*sys.argv[1:], jobs=64)
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow  # it moves 320 MiB
def test_memory_of_a_big_copy(server, tmp_path):
    """Up and down with the parts that a user has: 160 MiB in under 150 MB, with 64 requests at a time."""
    with open(tmp_path / "huge", "wb") as file:
        for _ in range(160):
            file.write(random.Random(3).randbytes(1 << 20))
    for ends in ((tmp_path / "huge", "obs://course/k"), ("obs://course/k", tmp_path / "back")):
        said, errors = start(*ends, command=[sys.executable, "-c", MEMORY]).communicate()
        assert not errors and int(said) * 1024 < 150e6
    assert digest(tmp_path / "back", "md5") == digest(tmp_path / "huge", "md5")


# -- Once per machine ------------------------------------------------------------------------------

ONE_OF_THREE = """
import sys
from pathlib import Path
from labkit.obs import local_files
from labkit.modelarts.node_lock import copy_once_per_node
marks, src, dst = Path(sys.argv[1]), *sys.argv[2:]
def lock(handle, lock=local_files.lock):
    (marks / f"waits-{__import__('os').getpid()}").touch()
    return lock(handle)
local_files.lock = lock
try:
    print(copy_once_per_node(src, dst, deadline=2).copied)
except Exception as error:
    print(type(error).__name__, error.status)
"""


@pytest.fixture
def three(tmp_path, monkeypatch):
    """Starts three processes that want the same copy, and lets them go when all wait."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    marks = tmp_path / "marks"
    marks.mkdir()
    children = []

    def begin(*ends):
        with held(lock_file(*ends)):
            children.extend(start(marks, *ends, command=[sys.executable, "-c", ONE_OF_THREE]) for _ in range(3))
            wait_until(lambda: len(list(marks.iterdir())) == 3)
        return children

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def test_one_of_three_copies(server, tmp_path, three):
    copy(make(tmp_path / "source", {"a": b"1", "b": b"2"}), "obs://course/x")
    assert [child.communicate()[0] for child in three("obs://course/x", tmp_path / "target")] == ["2\n"] * 3
    assert contents(tmp_path / "target") == {"a": b"1", "b": b"2"} and len(server.requests("GET x/")) == 2


def test_the_one_of_three_is_killed(server, source, tmp_path, three):
    """Another one takes over; the download is resumed."""
    copy(source, "obs://course/x/k")
    server.plant("GET x/k", stall(2), times=4)
    children = three("obs://course/x", tmp_path / "target")
    wait_until(lambda: server.requests("GET x/k"))
    locked = os.stat(lock_file("obs://course/x", tmp_path / "target")).st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    (holder,) = [int(line.split()[4]) for line in lines if f":{locked} " in line and "->" not in line]
    os.kill(holder, signal.SIGKILL)
    assert [child.communicate()[0] for child in children if child.pid != holder] == ["1\n"] * 2
    assert contents(tmp_path / "target") == {"k": CONTENT}


def test_a_failure_reaches_all_three(server, tmp_path, three):
    source = make(tmp_path / "source", {"a": b"1"})
    server.plant("", answer(403), times=10**6)
    assert [child.communicate()[0] for child in three(source, "obs://course/x")] == ["CloudError 403\n"] * 3
    assert len(server.seen) == 1


def test_a_stale_outcome_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source, target = make(tmp_path / "source", {"a": b"1"}), tmp_path / "target"
    lock_file(source, target).write_text("half of an outco")
    for _ in range(2):
        assert copy_once_per_node(source, target).copied == 1
        (target / "a").unlink()  # so it is done again, not told from the first time
    (source / "a").unlink()
    with pytest.raises(CloudError, match="nothing to copy"):
        copy_once_per_node(source, target)
    with held(lock_file(source, target)), pytest.raises(CloudError, match="after 0.1 s"):
        copy_once_per_node(source, target, timeout=0.1)
