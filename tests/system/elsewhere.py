"""labkit in a process that is made to look like one on another system; see test_platforms.py for what that can show.

python elsewhere.py PLATFORM imports            imports every module of labkit
python elsewhere.py PLATFORM commands FOLDER    runs commands in FOLDER
Prints JSON: what went wrong by module, or exit status and output by command.
"""

import importlib
import json
import os
import pkgutil
import sys
from contextlib import suppress
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
# What labkit uses, imported before anything is taken away: the builds that are installed here are those for Linux.
OTHERS = """
    asyncio bs4 click concurrent.futures.process ctypes email filelock getpass jinja2 jupytext matplotlib.pyplot
    mindspore mindspore.dataset mindspore.nn multiprocessing.pool nbclient nbformat nbval.plugin numpy obs onnxruntime
    packaging.requirements PIL.Image psutil pydantic pytest requests select selectors shutil sklearn.datasets subprocess
    tempfile torch tqdm uuid yaml zipfile
"""
MISSING = {
    "darwin": {"os": "sched_getaffinity memfd_create pidfd_open setns unshare prlimit posix_fadvise setresuid"},
    "win32": {
        "os": "sched_getaffinity memfd_create pidfd_open fork forkpty getuid geteuid getgid killpg getpgid setsid "
              "pread pwrite chown mkfifo uname O_NOFOLLOW O_CLOEXEC",
        "signal": "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE alarm pthread_sigmask",
    },
}  # fmt: skip
NO_MODULES = {"darwin": (), "win32": ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")}


def become(system: str) -> None:
    """Take away what Python offers on Linux and not on that system, and what labkit's code could ask Linux itself."""
    for name in OTHERS.split():
        with suppress(ImportError):  # PyTorch is optional
            importlib.import_module(name)
    for module, names in MISSING[system].items():
        for name in names.split():
            if hasattr(sys.modules[module], name):
                delattr(sys.modules[module], name)
    for name in NO_MODULES[system]:
        sys.modules[name] = None
    sys.addaudithook(_refuse)
    sys.platform = system


def _refuse(event, arguments):
    """No /proc, and no system calls by way of the C library, for labkit's own code."""
    if event == "open" and str(arguments[0]).startswith("/proc/") and _is_labkits():
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
    if event == "ctypes.dlopen" and arguments[0] is None and _is_labkits():
        raise OSError("the C library is not Linux's here")


def _is_labkits():
    """Whether the nearest caller outside the standard library is labkit."""
    library, frame = os.path.dirname(os.__file__), sys._getframe(2)
    while frame:
        file = frame.f_code.co_filename
        if not file.startswith("<") and (not file.startswith(library) or "site-packages" in file):
            return file.startswith(str(REPO / "labkit"))
        frame = frame.f_back
    return False


def imports() -> dict[str, str]:
    """What each module of labkit fails with, if it does."""
    import labkit

    failed = {}
    for module in pkgutil.walk_packages(labkit.__path__, "labkit."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except Exception as error:
            failed[module.name] = f"{type(error).__name__}: {error}"
    return failed


def commands(folder: str) -> dict[str, list]:
    """Exit status, stdout and stderr of some commands, with a small data set in the folder's `data`."""
    from click.testing import CliRunner

    from labkit.cli import main
    from grader import release

    os.chdir(folder)
    recipe = (f"data.folder={Path('data').resolve()}", "network.name=resnet8", "data.batch_size=40", "epochs=1",
              "schedule.warmup_epochs=0")  # fmt: skip
    small = [f"--set={setting}" for setting in recipe]
    asked = {
        "doctor": ["doctor", "--json"],
        "train": ["train", "cifar10", "--out", "run", *small],
        "eval": ["eval", "run"],
        "plot": ["plot", "run"],
        "compare": ["compare", "run"],
        "obs": ["obs", "cp", "data", "copied"],
        "launch": ["launch", "-n", "2", "train", "cifar10", "--out", "launched", *small],
        "submit": ["submit", "cifar10", "--target", "local", "--out", "submitted"],
        "grade": ["grade", "cifar10", ".", "-o", "grades"],
        "grade --no-sandbox": ["grade", "cifar10", ".", "-o", "grades", "--no-sandbox"],
        "release": ["release", "cifar10", "handout"],
    }
    if sys.platform == "darwin":
        del asked["submit"]  # works there
    found = {}
    for name, words in asked.items():
        done = CliRunner().invoke(main, words)
        broken = done.exception is not None and not isinstance(done.exception, SystemExit)
        found[name] = [done.exit_code, done.stdout, repr(done.exception) if broken else done.stderr]
    found["lab"] = [release.main("cifar10", "work/lab-cifar10.ipynb"), "", ""]  # as `make lab` does
    found["left"] = sorted(path.name for path in Path().iterdir())
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(REPO))
    become(sys.argv[1])
    result = imports() if sys.argv[2] == "imports" else commands(sys.argv[3])
    print(json.dumps(result))
