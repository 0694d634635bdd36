"""Export: a trained network as one file that other programs run, without labkit."""

import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from labkit.networks import create_resnet
from labkit.system import device
from labkit.system.errors import LabkitError, first_line
from labkit.system.files import atomic_write
from labkit.training import checkpoint
from labkit.training.recipes import Recipe


def export(recipe: Recipe, weights: Path, out: Path, file_format="mindir", *, batch_size=1, image_size=None) -> None:
    """Write the recipe's network with a checkpoint's weights: normalised images (N, 3, H, W) -> logits, in float32.

    N is batch_size, H and W are image_size or else the recipe's: a file has fixed shapes. Raises RunError, LabkitError.
    """
    device.setup(recipe.seed)
    if file_format == "air" and ms.get_context("device_target") != "Ascend":
        raise LabkitError(f"{out}: only Ascend writes AIR; export MINDIR here, and AIR from the same Run there")
    net = create_resnet(recipe.network.name, recipe.network.num_classes, recipe.network.stem).set_train(False)
    checkpoint.load_weights(weights, net)
    if file_format == "onnx" and recipe.network.stem == "imagenet":
        # MindSpore 2.8 has no ONNX form of padded max-pooling. After a ReLU, zeros pad as well as minus infinity.
        edge = ((0, 0), (0, 0), (1, 1), (1, 1))
        net.maxpool = nn.SequentialCell(nn.Pad(edge), nn.MaxPool2d(3, 2, pad_mode="valid"))
    size = image_size or recipe.data.image_size
    # MindSpore lets only the owner access what it writes, and accepts plain names only, which $TMPDIR may not have.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        part = Path(folder) / f"net.{file_format}"  # MindSpore would add the ending itself
        try:
            images = ms.Tensor(np.zeros((batch_size, 3, size, size), np.float32))
            ms.export(net, images, file_name=str(part), file_format=file_format.upper())
        except (RuntimeError, ValueError) as error:
            raise LabkitError(f"{out}: {first_line(error)}") from None
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(out, part.read_bytes())
