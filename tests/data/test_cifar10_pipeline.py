"""labkit.data.cifar10: batches against numpy and against MindSpore's own reader."""

import os

import mindspore.dataset as ds
import numpy as np
import pytest
from cifar10_streams import MEAN, STD, evaluation, normalized, pixels, random_data, raw, training, which
from streams import equal, images_of, labels_of, rest_of_stream, stream, stream_between

from labkit.data import cifar10, cifar10_files
from labkit.data.cifar10 import create_dataset, normalize_transforms, train_transforms
from labkit.training import recipes
from labkit.training.build import test_dataset as evaluation_dataset
from labkit.training.build import train_dataset

pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return random_data(tmp_path_factory.mktemp("data"))


# -- Values and order -----------------------------------------------------------------------------


def test_test_batches_are_the_file_normalised_in_its_order(data):
    folder, records = data
    (epoch,) = stream(evaluation(folder))
    images, labels = images_of(epoch), labels_of(epoch)
    assert (images.dtype, labels.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(images, normalized(pixels(records["test"])), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(labels, records["test"][:, 0])


def test_mean_and_deviation_are_the_seeds():
    np.testing.assert_array_equal([cifar10.MEAN, cifar10.STD], [MEAN, STD])


def test_channels_first(data):
    folder, _ = data
    assert stream(evaluation(folder))[0][0][0].shape == (10, 3, 32, 32)


def test_training_without_augmentation_gives_every_image_with_its_label(data):
    folder, records = data
    (epoch,) = stream(training(folder, seed=3))
    order = which(images_of(epoch), records["train"])
    assert sorted(order) == list(range(60))
    np.testing.assert_array_equal(labels_of(epoch), records["train"][order, 0])
    assert labels_of(epoch).dtype == np.int32


def test_short_last_batch_is_dropped_in_training_and_kept_in_test(data):
    folder, _ = data
    train, test = training(folder, 16), evaluation(folder, 10)
    assert (train.get_dataset_size(), test.get_dataset_size()) == (3, 3)
    assert [len(labels) for _, labels in stream(train)[0]] == [16, 16, 16]
    assert [len(labels) for _, labels in stream(test)[0]] == [10, 10, 5]


def test_the_sample_arrives_whole(sample_data):
    """1,437 and 360 digits; grey, so that the three planes are one before normalisation."""
    folder = sample_data / cifar10_files.FOLDER
    (epoch,) = stream(evaluation(folder, 100))
    planes = raw(images_of(epoch))
    assert planes.shape == (360, 3, 32, 32)
    assert (planes[:, 0] == planes[:, 1]).all() and (planes[:, 0] == planes[:, 2]).all()
    assert training(folder, 64).get_dataset_size() == 1437 // 64


def test_mindspores_own_reader_agrees(tmp_path):
    """`ds.Cifar10Dataset`, which reads full batches of 10,000 images only."""
    rng = np.random.default_rng(1)
    records = rng.integers(0, 256, (10_000, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    (tmp_path / cifar10_files.TEST_FILE).write_bytes(records.tobytes())
    theirs = ds.Cifar10Dataset(str(tmp_path), usage="test", shuffle=False, num_parallel_workers=1)
    theirs = theirs.map(normalize_transforms(32), "image", num_parallel_workers=1).batch(500)
    ours = evaluation(tmp_path, 500)
    assert ours.get_dataset_size() == theirs.get_dataset_size() == 20
    for (image, label), (their_image, their_label) in zip(stream(ours)[0], stream(theirs)[0], strict=True):
        np.testing.assert_array_equal(image, their_image)
        np.testing.assert_array_equal(label, their_label)


@pytest.mark.parametrize("size", [48, 224])
def test_resize(data, size):
    """A plain image stays plain; a ramp across stays a ramp across; pixels round to one of 255."""
    ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 1, 3))
    for image in (np.full((32, 32, 3), 77, np.uint8), ramp):
        out = image
        for transform in normalize_transforms(size):
            out = transform(out)
        assert out.shape == (3, size, size)
        values = (out * STD[:, None, None] + MEAN[:, None, None]) * 255
        np.testing.assert_allclose(values, values[:, :1, :].repeat(size, 1), atol=1.01)
        centres = (np.arange(size) + 0.5) * 32 / size - 0.5
        np.testing.assert_allclose(values[0, 0], np.interp(centres, np.arange(32), image[0, :, 0]), atol=1.01)


# -- Order and repetition -------------------------------------------------------------------------


def test_every_epoch_has_an_order_of_its_own(data):
    folder, records = data
    orders = [tuple(which(images_of(epoch), records["train"])) for epoch in stream(training(folder), 3)]
    assert len({*orders, tuple(range(60))}) == 4


def test_the_same_seed_repeats_the_stream_bit_by_bit_with_any_number_of_workers(data):
    """So a Run that began on a machine with many cores is resumed exactly on one with few."""
    folder, _ = data
    first, again, more, other = (
        stream(training(folder, padding=4, flip=0.5, seed=seed, num_workers=workers), 3)
        for seed, workers in ((7, 1), (7, 1), (7, 2), (8, 2))
    )
    assert [equal(a, b) for a, b in zip(first, again)] == [True] * 3
    assert [equal(a, b) for a, b in zip(first, more)] == [True] * 3
    assert [equal(a, b) for a, b in zip(more, other)] == [False] * 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_no_two_ranks_augment_alike(data, num_workers, tmp_path):
    """One image 60 times over two ranks: no worker of a rank repeats the crops that a worker of the other draws."""
    folder, records = data
    for name in (*cifar10_files.TRAIN_FILES, cifar10_files.TEST_FILE):
        (tmp_path / name).write_bytes(records["train"][:1].astype(np.uint8).tobytes() * 12)
    options = {"padding": 4, "seed": 3, "num_workers": num_workers}
    drawn = [stream(training(tmp_path, 30, rank=rank, ranks=2, **options)) for rank in (0, 1)]
    drawn = [[image.tobytes() for image in images_of(epoch)] for (epoch,) in drawn]
    # Of two workers, each has every second image.
    first, second = ([one[worker::num_workers] for worker in range(num_workers)] for one in drawn)
    assert not any(mine == theirs for mine in first for theirs in second)


def test_evaluation_between_epochs_leaves_the_stream_alone(data):
    """Making or reading the test data set, as after every epoch, changes nothing in the training's stream."""
    folder, _ = data
    alone = stream(training(folder, padding=4, flip=0.5, seed=7), 3)
    between = stream_between(training(folder, padding=4, flip=0.5, seed=7), evaluation(folder), 3)
    assert [equal(a, b) for a, b in zip(alone, between)] == [True] * 3


def test_the_recipes_seed_decides_the_stream_of_a_training(data, repo_root):
    """Data sets made in the order of `loop.train`: first both, then the first epoch."""
    folder, _ = data
    streams = []
    for seed in (1, 2, 1):
        settings = (f"seed={seed}", f"data.folder={folder}", "data.batch_size=20")
        recipe = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample", settings)
        train, _ = train_dataset(recipe), evaluation_dataset(recipe)
        streams.append(stream(train)[0])
    assert equal(streams[0], streams[2])
    assert not equal(streams[0], streams[1])


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("step", [1, 3, 4, 8, 11])
def test_init_step_gives_exactly_the_rest_of_the_stream(data, step, num_workers):
    """Three epochs of four steps; order, crop and flip are those of the uninterrupted stream."""
    folder, _ = data
    options = {"padding": 4, "flip": 0.5, "seed": 9, "num_workers": num_workers}
    whole = [batch for epoch in stream(training(folder, 15, **options), 3) for batch in epoch]
    rest = rest_of_stream(training(folder, 15, **options), step, 3)
    assert len(whole) == 12
    assert equal(rest, whole[step:])
    assert not equal(rest, whole[: 12 - step])


@pytest.mark.parametrize("ranks, batch_size", [(2, 30), (3, 20), (7, 9)])
def test_shards_cover_every_image(data, ranks, batch_size):
    """In every epoch, each shard equally long, at most ranks - 1 images twice; 7 x 9 is 63 of 60."""
    folder, records = data
    shards = [
        stream(training(folder, batch_size, seed=4, rank=rank, ranks=ranks), 2) for rank in range(ranks)
    ]  # fmt: skip
    for epoch in range(2):
        seen = [which(images_of(shard[epoch]), records["train"]) for shard in shards]
        assert [len(part) for part in seen] == [batch_size] * ranks
        together = sum(seen, [])
        assert set(together) == set(range(60))
        assert len(together) - 60 <= ranks - 1
    assert not equal(shards[0][0], shards[0][1])


# -- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [64, os.cpu_count() + 1])
def test_more_workers_than_cores_are_bounded(data, wanted):
    """MindData itself raises ValueError for 64; the old labs asked for 8 and failed on a laptop."""
    folder, _ = data
    assert len(stream(training(folder, padding=4, num_workers=wanted))[0]) == 3
    assert len(stream(evaluation(folder, num_workers=wanted))[0]) == 3


def test_unknown_split(data):
    with pytest.raises(ValueError, match="'train' or 'test'"):
        create_dataset(data[0], "valid", 10, image_transforms=normalize_transforms(32))


def test_missing_data(tmp_path):
    for make in (training, evaluation):
        with pytest.raises(cifar10_files.DataError, match=r"\.bin: this batch is missing"):
            make(tmp_path)


@pytest.mark.parametrize("rank, ranks", [(2, 2), (-1, 2)])
def test_rank_out_of_range(data, rank, ranks):
    with pytest.raises((ValueError, RuntimeError)):
        stream(training(data[0], rank=rank, ranks=ranks))


@pytest.mark.parametrize("flip", [-0.1, 1.5])
def test_flip_out_of_range(flip):
    with pytest.raises(ValueError):
        train_transforms(flip=flip)


def test_negative_padding():
    with pytest.raises(ValueError):
        train_transforms(crop_padding=-1)
