"""Where it runs: environment variables, device, ranks, seed."""

import fcntl
import importlib.metadata
import os
import platform
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ONEDNN_CAP = "ONEDNN_MAX_CPU_ISA"


class LabkitError(Exception):
    """What a user can mend: one line that names the key, file or cell. The command line prints it and exits with 1."""


@contextmanager
def locked(folder: Path, refusal: Exception):
    """Hold a folder's lock, or raise `refusal`; the lock goes with the process, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refusal from None
        except OSError:
            pass  # a file system without locks: two at once are then not told apart
        yield
    finally:
        os.close(handle)


def data_root() -> Path:
    """Folder that holds the data sets: `$LABKIT_DATA`, or `data/` beside the package."""
    return Path(os.environ.get("LABKIT_DATA") or REPO / "data")


def mindspore_version() -> str | None:
    """Installed MindSpore version, read from its metadata: importing it would take a second."""
    try:
        return importlib.metadata.version("mindspore")
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_flags() -> set[str]:
    """Instruction sets of this CPU, as Linux reports them; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())


def onednn_trap() -> bool:
    """True where this MindSpore's oneDNN would run convolutions on its slow reference kernel.

    MindSpore 2.9 and 2.10 do so on a CPU with AVX-512, about 90 times slower than 2.8.
    """
    version = mindspore_version()
    if version is None or tuple(map(int, version.split(".")[:2])) < (2, 9):
        return False
    return any(flag.startswith("avx512") for flag in cpu_flags())


def prepare_environment() -> None:
    """Set what MindSpore reads at import; a value that the user has set stays."""
    if onednn_trap():
        os.environ.setdefault(ONEDNN_CAP, "AVX2")
    os.environ.setdefault("GLOG_v", "3")  # errors only: its warnings are for MindSpore's own developers


def cores() -> int:
    """CPU cores that this process may use (a container may grant fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers(wanted: int) -> int:
    """Data workers to start: MindData refuses more than there are cores."""
    return max(1, min(wanted, cores()))


def machine() -> str:
    """CPU model and architecture, for a Run's provenance."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor() or 'unknown CPU'} ({platform.system()} {platform.machine()})"


def require_one_process() -> None:
    """LabkitError in one of several processes of a job: gradients would not be averaged."""
    ranks = os.environ.get("RANK_SIZE", "1")
    if ranks != "1":
        raise LabkitError(f"RANK_SIZE is {ranks}, but labkit trains in one process only")


def use_device(name: str | None) -> None:
    """Compute on "CPU", "GPU" or "Ascend"; without a name, on what MindSpore chooses. Raises LabkitError."""
    import mindspore as ms

    try:
        if name:
            ms.set_device(name)
    except RuntimeError as error:
        raise LabkitError(f"device {name}: {str(error).split('. ')[0]}") from None


def setup(seed: int) -> None:
    """Choose graph mode and seed everything. The device is MindSpore's own choice."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed)
