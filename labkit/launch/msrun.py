"""Launch: start the processes of a training on this machine and watch them until all have ended or one has failed.

MindSpore's msrun starts them: a scheduler, which only connects the others, and for each training process a shield, a
wrapper that runs the program (`labkit.launch.shield`). On Ascend, labkit can also start one program for each card of a
rank table. On Linux all of them end even if the launch itself is killed. The msrun in MindSpore's build for macOS does
not work on a CPU; there, only one process can be launched.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.launch import shield
from labkit.system import environment, interrupts
from labkit.system.device import DEVICE
from labkit.system.errors import LabkitError
from labkit.system.files import locked

LOGS = ("worker_*.log", "worker_*.pid", "scheduler.log", "msrun.log")  # msrun's names
TAIL = 12  # lines of a failed process's log to show
POLL = 0.1  # seconds
NOISE = ("[INFO]", "[WARNING]")  # MindSpore's own lines begin with these; they mean nothing to a user
LABKIT_ERROR = re.compile(r"(?:^|\])Error: (.*)")  # an error in one line; a progress bar may precede it
LAUNCHED = "LABKIT_LAUNCHED"  # the folder with the logs; identifies all started processes at the end
HOSTS_MEET = 7200  # seconds that msrun waits for other hosts, which may still be copying their data
MSRUN_FAILURE = re.compile(r"Worker process (\d+) exit with exception\. Error code: (-?\d+)")


def require_possible(count: int) -> None:
    """Raise LabkitError if this system cannot launch `count` processes."""
    if count > 1:
        environment.require_linux("labkit launch", "MindSpore's own builds train in several processes only there")


class LaunchError(LabkitError):
    """The processes cannot be started, or one failed: says what happened, with the last lines of its log.

    status: exit status of the failed process, negative if a signal killed it.
    """

    def __init__(self, message, status=1):
        super().__init__(message)
        self.exit_status = interrupts.shell_status(status) or 1


@dataclass(frozen=True)
class Hosts:
    """The machines of one training: how many, which one this is (from 0), and the address of the first."""

    count: int
    rank: int
    master: str
    port: int = 8118  # msrun's default for its scheduler; fixed, because all machines must know it


def launch(command, count: int, log_dir: Path | None = None, *, device=None, cards=None, hosts=None) -> None:
    """Run `python COMMAND` in `count` processes that train together; return when all have succeeded.

    log_dir: folder for the logs, one per process; by default a temporary folder, which is kept unless all succeed.
    device: "CPU", "GPU" or "Ascend"; cards: from `local_cards`, to start one process per card without msrun.
    hosts: for a training on several machines, with `count` processes on each.
    Prints the output of rank 0, or of this machine's first process. Leaves no process behind, however the training
    ends. Raises LaunchError as soon as a process fails, LabkitError if this system cannot launch.
    """
    require_possible(count)
    is_temporary, log_dir = log_dir is None, Path(log_dir or tempfile.mkdtemp(prefix="labkit-launch-")).absolute()
    log_dir.mkdir(parents=True, exist_ok=True)
    with locked(log_dir, LaunchError(f"{log_dir}: another launch is writing its logs here")), _free_port() as port:
        for file in [file for pattern in LOGS for file in log_dir.glob(pattern)]:
            file.unlink()
        if count == 1 and not hosts:
            cards = cards or [{"RANK_ID": "0", "RANK_SIZE": "1"}]
        if cards:
            starts = [(f"worker_{card['RANK_ID']}.log", card, [sys.executable, *command]) for card in cards]
        else:
            starts = [("msrun.log", {shield.LOGS: str(log_dir)}, _msrun(command, count, port, log_dir, hosts))]
        env, processes = _environment(command, log_dir, device), {}
        try:
            for log, variables, start in starts:
                processes[log_dir / log] = start_process(start, {**env, **variables}, log_dir / log)
            first = hosts.rank * count if hosts else 0
            _watch(processes, log_dir / starts[0][0].replace("msrun", f"worker_{first}"))
        finally:
            _end(processes.values(), log_dir)
            for file in log_dir.glob("*.pid"):
                file.unlink()
    if is_temporary:
        shutil.rmtree(log_dir)


def _environment(command, log_dir, device):
    """Environment variables for all processes."""
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["PYTHONUNBUFFERED"] = "1"  # so that the log of a killed process is complete
    env["GLOG_v"] = min(env["GLOG_v"], "3")  # msrun reports a failed process as an error
    env.setdefault("MS_OM_PATH", str(log_dir))  # where MindSpore leaves the graph of a failed compilation
    env[LAUNCHED] = str(log_dir)
    if device:
        env[DEVICE] = device
    if command[0] == "-m":  # not a random.py of the working folder; a start file needs its own modules
        env["PYTHONSAFEPATH"] = "1"
    if sys.stdout.isatty():
        env[environment.TERMINAL] = "1"
        env["COLUMNS"] = str(shutil.get_terminal_size().columns)
    return env


def _msrun(command, count, port, log_dir, hosts=None):
    """Command line of msrun. No process has the number in `tail_worker_log`, so msrun starts no `tail`."""
    size = count * hosts.count if hosts else count
    python = "python" if (Path(sys.executable).parent / "python").exists() else "python3"  # names that msrun recognises
    cluster = [f"--master_addr={hosts.master}", f"--node_rank={hosts.rank}"] if hosts else []
    cluster += [f"--cluster_time_out={HOSTS_MEET}"] if hosts else []
    return (
        sys.executable, "-m", "mindspore.parallel.cluster.run", "--join=True", f"--worker_num={size}",
        f"--local_worker_num={count}", *cluster, f"--master_port={hosts.port if hosts else port}",
        f"--log_dir={log_dir}", f"--tail_worker_log={size}", python, "-m", "labkit.launch.shield", *command,
    )  # fmt: skip


@contextmanager
def _free_port():
    """Reserve a free TCP port: no other program gets it, but the scheduler can listen on it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield holder.getsockname()[1]


