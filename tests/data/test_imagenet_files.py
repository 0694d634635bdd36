"""labkit.data.imagenet_files: what is a good image folder, and the offline sample."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_files import BAD, JPEG, change_a_byte, small_folder, write
from PIL import Image

from labkit.data import imagenet_files as files
from labkit.data import scan
from labkit.data.files import DataError, same_data


@pytest.fixture
def data(tmp_path):
    return small_folder(tmp_path / "d")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / files.FOLDER
    files.write_sample(folder)
    return folder


# -- Good folders ---------------------------------------------------------------------------------


def test_check_says_what_is_there(data):
    write(data, {"SOURCE.txt": b"two random\n", "train/.hidden": b"", "train/a/.DS_Store": b"x", "notes.txt": b"x"})
    write(data, {"classes.txt": b"b\tbee, insect\nzzz\tnone\n"})
    info = files.check(data)
    assert (info.folder, info.name, info.classes) == (data, "two random", ("a", "bee, insect"))
    assert (info.train_images, info.test_images, info.files) == (5, 2, (("train", 5), ("val", 2)))
    assert (info.note, info.skipped) == (None, ())


def test_listing_is_by_class_and_name(data):
    paths, labels = files.read(data, "train")
    assert [str(Path(path).relative_to(data)) for path in paths] == [
        "train/a/10.jpg", "train/a/9.jpg", "train/a/x.jpg", "train/b/1.png", "train/b/2.JPEG"
    ]  # fmt: skip
    assert labels.dtype == np.int32 and labels.tolist() == [0, 0, 0, 1, 1]
    assert files.read(data, "test")[1].tolist() == [0, 1]


def test_listing_is_image_folders(data, sample, torchvision):
    for folder in (data, sample):
        for split, name in files.SPLITS.items():
            theirs = torchvision.datasets.ImageFolder(folder / name)
            paths, labels = files.read(folder, split)
            assert list(zip(paths, labels.tolist())) == theirs.samples
            assert len(theirs.classes) == len(files.check(folder).classes)


def test_class_without_validation_images_keeps_the_numbers(data):
    (data / "val/a/v.JPEG").unlink()
    assert files.read(data, "test")[1].tolist() == [1]
    (data / "val/a").rmdir()
    assert files.read(data, "test")[1].tolist() == [1]


def test_checksums(data):
    """One over paths and sizes, one over paths and contents; neither over times."""
    first = files.check(data)
    os.utime(data / "train/a/9.jpg", (0, 0))
    assert files.check(data) == first
    (data / "train/a/9.jpg").rename(data / "train/a/8.jpg")
    second = files.check(data)
    write(data, {"train/a/8.jpg": JPEG + b"\0"})
    three = [first, second, files.check(data)]
    assert len({info.sha256 for info in three}) == len({info.contents for info in three}) == 3
    change_a_byte(data / "val/a/v.JPEG")
    changed = files.check(data)
    assert changed.sha256 == three[2].sha256 and changed.contents != three[2].contents
    assert not same_data(changed.dataset, three[2].dataset) and same_data(changed.dataset, changed.dataset)


def test_links_to_images_are_followed(data, tmp_path):
    (data / "train/a/link.jpg").symlink_to("nowhere.JPEG")
    (data / "train").rename(tmp_path / "elsewhere")
    (data / "train").symlink_to(tmp_path / "elsewhere")
    assert files.check(data, "skip").skipped == (("train/a/link.jpg", "No such file or directory"),)
    (tmp_path / "elsewhere/a/link.jpg").unlink()
    (tmp_path / "elsewhere/a/link.jpg").symlink_to("../b/2.JPEG")
    assert files.check(data).train_images == 6


# -- Bad folders and images -----------------------------------------------------------------------


def test_missing_folders(data, tmp_path):
    with pytest.raises(DataError, match=r"nowhere: there is no such folder; .*arrange"):
        files.check(tmp_path / "nowhere")
    (data / "val").rename(data / "validation")
    with pytest.raises(DataError, match="val: there is no such folder"):
        files.check(data)
    (data / "val").mkdir()
    write(data, {"val/ILSVRC2012_val_00000001.JPEG": JPEG})
    with pytest.raises(DataError, match="val: no folder of a class"):
        files.check(data)
    with pytest.raises(DataError, match=rf"train: there is no such folder; train is in {data}$"):
        files.check(data.parent)
    for name in ("train", "val"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="train: no image"):
        files.check(tmp_path / "empty")


@pytest.mark.parametrize("bad_images", ["error", "skip"])
def test_class_without_images(data, bad_images):
    (data / "train/c").mkdir()
    with pytest.raises(DataError, match="train/c: no image"):
        files.check(data, bad_images)
    (data / "train/c").rmdir()
    (data / "val/c").mkdir()
    with pytest.raises(DataError, match="val/c: .*train has no such class"):
        files.check(data, bad_images)


@pytest.mark.parametrize("content, words", BAD.values(), ids=BAD)
def test_bad_image_is_named_or_skipped(data, content, words):
    before = files.check(data)
    write(data, {"train/b/3.JPEG": content})
    for call in (lambda: files.check(data), lambda: files.read(data, "test")):
        with pytest.raises(DataError, match=rf"train/b/3\.JPEG: .*{words}.*data.bad_images=skip") as caught:
            call()
        assert "\n" not in str(caught.value)
    info = files.check(data, "skip")
    assert (info.train_images, info.test_images, info.sha256) == (5, 2, before.sha256)
    assert info.note == "1 of 8 images are bad and skipped"
    ((path, what),) = info.skipped
    assert path == "train/b/3.JPEG" and words in what
    assert "train/b/3.JPEG" not in "".join(files.read(data, "train", "skip")[0])
    assert scan.examine(data / path) == what


# -- The sample -----------------------------------------------------------------------------------


def test_sample_is_the_digits(sample):
    from sklearn.datasets import load_digits

    digits = load_digits()
    info = files.check(sample, decode=True)
    assert info.name == "scikit-learn digits, 64x64, as an image folder"
    assert (info.train_images, info.test_images) == (400, 100)
    assert info.classes[0] == "zero" and info.classes[9] == "nine"
    numbers = []
    for split, least in (("train", 38), ("test", 9)):
        paths, labels = files.read(sample, split)
        assert np.bincount(labels).min() >= least
        for path, label in zip(paths, labels):
            number = int(Path(path).stem)
            assert digits.target[number] == label
            pixels = np.asarray(Image.open(path))
            assert pixels.shape == (64, 64, 3)
            small = pixels.mean(2).reshape(8, 8, 8, 8).mean((1, 3)) * (16 / 255)
            assert np.abs(small - digits.images[number]).mean() < 1.5
            numbers.append(number)
    assert len(set(numbers)) == 500  # no image in both parts


def test_sample_is_the_same_each_time(sample, tmp_path):
    files.write_sample(tmp_path / "again")
    # Recorded Runs name this checksum: paths, and sizes that follow from the pixels and from libjpeg.
    known = "815d57e1c5d17cf22de0cdd822bbe2ab244f12b928928efd4f860135e043a245"
    first, again = files.check(sample), files.check(tmp_path / "again")
    assert again.sha256 == known and again.contents == first.contents
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_import_needs_no_mindspore():
    code = "import sys, labkit.data.imagenet_files, labkit.data.cifar10_files, labkit.data.formats;"
    code += "print([name for name in ('mindspore', 'sklearn') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
