"""A command under limits, by bubblewrap: no network, no home, a read-only system, one temporary folder in memory.

The command is process 1 of its own process namespace: nothing in it can kill or outlive it. As root it runs under a
user id of its own, otherwise in a user namespace. Without bubblewrap the limits hold as far as the system lets them.
"""

import functools
import os
import random
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.grading import fonts, syscalls
from labkit.system.environment import REPO, data_root
from labkit.system.errors import LabkitError

HOME = "/tmp/home"  # inside: working directory and home
DISK_MB = 500  # what the sandbox's temporary folder holds, and the largest file
WATCH = 0.2  # seconds between two looks at memory and processes
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "passwd", "group",
            "nsswitch.conf", "hosts")  # fmt: skip
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


def python() -> str:
    """The Python of this environment, as the sandbox sees it."""
    return str(Path(sys.prefix).resolve() / "bin" / "python")


@functools.lru_cache
def unavailable() -> str:
    """"" where bubblewrap can be used, otherwise why not: it is really tried, once a process."""
    if sys.platform != "linux":
        return "bubblewrap is a program for Linux"
    for program in ("bwrap", "prlimit", "setpriv"):
        if not shutil.which(program):
            package = "bubblewrap" if program == "bwrap" else "util-linux"
            return f"{program} is not installed (package {package})"
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout
    if os.geteuid() != 0 and tuple(map(int, re.findall(r"\d+", version)[:2])) < (0, 8):
        return f"{version.strip()} is too old: 0.8 or newer is needed where one is not root"
    if seen := exposed([REPO]):
        return seen
    try:
        ended = run([python(), "-c", "import labkit"], limits=Limits(seconds=30, memory_mb=500))
    except SandboxError as error:
        return str(error)
    return "" if ended.status == 0 else ended.message or f"bwrap ended with {ended.status}"


def run(command: list[str], *, files: dict[str, bytes] | None = None, stdin: bytes = b"", limits: Limits,
        sandboxed: bool = True, readable: tuple[Path, ...] = ()) -> Ended:  # fmt: skip
    """Run a command with `files` in its working directory; whatever it started has ended on return. SandboxError.

    readable: files and folders that are seen at their own place besides, too large to be copied; no links.
    """
    files = dict(files or {}) | fonts.font_list()
    if sandboxed:
        return _run_in_bubblewrap(command, files, stdin, limits, readable)
    with tempfile.TemporaryDirectory(prefix="labkit-grade-", ignore_cleanup_errors=True) as folder:
        for name, data in files.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        environment = _environment(folder) | {MARK: folder}
        return _watched(_limited(command, limits), stdin, limits, env=environment, cwd=folder)


def _run_in_bubblewrap(command, files, stdin, limits, readable=()):
    handles = []

    def held(data):
        handle = os.memfd_create("file")
        handles.append(handle)
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(handle, 0, os.SEEK_SET)
        return str(handle)

    try:
        inside = ["--seccomp", held(syscalls.program())] if syscalls.program() else []
        for name, data in files.items():
            for parent in list(Path(name).parents)[-2::-1]:
                inside += ["--perms", "0777", "--dir", f"{HOME}/{parent}"]
            inside += ["--perms", "0666", "--file", held(data), f"{HOME}/{name}"]
        user = _free_user() if os.geteuid() == 0 else None
        command = [*_bubblewrap(readable), *inside, *_sealed(user), *_limited(command, limits)]
        with _guarded(user):
            return _watched(command, stdin, limits, pass_fds=handles)
    finally:
        for handle in handles:
            os.close(handle)


