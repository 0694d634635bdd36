"""labkit.data.cifar10: what crops and flips are drawn."""

import mindspore.dataset as ds
import numpy as np
import pytest
from cifar10_streams import pixels, random_data, raw, training
from streams import images_of, stream

from labkit.data import cifar10_files
from labkit.data.cifar10 import train_transforms

pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return random_data(tmp_path_factory.mktemp("data"))


def windows(records, padding):
    """{window: (image, row, column)} of every 32x32 window of every image padded with zeros."""
    found = {}
    for number, image in enumerate(pixels(records).astype(np.uint8)):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        for row in range(2 * padding + 1):
            for column in range(2 * padding + 1):
                found[padded[:, row : row + 32, column : column + 32].tobytes()] = (number, row, column)
    return found


def test_crops_are_windows_of_the_image_padded_with_zeros(data):
    """81 windows with padding 4: every output is one, and ten epochs of 60 images meet nearly all."""
    folder, records = data
    known, met = windows(records["train"], 4), set()
    for epoch in stream(training(folder, padding=4, seed=5), 10):
        places = [known[image.tobytes()] for image in raw(images_of(epoch))]
        assert sorted(number for number, _, _ in places) == list(range(60))
        met |= {place[1:] for place in places}
    assert len(met) > 75


@pytest.mark.parametrize("flip, low, high", [(0.0, 0, 0), (0.25, 100, 200), (1.0, 600, 600)])
def test_share_of_flipped_images(data, flip, low, high):
    """Of 600 on a single device: the seed's device_id / (device_id + 1) never flipped there."""
    folder, records = data
    upright = {image.astype(np.uint8).tobytes() for image in pixels(records["train"])}
    mirrored = {image[:, :, ::-1].astype(np.uint8).tobytes() for image in pixels(records["train"])}
    flipped = 0
    for epoch in stream(training(folder, flip=flip, seed=2), 10):
        for image in raw(images_of(epoch)):
            assert image.tobytes() in upright | mirrored
            flipped += image.tobytes() in mirrored
    assert low <= flipped <= high


def test_crop_and_flip_draw_independently():
    """All 9 x 9 windows, plain and mirrored: MindData seeds its random operations alike, and in step they reach 90."""
    image = np.zeros((32, 32, 3), np.uint8)
    image[..., 0], image[..., 1] = np.arange(1, 33)[:, None], np.arange(1, 33)
    ds.config.set_seed(1)
    data = ds.NumpySlicesDataset(([image] * 4000,), ["image"], shuffle=False, num_parallel_workers=1)
    data = data.map(train_transforms(crop_padding=4, flip=0.5)[:2], "image", num_parallel_workers=1)
    seen = [row[0].tobytes() for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert len(set(seen)) == 162


def test_no_two_ranks_augment_alike(data, tmp_path):
    """One image 60 times over two ranks: no worker of a rank repeats the crops that a worker of the other draws."""
    folder, records = data
    for name in (*cifar10_files.TRAIN_FILES, cifar10_files.TEST_FILE):
        (tmp_path / name).write_bytes(records["train"][:1].astype(np.uint8).tobytes() * 12)
    options = {"padding": 4, "seed": 3, "num_workers": 2}
    drawn = [stream(training(tmp_path, 30, shard=(rank, 2), **options)) for rank in (0, 1)]
    first, second = ([image.tobytes() for image in images_of(epoch)] for (epoch,) in drawn)
    # Each of the two workers has every second image.
    assert not any(first[mine::2] == second[theirs::2] for mine in (0, 1) for theirs in (0, 1))
