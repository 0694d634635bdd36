"""Checkpoints: the train network of a Run (weights, batch norm's statistics, optimizer state) and its step.

They are written before the evaluation of an epoch, which may be stopped.
"""

import json
import os
import stat

import mindspore as ms

from labkit.system import device
from labkit.system.errors import first_line
from labkit.training.runs import Run, RunError


def save_checkpoint(run, train_network, step) -> None:
    """Write checkpoints/latest.ckpt, whole or not at all; the previous one stays until then."""
    with open(run.history_file, "rb") as history:
        os.fsync(history.fileno())
        mode = stat.S_IMODE(os.fstat(history.fileno()).st_mode)
    part = run.checkpoint.with_name("part.ckpt")
    ms.save_checkpoint(train_network, str(part), append_dict={"step": step})
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    part.chmod(mode)  # MindSpore lets only the owner read it
    os.replace(part, run.checkpoint)


def load_weights(file, network) -> int | None:
    """Load a checkpoint into a network or train network; return its step, which a Run's has. Raises RunError."""
    require(file)
    try:
        params = ms.load_checkpoint(str(file))
        step = int(params.pop("step").asnumpy()) if "step" in params else None
        ms.load_param_into_net(network, params)
    except (ValueError, RuntimeError, KeyError) as error:
        raise RunError(f"{file}: damaged, or not of this recipe: {first_line(error)}") from None
    names = {parameter.name for parameter in network.get_parameters()}
    differ = sorted(names - set(params)) or sorted(name for name in params if is_weight(name) and name not in names)
    if differ:
        raise RunError(f"{file}: not of this recipe: only one of file and network has {differ[0]}")
    return step


def require(file) -> None:
    """Raise RunError if there is no such checkpoint (recorded Runs have none) or its name does not end with .ckpt."""
    if not file.exists():
        raise RunError(f"{file}: missing (a recorded Run has no checkpoint: train it again to get one)")
    if file.suffix != ".ckpt":
        raise RunError(f"{file}: MindSpore reads a checkpoint only if its name ends with .ckpt: rename it")


def is_weight(name: str) -> bool:
    """True for a network's parameter or statistic, by its name in a checkpoint; False for an optimizer's state."""
    return "." in name and not name.startswith(("moments.", "adam_m.", "adam_v.", "thor."))


def restore(run: Run, train_network) -> int:
    """Load the Run's last checkpoint, and on rank 0 truncate the history after it; return its step, 0 without one."""
    step = load_weights(run.checkpoint, train_network) if run.checkpoint.exists() else 0
    if step is None:
        raise RunError(f"{run.checkpoint}: damaged, or not of this recipe: it has no step")
    if device.ranks()[0] == 0:
        run.history_file.touch()
        if step == 0 and b'"accuracy"' in run.history_file.read_bytes():  # the checkpoint came before the evaluation
            raise RunError(f"{run.checkpoint}: missing; put it back, or train a new Run")
        os.truncate(run.history_file, _end(run.history_file, step))
    return step


def _end(history, step):
    """Number of bytes up to the checkpoint's step, with the evaluation after it; RunError if lines are lost."""
    end = last = 0
    with open(history, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = dict(json.loads(line))
                is_later = max(record.get("step", 0), record.get("factor_step", 0)) > step
            except (ValueError, TypeError):
                if last != step:
                    raise RunError(f"{history}, line {number}: not valid JSON") from None
                break  # half a line, of a killed training
            if is_later or not line.endswith(b"\n"):
                break
            end, last = end + len(line), record.get("step", last)
    if last != step:
        raise RunError(f"{history}: ends at step {last}, but the checkpoint is of step {step}, so lines are lost")
    return end
