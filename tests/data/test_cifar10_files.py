"""labkit.data.cifar10_files: what is good data, what is not, and the offline sample."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from labkit.data import cifar10_files as files

ALL = (*files.TRAIN_FILES, files.TEST_FILE)


def make_data(folder, images=4, seed=0):
    """A small folder of random records in CIFAR-10's layout; returns {file: records}."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    made = {}
    for name in ALL:
        records = rng.integers(0, 256, (images, files.RECORD_BYTES), dtype=np.uint8)
        records[:, 0] = rng.integers(0, 10, images)
        (folder / name).write_bytes(records.tobytes())
        made[name] = records
    (folder / "batches.meta.txt").write_text("\n".join(files.CLASSES) + "\n\n")
    return made


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
    (data / "SOURCE.txt").write_text("two random\n")
    info = files.check(data)
    assert (info.folder, info.name) == (data, "two random")
    assert (info.train_images, info.test_images) == (20, 4)
    assert info.files == tuple((name, 4) for name in ALL)
    assert info.classes == files.CLASSES
    assert info.sha256 == digest.hexdigest()
    assert info.note is None


def test_without_source_the_name_claims_nothing(data):
    assert files.check(data).name == "CIFAR-10 layout, source unknown"


def test_few_images_under_the_name_of_cifar10_are_noted(data):
    (data / "SOURCE.txt").write_text("CIFAR-10, official binary archive\n")
    (data / "batches.meta.txt").unlink(missing_ok=True)
    note = files.check(data).note
    assert "10,000 images in each batch" in note and "class names are assumed" in note


def test_a_batch_that_lost_whole_records_is_refused(data):
    """Its layout is still valid; beside batches of CIFAR-10's 10,000 images it is damage."""
    for name in ALL[:-1]:
        (data / name).write_bytes(bytes(files.RECORD_BYTES) * 10_000)
    with pytest.raises(files.DataError, match=rf"{ALL[-1]} \(4\): the other batches hold 10,000"):
        files.check(data)


def test_checksum_sees_one_bit(data):
    before = files.check(data).sha256
    content = bytearray((data / "data_batch_3.bin").read_bytes())
    content[-1] ^= 1
    (data / "data_batch_3.bin").write_bytes(content)
    assert files.check(data).sha256 != before


def test_checksum_sees_two_batches_swapped(data):
    before = files.check(data).sha256
    (data / "data_batch_1.bin").rename(data / "x")
    (data / "data_batch_2.bin").rename(data / "data_batch_1.bin")
    (data / "x").rename(data / "data_batch_2.bin")
    assert files.check(data).sha256 != before


