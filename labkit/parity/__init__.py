"""PyTorch compared with MindSpore: weights converted, one training step and a short training, stage by stage.

A name is imported on first use: `labkit --help` imports the room's commands, and needs no MindSpore.
"""

import importlib

_MODULES = {  # by their full names: a grade's key follows the texts that name a module
    "labkit.parity.measures": ("Difference", "Tolerances"),
    "labkit.parity.report": ("Report",),
    "labkit.parity.resnets": ("Setting", "compare_resnets", "write_photographs"),
    "labkit.parity.step": ("Side", "compare_step"),
    "labkit.parity.trajectory": ("compare_trajectory",),
    "labkit.parity.weights": ("Names", "WeightsError", "from_mindspore", "read_state", "to_mindspore", "write_state"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
