"""Networks, each as plain MindSpore cells."""

from labkit.networks.convolution import use_fast_gradients
from labkit.networks.resnet import NAMES, BasicBlock, Bottleneck, ResNet, create_resnet

__all__ = ["NAMES", "BasicBlock", "Bottleneck", "ResNet", "create_resnet", "use_fast_gradients"]
