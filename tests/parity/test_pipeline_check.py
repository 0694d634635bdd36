"""Training pipelines: labkit's own is right, and each defect of the original pipeline shows in its stage."""

import sys

import evaluation_images
import mindspore.dataset as ds
import pytest
from mindspore.dataset import vision

from labkit import choices
from labkit.data import imagenet, imagenet_files
from labkit.data.imagenet_files import photographs
from labkit.parity.pipeline import compare_pipeline
from labkit.parity.pytorch import NoTorchError

SEED = 1


def own(folder, rank, ranks, route="fast"):
    images, steps = imagenet_files.read(folder, "train"), imagenet.train_transforms(32, route)
    return imagenet.create_dataset(images, 4, steps, seed=0, shard=(rank, ranks))


def seeds(folder, rank, ranks, flip=0.5, shuffle=True, shard=True, buffer=None):
    """The guide's pipeline, with the THOR seed's transforms, in today's MindSpore."""
    ds.config.set_seed(SEED)
    where = {"num_shards": ranks, "shard_id": rank} if shard else {}
    data = ds.ImageFolderDataset(f"{folder}/train", shuffle=shuffle, num_parallel_workers=1, **where)
    data = data.shuffle(buffer) if buffer else data
    steps = [vision.RandomCropDecodeResize(32), vision.RandomHorizontalFlip(flip), vision.HWC2CHW()]
    return data.map(steps, "image", num_parallel_workers=1).batch(4)


def wrong(create):
    return [stage.name for stage in compare_pipeline(create) if not stage.ok]


@pytest.mark.parametrize("route", choices.ROUTES)
def test_labkit(route):
    assert wrong(lambda *where: own(*where, route)) == []


def test_the_seeds_with_what_was_meant():
    assert wrong(seeds) == []


@pytest.mark.parametrize(
    "defect, stages",
    [
        ({"flip": 0.0}, ["flipped"]),  # device_id / (device_id + 1) on device 0
        ({"shuffle": False}, ["order"]),
        ({"shuffle": False, "buffer": 2}, ["order"]),  # a third of the places have the same image as before
        ({"shard": False}, ["seen"]),  # every rank reads all
    ],
)
def test_defects(defect, stages):
    assert wrong(lambda *where: seeds(*where, **defect)) == stages


def test_evaluation_images_are_torchvisions(pytorch):
    """The exact route is; the fast one is not."""
    files = photographs()
    found = {stage.name: stage for stage in evaluation_images.compare(files)}
    assert list(found) == [f"{file.name}, {route}" for file in files for route in choices.ROUTES]
    for name, stage in found.items():
        assert stage.ok == name.endswith("exact")
        assert stage.max_abs < 1e-6 or stage.max_abs > 1


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NoTorchError, match="PyTorch is not installed"):
        evaluation_images.compare(photographs())
