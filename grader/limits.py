"""A command under limits: stopped at the first one that it exceeds, and no process of it is left."""

import os
import selectors
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

from labkit.system.errors import LabkitError

DISK_MB = 500  # the largest file; in the sandbox also what its temporary folder holds
WATCH = 0.2  # seconds between two looks at memory and processes
FILES = 1024  # open ones of a process
MARK = "LABKIT_SANDBOX"  # environment variable by which processes are known that left their parent
STOP = threading.Event()  # ends all commands that are under way


class SandboxError(LabkitError):
    """A command that could not be started, or was interrupted: one line that says why."""


@dataclass(frozen=True)
class Limits:
    """Of a command and all that it starts: seconds of wall clock, memory, processes and threads, output."""

    seconds: float
    memory_mb: int
    processes: int = 256
    output_mb: int = 32


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit status (negative: killed by that signal), its stdout, and which limit stopped it."""

    status: int
    output: bytes
    stopped: str  # "", "time", "memory", "processes" or "output"
    message: str = ""  # the last line of stderr


def prlimit(command: list[str], limits: Limits) -> list[str]:
    """The command under what the system itself limits: processes of a user, memory of a process, size of a file."""
    disk, data = DISK_MB * 1_000_000, 2 * limits.memory_mb * 1_000_000  # what is reserved is more than what is used
    return ["prlimit", f"--nproc={limits.processes}", f"--nofile={FILES}", f"--fsize={disk}", f"--data={data}",
            "--core=0", "--", *command]  # fmt: skip


def watched(command: list[str], stdin: bytes, limits: Limits, **options) -> Ended:
    """Start the command, read its output, stop it at the first limit, and leave no process of it. SandboxError."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, **options)  # fmt: skip
    except OSError as error:
        raise SandboxError(f"{command[0]}: {error.strerror}") from None
    output, errors, stopped = bytearray(), bytearray(), ""
    deadline, look = time.monotonic() + limits.seconds, 0.0
    writer = threading.Thread(target=_write, args=(process.stdin, stdin), daemon=True)
    writer.start()
    try:
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map() and not stopped:
                for key, _ in selector.select(WATCH):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        output += data
                    else:
                        errors = (errors + data)[-4096:]
                now = time.monotonic()
                if STOP.is_set():
                    raise SandboxError("interrupted")
                if len(output) > limits.output_mb * 1_000_000:
                    stopped = "output"
                elif now > deadline:
                    stopped = "time"
                elif now > look:
                    look, stopped = now + WATCH, exceeded(process.pid, limits)
                    if process.poll() is not None and not selector.select(0):
                        break  # a process that left its group holds the pipe
    finally:
        _end(process, options.get("env", {}).get(MARK))
        writer.join()
    lines = errors.decode(errors="replace").strip().splitlines()
    return Ended(process.returncode, bytes(output), stopped, lines[-1] if lines else "")


def _write(pipe, data):
    with suppress(OSError), pipe:  # it may end without reading
        pipe.write(data)


def exceeded(pid: int, limits: Limits) -> str:
    """"memory" or "processes" if a process and all that it started have reached that limit; otherwise ""."""
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


def _end(process, mark):
    """Kill what is left. bubblewrap's child is process 1 inside: with it all others end, and only then bubblewrap."""
    left = []
    with suppress(psutil.NoSuchProcess):
        left = psutil.Process(process.pid).children(recursive=mark is not None)
    if mark:
        left += [other for other in psutil.process_iter() if _is_marked(other, mark)]
    for other in left or [process]:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    for stream in (process.stdout, process.stderr):
        stream.close()
    process.wait()


def _is_marked(process, mark):
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:
        return False
