"""A command under limits: stopped at the first one that it exceeds, and no process of it is left."""

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.system.errors import LabkitError

DISK_MB = 500  # the largest file; in the sandbox also what its temporary folder holds
WATCH = 0.2  # seconds between two looks at memory and processes
FILES = 1024  # open ones of a process, and sockets that a user has sent and nobody received
SOCKET_BYTES = 212_992  # what the kernel may keep of what is sent to one, unless it is asked for more
MARK = "LABKIT_SANDBOX"  # environment variable by which processes are known that left their group


class SandboxError(LabkitError):
    """A command that could not even be started: one line that says why."""


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
    processes = limits.processes + 1  # `_guarded` is one of the user's
    return ["prlimit", f"--nproc={processes}", f"--nofile={FILES}", f"--fsize={disk}", f"--data={data}", "--core=0",
            "--", *command]  # fmt: skip


def watched(command: list[str], stdin: bytes, limits: Limits, **options) -> Ended:
    """Start the command, read its output, stop it at the first limit, and leave no process of it. SandboxError."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, **options)  # fmt: skip
    except OSError as error:
        raise SandboxError(f"{command[0]}: {error.strerror}") from None
    with suppress(OSError):  # where memory runs out all the same, the system takes this one first
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
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
    most, resident, threads, of_kernel, sockets, found = limits.memory_mb * 1_000_000, 0, 0, 0, set(), []
    with suppress(psutil.NoSuchProcess):
        found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in found:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            resident += process.memory_info().rss
            threads += process.num_threads()
            of_kernel += _page_tables(process.pid)
            sockets |= _sockets(process.pid)
    of_kernel += len(sockets) * SOCKET_BYTES + (_queued(found[-1].pid) if found else 0)
    if threads >= limits.processes:
        return "processes"
    return "memory" if resident + of_kernel > most and sum(map(_proportional, found)) + of_kernel > most else ""


def _page_tables(pid):
    """Bytes that the kernel has for a process's table of pages: those that are only read cost nothing else."""
    with suppress(OSError):
        found = re.search(r"^VmPTE:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return 1024 * int(found[1]) if found else 0
    return 0


def _sockets(pid):
    """Names of the sockets that a process has open; those that it shares with another have the same."""
    found = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(entry.path))
    return {name for name in found if name.startswith("socket:")}


def _queued(pid):
    """Bytes in the queues of a network that is not this process's own: TCP gives a socket more as it needs more."""
    total = 0
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return 0
        for kind in ("tcp", "tcp6"):
            rows = Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
            total += sum(int(part, 16) for row in rows for part in row.split()[4].split(":"))
    return total


def _proportional(process):
    """Bytes of a process's memory, with its share of what it shares; all of it where that may not be read."""
    with suppress(psutil.NoSuchProcess):
        try:
            return process.memory_full_info().pss
        except psutil.AccessDenied:
            return process.memory_info().rss
    return 0


def _end(process, mark):
    """Kill what is left. bubblewrap's child is process 1 inside: with it all others end, and only then bubblewrap."""
    left = []
    with suppress(psutil.NoSuchProcess):
        left = psutil.Process(process.pid).children(recursive=mark is not None)
    for other in left:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    if mark:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for other in psutil.process_iter():
            with suppress(psutil.Error):
                if other.environ().get(MARK) == mark:
                    other.kill()
    elif not left:
        process.kill()
    for stream in (process.stdout, process.stderr):
        stream.close()
    process.wait()
