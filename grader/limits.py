"""Run a command under limits: it is stopped at the first limit that it exceeds, and none of its processes survives."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

from labkit.system.errors import LabkitError

DISK_MB = 500  # maximum size of a file; in the sandbox also of its temporary folder
WATCH = 0.2  # seconds between two checks of memory and processes
STOP = threading.Event()  # stops all running commands


@dataclass(frozen=True)
class Limits:
    """Limits for a command and everything it starts: wall-clock seconds, memory, processes and threads, output."""

    seconds: float
    memory_mb: int
    processes: int = 256
    output_mb: int = 32


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit status (negative: killed by that signal), stdout, and the limit that stopped it."""

    status: int
    output: bytes
    stopped: str  # "", "time", "memory", "processes" or "output"
    message: str = ""  # the last line of stderr


def prlimit(command: list[str], limits: Limits) -> list[str]:
    """The command with the system's own limits: processes per user, memory per process, size of a file."""
    disk, data = DISK_MB * 1_000_000, 2 * limits.memory_mb * 1_000_000  # processes reserve more than they use
    return ["prlimit", f"--nproc={limits.processes}", "--nofile=1024", f"--fsize={disk}", f"--data={data}",
            "--core=0", "--", *command]  # fmt: skip


def watched(command: list[str], stdin: bytes, limits: Limits, **options) -> Ended:
    """Run the command, stop it at the first limit, and leave none of its processes. Raises LabkitError."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(command, stdin=given, stdout=output, stderr=errors, start_new_session=True,
                                       **options)  # fmt: skip
        except OSError as error:
            raise LabkitError(f"{command[0]}: {error.strerror}") from None
        # If this process is killed, its end of the pipe closes.
        script = f"read line || kill -9 $(cat /proc/{process.pid}/task/{process.pid}/children) {process.pid}"
        stopped, deadline, ended, guard = "", time.monotonic() + limits.seconds, False, None
        try:
            guard = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
            while not (ended or stopped):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(WATCH)
                    ended = True
                if STOP.is_set():
                    raise LabkitError("interrupted")
                if os.fstat(output.fileno()).st_size > limits.output_mb * 1_000_000:
                    stopped = "output"
                elif not ended:
                    stopped = "time" if time.monotonic() > deadline else exceeded(process.pid, limits)
        finally:
            _end(process)
            if guard:
                guard.communicate(b"ended\n")
        output.seek(0)
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return Ended(process.returncode, output.read(), stopped, message)


def exceeded(pid: int, limits: Limits) -> str:
    """The limit that a process and everything it started have reached, "memory" or "processes", or else ""."""
    resident, threads, processes = 0, 0, []
    with suppress(psutil.NoSuchProcess):
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            resident += process.memory_info().rss
            threads += process.num_threads()
    if threads >= limits.processes:
        return "processes"
    return "memory" if resident > limits.memory_mb * 1_000_000 else ""


def _end(process):
    """Kill what is left. bubblewrap's child is process 1 inside; when it ends, so do all others, then bubblewrap."""
    left = []
    with suppress(psutil.NoSuchProcess):
        left = psutil.Process(process.pid).children(recursive=True)
    for other in left or [process]:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
