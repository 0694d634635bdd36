"""Compare evaluation images from labkit's two routes with torchvision's.

    python book/2-migration/evaluation_images.py

writes the result to labs/imagenet/parity/evaluation-images.json, for readers without PyTorch.
"""

import datetime
import json

import mindspore as ms
import PIL
from PIL import Image

from labkit import choices
from labkit.data import imagenet, imagenet_files
from labkit.parity.measures import Difference, Tolerances, difference
from labkit.parity.pytorch import torch, torchvision
from labkit.system import environment
from labkit.system.files import atomic_write

RECORD = environment.REPO / "labs/imagenet/parity/evaluation-images.json"


def compare(files, image_size=224, resize=256) -> list[Difference]:
    """A Difference for each file and route, with the tolerance of the stage "batch". Raises NoTorchError."""
    steps, errors = torchvision().transforms, []
    normalize = [steps.ToTensor(), steps.Normalize(imagenet.MEAN, imagenet.STD)]
    preprocess = steps.Compose([steps.Resize(resize), steps.CenterCrop(image_size), *normalize])
    for file in files:
        with Image.open(file) as image:
            reference = preprocess(image.convert("RGB")).numpy()
        for route in choices.ROUTES:
            candidate = imagenet.read(file)
            for step in imagenet.evaluation_transforms(image_size, resize, route):
                candidate = step(candidate)
            errors.append(difference(f"{file.name}, {route}", reference, candidate, Tolerances.batch))
    return errors


if __name__ == "__main__":
    about = {
        "PyTorch": torch().__version__,
        "torchvision": torchvision().__version__,
        "MindSpore": ms.__version__,
        "Pillow": PIL.__version__,
        "machine": environment.machine(),
        "date": datetime.date.today().isoformat(),
    }
    stages = [stage.as_dict() for stage in compare(imagenet_files.photographs())]
    atomic_write(RECORD, json.dumps({"about": about, "stages": stages}, indent=1) + "\n")
