"""Real processes: a small data set, the command line, and a watch over processes that are left behind."""

import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

MARK = "LABKIT_TEST_LAUNCH"
SCRIPT = "import sys; del sys.path[0]; from labkit.cli import main; main(prog_name='labkit')"  # as installed by pip


@pytest.fixture(scope="session")
def place(tmp_path_factory, write_noise):
    """A working directory with a small data set (200 + 50 images) in `data`."""
    folder = tmp_path_factory.mktemp("launch")
    write_noise(folder / "data")
    return folder


class Launcher:
    """`labkit` in a process of its own, by an interpreter that is not on PATH."""

    def __init__(self, place):
        self.place, self.mark = place, uuid.uuid4().hex
        unset = ("RANK_ID", "RANK_SIZE", "MS_NODE_TIMEOUT", "VIRTUAL_ENV")
        self.env = {key: value for key, value in os.environ.items() if key not in unset}
        self.env |= {"PATH": os.defpath, MARK: self.mark}

    def run(self, *arguments, **env):
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, *map(str, arguments)], cwd=self.place, env={**self.env, **env}, text=True,
            capture_output=True, timeout=300,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in background
        )  # fmt: skip

    def left(self, seconds=0):
        """Command lines of processes, of any call, that are there still when so many seconds have passed."""
        deadline = time.monotonic() + seconds
        while (found := list(self._marked())) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _marked(self):
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    yield process.cmdline()
            except psutil.Error:  # gone meanwhile, or somebody else's
                continue


@pytest.fixture(scope="session")
def labkit(place):
    """`labkit.run(arguments)`, and `labkit.left()`: processes that should have ended."""
    launcher = Launcher(place)
    yield launcher
    assert launcher.left(seconds=30) == []


def table(*servers, **changes):
    """A rank table; each server is an address and its device ids."""
    rank, listed = iter(range(100)), []
    for address, ids in servers:
        cards = [{"device_id": str(card), "rank_id": str(next(rank))} for card in ids]
        for card in cards:
            card["device_ip"] = f"192.168.100.{int(card['rank_id']) + 1}"
        listed.append({"server_id": address, "device": cards, "host_nic_ip": "reserve"})
    return {"version": "1.0", "server_count": str(len(listed)), "server_list": listed, "status": "completed", **changes}
