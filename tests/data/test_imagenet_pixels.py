"""labkit.data.imagenet: pixels against torchvision on the same files, and what the augmentation draws."""

import io

import mindspore.dataset as ds
import numpy as np
import pytest
from imagenet_streams import MEAN, PHOTOGRAPHS, STD, encoded, evaluation, training, write_photographs
from PIL import Image
from streams import images_of, labels_of, stream

from labkit.choices import ROUTES
from labkit.data import imagenet
from labkit.data.imagenet import train_transforms

pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photographs(tmp_path_factory.mktemp("photos"))


# -- Pixels: the exact route is torchvision's ------------------------------------------------------


def by_torchvision(torchvision, folder, split, size, resize):
    """Images (N, 3, size, size) and labels of torchvision's own data set with the guide's transforms."""
    steps = torchvision.transforms
    preprocess = steps.Compose(
        [steps.Resize(resize), steps.CenterCrop(size), steps.ToTensor(), steps.Normalize(MEAN.tolist(), STD.tolist())]
    )
    rows = list(torchvision.datasets.ImageFolder(folder / split, preprocess))
    return np.stack([image.numpy() for image, _ in rows]), [label for _, label in rows]


@pytest.mark.parametrize("size, resize", [(224, 256), (65, 65)])
def test_exact_evaluation_is_torchvisions(photos, torchvision, size, resize):
    theirs, labels = by_torchvision(torchvision, photos, "val", size, resize)
    (epoch,) = stream(evaluation(photos, 5, size=size, resize=resize, route="exact", num_workers=2))
    np.testing.assert_allclose(images_of(epoch), theirs, rtol=0, atol=2e-6)
    assert labels_of(epoch).tolist() == labels


def test_exact_resize_and_crop_are_torchvisions_for_any_size(torchvision):
    """Sizes at random; 128x186 and its like are one pixel shorter in MindData's Resize of Pillow images."""
    random = np.random.default_rng(1)
    resize, crop = torchvision.transforms.Resize(64), torchvision.transforms.CenterCrop(33)
    for width, height in [(128, 186), (100, 64), (64, 100), (64, 64), *random.integers(20, 300, (200, 2)).tolist()]:
        image = Image.fromarray(random.integers(0, 256, (height, width), np.uint8))
        ours, theirs = imagenet.resize_short(image, 64), resize(image)
        assert ours.size == theirs.size
        assert np.array_equal(ours, theirs)
        assert np.array_equal(imagenet.center_crop(ours, 33), crop(theirs))


def test_exact_training_is_torchvisions_crop_resize_and_flip(torchvision):
    """The same draw gives torchvision's functions the box and the side; 40 draws of each photograph."""
    functional = torchvision.transforms.functional
    step, flips = imagenet.RandomCropResizeFlip(48, (0.08, 1.0), 0.5), 0
    for content in PHOTOGRAPHS.values():
        image = Image.open(io.BytesIO(content)).convert("RGB")
        for draw in range(40):
            random = np.random.default_rng(draw)
            left, top, width, height = imagenet.random_box(*image.size, (0.08, 1.0), imagenet.RATIO, random)
            wanted = functional.resized_crop(image, top, left, height, width, [48, 48])
            if random.random() < 0.5:
                wanted, flips = functional.hflip(wanted), flips + 1
            assert np.array_equal(step(content, draw), wanted)
    assert 0.4 < flips / (40 * len(PHOTOGRAPHS)) < 0.6


@pytest.mark.parametrize("width, height", [(640, 427), (50, 200), (7, 5)])
def test_random_box_has_torchvisions_distribution(torchvision, width, height):
    """Mean of place, share and shape over 4,000 boxes; (50, 200) often falls back to the middle."""
    import torch

    torch.manual_seed(0)
    random, image = np.random.default_rng(0), Image.new("L", (width, height))
    ours = [imagenet.random_box(width, height, (0.08, 1.0), imagenet.RATIO, random) for _ in range(4000)]
    get_params = torchvision.transforms.RandomResizedCrop.get_params
    theirs = [get_params(image, [0.08, 1.0], list(imagenet.RATIO)) for _ in range(4000)]
    ours = np.array(ours)
    theirs = np.array(theirs)[:, [1, 0, 3, 2]]  # top, left, height, width there
    assert (ours >= 0).all() and (ours[:, 2] >= 1).all() and (ours[:, 3] >= 1).all()
    assert (ours[:, 0] + ours[:, 2] <= width).all() and (ours[:, 1] + ours[:, 3] <= height).all()
    spread = np.concatenate([ours, theirs]).std(0) + 0.02
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 0.1 * spread).all()
    assert (np.abs(ours.std(0) - theirs.std(0)) < 0.1 * spread).all()


