"""Run a command in bubblewrap: no network, no home, a read-only system, one temporary folder in memory, and limits.

The command is process 1 in a new process namespace, so nothing in it can kill or outlive it. If we are root, it runs
under an unused user id, otherwise in a user namespace. Without bubblewrap, it has only the limits.
"""

import functools
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

from grader import handout
from grader.limits import DISK_MB, Ended, Limits, prlimit, watched
from labkit.system.environment import REPO, data_root
from labkit.system.errors import LabkitError

HOME = "/tmp/home"  # working directory and home inside the sandbox
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "passwd", "group",
            "nsswitch.conf", "hosts")  # fmt: skip
USERS = itertools.count(os.getpid())  # unused user ids: the limit on processes counts all processes of a user


def python() -> str:
    """This environment's Python, as seen in the sandbox."""
    return str(Path(sys.prefix).resolve() / "bin" / "python")


@functools.lru_cache
def unavailable() -> str:
    """The reason why bubblewrap cannot be used, or "". This actually runs it, once per process."""
    if not shutil.which("bwrap"):
        return "bwrap is not installed (package bubblewrap)"
    try:
        ended = run([python(), "-c", "import labkit"], limits=Limits(seconds=30, memory_mb=500))
    except LabkitError as error:
        return str(error)
    return "" if ended.status == 0 else ended.message or f"bwrap ended with {ended.status}"


def run(command: list[str], *, files: dict[str, bytes] | None = None, stdin: bytes = b"", limits: Limits,
        sandboxed: bool = True, readable: tuple[Path, ...] = ()) -> Ended:  # fmt: skip
    """Run a command with `files` in its working directory; `readable` folders keep their paths. Raises LabkitError."""
    with tempfile.TemporaryDirectory(prefix="labkit-grade-", ignore_cleanup_errors=True) as folder:
        bound = []
        for name, data in ((files or {}) | _font_list()).items():
            file = Path(folder, name)
            file.write_bytes(data)
            file.chmod(0o644)
            bound += ["--ro-bind", str(file), f"{HOME}/{name}"]
        if not sandboxed:
            return watched(prlimit(command, limits), stdin, limits, env=_environment(folder), cwd=folder)
        return watched([*_bubblewrap(readable), *bound, *_sealed(), *prlimit(command, limits)], stdin, limits)


@functools.lru_cache
def _font_list():
    """matplotlib's list of fonts, if there is one: without it, each sandbox would take seconds to make its own."""
    import matplotlib

    lists = Path(matplotlib.get_cachedir()).glob("fontlist-*.json")
    return {file.name: file.read_bytes() for file in lists}


def _bubblewrap(readable):
    """Arguments that make visible: the system, this Python, the code, the sample data, the learners' files of labs."""
    arguments = ["bwrap", "--as-pid-1", "--new-session", "--unshare-net", "--unshare-pid",
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
    places = [("--ro-bind-try", source, place) for source, place in [*_project(), *((path, path) for path in readable)]]
    for option, source, place in [*places, *(("--symlink", target, link) for link, target in _links_to_python())]:
        if any(bound.intersection([place, *place.parents])):
            continue
        bound.add(place)
        for parent in sorted({*place.parents} - made):  # if bubblewrap creates them, other users cannot enter
            arguments += ["--perms", "0755", "--dir", str(parent)]
        made.update(place.parents)
        arguments += [option, str(source), str(place)]
    arguments += ["--clearenv"]
    for key, value in _environment(HOME).items():
        arguments += ["--setenv", key, value]
    return arguments


def _project():
    """(source, place) of what is visible besides the system."""
    base, sample = Path(sys.base_prefix), data_root().resolve() / "sample"
    places = [base.resolve(), Path(sys.prefix).resolve(), REPO / "labkit", REPO / "grader", sample]
    for lab in sorted((REPO / "labs").glob("*/")):
        places += handout.handed_out(lab)
    return [(base.resolve(), base), *((place, place) for place in places)]


def _links_to_python():
    """The links that lead to the environment's Python, with their targets; some are in folders that are not visible."""
    link = Path(python())
    while link.is_symlink():
        target = os.readlink(link)
        yield link, target
        link = Path(os.path.normpath(link.parent / target))


def _sealed():
    """bubblewrap's last arguments: only /tmp and /dev/shm are writable, and all privileges are dropped."""
    arguments = ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--cap-drop", "ALL"]
    if os.geteuid() != 0:
        return [*arguments, "--"]
    user = str(61184 + next(USERS) % 4336)
    return [*arguments, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", "setpriv", "--reuid", user,
            "--regid", user, "--clear-groups", "--no-new-privs"]  # fmt: skip


def _environment(home):
    return {
        "PATH": os.pathsep.join([str(Path(python()).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": home, "TMPDIR": home, "USER": "learner", "LOGNAME": "learner", "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPO), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
        "LABKIT_DATA": str(data_root().resolve()), "MS_OM_PATH": f"{home}/.mindspore", "GLOG_v": "3",
        "MPLBACKEND": "Agg", "MPLCONFIGDIR": home,
    } | {key: os.environ[key] for key in ("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA") if key in os.environ}  # fmt: skip
