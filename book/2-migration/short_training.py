"""A ResNet of eight layers on scikit-learn's digits at 16x16 pixels: trains in seconds, to be broken on purpose."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from labkit.data import cifar10_files
from labkit.losses import CrossEntropySmooth
from labkit.networks import BasicBlock, ResNet
from labkit.optimizers import momentum
from labkit.system import environment


def load(split):
    """Every second pixel of the split "train" or "test": (N, 3, 16, 16) float32 in 0..255, and labels (N,)."""
    images, labels = cifar10_files.read(environment.data_root() / "sample" / cifar10_files.FOLDER, split)
    images = images[:, ::2, ::2].transpose(0, 3, 1, 2)
    return images.astype(np.float32), labels.astype(np.int32)


def normalise(images):
    """Pixels in 0..255, normalised to a mean near 0 and a standard deviation near 1."""
    return ((images / 255 - 0.3) / 0.4).astype(np.float32)


def create():
    """The network, with initial weights from MindSpore's seed."""
    return ResNet(BasicBlock, (1, 1, 1), 10, "cifar", widths=(16, 32, 64), projection=False)


def train(images, labels, lr, *, batch=64, seed=1, augment=None, weight_decay=1e-4):
    """Train the network for len(lr) steps, with learning rate lr[i] in step i; return it and the losses."""
    ms.set_seed(seed)
    random = np.random.default_rng(seed)
    net = create()
    with_loss = nn.WithLossCell(net, CrossEntropySmooth(10))
    step = nn.TrainOneStepCell(with_loss, momentum(net, lr, weight_decay=weight_decay)).set_train()
    losses = []
    while len(losses) < len(lr):
        order = random.permutation(len(images))
        for first in range(0, len(order) - batch + 1, batch):
            chosen = order[first : first + batch]
            inputs = augment(images[chosen], random) if augment else images[chosen]
            losses.append(float(step(Tensor(inputs), Tensor(labels[chosen])).asnumpy()))
    return net, np.array(losses)


def accuracy(net, images, labels):
    """Share of images that the network classifies correctly, in evaluation mode."""
    net.set_train(False)
    predictions = [
        net(Tensor(images[first : first + 360])).asnumpy().argmax(axis=1) for first in range(0, len(images), 360)
    ]
    return np.mean(np.concatenate(predictions) == labels)