def test_read_gives_pixels_of_the_right_place(tmp_path):
    made = make_data(tmp_path / "d")
    images, labels = files.read(tmp_path / "d", "train")
    assert images.shape == (20, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (20,) and labels.dtype == np.uint8
    assert images.flags.c_contiguous
    record = made["data_batch_2.bin"][1]  # image 5 of the split
    assert labels[5] == record[0]
    for row, column, channel in [(0, 0, 0), (0, 31, 1), (31, 0, 2), (7, 12, 1)]:
        assert images[5, row, column, channel] == record[1 + channel * 1024 + row * 32 + column]


def test_read_test_split(tmp_path):
    made = make_data(tmp_path / "d")
    images, labels = files.read(tmp_path / "d", "test")
    assert len(images) == 4
    assert labels.tolist() == made["test_batch.bin"][:, 0].tolist()
    with pytest.raises(ValueError, match="'eval'"):
        files.read(tmp_path / "d", "eval")


def test_missing_folder(tmp_path):
    with pytest.raises(files.DataError, match=r"nowhere: there is no such folder; .*download"):
        files.check(tmp_path / "nowhere")


def test_file_instead_of_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(files.DataError, match="file: is not a folder"):
        files.check(tmp_path / "file")


@pytest.mark.parametrize("name", ["data_batch_4.bin", "test_batch.bin"])
def test_missing_batch(data, name):
    (data / name).unlink()
    with pytest.raises(files.DataError, match=f"{name}: this batch is missing"):
        files.check(data)


def test_empty_batch(data):
    (data / "data_batch_2.bin").write_bytes(b"")
    with pytest.raises(files.DataError, match=r"data_batch_2.bin: the file is empty"):
        files.check(data)


def test_short_record_names_its_first_byte(data):
    content = (data / "data_batch_5.bin").read_bytes()
    (data / "data_batch_5.bin").write_bytes(content[: 2 * 3073 + 100])
    where = r"data_batch_5.bin: record 2 .* byte 6,146 .* 100 of"
    with pytest.raises(files.DataError, match=where):
        files.check(data)
    with pytest.raises(files.DataError, match=r"data_batch_5.bin: record 2"):
        files.read(data, "train")
    assert len(files.read(data, "test")[0]) == 4  # the other split is whole


def test_label_above_nine_names_its_record(data):
    content = bytearray((data / "test_batch.bin").read_bytes())
    content[3 * 3073] = 10
    (data / "test_batch.bin").write_bytes(content)
    with pytest.raises(files.DataError, match=r"test_batch.bin: record 3 has label 10"):
        files.check(data)


def test_errors_are_one_line(data):
    (data / "data_batch_1.bin").write_bytes(b"\xff" * 5000)
    with pytest.raises(files.DataError) as caught:
        files.check(data)
    assert "\n" not in str(caught.value)


def test_class_names_come_from_the_folder(data):
    (data / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")
    assert files.check(data).classes == tuple("abcdefghij")
    (data / "batches.meta.txt").write_text("a\nb\n")
    with pytest.raises(files.DataError, match=r"batches.meta.txt: 2 class names"):
        files.check(data)
    (data / "batches.meta.txt").unlink()
    info = files.check(data)
    assert info.classes == files.CLASSES and "batches.meta.txt" in info.note


def test_sample_is_the_digits(sample):
    from sklearn.datasets import load_digits

    info = files.check(sample)
    assert info.name == "scikit-learn digits, 32x32, in CIFAR-10's binary layout"
    assert (info.train_images, info.test_images) == (1437, 360)
    assert info.classes[0] == "zero" and info.classes[9] == "nine"
    assert info.note is None
    train, train_labels = files.read(sample, "train")
    test, test_labels = files.read(sample, "test")
    digits = load_digits()
    # Every digit once, in one of the two parts.
    counts = np.bincount(train_labels) + np.bincount(test_labels)
    assert counts.tolist() == np.bincount(digits.target).tolist()
    share = np.bincount(test_labels) / counts
    assert share.min() > 0.19 and share.max() < 0.21  # stratified
    images = np.concatenate([train, test])
    assert (images[..., 0] == images[..., 1]).all() and (images[..., 0] == images[..., 2]).all()
    # The mean of each 4x4 block is close to the 8x8 image that it was scaled from: find each again.
    small = images[..., 0].reshape(-1, 8, 4, 8, 4).mean((2, 4)).reshape(-1, 64) * (16 / 255)
    originals = digits.images.reshape(-1, 64)
    squares = (small**2).sum(1)[:, None] + (originals**2).sum(1)[None]
    nearest = (squares - 2 * small @ originals.T).argmin(1)
    assert (digits.target[nearest] == np.concatenate([train_labels, test_labels])).all()
    assert len(np.unique(nearest)) > 1780  # all different, but for a few near twins


def test_sample_is_shuffled(sample):
    labels = files.read(sample, "train")[1]
    for start in range(0, 1400, 200):
        assert len(np.unique(labels[start : start + 200])) == 10


def test_sample_is_the_same_each_time(sample, tmp_path):
    files.write_sample(tmp_path / "again")
    # Also with other versions of scikit-learn, Pillow and numpy: recorded runs name this checksum.
    known = "6cce8087c6772ad05ba9f720ba84ec6a6df9d717faeaae194a2c7076d650b11b"
    assert files.check(tmp_path / "again").sha256 == known
    names = sorted(path.name for path in sample.iterdir())
    assert names == sorted([*ALL, "SOURCE.txt", "batches.meta.txt"])
    for name in names:
        assert (sample / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]  # no hidden rest


def test_sample_is_left_alone_when_there(tmp_path):
    files.write_sample(tmp_path / "s")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()}
    files.write_sample(tmp_path / "s")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()} == before


def test_sample_spares_other_data_without_force(data):
    before = files.check(data)
    with pytest.raises(files.DataError, match="holds other data"):
        files.write_sample(data)
    assert files.check(data) == before
    assert files.write_sample(data, force=True).train_images == 1437
    assert [path.name for path in data.parent.iterdir()] == [data.name]


def test_publish_refuses_what_is_not_whole(data, tmp_path):
    before = files.check(data)
    with pytest.raises(files.DataError, match="data_batch_1.bin"), files.staging(data) as staged:
        (staged / "test_batch.bin").write_bytes(b"x")
        files.publish(staged, data, files.check, force=True)
    assert files.check(data) == before
    assert [path.name for path in tmp_path.iterdir()] == [data.name]


def test_publish_follows_a_link_to_another_disk(tmp_path):
    (tmp_path / "disk").mkdir()
    make_data(tmp_path / "disk" / "real")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    files.write_sample(tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert files.check(tmp_path / "disk" / "real").train_images == 1437


def test_staging_removes_what_a_killed_process_left_long_ago(tmp_path):
    old, recent = (tmp_path / f".d.{pid}.unfinished" for pid in (111, 222))
    for left in (old, recent):
        left.mkdir()
        (left / "data_batch_1.bin").write_bytes(b"x")
    os.utime(old, (time.time() - 4000,) * 2)
    with files.staging(tmp_path / "d"):
        assert not old.exists() and recent.exists()


def test_import_needs_no_mindspore():
    code = (
        "import sys; import labkit.data.cifar10_files;"
        "print([m for m in ('mindspore', 'sklearn', 'PIL') if m in sys.modules])"
    )
    repo = Path(files.__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
