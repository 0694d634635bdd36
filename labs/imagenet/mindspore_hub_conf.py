"""What MindSpore Hub reads: it imports this file and asks for a network by its name."""

from labkit.choices import IMAGENET_LAYOUTS
from labkit.networks import create_resnet


def create_network(name, *args, **kwargs):
    """A network by its name, resnet18 to resnet152; see `imagenet_resnet` for the arguments.

    Raises NotImplementedError for another name, as Hub expects.
    """
    if name not in IMAGENET_LAYOUTS:
        raise NotImplementedError(f"{name} is not implemented in the repo")
    return imagenet_resnet(name, *args, **kwargs)


def imagenet_resnet(name, num_classes=1000, stem="imagenet"):
    """Images (N, 3, H, W) -> logits (N, num_classes), with weights drawn anew: Hub loads its checkpoint into it."""
    return create_resnet(name, num_classes, stem)
