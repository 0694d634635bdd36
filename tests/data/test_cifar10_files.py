"""labkit.data.cifar10_files: what is good data, what is not, and the offline sample; labkit.data.files.publish."""

import hashlib

import numpy as np
import pytest
from cifar10_archive import ALL, batches

from labkit.data import cifar10_files as files
from labkit.data.files import DataError, publish, staging


def make_data(folder, images=4):
    """A small folder of random records in CIFAR-10's layout; returns {file: records}."""
    folder.mkdir(parents=True)
    made = batches(images)
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return {name: np.frombuffer(made[name], np.uint8).reshape(images, -1) for name in ALL}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / files.FOLDER
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / files.FOLDER
    files.write_sample(folder)
    return folder


def test_check_says_what_is_there(data):
    digest = hashlib.sha256()
    for name in ALL:
        digest.update(name.encode() + (data / name).read_bytes())
    assert files.check(data).name == "CIFAR-10 layout, source unknown"
    (data / "SOURCE.txt").write_text("two random\n")
    info = files.check(data)
    assert (info.folder, info.name) == (data, "two random")
    assert (info.train_images, info.test_images) == (20, 4)
    assert info.files == tuple((name, 4) for name in ALL)
    assert info.classes == files.CLASSES
    assert info.sha256 == digest.hexdigest()
    assert info.note is None


def test_read_gives_pixels_of_the_right_place(tmp_path):
    made = make_data(tmp_path / "d")
    images, labels = files.read(tmp_path / "d", "train")
    assert images.shape == (20, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (20,) and labels.dtype == np.uint8
    record = made["data_batch_2.bin"][1]  # image 5 of the split
    assert labels[5] == record[0]
    for row, column, channel in [(0, 0, 0), (0, 31, 1), (31, 0, 2), (7, 12, 1)]:
        assert images[5, row, column, channel] == record[1 + channel * 1024 + row * 32 + column]
    assert files.read(tmp_path / "d", "test")[1].tolist() == made["test_batch.bin"][:, 0].tolist()


# -- Bad data -------------------------------------------------------------------------------------


def test_missing_folder(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: there is no such folder; .*download"):
        files.check(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="file: is not a folder"):
        files.check(tmp_path / "file")


@pytest.mark.parametrize(
    "name, change, words",
    [
        ("data_batch_4.bin", None, "this batch is missing"),
        ("test_batch.bin", lambda content: b"", "record 0 is cut short"),
        ("data_batch_5.bin", lambda content: content[: 2 * 3073 + 100], "record 2 is cut short after 100 of 3,073"),
        ("test_batch.bin", lambda content: b"\x0a" + content[1:], "record 0 has label 10"),
        ("batches.meta.txt", lambda content: b"a\nb\n", "2 class names"),
    ],
    ids=["missing", "empty", "cut", "label", "names"],
)  # fmt: skip
def test_bad_data_is_named_in_one_line(data, name, change, words):
    if change:
        (data / name).write_bytes(change((data / name).read_bytes()))
    else:
        (data / name).unlink()
    with pytest.raises(DataError, match=f"{name}: {words}") as caught:
        files.check(data)
    assert "\n" not in str(caught.value)


def test_the_folder_above_and_the_version_for_python(data, tmp_path):
    with pytest.raises(DataError, match=f"this batch is missing; the batches are in {data}$"):
        files.check(data.parent)
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "data_batch_1").touch()
    with pytest.raises(DataError, match="this batch is missing; the folder has the version for Python"):
        files.check(tmp_path / "python")


def test_a_batch_that_lost_whole_records_is_refused(data):
    """Its layout is still valid; next to batches of CIFAR-10's 10,000 images it is damage."""
    for name in ALL[:-1]:
        (data / name).write_bytes(bytes(files.RECORD_BYTES) * 10_000)
    with pytest.raises(DataError, match=rf"{ALL[-1]} \(4\): the other batches hold 10,000"):
        files.check(data)


def test_class_names_come_from_the_folder(data):
    (data / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")
    assert files.check(data).classes == tuple("abcdefghij")
    (data / "batches.meta.txt").unlink()
    info = files.check(data)
    assert info.classes == files.CLASSES and "class names are assumed" in info.note


# -- The sample -----------------------------------------------------------------------------------


def test_sample_is_the_digits(sample):
    info = files.check(sample)
    assert info.name == "scikit-learn digits, 32x32, in CIFAR-10's binary layout"
    assert (info.train_images, info.test_images) == (1437, 360)
    assert info.classes[0] == "zero" and info.classes[9] == "nine"
    assert info.note is None
    # Of the same contents also with other versions of scikit-learn, Pillow and numpy: recorded runs name this checksum.
    assert info.sha256 == "6cce8087c6772ad05ba9f720ba84ec6a6df9d717faeaae194a2c7076d650b11b"


def test_a_sample_that_is_there_stays(sample):
    before = {path: path.stat().st_mtime_ns for path in sample.iterdir()}
    files.write_sample(sample)
    assert {path: path.stat().st_mtime_ns for path in sample.iterdir()} == before
    assert [path.name for path in sample.parent.iterdir()] == [sample.name]  # no hidden rest


# -- Publishing a folder --------------------------------------------------------------------------


def test_publish_refuses_what_is_not_whole(data, tmp_path):
    before = files.check(data)
    with pytest.raises(DataError, match="data_batch_1.bin"), staging(data) as staged:
        (staged / "test_batch.bin").write_bytes(b"x")
        publish(staged, data, files.check, force=True)
    assert files.check(data) == before
    assert [path.name for path in tmp_path.iterdir()] == [data.name]
