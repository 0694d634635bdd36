"""A peer: gets ready, says so in a line of JSON, then takes a turn for every line on its standard input."""

import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

INTERVAL = 20  # of factors, with a small network
STEPS = 3  # a turn: the median of so many steps
QUEUED = 50  # more batches than any queue holds
BATCHES = 200  # a turn of a pipeline
RATE = 0.01


def images_and_labels(batch, size=32, classes=10):
    random = np.random.default_rng(0)
    return random.standard_normal((batch, 3, size, size), np.float32), random.integers(0, classes, batch)


def steps(step, count=STEPS, typical=statistics.median):
    """A turn: typical seconds of `count` training steps; `step()` returns the loss as a number."""

    def turn():
        times = []
        for _ in range(count):
            start = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - start)
            if not np.isfinite(loss):
                sys.exit(f"loss is {loss}: what is measured is no training")
        return typical(times)

    return turn


def mindspore_step(network, batch, gradient):
    return _mindspore_steps((network, 10), "momentum", RATE, *images_and_labels(int(batch)), gradient == "fast")


def small_step(kind):
    """ResNet-8 with a batch of 128, the mean of 20 steps. kind: momentum, or interval (factors every 20 steps)."""
    return _mindspore_steps(
        ("resnet8", 10), kind, RATE, *images_and_labels(128), fast=True, count=INTERVAL, typical=statistics.mean
    )


def thor_step(kind):
    """ResNet-50. kind: momentum, plain (THOR, keeps its inverses), factors (a factor step, renews all) or eighth.

    The last is a factor step with factors from an eighth of the images.
    """
    return _mindspore_steps(("resnet50", 1000, "imagenet"), kind, RATE / 100, *images_and_labels(32, 224, 1000))


def _mindspore_steps(network, kind, rate, images, labels, fast=False, **turn):
    """What is measured, and a turn of it: training steps with momentum or THOR in graph mode, always on one batch."""
    import mindspore as ms
    from mindspore import nn

    from labkit.losses import CrossEntropySmooth
    from labkit.networks import create_resnet, use_fast_gradients
    from labkit.thor import TRACE_RULES, Preconditioner, ThorStep

    ms.set_seed(1)
    ms.set_context(mode=ms.GRAPH_MODE)
    net, classes = create_resnet(*network), network[1]
    if fast:
        use_fast_gradients(net)
    loss, parameters = CrossEntropySmooth(classes), sum(p.size for p in net.trainable_params())
    optimizer = nn.Momentum(net.trainable_params(), rate, 0.9)
    if kind == "momentum":
        cell = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    else:
        number, share = np.arange(100_000), {"eighth": 0.125, "interval": 0.25}.get(kind, 1.0)
        factor_steps = number % {"plain": 100_000, "interval": INTERVAL}.get(kind, 1) == 0
        thor = Preconditioner(net, [0.03], factor_steps, thresholds=TRACE_RULES["thor_nt"], factor_share=share)
        cell = ThorStep(net, loss, optimizer, thor)
    cell.set_train()
    images, labels = ms.Tensor(images), ms.Tensor(labels, ms.int32)

    def step():
        return float(cell(images, labels).asnumpy())

    return {"version": ms.__version__, "parameters": parameters}, steps(step, **turn)


def inverses(block_size):
    """A turn: seconds to invert all factors of ResNet-50, in blocks or ("none") whole."""
    import mindspore as ms

    from labkit.networks import create_resnet
    from labkit.thor import Preconditioner
    from labkit.thor.inverses import invert

    size = None if block_size == "none" else int(block_size)
    thor = Preconditioner(create_resnet("resnet50", 1000, "imagenet"), [0.03], [True], block_size=size)
    factors = [factor for layer in thor.layers.values() for factor in layer.factors()]
    random = np.random.default_rng(0)
    for factor, _ in factors:
        rows = random.standard_normal((*factor.shape[:2], 64)).astype(np.float32)
        factor.set_data(ms.Tensor(rows @ rows.transpose(0, 2, 1) / 64))

    def turn():
        start = time.perf_counter()
        inverses = invert(factors, 0.03)
        if any(inverse is None for inverse in inverses):
            sys.exit("some factors have no inverse: what is measured is no inversion")
        inverses[-1].asnumpy()  # waits for them
        return time.perf_counter() - start

    return {"version": ms.__version__}, turn


def torch_step(network, batch):
    import torch

    from tests.benchmarks.torch_resnet import create_resnet

    torch.manual_seed(1)
    net = create_resnet(network).train()
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    images, labels = map(torch.from_numpy, images_and_labels(int(batch)))

    def step():
        optimizer.zero_grad()
        loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    parameters = sum(p.numel() for p in net.parameters())
    return {"version": torch.__version__, "parameters": parameters}, steps(step)


def batches(iterable, queued=QUEUED, measured=BATCHES):
    """A turn: seconds a batch, over `measured` batches of an endless iterator."""
    iterator = iter(iterable)

    def turn():
        for _ in range(queued):  # made while the others took their turns
            next(iterator)
        start = time.perf_counter()
        for _ in range(measured):
            next(iterator)
        return (time.perf_counter() - start) / measured

    return turn


