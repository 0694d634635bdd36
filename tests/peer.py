"""torchvision, with which tests and benchmarks compare."""

import importlib.util
from pathlib import Path

_KEEP = []  # a library's operators go when it does


def import_torchvision():
    """torchvision, also beside a PyTorch that its compiled operators do not fit: its import then lacks `nms`.

    Raises ImportError where either is not installed.
    """
    import torch

    if not _KEEP:
        spec = importlib.util.find_spec("torchvision")
        if spec is None:
            raise ImportError("torchvision is not installed")
        try:
            for path in Path(spec.origin).parent.glob("_C*"):
                torch.ops.load_library(path)
        except OSError:
            pass  # built for another PyTorch
        if not hasattr(torch.ops.torchvision, "nms"):
            _KEEP.append(torch.library.Library("torchvision", "FRAGMENT"))
            _KEEP[0].define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    return torchvision
