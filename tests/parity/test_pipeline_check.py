"""Training pipelines: labkit's own is right, and each defect of the seeds' pipeline shows in its stage."""

import mindspore.dataset as ds
import pytest
from mindspore.dataset import vision

from labkit.data import imagenet
from labkit.parity.pipeline import compare_pipeline

SEED = 1


def own(folder, rank, ranks, route="fast"):
    return imagenet.create_dataset(
        folder, "train", 4, image_transforms=imagenet.train_transforms(32, route), rank=rank, ranks=ranks
    )


def seeds(folder, rank, ranks, flip=0.5, shuffle=True, shard=True):
    """The guide's pipeline, with the THOR seed's transforms, in today's MindSpore."""
    ds.config.set_seed(SEED)
    where = {"num_shards": ranks, "shard_id": rank} if shard else {}
    data = ds.ImageFolderDataset(f"{folder}/train", shuffle=shuffle, num_parallel_workers=1, **where)
    steps = [vision.RandomCropDecodeResize(32), vision.RandomHorizontalFlip(flip), vision.HWC2CHW()]
    return data.map(steps, "image", num_parallel_workers=1).batch(4)


def wrong(create):
    return [stage.name for stage in compare_pipeline(create) if not stage.ok]


@pytest.mark.parametrize("route", imagenet.ROUTES)
def test_labkit(route):
    assert wrong(lambda *where: own(*where, route)) == []


def test_the_seeds_with_what_was_meant():
    assert wrong(seeds) == []


@pytest.mark.parametrize(
    "defect, stages",
    [
        ({"flip": 0.0}, ["flipped"]),  # device_id / (device_id + 1) on device 0
        ({"shuffle": False}, ["order"]),
        ({"shard": False}, ["seen"]),  # every rank reads all
    ],
)
def test_defects(defect, stages):
    assert wrong(lambda *where: seeds(*where, **defect)) == stages
