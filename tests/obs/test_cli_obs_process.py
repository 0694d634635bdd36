"""labkit obs as a process: its bar on a terminal, and being stopped."""

import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from copies import content_of, open_uploads
from swift import environment
from waiting import wait_until

from labkit.system.interrupts import die_with_parent

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')", "obs"]
PART = 8 << 20  # what the command sends at once


@pytest.fixture(autouse=True)
def store(account):
    return account


def start(proxy, *arguments, **more):
    return subprocess.Popen(
        [*LABKIT, *map(str, arguments)], env=os.environ | environment(proxy.url), text=True,
        preexec_fn=die_with_parent, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,
    )  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_bar_on_a_terminal_and_nowhere_else(proxy, bucket, tmp_path, more):
    (tmp_path / "big").write_bytes(bytes(PART + 1))
    for terminal in (True, False):
        proxy.plant(method="PUT", path="partNumber=2", stall=1.5)
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with start(proxy, "cp", tmp_path / "big", f"obs://{bucket}/k", "--force", *more, stderr=theirs) as child:
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
        assert (b"8.39M/8.39M" in shown and b"%|" in shown) if terminal else shown == b""
        assert json.loads(said)["bytes"] == PART + 1 if more else said.startswith("1 file copied")


@pytest.mark.parametrize("way, sent", [("up", signal.SIGINT), ("down", signal.SIGTERM)])
def test_stopped_and_given_again(store, proxy, bucket, tmp_path, way, sent):
    content = random.Random(1).randbytes(4 * PART + 12345)
    (tmp_path / "big").write_bytes(content)
    ends = (tmp_path / "big", f"obs://{bucket}/k")
    if way == "down":
        with start(proxy, "cp", *ends) as child:
            assert child.wait() == 0
        ends = (ends[1], tmp_path / "back" / "big")
    method, path = ("PUT", "partNumber") if way == "up" else ("GET", "/k")
    proxy.clear()
    for _ in range(2):
        proxy.plant(method=method, path=path)  # these pass
    proxy.plant(method=method, path=path, times=10**6, stall=60)
    with start(proxy, "cp", *ends, "--jobs", 2) as child:
        wait_until(lambda: len(proxy.requests(method, path)) >= 4)
        time.sleep(0.3)
        child.send_signal(sent)
        begun = time.monotonic()
        said, errors = child.communicate(timeout=30)
    assert (child.returncode, said, errors) == (128 + sent, "", "\nstopped; the same command resumes it\n")
    assert time.monotonic() - begun < 15
    proxy.clear()
    with start(proxy, "cp", *ends, "--json") as child:
        said, errors = child.communicate(timeout=60)
    assert child.returncode == 0 and errors == ""
    assert json.loads(said)["bytes"] == len(content) - 2 * PART
    assert len(proxy.requests(method, path)) == 3
    assert (tmp_path / "back" / "big").read_bytes() == content if way == "down" else (
        content_of(store, bucket, "k") == content and open_uploads(store, bucket, "k") == []
    )  # fmt: skip


def test_stopped_while_looking(proxy, bucket):
    proxy.plant(stall=60)
    with start(proxy, "ls", f"obs://{bucket}") as child:
        wait_until(proxy.requests)
        child.send_signal(signal.SIGTERM)
        assert (*child.communicate(timeout=30), child.returncode) == ("", "\nstopped\n", 143)


def test_quiet_is_quiet_on_a_terminal(proxy, bucket, tmp_path):
    (tmp_path / "big").write_bytes(bytes(PART + 1))
    proxy.plant(method="PUT", path="partNumber=2", stall=1.5)
    ours, theirs = pty.openpty()
    with start(proxy, "cp", tmp_path / "big", f"obs://{bucket}/k", "--quiet", stdout=theirs, stderr=theirs) as child:
        assert child.wait() == 0
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):  # nothing to read
            os.read(ours, 1)
    os.close(theirs)
    os.close(ours)


def test_a_stream_that_is_stopped(store, proxy, bucket):
    """Its open upload stays, and the message names the command that removes it; there is no resuming a pipe."""
    with start(proxy, "cp", "-", f"obs://{bucket}/k", stdin=subprocess.PIPE) as child:
        child.stdin.write("x" * (2 * PART))
        child.stdin.flush()
        wait_until(lambda: open_uploads(store, bucket, "k"))
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert child.stderr.read() == "\nstopped; `labkit obs uploads` lists what was begun\n"
    with start(proxy, "uploads", f"obs://{bucket}/k", "--abort") as child:
        assert child.communicate()[0].endswith(f"  obs://{bucket}/k\n")
    assert open_uploads(store, bucket, "k") == []
