"""Compare torchvision's ResNets with labkit's, with the same files, weights and settings (the original guide's)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.data import files, imagenet, imagenet_files
from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet
from labkit.optimizers import momentum
from labkit.parity.pytorch import torch, torchvision
from labkit.parity.report import Report
from labkit.parity.step import Side
from labkit.parity.trajectory import compare_training
from labkit.parity.weights import to_mindspore, torch_state
from labkit.system.errors import LabkitError

NETWORKS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
MOMENTUM, WEIGHT_DECAY, LEARNING_RATE, SMOOTHING = 0.875, 1 / 32768, 0.256, 0.1  # the original migration guide's
# Scale of the last batch norm in each block. With torchvision's default of 1, the sequence of random blocks magnifies
# rounding so much that PyTorch in float32 is not within the tolerances of PyTorch in float64. The short training starts
# from 0 (torchvision's zero_init_residual), so that the blocks start as identities and the first steps are not chaotic.
# The single step cannot do so: no gradient would reach the blocks' inner layers.
STEP_SCALE, TRAINING_SCALE = 0.1, 0.0
TRAINING_RATE = 3e-5  # the rate of the lab's profile `full` at its fourth step


@dataclass(frozen=True)
class Setting:
    """What to compare: the network, batches of photographs, length of the short training."""

    network: str
    folder: Path  # train/<class>/*, of whose shuffled images the first batches are used
    image_size: int = 64
    batch_size: int = 8
    steps: int = 20
    seed: int = 1


def write_photographs(folder, tile=128, step=96, classes=10) -> None:
    """Write tiles of scikit-learn's two photographs as an image folder for comparisons, with alternating classes.

    The sample's digits are no alternative: in flat images whole channels hardly vary, batch norm magnifies their
    rounding, and ReLUs switch on one side only.
    """
    from PIL import Image

    number = 0
    with files.staging(folder) as staged:
        for path in imagenet_files.photographs():
            with Image.open(path) as photograph:
                for top in range(0, photograph.height - tile + 1, step):
                    for left in range(0, photograph.width - tile + 1, step):
                        for split in ("train", "val"):
                            place = staged / split / str(number % classes)
                            place.mkdir(parents=True, exist_ok=True)
                            photograph.crop((left, top, left + tile, top + tile)).save(place / f"{number:03}.png")
                        number += 1
        files.write_source(staged, "tiles of scikit-learn's two photographs")
        files.publish(staged, folder, imagenet_files.check)


def torch_batches(setting, count) -> list:
    """The first batches from torchvision's transforms: [(images (N, 3, H, W) float32, labels (N,))]."""
    from PIL import Image

    vision, size = torchvision().transforms, setting.image_size
    steps = vision.Resize(_resize(setting)), vision.CenterCrop(size), vision.ToTensor()
    transform = vision.Compose([*steps, vision.Normalize(imagenet.MEAN, imagenet.STD)])
    paths, labels = imagenet_files.read(setting.folder, "train")
    order = list(imagenet.EpochOrder(len(paths), setting.seed, rank=0, ranks=1))

    def load(number):
        with Image.open(paths[number]) as image:
            return transform(image.convert("RGB")).numpy()

    chosen = [order[i * setting.batch_size :][: setting.batch_size] for i in range(count)]
    return [(np.stack([load(number) for number in numbers]), labels[numbers]) for numbers in chosen]


def mindspore_batches(setting, count) -> list:
    """The same batches from labkit's pipeline."""
    images = imagenet_files.read(setting.folder, "train")
    steps = imagenet.evaluation_transforms(setting.image_size, _resize(setting), "exact")
    dataset = imagenet.create_dataset(images, setting.batch_size, steps, seed=setting.seed)
    iterator = dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)
    return [batch for _, batch in zip(range(count), iterator)]


def create_sides(setting, theirs, ours, classes, lr=LEARNING_RATE, scale=STEP_SCALE) -> tuple[Side, Side]:
    """Both sides, with the same weights, for a pair of batches; scale: of the last batch norm in each block."""
    torch().manual_seed(setting.seed)
    reference = torchvision().models.get_model(setting.network, weights=None, num_classes=classes)
    for block in reference.modules():
        if hasattr(block, "downsample"):  # torchvision's name for a block's shortcut
            torch().nn.init.constant_(getattr(block, "bn3", block.bn2).weight, scale)
    candidate = create_resnet(setting.network, classes, "imagenet")
    to_mindspore(torch_state(reference), candidate)
    reference.train()
    candidate.set_train()
    smoothing = SMOOTHING * (classes - 1) / classes  # labkit's loss spreads over the other classes, PyTorch's over all
    loss = torch().nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    optimizer = momentum(candidate, np.full(10_000, lr, np.float32), MOMENTUM, WEIGHT_DECAY)
    ours = Side(candidate, CrossEntropySmooth(classes, smoothing), optimizer, *ours)
    return Side(reference, loss, torch_momentum(reference, lr), *theirs), ours


def torch_momentum(net, lr):
    """SGD with momentum, and weight decay except on batch norm and biases, as in `labkit.optimizers.momentum`."""
    each = [{"params": [weight], "weight_decay": WEIGHT_DECAY * (weight.ndim > 1)} for weight in net.parameters()]
    return torch().optim.SGD(each, lr=lr, momentum=MOMENTUM)


def compare_resnets(setting: Setting, plant=None) -> Report:
    """Compare one step and a short training of a ResNet in both frameworks. Raises DataError, LabkitError.

    plant: (reference, candidate) -> None changes the pair before each comparison; the clinic plants defects with it.
    """
    if setting.network not in NETWORKS:
        raise LabkitError(f"network must be one of {', '.join(NETWORKS)}, not {setting.network!r}")
    data = imagenet_files.check(setting.folder)
    count = min(4, data.train_images // setting.batch_size)
    if not count:
        raise LabkitError(f"{setting.folder}: {data.train_images} images, fewer than a batch of {setting.batch_size}")
    theirs, ours = torch_batches(setting, count), mindspore_batches(setting, count)

    def pair(batch=0, **options):
        sides = create_sides(setting, theirs[batch], ours[batch], len(data.classes), **options)
        if plant:
            plant(*sides)
        return sides

    return compare_training(
        (pair(batch) for batch in range(count)), lambda: pair(lr=TRAINING_RATE, scale=TRAINING_SCALE),
        [theirs[step % count] for step in range(setting.steps)], data.dataset,
        {"network": setting.network, "seed": setting.seed, "torchvision": torchvision().__version__},
    )  # fmt: skip


def _resize(setting):
    return setting.image_size * 256 // 224
