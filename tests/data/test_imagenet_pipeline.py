"""labkit.data.imagenet: batches against torchvision on the same files, and the stream of a training."""

import importlib.util
import io
import os
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
import pytest
import streams
from PIL import Image
from streams import equal, images_of, labels_of, rest_of_stream, stream, stream_between

from labkit.data import imagenet, imagenet_files
from labkit.data.files import DataError
from labkit.data.imagenet import ROUTES, create_dataset, evaluation_transforms, train_transforms

MEAN = np.array([0.485, 0.456, 0.406])  # both seeds, and torchvision's
STD = np.array([0.229, 0.224, 0.225])
SCRIPT = Path(imagenet.__file__).resolve().parents[2] / "data_scripts" / "imagenet.py"
_spec = importlib.util.spec_from_file_location("imagenet_script", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


def encoded(image, form="JPEG", **options):
    raw = io.BytesIO()
    image.save(raw, form, **options)
    return np.frombuffer(raw.getvalue(), np.uint8)


def photographs():
    """The two photographs in landscape and portrait, and the files that are not plain RGB JPEG, by name."""
    made = {}
    for path in imagenet_files.photographs():
        made[path.stem] = np.fromfile(path, np.uint8)
        made[f"{path.stem} upright"] = encoded(Image.open(path).transpose(Image.Transpose.ROTATE_90))
    flower = Image.open(imagenet_files.photographs()[1])
    made["grey"] = encoded(flower.convert("L"))
    made["cmyk"] = encoded(flower.convert("CMYK"))
    made["progressive"] = encoded(flower, progressive=True)
    made["png"] = encoded(flower, "PNG")
    made["grey png"] = encoded(flower.convert("L"), "PNG")
    made["palette png"] = encoded(flower.convert("P"), "PNG")
    alpha = flower.convert("RGBA")
    alpha.putalpha(flower.convert("L"))
    made["png with alpha"] = encoded(alpha, "PNG")
    turned = Image.Exif()
    turned[274] = 6  # to be shown turned by 90 degrees; neither torchvision nor MindData does
    made["turned by exif"] = encoded(flower, exif=turned)
    return made


PHOTOGRAPHS = photographs()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """An image folder of the photographs, all of them in both splits."""
    folder = tmp_path_factory.mktemp("photos")
    for split in ("train", "val"):
        for number, content in enumerate(PHOTOGRAPHS.values()):
            place = folder / split / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            content.tofile(place / f"{number:02}.JPEG")
    return folder


def numbered(folder, train, val):
    """A folder of 32x32 PNG images, each of one colour that is its number: red, and 10 * class in green."""
    for split, count in (("train", train), ("val", val)):
        for number in range(count):
            label = number * 3 // count
            place = folder / split / "abc"[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (number, 10 * label, 0)).save(place / f"{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """60 images to train and 25 to test, as files."""
    return numbered(tmp_path_factory.mktemp("data") / "numbered", 60, 25)


@pytest.fixture(scope="module")
def records(data):
    """The same as MindRecord, in three files and one."""
    out = data.with_name("records")
    script.main(["mindrecord", str(data), "--out", str(out), "--shard-bytes", "2000"], standalone_mode=False)
    assert len(list(out.glob("train.mindrecord?"))) > 1
    return out


@pytest.fixture(params=["files", "records"])
def either(request, data, records):
    return {"files": data, "records": records}[request.param]


def training(folder, batch_size=20, *, route="fast", scale=(0.08, 1.0), flip=0.5, **options):
    image_transforms = train_transforms(16, route, scale, flip)
    return create_dataset(folder, "train", batch_size, image_transforms=image_transforms, **options)


def evaluation(folder, batch_size=10, *, size=16, resize=16, route="fast", **options):
    image_transforms = evaluation_transforms(size, resize, route)
    return create_dataset(folder, "test", batch_size, image_transforms=image_transforms, **options)


def raw(images):
    return streams.raw(images, MEAN, STD)


def which(epoch):
    """Numbers of the images of one colour, whose labels must fit."""
    pixels = raw(images_of(epoch))
    assert (pixels == pixels[:, :, :1, :1]).all()
    np.testing.assert_array_equal(pixels[:, 1, 0, 0], 10 * labels_of(epoch))
    return pixels[:, 0, 0, 0].tolist()


# -- Pixels: the exact route is torchvision's ------------------------------------------------------


def by_torchvision(torchvision, folder, split, size, resize):
    """Images (N, 3, size, size) and labels of torchvision's own data set with the guide's transforms."""
    steps = torchvision.transforms
    preprocess = steps.Compose(
        [steps.Resize(resize), steps.CenterCrop(size), steps.ToTensor(), steps.Normalize(MEAN.tolist(), STD.tolist())]
    )
    rows = list(torchvision.datasets.ImageFolder(folder / split, preprocess))
    return np.stack([image.numpy() for image, _ in rows]), [label for _, label in rows]


@pytest.mark.parametrize("size, resize", [(224, 256), (64, 73), (65, 65)])
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


@pytest.mark.parametrize("width, height", [(640, 427), (50, 200), (200, 50), (7, 5)])
def test_random_box_has_torchvisions_distribution(torchvision, width, height):
    """Mean of place, share and shape over 4,000 boxes; (50, 200) and (200, 50) often fall back to the middle."""
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


def test_normalisation_is_the_seeds():
    np.testing.assert_array_equal([imagenet.MEAN, imagenet.STD], [MEAN, STD])
    image = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3) * 10
    for transform in imagenet.normalize_transforms():
        image = transform(image)
    wanted = (np.arange(24).reshape(2, 4, 3) * 10 / 255 - MEAN) / STD
    np.testing.assert_allclose(image, wanted.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)
    assert image.dtype == np.float32


# -- Pixels: how far the fast route is -------------------------------------------------------------


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_both_decoders_give_the_same_pixels(name):
    """Grey, CMYK and palette too: so they are good images in both routes."""
    ours = ds.vision.Decode()(PHOTOGRAPHS[name])
    np.testing.assert_array_equal(ours, np.asarray(imagenet.decode(PHOTOGRAPHS[name])))


def test_where_the_routes_part():
    """The decoders agree, Resize's filter and CenterCrop's rounding do not; PILCUBIC is Pillow's bicubic."""
    for path, least in zip(imagenet_files.photographs(), (3, 0.5)):
        apart = imagenet.compare_routes(np.fromfile(path, np.uint8))
        assert apart["decode"] == (0, 0)
        assert apart["resize, PILCUBIC and Pillow's bicubic"] == (0, 0)
        assert least < apart["resize, LINEAR"][0] < 5
        assert apart["resize, AREA"][0] < 0.6 * apart["resize, LINEAR"][0]
        assert apart["center crop"][0] > 1  # 383 - 224 is 159: left 79 there, 80 here
        assert apart["all"][0] > apart["resize, LINEAR"][0]
        assert apart["all"][1] > 100


def test_center_crop_differs_by_a_pixel_for_every_second_odd_margin():
    """C++ rounds half a pixel down, torchvision to the even number."""
    for width in range(224, 240):
        image = np.tile(np.arange(width, dtype=np.uint8)[None, :, None], (224, 1, 3))
        fast = ds.vision.CenterCrop(224)(image)[0, 0, 0]
        exact = np.asarray(imagenet.center_crop(Image.fromarray(image), 224))[0, 0, 0]
        assert int(exact) - int(fast) == ((width - 224) % 4 == 3)


def test_fast_evaluation_is_the_seeds_operations(photos):
    (epoch,) = stream(evaluation(photos, 4, size=224, resize=256))
    vision = ds.vision
    paths, labels = imagenet_files.listing(photos, "test")
    for path, image in zip(paths, images_of(epoch)):
        wanted = np.fromfile(path, np.uint8)
        for step in (vision.Decode(), vision.Resize(256), vision.CenterCrop(224)):
            wanted = step(wanted)
        np.testing.assert_array_equal(raw(image), wanted.transpose(2, 0, 1))
    np.testing.assert_array_equal(labels_of(epoch), labels)


@pytest.mark.parametrize("route", ROUTES)
def test_shapes_and_types(photos, route):
    for dataset in (training(photos, 4, route=route), evaluation(photos, 4, route=route)):
        images, labels = stream(dataset)[0][0]
        assert (images.shape, images.dtype, labels.dtype) == ((4, 3, 16, 16), np.float32, np.int32)


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
def test_crop_scale_and_flip_are_obeyed(route):
    _, _, across, down, flipped = boxes(route, (0.25, 0.35), 0.0, count=300)
    assert 0.2 < (across * down / (96 * 64)).min() < (across * down / (96 * 64)).max() < 0.4
    assert not flipped.any()
    assert boxes(route, flip=1.0, count=100)[-1].all()
    assert 0.15 < boxes(route, flip=0.25, count=1000)[-1].mean() < 0.35


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", [1, 2])
def test_crop_and_flip_draw_independently(route, seed):
    """MindData seeds its random operations alike; CIFAR-10's crop and flip drew in step for it, these do not.

    Correlation of 3,000 independent pairs: deviation 0.018.
    """
    *box, flipped = boxes(route, seed=seed)
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
        ranks = [stream(training(tmp_path, route=route, rank=rank, ranks=2, **options), 2) for rank in (0, 1)]
        every = {image.tobytes() for epochs in ranks for epoch in epochs for image in images_of(epoch)}
        assert len(every) == 80


@pytest.mark.parametrize("route", ROUTES)
def test_evaluation_does_not_augment(photos, route):
    first, second = stream(evaluation(photos, route=route), 2)
    assert equal(first, second)


# -- Order and repetition -------------------------------------------------------------------------


def test_training_gives_every_image_with_its_label(either):
    epochs = [which(epoch) for epoch in stream(training(either, seed=3), 3)]
    assert [sorted(order) for order in epochs] == [list(range(60))] * 3
    assert len({*map(tuple, epochs), tuple(range(60))}) == 4  # each epoch in an order of its own


def test_test_batches_are_in_the_files_order(either):
    dataset = evaluation(either, num_workers=2)
    assert dataset.get_dataset_size() == 3
    (epoch,) = stream(dataset)
    assert [len(labels) for _, labels in epoch] == [10, 10, 5]
    assert which(epoch) == list(range(25))


def test_short_last_training_batch_is_dropped(either):
    train = training(either, 16)
    assert train.get_dataset_size() == 3
    assert [len(labels) for _, labels in stream(train)[0]] == [16, 16, 16]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_same_seed_repeats_the_stream_bit_by_bit(either, photos, route, num_workers):
    for folder in (either, photos):
        options = {"batch_size": 4, "route": route, "num_workers": num_workers}
        first, again = (stream(training(folder, seed=7, **options), 3) for _ in range(2))
        other = stream(training(folder, seed=8, **options), 3)
        assert [equal(a, b) for a, b in zip(first, again)] == [True] * 3
        assert [equal(a, b) for a, b in zip(first, other)] == [False] * 3
        assert not equal(first[0], first[1])


def test_exact_stream_does_not_depend_on_the_workers(photos):
    one, two = (stream(training(photos, 4, route="exact", seed=5, num_workers=workers), 2) for workers in (1, 2))
    assert [equal(a, b) for a, b in zip(one, two)] == [True, True]


def test_a_new_iterator_begins_anew(either):
    dataset = training(either, seed=7)
    partial = dataset.create_tuple_iterator(num_epochs=2, output_numpy=True)
    next(partial)
    first, second = stream(dataset, 2), stream(dataset, 2)
    assert equal(first[0], second[0]) and equal(first[1], second[1])


@pytest.mark.parametrize("route", ROUTES)
def test_evaluation_between_epochs_leaves_the_stream_alone(photos, route):
    alone = stream(training(photos, 4, route=route, seed=7), 3)
    between = stream_between(training(photos, 4, route=route, seed=7), evaluation(photos, route=route), 3)
    assert [equal(a, b) for a, b in zip(alone, between)] == [True] * 3


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("step, num_workers", [(1, 1), (3, 2), (4, 2), (8, 1), (11, 2)])
def test_init_step_gives_exactly_the_rest_of_the_stream(either, photos, route, step, num_workers):
    """Three epochs of four steps; order, crop and flip are those of the uninterrupted stream."""
    for folder, batch_size in ((either, 15), (photos, 3)):
        options = {"route": route, "seed": 9, "num_workers": num_workers}
        whole = [batch for epoch in stream(training(folder, batch_size, **options), 3) for batch in epoch]
        assert len(whole) == 12
        rest = rest_of_stream(training(folder, batch_size, **options), step, 3)
        assert equal(rest, whole[step:])
        assert not equal(rest, whole[: 12 - step])


# -- Shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks, batch_size", [(2, 30), (3, 20), (7, 9)])
def test_training_shards_cover_every_image(either, ranks, batch_size):
    """In every epoch, each shard equally long, at most ranks - 1 images twice; 7 x 9 is 63 of 60."""
    shards = [stream(training(either, batch_size, seed=4, rank=rank, ranks=ranks), 3) for rank in range(ranks)]
    for epoch in range(3):
        seen = [which(shard[epoch]) for shard in shards]
        assert [len(part) for part in seen] == [batch_size] * ranks
        together = sum(seen, [])
        assert set(together) == set(range(60))
        assert len(together) - 60 <= ranks - 1
    assert len({tuple(which(epoch)) for epoch in shards[0]}) == 3


def test_shards_of_files_hold_other_images_in_every_epoch(data):
    epochs = stream(training(data, 30, seed=4, rank=1, ranks=2), 4)
    assert len({tuple(sorted(which(epoch))) for epoch in epochs}) == 4


def test_shards_of_records_keep_their_images(records):
    epochs = stream(training(records, 30, seed=4, rank=1, ranks=2), 4)
    assert {tuple(sorted(which(epoch))) for epoch in epochs} == {tuple(range(1, 60, 2))}


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_test_shards_hold_every_image_once(either, ranks):
    shards = [which(stream(evaluation(either, 4, rank=rank, ranks=ranks))[0]) for rank in range(ranks)]
    assert shards == [list(range(rank, 25, ranks)) for rank in range(ranks)]


# -- Bad input ------------------------------------------------------------------------------------


def test_bad_images_stop_or_are_skipped(tmp_path):
    folder = numbered(tmp_path / "d", 12, 6)
    for name in ("train/a/000.png", "val/c/005.png", "val/a/new.txt"):
        (folder / name).write_bytes(b"not an image")
    for make in (training, evaluation):
        with pytest.raises(DataError, match=r"train/a/000.png: not a JPEG or PNG image \(2 more are bad\)"):
            make(folder, 4)
    (train,), (test,) = (
        stream(make(folder, batch, bad_images="skip")) for make, batch in ((training, 11), (evaluation, 4))
    )
    assert sorted(which(train)) == list(range(1, 12))
    assert which(test) == list(range(5))


def test_files_and_records_in_one_folder(tmp_path, records, data):
    for path in records.iterdir():
        os.link(path, tmp_path / path.name)
    assert which(stream(evaluation(tmp_path))[0]) == list(range(25))  # moved, and still whole
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="holds MindRecord files and val/"):
        evaluation(tmp_path)


@pytest.mark.parametrize("wanted", [64, os.cpu_count() + 1])
def test_more_workers_than_cores_are_bounded(data, wanted):
    assert len(stream(training(data, num_workers=wanted))[0]) == 3
    assert len(stream(evaluation(data, num_workers=wanted))[0]) == 3


def test_bad_arguments(either):
    steps = evaluation_transforms(16, 16)
    with pytest.raises(ValueError, match="'train' or 'test'"):
        create_dataset(either, "val", 10, image_transforms=steps)
    for rank, ranks in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="none of"):
            training(either, rank=rank, ranks=ranks)
    with pytest.raises(DataError, match="60 train images .* 61 ranks"):
        training(either, rank=60, ranks=61)
    with pytest.raises(DataError, match="no such folder"):
        training(either / "nowhere")
    for make in (train_transforms, evaluation_transforms):
        with pytest.raises(ValueError, match="'fast' or 'exact'"):
            make(route="quick")
    with pytest.raises(ValueError, match="resize 200"):
        evaluation_transforms(224, 200)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("scale, flip", [((0.5, 0.2), 0.5), ((0.0, 1.0), -0.1), ((0.1, 1.0), 1.5)])
def test_shares_out_of_range(route, scale, flip):
    with pytest.raises(ValueError):
        train_transforms(16, route, scale, flip)
