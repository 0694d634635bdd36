"""What the tests' object servers share: they are installed into _build, and run on free ports outside the project."""

import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from labkit.system.errors import LabkitError

CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def install(home, packages, what):
    """Folder with the programs of these packages, in an environment of their own; made anew where a pin has changed."""
    stamp, binaries, wanted = home / ".stamp", home / "bin", "\n".join(packages) + CONSTRAINTS.read_text()
    with alone(home):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(home, ignore_errors=True)
            pip = [binaries / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "10",
                   "-c", CONSTRAINTS]  # fmt: skip
            for command in ([sys.executable, "-m", "venv", home], [*pip, *packages]):
                done = subprocess.run(command, capture_output=True, text=True, env=outside())
                if done.returncode:
                    raise LabkitError(f"{what} cannot be installed: {last_line(done.stderr or done.stdout)}")
            stamp.write_text(wanted)
    return binaries


def outside():
    """This environment without what leads the server's Python to the project's modules: some have its names."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@contextmanager
def alone(home):
    """One test process at a time."""
    home.parent.mkdir(exist_ok=True)
    with open(home.parent / f"{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_ports(count):
    """Below those that the system gives to outgoing connections: a server's port could be lost to one of these."""
    ports = []
    for port in random.SystemRandom().sample(range(20000, 32000), 200):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise LabkitError("no free ports between 20000 and 32000")


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
