"""The network of inverse.md: a small ResNet, trained for twenty steps on the sample, and the factors of its layers."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from labkit import schedules
from labkit.data import cifar10_files
from labkit.losses import CrossEntropySmooth
from labkit.networks import BasicBlock, ResNet, use_fast_gradients
from labkit.optimizers import momentum
from labkit.system import device, environment
from labkit.thor import convert


def read_images():
    """The sample's training images at 16 x 16 pixels, (N, 3, 16, 16), and labels (N,)."""
    images, labels = cifar10_files.read(environment.data_root() / "sample" / "cifar-10-batches-bin", "train")
    images = (images[:, ::2, ::2].transpose(0, 3, 1, 2) / 255 - 0.3) / 0.4
    return images.astype(np.float32), labels.astype(np.int32)


def train(images, labels, batch=64):
    """A network after twenty steps, its loss function, and the losses of the steps."""
    device.setup(seed=1)
    net = ResNet(BasicBlock, (2, 2, 2), 10, "cifar", widths=(32, 64, 128), projection=False)
    use_fast_gradients(net)
    loss = CrossEntropySmooth(10)
    lr = schedules.linear(1, 20, 0.01, 0.1, warmup_epochs=0.1)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), momentum(net, lr)).set_train()
    random, losses = np.random.default_rng(1), []
    for _ in range(len(lr)):
        chosen = random.integers(0, len(images), batch)
        losses.append(step(Tensor(images[chosen]), Tensor(labels[chosen])).asnumpy().item())
    return net, loss, losses


def measure(net, loss, images, labels):
    """Factors {layer: (A, G)} and gradients {layer: gradient} of one batch."""
    layers = convert(net, block_size=2**31)  # larger than any factor: whole matrices
    wanted = []
    for layer in layers.values():
        layer.taps_on = True
        wanted += [layer.factor_a, layer.factor_g, layer.layer.weight]

    def mean_loss(x, y):
        return loss(net(x), y)

    with device.in_mode(ms.PYNATIVE_MODE):
        derive = ms.value_and_grad(mean_loss, None, wanted)
        _, found = derive(Tensor(images), Tensor(labels))
    found = [value.asnumpy() for value in found]
    factors = [(a[0], g[0]) for a, g in zip(found[::3], found[1::3])]
    return dict(zip(layers, factors)), dict(zip(layers, found[2::3]))
