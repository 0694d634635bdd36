"""This machine: paths, installed versions, CPU, and what MindSpore reads from the environment when imported."""

import importlib.metadata
import logging
import os
import platform
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from labkit.system.errors import LabkitError
from labkit.system.files import user_folder

REPO = Path(__file__).resolve().parents[2]
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container (docker --cpus, Kubernetes, Binder): "QUOTA PERIOD"
ONEDNN_CAP = "ONEDNN_MAX_CPU_ISA"
TERMINAL = "LABKIT_TERMINAL"  # set by `labkit launch` if its output goes to a terminal


def require_linux(command: str, reason: str) -> None:
    """Raise LabkitError on any other system, with the reason why the command cannot work there."""
    if sys.platform != "linux":
        raise LabkitError(f"{command} needs Linux: {reason}. Use a Linux machine, a virtual one or a container")


def data_root() -> Path:
    """Folder that holds the data sets: `$LABKIT_DATA`, or `data/` next to the package. Raises LabkitError."""
    folder = os.path.expanduser(os.environ.get("LABKIT_DATA") or REPO / "data")
    if folder.startswith("~"):  # its user has no home folder here
        raise LabkitError(f"LABKIT_DATA: {folder}: there is no such home folder; write the path without ~")
    return Path(folder)


def cache() -> Path:
    """This user's cache folder; a temporary one for a user without a home, or if root has left the cache unwritable."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "labkit")
    with suppress(OSError):
        if folder.is_absolute():  # not "~/.cache"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if folder.is_absolute() and os.access(folder, os.W_OK) else user_folder(tempfile.gettempdir())


def version_of(package: str) -> str | None:
    """Installed version of a package, from its metadata; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def mindspore_version() -> str | None:
    """Installed MindSpore version; importing it would take a second."""
    return version_of("mindspore")


def cpu_flags() -> set[str]:
    """Instruction sets of this CPU, as Linux reports them for x86; empty elsewhere."""
    return set(_cpuinfo("flags").split() if platform.machine() == "x86_64" else ())  # an emulator may show the CPU's


def _cpuinfo(name):
    """The value of the first line called `name` in /proc/cpuinfo; "" if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def onednn_trap() -> bool:
    """Whether this MindSpore's oneDNN would run convolutions on its slow reference kernel.

    MindSpore 2.9 and 2.10 do so on a CPU with AVX-512 and are then about two hundred times slower than 2.8 (see the
    chapter Performance tuning).
    """
    version = tuple(map(int, (mindspore_version() or "0").split(".")[:2]))
    return version >= (2, 9) and any(flag.startswith("avx512") for flag in cpu_flags())


def prepare_mindspore() -> None:
    """Set what MindSpore reads when imported, oneDNN's instruction set and the log level, unless the user has set it.

    Also silences the loggers of a MindSpore that is already imported, and numpy's warning about it on aarch64.
    """
    if onednn_trap():
        os.environ.setdefault(ONEDNN_CAP, "AVX2")
    if platform.machine() == "aarch64":  # MindSpore's build for it flushes tiny numbers to zero, and numpy notices
        warnings.filterwarnings("ignore", "The value of the smallest subnormal", UserWarning)
    # Errors only: its warnings are for MindSpore's own developers. An imported MindSpore has already read its level.
    if os.environ.setdefault("GLOG_v", "3") == "3":
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("ME.mindspore"):
                logging.getLogger(name).setLevel(logging.ERROR)


def cores() -> int:
    """Number of CPU cores that a process may use: a scheduler or a container may grant fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # a Mac
    try:
        quota, period = CPU_QUOTA.read_text(encoding="ascii").split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no control groups, or a quota of "max"
        return allowed


def workers(requested: int) -> int:
    """Number of data workers to start: MindData refuses more than there are cores."""
    return max(1, min(requested, cores()))


def machine() -> str:
    """CPU model and architecture, for a Run's provenance."""
    model = _cpuinfo("model name")  # not on aarch64
    return f"{model or platform.processor() or 'unknown CPU'} ({platform.system()} {platform.machine()})"
