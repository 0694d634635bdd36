"""Checkpoints: the train network of a Run, its step and the length of its history at that step."""

import os

import mindspore as ms
from mindspore.train import Callback

from labkit.system import device
from labkit.training.runs import Run, RunError


class CheckpointCallback(Callback):
    """Checkpoints a Run after every epoch, and every `every_steps` steps where given.

    The file holds the whole train network (weights, batch norm's statistics, optimizer state), the step and the
    length of the history at that step, so that a resumed training can cut off what came after.
    """

    def __init__(self, run, every_steps=None):
        super().__init__()
        self.run, self.every_steps = run, every_steps

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        # At the end of an epoch, or of the training, the evaluation comes first.
        evaluates = state.cur_step_num % state.batch_num == 0 or run_context.get_stop_requested()
        if self.every_steps and state.cur_step_num % self.every_steps == 0 and not evaluates:
            save_checkpoint(self.run, state.train_network, state.cur_step_num)

    def on_train_epoch_end(self, run_context):
        state = run_context.original_args()
        save_checkpoint(self.run, state.train_network, state.cur_step_num)


def save_checkpoint(run, train_network, step) -> None:
    """Write checkpoints/latest.ckpt, whole or not at all; the one before stays until then."""
    with open(run.history_file, "rb") as history:
        os.fsync(history.fileno())
        place = {"step": step, "history_bytes": os.fstat(history.fileno()).st_size}
    part = run.checkpoint.with_name("part.ckpt")
    ms.save_checkpoint(train_network, str(part), append_dict=place)
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, run.checkpoint)


def load_checkpoint(run, network) -> dict:
    """Load a Run's checkpoint into a network, or a train network; return its place {step, history_bytes}.

    Raises RunError as `load_weights` does, and where it has no place.
    """
    place = load_weights(run.checkpoint, network)
    if len(place) < 2:
        raise RunError(f"{run.checkpoint}: damaged, or not of this recipe: it has no step or no history_bytes")
    return place


def load_weights(file, network) -> dict:
    """Load a checkpoint file into a network, or a train network; return its place, empty where it is of no Run.

    Raises RunError where it is missing, damaged or does not fill the network.
    """
    if not file.exists():
        raise RunError(f"{file}: missing (a recorded Run has no checkpoint: train it again to get one)")
    try:
        params = ms.load_checkpoint(str(file))
        place = {key: int(params.pop(key).asnumpy()) for key in ("step", "history_bytes") if key in params}
        missing, _ = ms.load_param_into_net(network, params)
    except (ValueError, RuntimeError, KeyError) as error:
        raise RunError(f"{file}: damaged, or not of this recipe: {str(error).splitlines()[0]}") from None
    if missing:
        raise RunError(f"{file}: not of this recipe: it has no {missing[0]} ({len(missing)} parameters missing)")
    own = {parameter.name for parameter in network.get_parameters()}
    extra = [name for name in params if is_weight(name) and name not in own]
    if extra:
        raise RunError(f"{file}: not of this recipe: it has {extra[0]}, which the network has not")
    return place


def is_weight(name: str) -> bool:
    """True for a network's parameter or statistic, by its name in a checkpoint; False for an optimizer's state."""
    return "." in name and not name.startswith(("moments.", "thor."))


def restore(run: Run, train_network) -> int:
    """Load the Run's last checkpoint, and on rank 0 cut the history off there; return its step, 0 without one."""
    place = {"step": 0, "history_bytes": 0}
    if run.checkpoint.exists():
        place = load_checkpoint(run, train_network)
    if device.ranks()[0] == 0:
        run.history_file.touch()
        if run.history_file.stat().st_size < place["history_bytes"]:
            raise RunError(f"{run.history_file}: shorter than it was at the last checkpoint, so lines are lost")
        os.truncate(run.history_file, place["history_bytes"])
    return place["step"]
