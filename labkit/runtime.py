"""Where it runs: environment variables, device, ranks, seed."""

import ctypes
import importlib.metadata
import logging
import os
import platform
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ONEDNN_CAP = "ONEDNN_MAX_CPU_ISA"
# Between `labkit launch` and the processes that it starts.
LAUNCH_LOGS, DEVICE, TERMINAL = "LABKIT_LAUNCH_LOGS", "LABKIT_DEVICE", "LABKIT_TERMINAL"
LAUNCHED = "LABKIT_LAUNCHED"  # the same folder, for all that a process starts: what is left at the end is known by it


class LabkitError(Exception):
    """What a user can fix: one line that names the key, file or cell. The command line prints it and ends with 1."""

    exit_status = 1


_stop, _at_steps = threading.Event(), threading.Event()  # asked for by a signal; heard at the end of a step only


@contextmanager
def stopped_once():
    """Ctrl-C or SIGTERM raises KeyboardInterrupt once; a second one does not cut off what is then being saved.

    Inside `stopped_at_steps` it is raised by the next `raise_if_stopped`.
    """
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]

    def stop(number, frame):
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        _stop.set()
        if not _at_steps.is_set():
            raise KeyboardInterrupt
        os.write(2, b"\nstopping at the end of this step\n")

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        _stop.clear()
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


@contextmanager
def stopped_at_steps():
    """Inside it a stop waits for `raise_if_stopped`, or for its end.

    An exception while MindSpore compiles is reported as a defect of the network, and Python ignores one in a finalizer.
    """
    _at_steps.set()
    try:
        yield
        raise_if_stopped()  # a stop behind the last step
    finally:
        _at_steps.clear()


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt where a stop was asked for."""
    if _stop.is_set():
        raise KeyboardInterrupt


def shell_status(status: int) -> int:
    """Exit status of a process as a shell has it, where Python's is negative for the signal that killed it."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """SIGKILL for 9; a real-time signal has no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def lock(handle: int) -> bool:
    """Take the lock of an open file; False if another process holds it. Closing the file, or any end, releases it.

    On a file system without locks it is always True: there, a second process goes unnoticed.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True


@contextmanager
def locked(folder: Path, refusal: Exception):
    """Hold a folder's lock, or raise `refusal`; the lock is released when the process ends, however it ends."""
    if sys.platform == "win32":  # it cannot open a folder
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    else:
        handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock(handle):
            raise refusal
        yield
    finally:
        os.close(handle)


def require_linux(command: str, why: str) -> None:
    """LabkitError on another system, with the reason why a command cannot work there."""
    elsewhere = {"win32": "On Windows, use WSL2", "darwin": "On a Mac, use a Linux virtual machine or container"}
    if sys.platform != "linux":
        raise LabkitError(f"{command} needs Linux: {why}. {elsewhere.get(sys.platform, 'Use a Linux machine')}")


def user_id() -> int:
    """This user's number, as the owner of a file is given; 0 on Windows, as for every file there."""
    return os.getuid() if hasattr(os, "getuid") else 0


def data_root() -> Path:
    """Folder that holds the data sets: `$LABKIT_DATA`, or `data/` beside the package."""
    return Path(os.environ.get("LABKIT_DATA") or REPO / "data")


def version_of(package: str) -> str | None:
    """Installed version of a package, read from its metadata; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def mindspore_version() -> str | None:
    """Installed MindSpore version; importing it would take a second."""
    return version_of("mindspore")


def cpu_flags() -> set[str]:
    """Instruction sets of this CPU, as Linux reports them for x86; empty where it does not."""
    if platform.machine() != "x86_64":  # an emulator may show the real CPU's
        return set()
    return set(_cpuinfo("flags").split())


def _cpuinfo(name):
    """The first line of this name in Linux's description of the CPUs; "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


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
    if platform.machine() == "aarch64":  # MindSpore's build for it has tiny numbers rounded to zero; numpy notices
        warnings.filterwarnings("ignore", "The value of the smallest subnormal", UserWarning)
    # Errors only: its warnings are for MindSpore's own developers. Imported before, it has read its level already.
    if os.environ.setdefault("GLOG_v", "3") == "3":
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("ME.mindspore"):
                logging.getLogger(name).setLevel(logging.ERROR)
    _follow_launcher()


def _follow_launcher():
    """In a process of `labkit launch`: leave the process id beside the logs, and do not outlive who started it."""
    log_dir = os.environ.pop(LAUNCH_LOGS, None)
    if log_dir is None:
        return
    die_with_parent()
    if os.environ.get("MS_ROLE") != "MS_SCHED":
        Path(log_dir, f"worker_{os.environ.get('RANK_ID', '0')}.pid").write_text(str(os.getpid()))


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, however that is. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


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
    model = _cpuinfo("model name")  # not on aarch64
    return f"{model or platform.processor() or 'unknown CPU'} ({platform.system()} {platform.machine()})"


