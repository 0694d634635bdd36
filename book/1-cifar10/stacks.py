"""Plain and residual stacks of equal layers, with two measurements, for the chapter on residual networks."""

import mindspore as ms
import numpy as np
from mindspore import nn

from labkit.data import cifar10_files
from labkit.losses import CrossEntropySmooth
from labkit.networks import BasicBlock
from labkit.networks.resnet import batch_norm, conv
from labkit.system import device
from labkit.system.environment import data_root


class PlainBlock(BasicBlock):
    """A basic block without its shortcut."""

    def construct(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)))


class Stack(nn.Cell):
    """A convolution, `count` blocks, 10 logits: 2 count + 2 layers."""

    def __init__(self, block, count):
        super().__init__()
        self.stem = nn.SequentialCell(conv(3, 16, 3), batch_norm(16), nn.ReLU())
        self.blocks = nn.SequentialCell([block(16, 16) for _ in range(count)])
        self.fc = nn.Dense(16, 10)

    def construct(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def small_sample():
    """Images (N, 3, 8, 8) and labels (N,) of the sample: every fourth pixel, so that deep stacks train in seconds."""
    images, labels = cifar10_files.read(data_root() / "sample" / cifar10_files.FOLDER, "train")
    small = images[:, 2::4, 2::4].transpose(0, 3, 1, 2) / 255
    small = (small - small.mean()) / small.std()
    return small.astype(np.float32), labels.astype(np.int32)


def relative_gradients(block, count, images, labels, seed):
    """|gradient| / |weights| of each convolution, first layer first."""
    ms.set_seed(seed)
    net = Stack(block, count)
    net.set_train()
    loss = CrossEntropySmooth(10)
    weights = ms.ParameterTuple([p for p in net.trainable_params() if p.ndim == 4])

    def forward(x, y):
        return loss(net(x), y)

    with device.in_mode(ms.PYNATIVE_MODE):
        backward = ms.grad(forward, None, weights)
        gradients = backward(ms.Tensor(images), ms.Tensor(labels))
    size = np.linalg.norm
    pairs = zip(gradients, weights)
    return [size(g.asnumpy()) / size(w.asnumpy()) for g, w in pairs]


def losses(block, count, images, labels, **options):
    """The training loss of each step of a new stack."""
    return train(block, count, images, labels, **options)[1]


def train(block, count, images, labels, steps=60, batch=64, learning_rate=0.03, look=None):
    """A new stack trained: the network, the loss of each step, and what look(network) returned after each."""
    with device.in_mode(ms.GRAPH_MODE):
        ms.set_seed(1)
        net = Stack(block, count)
        optimizer = nn.Momentum(net.trainable_params(), learning_rate=learning_rate, momentum=0.9)
        with_loss = nn.WithLossCell(net, CrossEntropySmooth(10))
        step = nn.TrainOneStepCell(with_loss, optimizer)
        step.set_train()
        random = np.random.default_rng(0)
        chosen = [random.permutation(len(images))[:batch] for _ in range(steps)]
        batches = [(ms.Tensor(images[rows]), ms.Tensor(labels[rows])) for rows in chosen]
        values, seen = [], []
        for x, y in batches:
            values.append(float(step(x, y).asnumpy()))
            seen += [look(net)] if look else []
        return net, values, seen


def batch_norm_watched(images, labels, block=2, channel=0):
    """Train a stack of 8 layers, and watch one channel of a batch norm.

    Returns the layer, its input for 64 images, (64, 16, 8, 8), and the channel's mean in each batch and running mean
    after each step. The batch's follows from two running means: new = 0.9 old + 0.1 batch.
    """

    def running_mean(net):
        return float(net.blocks[block].bn1.moving_mean.asnumpy()[channel])

    net, _, running = train(BasicBlock, 3, images, labels, look=running_mean)
    running = np.array([0.0, *running])
    of_batch = (running[1:] - 0.9 * running[:-1]) / 0.1
    x = net.stem(ms.Tensor(images[:64]))
    for before in list(net.blocks)[:block]:
        x = before(x)
    return net.blocks[block].bn1, net.blocks[block].conv1(x), of_batch, running[1:]
