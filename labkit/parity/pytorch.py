"""PyTorch and torchvision, imported only when they are needed."""

import sys
import warnings

from labkit.system.errors import LabkitError, first_line

INSTALL = "make torch"
_library = None  # keeps the operator below alive


class NoTorchError(LabkitError):
    """PyTorch or torchvision is missing."""


def torch():
    """The module torch; raises NoTorchError."""
    try:
        import torch

        torch.__version__  # noqa: B018 - empty folders left by `pip uninstall` can be imported too
    except (ImportError, AttributeError):
        raise NoTorchError(f"PyTorch is not installed: {INSTALL}") from None
    return torch


def torchvision():
    """The module torchvision; raises NoTorchError.

    A torchvision without its compiled operators (installed with --no-deps next to a different build of PyTorch) cannot
    be imported because the operator nms is missing. No model needs it, so declaring the name is enough.
    """
    global _library
    library = torch().library
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to load image Python extension")  # not needed: Pillow reads the files
        try:
            import torchvision
        except ImportError:
            raise NoTorchError(f"torchvision is not installed: {INSTALL}") from None
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error):
                raise NoTorchError(f"torchvision cannot be imported: {first_line(error)}") from None
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]  # half imported
            _library = library.Library("torchvision", "DEF")
            _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            import torchvision
    return torchvision
