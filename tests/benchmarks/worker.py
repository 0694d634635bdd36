"""A peer: gets ready, says so in a line of JSON, then takes a turn for every line on its standard input."""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = 3  # a turn: the median of so many steps
QUEUED = 50  # more batches than any queue holds
BATCHES = 200  # a turn of a pipeline
RATE = 0.01


def images_and_labels(batch):
    random = np.random.default_rng(0)
    return random.standard_normal((batch, 3, 32, 32), np.float32), random.integers(0, 10, batch)


def steps(step):
    """A turn: median seconds of a training step; `step()` returns the loss as a number."""

    def turn():
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - start)
            if not np.isfinite(loss):
                sys.exit(f"loss is {loss}: what is measured is no training")
        return statistics.median(times)

    return turn


def mindspore_step(network, batch, gradient):
    import mindspore as ms

    from labkit.networks import create_resnet, use_fast_gradients

    ms.set_seed(1)
    net = create_resnet(network)
    if gradient == "fast":
        use_fast_gradients(net)
    return _mindspore_steps(net, 10, "momentum", RATE, *images_and_labels(int(batch)))


def thor_step(kind, network, batch, size):
    """kind: momentum, plain (a THOR step that keeps its inverses), update (renews all) or eighth.

    The last is an update whose factors come from an eighth of the images.
    """
    import mindspore as ms

    from labkit.networks import create_resnet

    ms.set_seed(1)
    batch, size, random = int(batch), int(size), np.random.default_rng(0)
    images, labels = random.standard_normal((batch, 3, size, size), np.float32), random.integers(0, 1000, batch)
    return _mindspore_steps(create_resnet(network, 1000, "imagenet"), 1000, kind, RATE / 100, images, labels)


def _mindspore_steps(net, classes, kind, rate, images, labels):
    """What is measured, and a turn of it: training steps with momentum or THOR in graph mode, always on one batch."""
    import mindspore as ms
    from mindspore import nn

    from labkit.losses import CrossEntropySmooth
    from labkit.thor import TRACE_RULES, Thor, ThorStep

    ms.set_context(mode=ms.GRAPH_MODE)
    loss, parameters = CrossEntropySmooth(classes), sum(p.size for p in net.trainable_params())
    optimizer = nn.Momentum(net.trainable_params(), rate, 0.9)
    if kind == "momentum":
        cell = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    else:
        update_mask = np.arange(10_000) == 0 if kind == "plain" else np.ones(10_000, bool)
        share = 0.125 if kind == "eighth" else 1.0
        thor = Thor(net, [0.03], update_mask, thresholds=TRACE_RULES["thor_nt"], statistics_share=share)
        cell = ThorStep(net, loss, optimizer, thor)
    cell.set_train()
    images, labels = ms.Tensor(images), ms.Tensor(labels, ms.int32)
    return {"version": ms.__version__, "parameters": parameters}, steps(lambda: float(cell(images, labels).asnumpy()))


def inverses(block_size):
    """A turn: seconds to invert all factors of ResNet-50, in blocks or ("none") whole."""
    import mindspore as ms

    from labkit.networks import create_resnet
    from labkit.thor import Thor
    from labkit.thor.inverses import invert

    size = None if block_size == "none" else int(block_size)
    thor = Thor(create_resnet("resnet50", 1000, "imagenet"), [0.03], [True], block_size=size)
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
    import mindspore as ms

    from labkit.data import cifar10

    folder = cifar_folder()
    data = cifar10.create_dataset(
        folder.name, "train", 128, image_transforms=cifar10.train_transforms(), num_workers=int(workers)
    )
    turn = batches(data.repeat().create_tuple_iterator(output_numpy=True))
    return {"version": ms.__version__}, lambda: (folder, turn())[1]


