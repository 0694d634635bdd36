"""Networks, each as plain MindSpore cells."""

from labkit.networks.resnet import NAMES, BasicBlock, Bottleneck, ResNet, create_resnet

__all__ = ["NAMES", "BasicBlock", "Bottleneck", "ResNet", "create_resnet"]
