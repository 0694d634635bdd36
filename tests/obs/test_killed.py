"""Copies that are processes: killed and given again, stopped, and one for all of a machine."""

import random
import signal
import subprocess
import sys
import time

import pytest
from copies import make, objects, records, run
from faulty import stall
from running import LABKIT, contents
from waiting import wait_until

from labkit.obs import copy
from labkit.system.interrupts import die_with_parent

PART = 8 << 20  # what the command sends at once
CONTENT = random.Random(1).randbytes(3 * PART + 12345)  # four parts
KILL_AT_THE_NAME = "import os; os.replace = lambda *_: os.kill(os.getpid(), 9); from labkit.cli import main; main()"

pytestmark = pytest.mark.usefixtures("account")


def start(*arguments, command=(*LABKIT, "obs")):
    """A process of labkit obs."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, *map(str, arguments)], text=True, preexec_fn=die_with_parent, **streams)


def killed(server, line, *ends):
    """`labkit obs cp`, killed during a request whose line in the log begins so; then the server works again."""
    server.plant(line, stall(3))
    with start("cp", *ends, "--jobs", 1) as child:
        wait_until(lambda: server.requests(line))
        child.kill()
    server.clear()


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", {"big": CONTENT}) / "big"


@pytest.mark.parametrize("line, sent", [
    ("POST new upload", 4), ("PUT part 1", 4), ("PUT part 3", 2), ("POST completion", 0),
])  # fmt: skip
def test_an_upload_that_is_killed_is_resumed(server, source, line, sent):
    """At any moment; what has arrived is not sent again."""
    killed(server, line, source, "obs://course/k")
    assert objects(server) == {}
    assert run("cp", source, "obs://course/k")[0] == 0
    assert objects(server) == {"k": CONTENT} and len(server.requests("PUT part")) == sent and records() == []


@pytest.mark.parametrize("line, got", [("GET k, bytes 0 to", 4), (f"GET k, bytes {2 * PART} to", 2)])
def test_a_download_that_is_killed_is_resumed(server, source, tmp_path, line, got):
    copy(source, "obs://course/k")
    killed(server, line, "obs://course/k", tmp_path / "back")
    assert not (tmp_path / "back").exists()
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
    """Of the old content only parts that the new one has as well are used."""
    other = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    ways = ((source, "obs://course/k"), "PUT part 4"), (("obs://course/k", tmp_path / "back"), "GET k, bytes 8")
    for ends, line in ways:
        killed(server, line, *ends)
        source.write_bytes(other)
        copy(source, "obs://course/k")
        assert objects(server) == {"k": other} and server.uploads == {} and records() == []
        source.write_bytes(CONTENT)
    copy(*ends)
    assert contents(tmp_path) == {"back": other, "source/big": CONTENT}


def test_what_was_kept_of_a_download_was_damaged(server, source, tmp_path):
    copy(source, "obs://course/k")
    killed(server, f"GET k, bytes {2 * PART} to", "obs://course/k", f"{tmp_path}/back/")
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


ONE_OF_THREE = """
import sys
from pathlib import Path
from labkit.modelarts.node_lock import copy_once_per_node
Path(sys.argv[1]).touch()
print(copy_once_per_node(*sys.argv[2:]).copied)
"""


def test_the_one_that_copies_for_all_is_killed(server, source, tmp_path, monkeypatch):
    """Another one takes over, and resumes the download; the third copies nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    copy(source, "obs://course/x/k")
    server.plant(f"GET x/k, bytes {3 * PART} to", stall(2), times=2)
    children = []
    for number in range(3):
        mark = tmp_path / f"mark-{number}"
        command = [sys.executable, "-c", ONE_OF_THREE, mark]
        children.append(start("obs://course/x", tmp_path / "target", command=command))
        wait_until(mark.exists)
        if number == 0:
            wait_until(lambda: server.requests(f"GET x/k, bytes {3 * PART} to"))
    children[0].kill()
    assert [child.communicate()[0] for child in children] == ["", "1\n", "1\n"]
    assert contents(tmp_path / "target") == {"k": CONTENT} and len(server.requests("GET x/k")) < 8
