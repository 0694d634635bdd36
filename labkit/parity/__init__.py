"""PyTorch compared with MindSpore: weights converted, one training step and a short training, stage by stage.

A name is imported when somebody asks for it: `labkit --help` takes the room's commands, and needs no MindSpore.
"""

import importlib

_MODULES = {
    "measures": ("Difference", "Tolerances"),
    "report": ("Report",),
    "resnets": ("Setting", "compare_resnets", "write_photographs"),
    "step": ("Side", "compare_step"),
    "trajectory": ("compare_trajectory",),
    "weights": ("Names", "WeightsError", "from_mindspore", "read_state", "to_mindspore", "write_state"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"labkit.parity.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