def ranks() -> tuple[int, int]:
    """Number of this process among those of a training, from 0, and how many there are, as the environment tells.

    RANK_ID and RANK_SIZE come from msrun, from ModelArts and with a rank table; otherwise Open MPI's mpirun is asked.
    """
    mpi = "OMPI_COMM_WORLD_RANK" in os.environ and "RANK_SIZE" not in os.environ
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") if mpi else ("RANK_ID", "RANK_SIZE")
    found = [os.environ.get(name) for name in names]
    if found[1] in (None, "1"):
        return 0, 1
    try:
        rank, size = map(int, found)
    except (TypeError, ValueError):
        rank, size = -1, 0
    if not 0 <= rank < size:
        raise LabkitError(f"{names[1]} is {found[1]}, but {names[0]} is {found[0]}")
    return rank, size


def require_one_process() -> None:
    """LabkitError in one of several processes of a job, where a command would make a Run, or a launch, in each."""
    size = ranks()[1]
    if "MS_ROLE" in os.environ:
        raise LabkitError(
            "MS_ROLE is set, so msrun has started this: have it start a lab's train.py, or use `labkit launch` alone"
        )
    if size > 1:
        raise LabkitError(
            f"RANK_SIZE is {size}, so this is one of {size} processes: start a lab's train.py in each of them, "
            "or unset it and start them all with `labkit launch`"
        )


def use_device(name: str | None = None) -> None:
    """Compute on "CPU", "GPU" or "Ascend"; without a name on $LABKIT_DEVICE, or on what MindSpore chooses.

    Raises LabkitError.
    """
    import mindspore as ms

    name = name or os.environ.get(DEVICE)
    # msrun's processes agree on their cards themselves; others are told theirs.
    card = None if "MS_ROLE" in os.environ else os.environ.get("DEVICE_ID", os.environ.get("ASCEND_DEVICE_ID"))
    if not name and card and ms.get_context("device_target") != "CPU":
        name = ms.get_context("device_target")
    try:
        if name and card and name != "CPU":
            ms.set_device(name, int(card))
        elif name and name != ms.get_context("device_target"):  # refused once something was computed
            ms.set_device(name)
    except (RuntimeError, ValueError) as error:
        raise LabkitError(f"device {name}: {str(error).split('. ')[0]}") from None


def setup(seed: int, all_reduce_fusion: list[int] | None = None) -> None:
    """Choose graph mode and seed everything; one of several processes joins the others first.

    all_reduce_fusion: numbers of the parameters after which a new AllReduce of gradients begins; all in one without.
    Does not return in msrun's scheduler: a process of the same command, which only brings the others together.
    """
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    if ranks()[1] > 1:
        _join_others()
        ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
        if all_reduce_fusion:
            ms.set_auto_parallel_context(all_reduce_fusion_config=list(all_reduce_fusion))
    ms.set_seed(seed)


@contextmanager
def in_mode(mode):
    """MindSpore's mode, `ms.PYNATIVE_MODE` or `ms.GRAPH_MODE`, inside a `with`; afterwards what it was before."""
    import mindspore as ms

    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        yield
    finally:
        ms.set_context(mode=before)


def _join_others():
    import mindspore as ms
    from mindspore import communication

    if communication.GlobalComm.INITED:
        return
    use_device()
    if ms.get_context("device_target") == "CPU":  # otherwise each starts as many threads as if it were alone
        ms.set_context(runtime_num_threads=max(1, cores() // ranks()[1]))
    # On a CPU a rank gives up after 30 seconds in which another did not come to an AllReduce, but evaluated, say.
    os.environ.setdefault("MS_NODE_TIMEOUT", "7200")
    try:
        communication.init()
    except RuntimeError as error:
        scheduler = os.environ.get("MS_ROLE") == "MS_SCHED"  # the reason that it will have is a port in use
        who = "msrun's scheduler" if scheduler else f"rank {ranks()[0]} of {ranks()[1]}"
        reason = str(error).splitlines()[0].split(". ")[0]
        raise LabkitError(f"{who} does not find the other processes: {reason}") from None


def mean_over_ranks(value: float) -> float:
    """Mean of a number over all processes. Every process must ask, and waits until all have."""
    size = ranks()[1]
    if size == 1:
        return value
    import numpy as np
    from mindspore import Tensor, ops

    return float(ops.AllReduce()(Tensor(np.float32(value))).asnumpy()) / size


def wait_for_all() -> None:
    """Go on when every process has come here."""
    mean_over_ranks(0.0)


def share_weights(parameters) -> None:
    """Give every process rank 0's values: data-parallel training keeps networks equal, but does not make them so.

    MindSpore's own `parameter_broadcast` will not do: it broadcasts in `Model.eval` as well, where rank 0 is alone.
    """
    if ranks()[1] == 1:
        return
    from mindspore import ops

    broadcast = ops.Broadcast(0)
    for parameter in parameters:
        parameter.set_data(broadcast((parameter,))[0])
