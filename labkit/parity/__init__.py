"""PyTorch compared with MindSpore: weights converted, one training step and a short training, stage by stage."""

from labkit.parity.measures import Difference, Tolerances
from labkit.parity.report import Report
from labkit.parity.resnets import Setting, compare_resnets, write_photographs
from labkit.parity.step import Side, compare_step
from labkit.parity.trajectory import compare_trajectory
from labkit.parity.weights import Names, WeightsError, from_mindspore, read_state, to_mindspore, write_state

__all__ = [
    "Difference", "Names", "Report", "Setting", "Side", "Tolerances", "WeightsError", "compare_resnets",
    "compare_step", "compare_trajectory", "from_mindspore", "read_state", "to_mindspore", "write_photographs",
    "write_state",
]  # fmt: skip