def _bubblewrap(readable=()):
    """What is visible: the system, this Python, labkit, the sample data, and of the labs what a learner has too."""
    arguments = ["bwrap", "--die-with-parent", "--as-pid-1", "--new-session", "--unshare-net", "--unshare-pid",
                 "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]  # fmt: skip
    if os.geteuid() != 0:
        arguments += ["--unshare-user", "--disable-userns"]
    size = str(DISK_MB * 1_000_000)
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"]
    arguments += ["--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--perms", "0777", "--dir", HOME]
    for folder in SYSTEM:
        arguments += ["--ro-bind-try", folder, folder]
    arguments += ["--perms", "0755", "--dir", "/etc"]
    for name in SETTINGS:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    bound, made = {Path(folder) for folder in SYSTEM}, set()
    places = [("--ro-bind", source, place) for source, place in [*_project(), *((path, path) for path in readable)]]
    for how, source, place in [*places, *(("--symlink", target, link) for link, target in _links_to_python())]:
        if any(bound.intersection([place, *place.parents])):
            continue
        bound.add(place)
        for parent in list(place.parents)[-2::-1]:  # bubblewrap's own would be closed to another user
            if parent in made:
                continue
            made.add(parent)
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += [how, str(source), str(place)]
    arguments += ["--clearenv"]
    for key, value in _environment(HOME).items():
        arguments += ["--setenv", key, value]
    return arguments


def exposed(paths: Iterable[Path]) -> str:
    """"" where no sandbox sees any of these folders, otherwise a line that names one, and where it lies."""
    bound = [Path(folder) for folder in SYSTEM] + [source for source, _ in _project()]
    for path in paths:
        real = Path(path).resolve()
        for seen in bound:
            if real.is_relative_to(seen.resolve()):
                return f"{path}: lies in {seen}, which every sandbox sees: choose another place"
    return ""


def _project():
    """Source and place of what is bound besides the system."""
    from labkit.grading import handout  # not above: pydantic, for `inside`, which needs the limits alone

    base = Path(sys.base_prefix)
    folders = [(base.resolve(), base), (base.resolve(), base.resolve())]
    folders += [(folder, folder) for folder in (Path(sys.prefix).resolve(), REPO / "labkit")]
    folders += [(folder, folder) for folder in [data_root().resolve() / "sample"] if folder.is_dir()]
    for lab in sorted((REPO / "labs").glob("*/")):
        folders += [(file, file) for file in handout.of_the_lab(lab)]
    return folders


def _links_to_python():
    """The links by which the environment's Python is found, each with its target; some lie outside what is bound."""
    link = Path(python())
    while link.is_symlink():
        target = os.readlink(link)
        yield link, target
        link = Path(os.path.normpath(link.parent / target))


@contextmanager
def _guarded(user):
    """Have all of a user's processes killed when this one is: bubblewrap may not, once they have another user's id."""
    if user is None:
        yield
        return
    # Where this process is killed while bubblewrap starts, that goes on and has the user's id only then.
    wait = "for n in $(seq 12); do kill -9 -1; sleep 0.5; done"
    script = f'if read line; then [ "$line" = ended ] || kill -9 -1; else {wait}; fi'
    command = [*_as_user(user), "sh", "-c", script]
    # Not on this process's own outputs: who reads these would wait for the guard as well.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **quiet) as guard:
        try:
            yield
        except BaseException:
            guard.communicate(b"interrupted\n")
            raise
        guard.communicate(b"ended\n")


def _as_user(user):
    return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--no-new-privs"]


def _sealed(user):
    """The last arguments of bubblewrap: nothing but /tmp and /dev/shm can be written, and no right is kept."""
    arguments = ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--cap-drop", "ALL"]
    if user is None:
        return [*arguments, "--"]
    return [*arguments, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", *_as_user(user)]


def _free_user():
    """A user id that nobody has: the limit on processes counts all of a user's."""
    ranges = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    many = max(first + count for first, _, count in ranges) >= 2**31  # a container may have 65,536 only
    lowest, highest = (2**30, 2**31 - 2) if many else (61184, 65519)
    users = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            users.add(process.stat().st_uid)
    while (user := random.SystemRandom().randint(lowest, highest)) in users:
        pass
    return user


def _limited(command, limits):
    disk, data = DISK_MB * 1_000_000, 2 * limits.memory_mb * 1_000_000  # what is reserved is more than what is used
    processes = limits.processes + 1  # `_guarded` is one of the user's
    return ["prlimit", f"--nproc={processes}", f"--fsize={disk}", f"--data={data}", "--core=0", "--", *command]


def _environment(home):
    return {
        "PATH": os.pathsep.join([str(Path(python()).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": home, "TMPDIR": home, "USER": "learner", "LOGNAME": "learner", "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPO), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
        "LABKIT_DATA": str(data_root().resolve()), "MS_OM_PATH": f"{home}/.mindspore", "GLOG_v": "3",
        "MPLBACKEND": "Agg", "MPLCONFIGDIR": f"{home}/.matplotlib",
    } | {key: os.environ[key] for key in ("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA") if key in os.environ}  # fmt: skip


def _watched(command, stdin, limits, **options):
    """Start the command, read its output, stop it at the first limit, and leave no process of it."""
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
    """"memory" or "processes" where a process and all that it started have as much as they may; otherwise ""."""
    import psutil

    most, resident, threads, found = limits.memory_mb * 1_000_000, 0, 0, []
    with suppress(psutil.NoSuchProcess):
        found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in found:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            resident += process.memory_info().rss
            threads += process.num_threads()
    if threads >= limits.processes:
        return "processes"
    return "memory" if resident > most and sum(map(_proportional, found)) > most else ""


def _proportional(process):
    """Bytes of a process's memory, with its share of what it shares; all of it where that is not told."""
    import psutil

    try:
        return process.memory_full_info().pss
    except psutil.AccessDenied:
        with suppress(psutil.NoSuchProcess):
            return process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return 0


def _end(process, mark):
    """Kill what is left. bubblewrap's child is process 1 inside: with it all others end, and only then bubblewrap."""
    import psutil

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
