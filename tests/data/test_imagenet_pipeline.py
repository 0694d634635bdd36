"""labkit.data.imagenet: the stream of a training, its order and its shards."""

import importlib.util
import os
from pathlib import Path

import pytest
from imagenet_streams import evaluation, numbered, training, which, write_photographs
from streams import equal, rest_of_stream, stream, stream_between

from labkit.data import imagenet
from labkit.data.files import DataError
from labkit.data.imagenet import ROUTES, create_dataset, evaluation_transforms, train_transforms

SCRIPT = Path(imagenet.__file__).resolve().parents[2] / "data_scripts" / "imagenet.py"
_spec = importlib.util.spec_from_file_location("imagenet_script", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

pytestmark = pytest.mark.usefixtures("settings_of_mindspore")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photographs(tmp_path_factory.mktemp("photos"))


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