# -- Pixels: how far the fast route is -------------------------------------------------------------


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_both_decoders_give_the_same_pixels(name):
    """Grey, CMYK and palette too: so they are good images in both routes."""
    ours = ds.vision.Decode()(PHOTOGRAPHS[name])
    np.testing.assert_array_equal(ours, np.asarray(imagenet.decode(PHOTOGRAPHS[name])))


# -- Augmentation ---------------------------------------------------------------------------------


def boxes(route, scale=(0.08, 1.0), flip=0.5, seed=1, count=3000, **options):
    """(left, top, right, bottom, flipped) in shares of the image, of `count` random parts of one 96x64 image.

    Red rises from left to right and green from top to bottom, so the corners of a part tell where it was.
    """
    image = np.zeros((64, 96, 3), np.uint8)
    image[..., 0], image[..., 1] = np.arange(96) * 2, np.arange(64)[:, None] * 3
    ds.config.set_seed(seed)
    content = np.tile(encoded(Image.fromarray(image), "PNG"), (count, 1))
    data = ds.NumpySlicesDataset((content,), ["image"], shuffle=False, num_parallel_workers=1)
    columns, steps = ["image"], train_transforms(16, route, scale, flip)[:-2]  # without normalisation
    if route == "exact":
        numbers = ds.RandomSampler(replacement=True, num_samples=count)
        draws = ds.GeneratorDataset(range(2**31), ["draw"], sampler=numbers, num_parallel_workers=1)
        data, columns = ds.zip((data, draws)), ["image", "draw"]
    data = data.map(steps, columns, ["image"], num_parallel_workers=1)
    made = np.stack([row[0] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]).astype(float)
    # The middle of the outer pixels: half a pixel of the 16 within the part's edge.
    left, right = made[:, 8, 0, 0] / 2, made[:, 8, -1, 0] / 2
    top, bottom = made[:, 0, 8, 1] / 3, made[:, -1, 8, 1] / 3
    flipped = left > right
    left, right = np.minimum(left, right), np.maximum(left, right)
    across, down = (right - left) / 15 * 16, (bottom - top) / 15 * 16
    return left, top, across, down, flipped


@pytest.mark.parametrize("route", ROUTES)
def test_random_parts_have_the_seeds_shares_and_shapes(route):
    """As the boxes of `random_box`, which are torchvision's: uniform in 0.08..1.0, but the largest seldom fit."""
    _, _, across, down, flipped = boxes(route)
    share, shape = across * down / (96 * 64), across / down
    random = np.random.default_rng(0)
    wanted = np.array([imagenet.random_box(96, 64, (0.08, 1.0), (0.75, 1.333), random)[2:] for _ in range(3000)])
    shares, shapes = wanted.prod(1) / (96 * 64), wanted[:, 0] / wanted[:, 1]
    for percent in (1, 25, 50, 75, 99):
        assert abs(np.percentile(share, percent) - np.percentile(shares, percent)) < 0.05
        assert abs(np.percentile(shape, percent) - np.percentile(shapes, percent)) < 0.08
    assert 0.46 < flipped.mean() < 0.54


@pytest.mark.parametrize("route", ROUTES)
def test_crop_and_flip_draw_independently(route):
    """MindData seeds its random operations alike; CIFAR-10's crop and flip drew in step for it, these do not.

    Correlation of 3,000 independent pairs: deviation 0.018.
    """
    *box, flipped = boxes(route)
    for place in box:
        assert abs(np.corrcoef(place, flipped)[0, 1]) < 0.08
        assert abs(np.corrcoef(place[:-1], flipped[1:])[0, 1]) < 0.08


@pytest.mark.parametrize("route", ROUTES)
def test_ranks_and_epochs_augment_differently(tmp_path, route):
    """One image 40 times over two ranks, twice: with one seed for both ranks, their batches would be equal."""
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        for number in range(40):
            Image.fromarray(image).save(tmp_path / split / "a" / f"{number}.png")
    for options in ({}, {"num_workers": 2}):
        ranks = [stream(training(tmp_path, route=route, shard=(rank, 2), **options), 2) for rank in (0, 1)]
        every = {image.tobytes() for epochs in ranks for epoch in epochs for image in images_of(epoch)}
        assert len(every) == 80
