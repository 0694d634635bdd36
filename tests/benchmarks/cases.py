"""What is compared with what."""

from dataclasses import dataclass

DATA = "uniform random pixels: speed does not depend on what they show"


@dataclass(frozen=True)
class Case:
    """Peers that do the same work: name -> arguments of the worker; speed is relative to `reference`."""

    name: str
    unit: str
    images: int  # in a unit
    reference: str
    peers: dict[str, tuple[str, ...]]


def _steps(network, title, batch):
    return Case(
        f"{title} training step",
        f"forward, backward and momentum update of {batch} images of 3x32x32, float32",
        batch,
        "PyTorch eager",
        {
            "PyTorch eager": ("torch-step", network, str(batch)),
            "MindSpore graph": ("mindspore-step", network, str(batch), "stock"),
            "MindSpore graph, labkit's gradient": ("mindspore-step", network, str(batch), "fast"),
        },
    )


GROUPS = {
    "steps": [_steps("resnet20", "ResNet-20", 128), _steps("resnet50", "ResNet-50 (CIFAR stem)", 32)],
    "pipeline": [
        Case(
            "CIFAR-10 input pipeline",
            "128 images: random crop, flip, normalise, batch",
            128,
            "PyTorch DataLoader, 2 workers",
            {
                "PyTorch DataLoader, 2 workers": ("torch-data", "2"),
                "PyTorch DataLoader, in process": ("torch-data", "0"),
                "labkit, 1 worker": ("labkit-data", "1"),
                "labkit, 2 workers": ("labkit-data", "2"),
                "MindSpore Cifar10Dataset, 1 worker": ("mindspore-data", "1"),
            },
        )
    ],
}