def start_process(command, env, log, cwd=None):
    """Start a process in a new session, so that the terminal's Ctrl-C reaches only this process."""
    with open(log, "w", encoding="utf-8") as output:
        return subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=interrupts.die_with_parent,
        )  # fmt: skip


def _watch(processes, shown):
    """Print the log `shown` until all processes, {log: process}, have ended; raise LaunchError as soon as one fails."""
    output, ended = Follower(shown), False
    while not ended:
        time.sleep(POLL)
        ended = all(process.poll() is not None for process in processes.values())
        sys.stdout.write(output.read(rest=ended))
        sys.stdout.flush()
        for log, process in processes.items():
            _check(log, process)


def _check(log, process):
    """Raise LaunchError if a process has failed: a card's program, msrun, or a program that msrun started."""
    if log.name == "msrun.log":
        failed = MSRUN_FAILURE.search(log.read_text(encoding="utf-8", errors="replace"))
        if failed:
            raise _failure(_log_of(failed[1], log.parent), int(failed[2]))
        scheduler = log.with_name("scheduler.log")  # msrun checks its scheduler last
        if any(LABKIT_ERROR.search(line) or line.startswith("Traceback") for line in _lines(scheduler)):
            raise _failure(scheduler, 1)
    if process.poll():
        raise _failure(log, process.returncode)


def _log_of(pid, log_dir):
    """Log of the shield with a process id, or else of a shield that failed before it could write its id."""
    logs = {log: log.with_suffix(".pid") for log in sorted(log_dir.glob("worker_*.log"))}
    known = [log for log, note in logs.items() if note.exists() and note.read_text() == pid]
    return next(iter([*known, *(log for log, note in logs.items() if not note.exists())]), log_dir / "msrun.log")


def _failure(log, status):
    """LaunchError with labkit's own error message, or else with how the process ended and the last lines of its log."""
    outcome = f"was killed ({interrupts.signal_name(-status)})" if status < 0 else f"ended with exit status {status}"
    lines = _lines(log)
    for error in filter(None, map(LABKIT_ERROR.search, lines[-3:])):
        return LaunchError(f"{log.stem}: {error[1]}", status)
    end = "".join(f"\n    {line}" for line in lines[-TAIL:]) or " (empty)"
    return LaunchError(f"{log.stem} {outcome}; the end of {log}:{end}", status)


def _lines(log):
    """Lines of a log, without empty lines and MindSpore's own."""
    if not log.exists():
        return []
    text = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
    return [line for line in text.splitlines() if line.strip() and not line.startswith(NOISE)]


def _end(processes, log_dir):
    """Kill the processes and everything they started, identified by their environment; return when all are gone."""
    while family := [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(LAUNCHED) == str(log_dir)  # none if it is another user's
    ]:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=1)
        for process in processes:
            process.poll()  # otherwise it would remain as a zombie


class Follower:
    """Reads what is appended to a file, in whole lines; a progress bar's line ends with a carriage return."""

    def __init__(self, file):
        self.file, self.offset, self.partial = file, 0, b""

    def read(self, rest=False) -> str:
        """Text appended since the last call, without MindSpore's own lines; with `rest` also a partial last line."""
        if not self.file.exists():
            return ""
        with open(self.file, "rb") as file:
            file.seek(self.offset)
            added = file.read()
        self.offset += len(added)
        *lines, self.partial = re.split(rb"(?<=[\r\n])", self.partial + added)
        if rest:
            lines, self.partial = [*lines, self.partial], b""
        texts = [line.decode("utf-8", errors="replace") for line in lines]
        return "".join(text for text in texts if not text.startswith(NOISE))
