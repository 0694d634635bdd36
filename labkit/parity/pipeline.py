"""The input pipeline: evaluation images compared with torchvision's, and what one batch of a training pipeline
cannot show: whether it flips, shuffles, and distributes the images over its ranks."""

import datetime
import json
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
import PIL
from PIL import Image

from labkit.data import imagenet
from labkit.parity.measures import Difference, Tolerances, difference
from labkit.parity.pytorch import torch, torchvision
from labkit.system import environment
from labkit.system.files import atomic_write


def compare_evaluation(files, image_size=224, resize=256) -> list[Difference]:
    """Normalised images of torchvision's evaluation transforms against those of each of labkit's routes.

    A Difference, named by file and route, with the tolerance of the stage "batch". Raises NoTorchError.
    """
    steps, found = torchvision().transforms, []
    normalize = [steps.ToTensor(), steps.Normalize(imagenet.MEAN, imagenet.STD)]
    preprocess = steps.Compose([steps.Resize(resize), steps.CenterCrop(image_size), *normalize])
    for file in map(Path, files):
        with Image.open(file) as image:
            reference = preprocess(image.convert("RGB")).numpy()
        for route in imagenet.ROUTES:
            candidate = imagenet.read(file)
            for step in imagenet.evaluation_transforms(image_size, resize, route):
                candidate = step(candidate)
            found.append(difference(f"{file.name}, {route}", reference, candidate, Tolerances.batch))
    return found


def record_evaluation(files, file) -> None:
    """Write the results of `compare_evaluation`, with versions, machine and date, for readers without PyTorch."""
    about = {
        "PyTorch": torch().__version__,
        "torchvision": torchvision().__version__,
        "MindSpore": ms.__version__,
        "Pillow": PIL.__version__,
        "machine": environment.machine(),
        "date": datetime.date.today().isoformat(),
    }
    found = [stage.as_dict() for stage in compare_evaluation(files)]
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    atomic_write(Path(file), json.dumps({"about": about, "stages": found}, indent=1) + "\n")


def probe_folder(folder, images=64, size=64) -> None:
    """Write an image folder that probes a pipeline: one class per image, dark on the left, bright on the right."""
    ramp = np.broadcast_to(np.linspace(20, 235, size), (size, size)).astype(np.uint8)
    for split in ("train", "val"):
        for number in range(images):
            place = Path(folder) / split / f"{number:04}"
            place.mkdir(parents=True)
            Image.fromarray(ramp).convert("RGB").save(place / "ramp.png")


def compare_pipeline(create, flip=0.5, ranks=2, images=64, epochs=8) -> list[Difference]:
    """Three stages of a MindSpore training pipeline, compared with what training needs.

    create(folder, rank, ranks): a data set of (image (3, H, W), label), batched or not, over folder/train/<class>/*.
    - "flipped": share of mirrored images; should be `flip`, within four standard errors
    - "seen": how often an epoch has each image over all ranks; should be 1
    - "order": share of places with the same image in two consecutive epochs; should be near 0
    """
    with tempfile.TemporaryDirectory() as folder:
        probe_folder(folder, images)
        streams = [_read(create(folder, rank, ranks), epochs) for rank in range(ranks)]
    mirrored = [flipped for stream in streams for epoch in stream for _, flipped in epoch]
    error = 4 * (0.25 / len(mirrored)) ** 0.5
    first = [label for stream in streams for label, _ in stream[0]]
    seen = np.bincount(first, minlength=images)
    pairs = [pair for stream in streams for epochs in zip(stream, stream[1:]) for pair in zip(*epochs)]
    same = np.mean([one == other for (one, _), (other, _) in pairs])
    return [
        _absolute("flipped", flip, np.mean(mirrored), error if flip else 0.0),
        difference("seen", np.ones(images), seen, 0.0),
        _absolute("order", 0.0, same, 0.25),
    ]


def _read(dataset, epochs):
    """Per epoch: (label, mirrored) of every image."""
    iterator = dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    read = []
    for _ in range(epochs):
        epoch = []
        for pictures, labels in iterator:
            pictures, labels = (pictures[None], labels[None]) if pictures.ndim == 3 else (pictures, labels)
            half = pictures.shape[-1] // 2
            left, right = pictures[..., :half].mean((1, 2, 3)), pictures[..., -half:].mean((1, 2, 3))
            epoch += zip(labels.ravel().tolist(), (left > right).tolist())
        read.append(epoch)
    return read


def _absolute(name, wanted, found, tolerance) -> Difference:
    """A share, judged by its absolute difference."""
    apart = abs(float(found) - wanted)
    relative = apart / wanted if wanted else apart
    return Difference(name, apart, relative, 1.0, tolerance, apart <= tolerance, by="max_abs")