def mindspore_data(workers):
    import mindspore as ms
    import mindspore.dataset as ds
    from mindspore.dataset import transforms

    from labkit.data import cifar10

    folder, workers = cifar_folder(), int(workers)
    data = ds.Cifar10Dataset(folder.name, usage="train", shuffle=True, num_parallel_workers=workers)
    data = data.map(cifar10.train_transforms(), "image", num_parallel_workers=workers)
    data = data.map(transforms.TypeCast(ms.int32), "label", num_parallel_workers=workers)
    data = data.batch(128, drop_remainder=True, num_parallel_workers=workers)
    turn = batches(data.repeat().create_tuple_iterator(output_numpy=True))
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
    """An image folder, in a temporary folder that ends with the process: one class, links to photographs, each in both
    splits. The photographs are those of the folder $LABKIT_BENCH_IMAGES, or scikit-learn's two, 64 times."""
    from labkit.data import imagenet_files

    given = os.environ.get("LABKIT_BENCH_IMAGES")
    paths = sorted(path for path in Path(given).rglob("*") if path.is_file()) if given else []
    paths = paths[: len(paths) // 32 * 32] or [path for path in imagenet_files.photographs() for _ in range(64)]
    folder = tempfile.TemporaryDirectory()
    for split in imagenet_files.SPLITS.values():
        place = Path(folder.name) / "images" / split / "a"
        place.mkdir(parents=True)
        for number, path in enumerate(paths):
            (place / f"{number:06}.JPEG").symlink_to(path.resolve())
    return folder


IMAGES = {"queued": 24, "measured": 24}  # batches of 32; MindData's queues hold up to 16


def labkit_images(split, route, workers, form):
    import mindspore as ms

    from labkit.data import imagenet

    place = image_folder()
    folder = Path(place.name) / "images"
    if form == "records":
        script = Path(__file__).parents[2] / "data_scripts" / "imagenet.py"
        subprocess.run([sys.executable, script, "mindrecord", folder], check=True)
        folder = folder.with_name("images-mindrecord")
    make = imagenet.train_transforms if split == "train" else imagenet.evaluation_transforms
    data = imagenet.create_dataset(
        folder, split, 32, image_transforms=make(route=route), num_workers=int(workers), bad_images="skip"
    )
    turn = batches(data.repeat().create_tuple_iterator(output_numpy=True), **IMAGES)
    return {"version": ms.__version__}, lambda: (place, turn())[1]


def torch_images(split, workers):
    import torch

    from labkit.parity import pytorch

    torchvision, place = pytorch.torchvision(), image_folder()
    steps = torchvision.transforms
    if split == "train":
        first = [steps.RandomResizedCrop(224, (0.08, 1.0), (0.75, 1.333)), steps.RandomHorizontalFlip()]
    else:
        first = [steps.Resize(256), steps.CenterCrop(224)]
    preprocess = steps.Compose(
        [*first, steps.ToTensor(), steps.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    )
    name = {"train": "train", "test": "val"}[split]
    images = torchvision.datasets.ImageFolder(Path(place.name) / "images" / name, preprocess)
    loader = torch.utils.data.DataLoader(
        images, 32, shuffle=split == "train", drop_last=split == "train", num_workers=int(workers),
        persistent_workers=True,
    )  # fmt: skip
    turn = batches(itertools.chain.from_iterable(itertools.repeat(loader)), **IMAGES)
    version = f"{torch.__version__}, torchvision {torchvision.__version__}"
    return {"version": version}, lambda: (place, turn())[1]


PEERS = {
    "mindspore-step": mindspore_step,
    "thor-step": thor_step,
    "inverses": inverses,
    "torch-step": torch_step,
    "labkit-data": labkit_data,
    "mindspore-data": mindspore_data,
    "torch-data": torch_data,
    "labkit-images": labkit_images,
    "torch-images": torch_images,
}

if __name__ == "__main__":
    # What a library prints must not be taken for an answer: answers go to the real standard output, prints to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    about, turn = PEERS[sys.argv[1]](*sys.argv[2:])
    turn()
    print(json.dumps(about), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": turn()}), file=answers, flush=True)
