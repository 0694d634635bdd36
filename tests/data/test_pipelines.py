"""labkit.data.cifar10 and labkit.data.imagenet: values of their batches, order, repetition and shards."""

import os

import cifar10_streams
import imagenet_streams
import numpy as np
import pytest
from cifar10_streams import normalized, pixels
from streams import equal, images_of, labels_of, rest_of_stream, stream

pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


class Cifar10:
    """60 images to train and 25 to test, and the pipelines of them."""

    def __init__(self, folder):
        self.folder, self.records = cifar10_streams.random_data(folder)

    def training(self, batch_size=20, augmented=False, **options):
        options |= {"padding": 4, "flip": 0.5} if augmented else {}
        return cifar10_streams.training(self.folder, batch_size, **options)

    def evaluation(self, **options):
        return cifar10_streams.evaluation(self.folder, **options)

    def which(self, epoch):
        """Numbers of an epoch's unaugmented images, whose labels must fit."""
        records = self.records["train"]
        order = cifar10_streams.which(images_of(epoch), records)
        np.testing.assert_array_equal(labels_of(epoch), records[order, 0])
        return order


class ImageFolder:
    """The same with images of one colour, or with photographs where augmentation matters; on one of the routes."""

    def __init__(self, folder, route):
        self.folder = imagenet_streams.numbered(folder / "numbered", 60, 25)
        self.photographs = imagenet_streams.write_photographs(folder / "photographs", repeat=5)
        self.route = route

    def training(self, batch_size=20, augmented=False, **options):
        folder = self.photographs if augmented else self.folder
        return imagenet_streams.training(folder, batch_size, route=self.route, **options)

    def evaluation(self, **options):
        return imagenet_streams.evaluation(self.folder, route=self.route, **options)

    def which(self, epoch):
        return imagenet_streams.which(epoch)


@pytest.fixture(scope="module", params=["cifar10", "fast", "exact"])
def data(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return Cifar10(folder) if request.param == "cifar10" else ImageFolder(folder, request.param)


# -- Order and repetition -------------------------------------------------------------------------


def test_training_gives_every_image_with_its_label(data):
    epochs = [data.which(epoch) for epoch in stream(data.training(seed=3), 3)]
    assert [sorted(order) for order in epochs] == [list(range(60))] * 3
    assert len({*map(tuple, epochs), tuple(range(60))}) == 4  # each epoch in an order of its own


def test_short_last_batch_is_dropped_in_training_and_kept_in_test(data):
    train, test = data.training(16), data.evaluation()
    assert (train.get_dataset_size(), test.get_dataset_size()) == (3, 3)
    assert [len(labels) for _, labels in stream(train)[0]] == [16, 16, 16]
    assert [len(labels) for _, labels in stream(test)[0]] == [10, 10, 5]


def test_the_same_seed_repeats_the_stream_bit_by_bit(data):
    """With any number of workers, except on the fast route: a Run resumes exactly on a machine with fewer cores."""
    first, again, other = (stream(data.training(augmented=True, seed=seed), 3) for seed in (7, 7, 8))
    more = stream(data.training(augmented=True, seed=7, num_workers=2), 3)
    assert [equal(a, b) for a, b in zip(first, again)] == [True] * 3
    assert [equal(a, b) for a, b in zip(first, other)] == [False] * 3
    assert not equal(first[0], first[1])
    assert [equal(a, b) for a, b in zip(first, more)] == [getattr(data, "route", None) != "fast"] * 3


@pytest.mark.parametrize("step, num_workers", [(1, 1), (4, 2), (11, 2)])
def test_init_step_gives_exactly_the_rest_of_the_stream(data, step, num_workers):
    """Three epochs of four steps; order, crop and flip are those of the uninterrupted stream."""
    options = {"batch_size": 15, "augmented": True, "seed": 9, "num_workers": num_workers}
    whole = [batch for epoch in stream(data.training(**options), 3) for batch in epoch]
    assert len(whole) == 12
    rest = rest_of_stream(data.training(**options), step, 3)
    assert equal(rest, whole[step:])
    assert not equal(rest, whole[: 12 - step])


@pytest.mark.parametrize("ranks, batch_size", [(2, 30), (7, 9)])
def test_shards_cover_every_image(data, ranks, batch_size):
    """In every epoch, each shard equally long, at most ranks - 1 images twice; 7 x 9 is 63 of 60."""
    shards = [stream(data.training(batch_size, seed=4, shard=(rank, ranks)), 3) for rank in range(ranks)]
    for epoch in range(3):
        seen = [data.which(shard[epoch]) for shard in shards]
        assert [len(part) for part in seen] == [batch_size] * ranks
        together = sum(seen, [])
        assert set(together) == set(range(60))
        assert len(together) - 60 <= ranks - 1
    assert len({tuple(data.which(epoch)) for epoch in shards[0]}) == 3


def test_more_workers_than_cores_are_bounded(data):
    """MindData itself raises ValueError."""
    assert len(stream(data.training(num_workers=os.cpu_count() + 1))[0]) == 3
    assert len(stream(data.evaluation(num_workers=64))[0]) == 3


# -- Values of CIFAR-10; tests/data/test_imagenet_pixels.py has ImageNet's ---------------------------


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    return Cifar10(tmp_path_factory.mktemp("cifar10"))


def test_test_batches_are_the_file_normalised_in_its_order(cifar10):
    (epoch,) = stream(cifar10.evaluation())
    images, labels = images_of(epoch), labels_of(epoch)
    assert (images.dtype, labels.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(images, normalized(pixels(cifar10.records["test"])), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(labels, cifar10.records["test"][:, 0])
