"""Checkpoints: the train network of a Run (weights, batch norm's statistics, optimizer state), its step and the length
of its history at that step. They are written before the evaluation of an epoch, which may be stopped.
"""

import json
import os

import mindspore as ms

from labkit.system import device
from labkit.system.errors import first_line
from labkit.training.runs import Run, RunError, is_evaluation


def save_checkpoint(run, train_network, step) -> None:
    """Write checkpoints/latest.ckpt, whole or not at all; the previous one stays until then."""
    with open(run.history_file, "rb") as history:
        os.fsync(history.fileno())
        place = {"step": step, "history_bytes": os.fstat(history.fileno()).st_size}
    part = run.checkpoint.with_name("part.ckpt")
    ms.save_checkpoint(train_network, str(part), append_dict=place)
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, run.checkpoint)


def load_weights(file, network) -> dict:
    """Load a checkpoint into a network or train network; return {step, history_bytes} of a Run's. Raises RunError."""
    require(file)
    try:
        params = ms.load_checkpoint(str(file))
        place = {key: int(params.pop(key).asnumpy()) for key in ("step", "history_bytes") if key in params}
        ms.load_param_into_net(network, params)
    except (ValueError, RuntimeError, KeyError) as error:
        raise RunError(f"{file}: damaged, or not of this recipe: {first_line(error)}") from None
    names = {parameter.name for parameter in network.get_parameters()}
    differ = sorted(names - set(params)) or sorted(name for name in params if is_weight(name) and name not in names)
    if differ:
        raise RunError(f"{file}: not of this recipe: only one of file and network has {differ[0]}")
    return place


def require(file) -> None:
    """Raise RunError if there is no such checkpoint; recorded Runs are without one."""
    if not file.exists():
        raise RunError(f"{file}: missing (a recorded Run has no checkpoint: train it again to get one)")


def is_weight(name: str) -> bool:
    """True for a network's parameter or statistic, by its name in a checkpoint; False for an optimizer's state."""
    return "." in name and not name.startswith(("moments.", "thor."))


def restore(run: Run, train_network) -> int:
    """Load the Run's last checkpoint, and on rank 0 truncate the history after it; return its step, 0 without one."""
    place = {"step": 0, "history_bytes": 0}
    if run.checkpoint.exists():
        place = load_weights(run.checkpoint, train_network)
        if not place:
            raise RunError(f"{run.checkpoint}: damaged, or not of this recipe: it has no step")
    if device.ranks()[0] == 0:
        run.history_file.touch()
        if run.history_file.stat().st_size < place["history_bytes"]:
            raise RunError(f"{run.history_file}: shorter than it was at the last checkpoint, so lines are lost")
        os.truncate(run.history_file, _end(run.history_file, place["history_bytes"]))
    return place["step"]


def _end(history, checkpointed):
    """Number of bytes to keep: all up to the checkpoint, and an evaluation right after it."""
    with open(history, "rb") as file:
        file.seek(checkpointed)
        line = file.readline()
    try:
        kept = is_evaluation(json.loads(line)) and line.endswith(b"\n")
    except ValueError:  # half a line, or none
        kept = False
    return checkpointed + (len(line) if kept else 0)
