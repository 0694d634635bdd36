"""Networks, each as plain MindSpore cells."""

from labkit.networks.cpu_convolution import use_fast_gradients
from labkit.networks.precision import mixed_precision
from labkit.networks.resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    create_resnet,
    initialise_as_guide,
    zero_residual_branches,
)

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ResNet",
    "create_resnet",
    "initialise_as_guide",
    "mixed_precision",
    "use_fast_gradients",
    "zero_residual_branches",
]
