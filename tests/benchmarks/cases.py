"""What is compared with what."""

from dataclasses import dataclass

PIXELS = "uniform random pixels: speed does not depend on what they show"
PHOTOGRAPHS = "scikit-learn's two photographs, 640x427 JPEG"
LOADER = "PyTorch DataLoader, 2 workers"


@dataclass(frozen=True)
class Case:
    """Peers that do the same work: name -> arguments of the worker; speed is relative to `reference`."""

    name: str
    unit: str
    images: int | None  # in a unit; None where the unit has none
    reference: str
    peers: dict[str, tuple[str, ...]]


def _steps(network, title, batch):
    arguments = network, str(batch)
    peers = {
        "PyTorch eager": ("torch-step", *arguments),
        "MindSpore graph": ("mindspore-step", *arguments, "stock"),
        "MindSpore graph, labkit's gradient": ("mindspore-step", *arguments, "fast"),
    }
    unit = f"forward, backward and momentum update of {batch} images of 3x32x32, float32"
    return Case(f"{title} training step", unit, batch, "PyTorch eager", peers)


def _thor_steps(title, renewing):
    peers = {"momentum": "momentum", "THOR, inverses kept": "plain", "THOR, all inverses renewed": renewing}
    peers = {name: ("thor-step", kind) for name, kind in peers.items()}
    return Case(title, "a training step of 32 images of 3x224x224, float32", 32, "momentum", peers)


def _images(split, title, work, routes):
    peers = {LOADER: ("torch-images", split, "2")}
    for route, workers in routes:
        peers[f"labkit {route}, {workers} worker{'s' * (workers > 1)}"] = ("labkit-images", split, route, str(workers))
    unit = f"32 JPEG files: {work}, normalise, batch"
    return Case(f"ImageNet input pipeline, {title}", unit, 32, LOADER, peers)


GROUPS = {
    "steps": [_steps("resnet20", "ResNet-20", 128), _steps("resnet50", "ResNet-50 (CIFAR stem)", 32)],
    "thor": [
        _thor_steps("ResNet-50 step with THOR", "factors"),
        Case(
            "Inverses of ResNet-50's 108 factors", "all of them, damped, float32", None, "whole factors",
            {"whole factors": ("inverses", "none"), "blocks of 128": ("inverses", "128")},
        ),
    ],
    "thor-small": [
        Case(
            "ResNet-8 step with THOR", "mean over 20 training steps, one with factors, of 128 images of 3x32x32", 128,
            "momentum",
            {"momentum": ("small-step", "momentum"), "THOR, factors every 20 steps": ("small-step", "interval")},
        ),
    ],
    # a group of its own, as four such processes take more than 24 GB
    "thor-share": [_thor_steps("ResNet-50 step with THOR, factors from an eighth of the images", "eighth")],
    "pipeline": [
        Case(
            "CIFAR-10 input pipeline", "128 images: random crop, flip, normalise, batch", 128, LOADER,
            {
                LOADER: ("torch-data", "2"),
                "PyTorch DataLoader, in process": ("torch-data", "0"),
                "labkit, 1 worker": ("labkit-data", "1"),
                "labkit, 2 workers": ("labkit-data", "2"),
                "MindSpore Cifar10Dataset, 1 worker": ("mindspore-data", "1"),
            },
        )
    ],
    "imagenet": [
        _images("train", "training", "decode, random part, resize to 224, flip",
                [("fast", 2), ("fast", 1), ("exact", 2)]),
        _images("test", "evaluation", "decode, shorter side to 256, middle 224", [("fast", 2), ("exact", 2)]),
    ],
}  # fmt: skip