def cifar_folder():
    """Random records in CIFAR-10's layout and size, in a temporary folder that ends with the process."""
    from labkit.data import cifar10_files as files

    folder = tempfile.TemporaryDirectory()
    random = np.random.default_rng(0)
    for name in (*files.TRAIN_FILES, files.TEST_FILE):
        records = random.integers(0, 256, (10_000, files.RECORD_BYTES), np.uint8)
        records[:, 0] %= 10
        records.tofile(Path(folder.name) / name)
    return folder


def labkit_data(workers):
    from labkit.data import cifar10, cifar10_files

    folder, transforms = cifar_folder(), cifar10.train_transforms()
    images = cifar10_files.read(folder.name, "train")
    data = cifar10.create_dataset(images, 128, transforms, seed=0, num_workers=int(workers))
    return _mindspore_batches(data, folder)


def mindspore_data(workers):
    import mindspore as ms
    import mindspore.dataset as ds
    from mindspore.dataset import transforms

    from labkit.data import cifar10

    folder, workers = cifar_folder(), {"num_parallel_workers": int(workers)}
    data = ds.Cifar10Dataset(folder.name, usage="train", shuffle=True, **workers)
    data = data.map(cifar10.train_transforms(), "image", **workers)
    data = data.map(transforms.TypeCast(ms.int32), "label", **workers)
    return _mindspore_batches(data.batch(128, drop_remainder=True, **workers), folder)


def _mindspore_batches(data, folder, **counts):
    """The version, and a turn of a data set that reads a temporary folder, which has to stay as long."""
    import mindspore as ms

    turn = batches(data.repeat().create_tuple_iterator(output_numpy=True), **counts)
    return {"version": ms.__version__}, lambda: (folder, turn())[1]


def torch_data(workers):
    import torch

    random = np.random.default_rng(0)
    pixels = torch.from_numpy(random.integers(0, 256, (50_000, 3, 32, 32), np.uint8))
    labels = torch.from_numpy(random.integers(0, 10, 50_000))
    mean, std = torch.tensor([125.3, 123.0, 113.9]).view(3, 1, 1), torch.tensor([51.6, 50.8, 51.3]).view(3, 1, 1)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(pixels)

        def __getitem__(self, index):
            image = torch.nn.functional.pad(pixels[index], (4, 4, 4, 4))
            top, left, mirror = torch.randint(0, 18, (3,)).tolist()
            image = image[:, top // 2 : top // 2 + 32, left // 2 : left // 2 + 32]
            image = image.flip(2) if mirror < 9 else image
            return (image.float() - mean) / std, labels[index]

    loader = torch.utils.data.DataLoader(
        Images(), 128, shuffle=True, drop_last=True, num_workers=int(workers), persistent_workers=int(workers) > 0
    )
    return {"version": torch.__version__}, batches(itertools.chain.from_iterable(itertools.repeat(loader)))


def image_folder():
    """An image folder, in a temporary folder that ends with the process: one class, 64 links to each of scikit-learn's
    two photographs, in both splits."""
    from labkit.data import imagenet_files

    folder = tempfile.TemporaryDirectory()
    for split in imagenet_files.SPLITS.values():
        place = Path(folder.name) / split / "a"
        place.mkdir(parents=True)
        for path, number in itertools.product(imagenet_files.photographs(), range(64)):
            (place / f"{path.stem}-{number:02}.JPEG").symlink_to(path.resolve())
    return folder


IMAGES = {"queued": 24, "measured": 24}  # batches of 32; MindData's queues hold up to 16


def labkit_images(split, route, workers):
    from labkit.data import imagenet, imagenet_files

    folder, seed = image_folder(), 0 if split == "train" else None
    transforms = {"train": imagenet.train_transforms, "test": imagenet.evaluation_transforms}[split](route=route)
    images = imagenet_files.read(folder.name, split, "skip")
    data = imagenet.create_dataset(images, 32, transforms, seed=seed, num_workers=int(workers))
    return _mindspore_batches(data, folder, **IMAGES)


def torch_images(split, workers):
    import torch

    from labkit.parity import pytorch

    torchvision, folder = pytorch.torchvision(), image_folder()
    steps = torchvision.transforms
    first = {
        "train": [steps.RandomResizedCrop(224, (0.08, 1.0), (0.75, 1.333)), steps.RandomHorizontalFlip()],
        "test": [steps.Resize(256), steps.CenterCrop(224)],
    }[split]
    last = [steps.ToTensor(), steps.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    place = Path(folder.name) / {"train": "train", "test": "val"}[split]
    images = torchvision.datasets.ImageFolder(place, steps.Compose([*first, *last]))
    training = split == "train"
    loader = torch.utils.data.DataLoader(
        images, 32, shuffle=training, drop_last=training, num_workers=int(workers), persistent_workers=True
    )
    turn = batches(itertools.chain.from_iterable(itertools.repeat(loader)), **IMAGES)
    return {"version": f"{torch.__version__}, torchvision {torchvision.__version__}"}, lambda: (folder, turn())[1]


PEERS = (mindspore_step, small_step, thor_step, inverses, torch_step, labkit_data, mindspore_data, torch_data,
         labkit_images, torch_images)  # fmt: skip

if __name__ == "__main__":
    # What a library prints must not be taken for an answer: answers go to the real standard output, prints to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peers = {peer.__name__.replace("_", "-"): peer for peer in PEERS}
    about, turn = peers[sys.argv[1]](*sys.argv[2:])
    turn()
    print(json.dumps(about), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": turn()}), file=answers, flush=True)
