"""PyTorch and torchvision, imported where they are needed and only there."""

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

        torch.__version__  # noqa: B018 - the empty folders that `pip uninstall` leaves are a module too
    except (ImportError, AttributeError):
        raise NoTorchError(f"PyTorch is not installed: {INSTALL}") from None
    return torch


def torchvision():
    """The module torchvision; raises NoTorchError.

    A torchvision without its compiled operators (installed with --no-deps next to a PyTorch of another build) fails at
    import because the operator nms is missing. None of its models needs it, so declaring the name is enough.
    """
    global _library
    library = torch().library
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to load image Python extension")  # reads files; Pillow does that here
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
