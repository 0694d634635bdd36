"""A command under limits, by bubblewrap: no network, no home, a read-only system, one temporary folder in memory.

The command is process 1 of its own process namespace: nothing in it can kill or outlive it. As root it runs under a
user id of its own, otherwise in a user namespace. Without bubblewrap the limits hold as far as the system lets them.
"""

import functools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from grader import fonts, handout, syscalls
from grader.limits import DISK_MB, MARK, Ended, Limits, prlimit, watched
from labkit.system.environment import REPO, data_root
from labkit.system.errors import LabkitError

HOME = "/tmp/home"  # inside: working directory and home
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "passwd", "group",
            "nsswitch.conf", "hosts")  # fmt: skip


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
    try:
        if seen := exposed([REPO]):
            return seen
        ended = run([python(), "-c", "import labkit"], limits=Limits(seconds=30, memory_mb=500))
    except LabkitError as error:
        return str(error)
    return "" if ended.status == 0 else ended.message or f"bwrap ended with {ended.status}"


def run(command: list[str], *, files: dict[str, bytes] | None = None, stdin: bytes = b"", limits: Limits,
        sandboxed: bool = True, readable: tuple[Path, ...] = ()) -> Ended:  # fmt: skip
    """Run a command with `files` in its working directory; whatever it started has ended on return. SandboxError.

    readable: more files and folders, visible at their own paths because they are too large to copy; no links.
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
        return watched(prlimit(command, limits), stdin, limits, env=environment, cwd=folder)


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
        command = [*_bubblewrap(readable), *inside, *_sealed(user), *prlimit(command, limits)]
        with _guarded(user):
            return watched(command, stdin, limits, pass_fds=handles)
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
    bound, made = {Path(folder) for folder in SYSTEM}, {Path("/")}
    places = [("--ro-bind", source, place) for source, place in [*_project(), *((path, path) for path in readable)]]
    for how, source, place in [*places, *(("--symlink", target, link) for link, target in _links_to_python())]:
        if any(bound.intersection([place, *place.parents])):
            continue
        bound.add(place)
        for parent in sorted({*place.parents} - made):  # bubblewrap's own would be closed to another user
            arguments += ["--perms", "0755", "--dir", str(parent)]
        made.update(place.parents)
        arguments += [how, str(source), str(place)]
    arguments += ["--clearenv"]
    for key, value in _environment(HOME).items():
        arguments += ["--setenv", key, value]
    return arguments


def exposed(paths: Iterable[Path]) -> str:
    """"" where no sandbox sees any of these folders, otherwise a line that names one, and where it lies."""
    bound = [Path(folder) for folder in SYSTEM] + [source for source, _ in _project()]
    for path in paths:
        if seen := next((seen for seen in bound if Path(path).resolve().is_relative_to(seen.resolve())), None):
            return f"{path}: lies in {seen}, which every sandbox sees: choose another place"
    return ""


def _project():
    """Source and place of what is bound besides the system."""
    base, sample = Path(sys.base_prefix), data_root().resolve() / "sample"
    places = [base.resolve(), Path(sys.prefix).resolve(), REPO / "labkit", *([sample] if sample.is_dir() else [])]
    for lab in sorted((REPO / "labs").glob("*/")):
        places += handout.of_the_lab(lab)
    return [(base.resolve(), base), *((place, place) for place in places)]


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
    # Where this process is killed while bubblewrap starts, that continues and has the user's id only then.
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


def _environment(home):
    return {
        "PATH": os.pathsep.join([str(Path(python()).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": home, "TMPDIR": home, "USER": "learner", "LOGNAME": "learner", "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPO), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
        "LABKIT_DATA": str(data_root().resolve()), "MS_OM_PATH": f"{home}/.mindspore", "GLOG_v": "3",
        "MPLBACKEND": "Agg", "MPLCONFIGDIR": f"{home}/.matplotlib",
    } | {key: os.environ[key] for key in ("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA") if key in os.environ}  # fmt: skip
