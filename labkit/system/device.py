"""The device, the processes of one training (ranks) and the random seed. MindSpore is imported when needed."""

import os
from contextlib import contextmanager

from labkit.system import environment
from labkit.system.errors import LabkitError, first_line

DEVICE = "LABKIT_DEVICE"  # set by `labkit launch` for the processes it starts


def ranks() -> tuple[int, int]:
    """This process's rank and the number of ranks, from RANK_ID and RANK_SIZE, or else Open MPI's variables."""
    mpi = "OMPI_COMM_WORLD_RANK" in os.environ and "RANK_SIZE" not in os.environ
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") if mpi else ("RANK_ID", "RANK_SIZE")
    rank, size = (os.environ.get(name, "") for name in names)
    if size in ("", "1"):
        return 0, 1
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise LabkitError(f"{names[1]} is {size}, but {names[0]} is {rank or 'not set'}")
    return int(rank), int(size)


def require_one_process() -> None:
    """Raise LabkitError if this is one of several processes, which would each create a Run, or launch, of its own."""
    if "MS_ROLE" in os.environ or ranks()[1] > 1:
        instead = "start a lab's train.py in each of them, or all of them with `labkit launch` alone"
        raise LabkitError(f"MS_ROLE or RANK_SIZE is set, so this is one of several processes: {instead}")


def use_device(name: str | None = None) -> None:
    """Compute on "CPU", "GPU" or "Ascend"; default: $LABKIT_DEVICE, or MindSpore's choice. Raises LabkitError."""
    import mindspore as ms

    name = name or os.environ.get(DEVICE)
    # msrun's processes agree on their cards among themselves; others read theirs from the environment.
    card = None if "MS_ROLE" in os.environ else os.environ.get("DEVICE_ID", os.environ.get("ASCEND_DEVICE_ID"))
    if not name and card and ms.get_context("device_target") != "CPU":
        name = ms.get_context("device_target")
    try:
        if name and card and name != "CPU":
            ms.set_device(name, int(card))
        elif name and name != ms.get_context("device_target"):  # MindSpore refuses this after the first computation
            ms.set_device(name)
    except (RuntimeError, ValueError) as error:
        raise LabkitError(f"device {name}: {str(error).split('. ')[0]}") from None


def setup(seed: int, all_reduce_fusion: list[int] | None = None) -> None:
    """Choose graph mode and seed everything. If there are several processes, they connect first.

    all_reduce_fusion: indices of the parameters after which a new AllReduce of gradients begins; default: one for all.
    Does not return in msrun's scheduler, which runs the same command only to connect the others.
    """
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    if ranks()[1] > 1:
        _connect()
        ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
        if all_reduce_fusion:
            ms.set_auto_parallel_context(all_reduce_fusion_config=list(all_reduce_fusion))
    ms.set_seed(seed)


@contextmanager
def in_mode(mode):
    """Use MindSpore's `ms.PYNATIVE_MODE` or `ms.GRAPH_MODE` inside a `with` block; the mode is restored afterwards."""
    import mindspore as ms

    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        yield
    finally:
        ms.set_context(mode=before)


def _connect():
    import mindspore as ms
    from mindspore import communication

    if communication.GlobalComm.INITED:
        return
    use_device()
    if ms.get_context("device_target") == "CPU":  # by default, each process starts as many threads as there are cores
        ms.set_context(runtime_num_threads=max(1, environment.cores() // ranks()[1]))
    # On a CPU a rank gives up after 30 seconds if another does not reach an AllReduce, for example while it evaluates.
    os.environ.setdefault("MS_NODE_TIMEOUT", "7200")
    try:
        communication.init()
    except RuntimeError as error:
        is_scheduler = os.environ.get("MS_ROLE") == "MS_SCHED"  # most likely its port is in use
        process = "msrun's scheduler" if is_scheduler else f"rank {ranks()[0]} of {ranks()[1]}"
        raise LabkitError(f"{process} cannot find the other processes: {first_line(error).split('. ')[0]}") from None


def mean_over_ranks(value: float) -> float:
    """Mean of a number over all processes. Every process must call this; it waits until all have."""
    size = ranks()[1]
    if size == 1:
        return value
    import numpy as np
    from mindspore import Tensor, ops

    return float(ops.AllReduce()(Tensor(np.float32(value))).asnumpy()) / size


def wait_for_all() -> None:
    """Wait until every process has called this."""
    mean_over_ranks(0.0)


def share_weights(parameters) -> None:
    """Copy rank 0's values to every process: data-parallel training keeps networks equal, but only from equal starts.

    MindSpore's own `parameter_broadcast` is no help: it also broadcasts in `Model.eval`, which only rank 0 runs.
    """
    if ranks()[1] == 1:
        return
    from mindspore import ops

    broadcast = ops.Broadcast(0)
    for parameter in parameters:
        parameter.set_data(broadcast((parameter,))[0])
