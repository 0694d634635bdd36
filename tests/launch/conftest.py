"""Real processes: a small data set, the command line, and a watch over processes that are left behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import psutil
import pytest

HERE = Path(__file__).parent
MARK = "LABKIT_TEST_LAUNCH"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A working directory with 200 + 50 images in `data`; all pixels of a training image are its number."""
    folder = tmp_path_factory.mktemp("distributed")
    (folder / "data").mkdir()
    batches = [(f"data_batch_{i + 1}.bin", 40 * i, 40) for i in range(5)]
    for name, first, images in [*batches, ("test_batch.bin", 0, 50)]:
        numbers = np.arange(first, first + images, dtype=np.uint8)
        records = np.repeat(numbers[:, None], 3073, axis=1)
        records[:, 0] = numbers % 10
        (folder / "data" / name).write_bytes(records.tobytes())
    return folder


class Launcher:
    """`labkit` in a process of its own, by an interpreter that is not on PATH."""

    def __init__(self, place, repo_root):
        self.place, self.mark = place, uuid.uuid4().hex
        unset = ("RANK_ID", "RANK_SIZE", "MS_NODE_TIMEOUT", "VIRTUAL_ENV")
        self.env = {key: value for key, value in os.environ.items() if key not in unset}
        self.env |= {"PATH": os.defpath, "PYTHONPATH": str(repo_root), MARK: self.mark}

    def start(self, *arguments, **env):
        return subprocess.Popen(
            [sys.executable, "-m", "labkit", *map(str, arguments)], cwd=self.place, env={**self.env, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where pytest runs in background
        )  # fmt: skip

    def run(self, *arguments, **env):
        process = self.start(*arguments, **env)
        try:
            stdout, stderr = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()  # takes all others with it
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

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
def labkit(place, repo_root):
    """`labkit.run(arguments)`, and `labkit.left()`: processes that should have ended."""
    launcher = Launcher(place, repo_root)
    yield launcher
    assert launcher.left(seconds=30) == []


@pytest.fixture(scope="session")
def together(place, repo_root, here):
    """together.py in two processes, and its folder: under way, because it waits for half a minute on purpose."""
    folder = place / "together"
    folder.mkdir()
    process = Launcher(place, repo_root).start("launch", "-n", 2, here / "together.py", folder, place / "data")
    yield process, folder
    process.kill()
    process.communicate()


@pytest.fixture(scope="session")
def here():
    """Folder of these tests."""
    return HERE
