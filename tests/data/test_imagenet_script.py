"""data_scripts/imagenet.py mindrecord, sample and check."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_script import failed
from image_files import change_a_byte
from imagenet_archives import SCRIPT, WNIDS, arrange, files, run, script, write_archives
from PIL import Image

from labkit.data import scan


@pytest.fixture
def archives(tmp_path):
    return write_archives(tmp_path / "downloads")


@pytest.fixture
def folder(archives, tmp_path):
    """An arranged folder: 9 + 5 images in three classes."""
    arrange(archives, tmp_path / "d")
    return tmp_path / "d" / files.FOLDER


def rows(records, split, columns=("file", "label", "image")):
    """Rows of MindRecord files, read back by MindSpore, in their order."""
    import mindspore.dataset as ds

    held = files.records(records)
    paths = [str(records / name) for name, *_ in held[split]["files"]]
    data = ds.MindDataset(paths, list(columns), shuffle=False, num_parallel_workers=1)
    return [[column[()] for column in row] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@pytest.mark.parametrize("shard_bytes", [1 << 30, 2500, 1])
def test_mindrecord_holds_the_same_images(folder, tmp_path, shard_bytes):
    result = run("mindrecord", folder, "--out", tmp_path / "r", "--shard-bytes", shard_bytes)
    assert result.exit_code == 0, result.output
    info, before = files.check(tmp_path / "r"), files.check(folder)
    assert (info.dataset, info.classes) == (before.dataset, before.classes)
    assert (info.train_images, info.test_images) == (9, 5)
    assert sum(count for name, count in info.files if name.startswith("train")) == 9
    assert len(info.files) == {1 << 30: 2, 1: 14}.get(shard_bytes, len(info.files))
    for split in files.SPLITS:
        paths, labels = files.listing(folder, split)
        back = rows(tmp_path / "r", split)
        assert [str(name) for name, _, _ in back] == ["/".join(Path(path).parts[-2:]) for path in paths]
        assert [int(label) for _, label, _ in back] == labels.tolist()
        assert [image.tobytes() for _, _, image in back] == [Path(path).read_bytes() for path in paths]


def test_mindrecord_goes_beside_the_folder(folder):
    assert run("mindrecord", folder).exit_code == 0
    assert sorted(path.name for path in folder.parent.iterdir()) == [files.FOLDER, f"{files.FOLDER}-mindrecord"]
    assert "already there" in run("mindrecord", folder).stdout
    failed(run("mindrecord", f"{folder}-mindrecord"), "holds MindRecord files already")
    assert "3 classes: tench" in run("check", f"{folder}-mindrecord").stdout


def test_mindrecord_of_bad_images(folder, tmp_path):
    name = next((folder / "train").rglob("*.JPEG"))
    name.write_bytes(b"")
    failed(run("mindrecord", folder, "--out", tmp_path / "r"), name, "empty")
    assert not (tmp_path / "r").exists()
    result = run("mindrecord", folder, "--out", tmp_path / "r", "--bad-images", "skip")
    assert result.exit_code == 0 and "1 of 14 images are bad and skipped" in result.stderr
    assert len(rows(tmp_path / "r", "train")) == 8


def test_image_that_mindrecord_refuses(folder, tmp_path):
    """MindRecord's page has 32 MB."""
    large = np.random.default_rng(0).integers(0, 256, (3400, 3400, 3), np.uint8)
    Image.fromarray(large).save(folder / "val" / WNIDS[0] / "large.png", compress_level=0)
    first = files.listing(folder, "test")[0][0]
    failed(run("mindrecord", folder, "--out", tmp_path / "r"), first, "Page size")
    assert not (tmp_path / "r").exists()


def test_mindrecord_spares_other_data(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other/notes.txt").write_text("mine")
    assert "already there" in run("mindrecord", folder, "--out", tmp_path / "other").stdout
    assert (tmp_path / "other/notes.txt").exists()


def test_interrupted_conversion_leaves_nothing(folder, tmp_path, monkeypatch):
    write = script.write_records

    def stop(paths, labels, place, name, shard_bytes):
        if name == "val":
            raise KeyboardInterrupt
        return write(paths, labels, place, name, shard_bytes)

    monkeypatch.setattr(script, "write_records", stop)
    before = sorted(tmp_path.iterdir())
    assert run("mindrecord", folder, "--out", tmp_path / "r").exit_code == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def converted(folder, tmp_path):
    run("mindrecord", folder, "--out", tmp_path / "r")
    return tmp_path / "r"


@pytest.mark.parametrize("split", files.SPLITS)
@pytest.mark.parametrize("change", ["missing", "bytes instead of", "without its index"])
def test_damaged_mindrecord(converted, split, change):
    name = files.records(converted)[split]["files"][0][0]
    if change == "missing":
        (converted / name).unlink()
    elif change == "bytes instead of":
        with (converted / name).open("r+b") as file:
            file.truncate(100)
    else:
        (converted / f"{name}.db").unlink()
    failed(run("check", converted), converted / name, change, "convert the images again")


@pytest.mark.parametrize("large", [False, True])
def test_one_changed_byte_of_a_mindrecord(converted, large, monkeypatch):
    if large:
        monkeypatch.setattr(scan, "LARGE_BYTES", 1)
        files.check(converted)
        assert (converted / scan.STAMP_FILE).exists()
    name = files.records(converted)["test"]["files"][0][0]
    change_a_byte(converted / name)
    failed(run("check", converted), converted / name, "not what the conversion wrote", "convert the images again")


def test_mindrecord_of_an_older_labkit(converted):
    """Without digests, and as good as before."""
    held = json.loads((converted / files.RECORDS_FILE).read_text())
    del held["digests"], held["contents"]
    (converted / files.RECORDS_FILE).write_text(json.dumps(held))
    info, result = files.check(converted), run("check", converted)
    assert info.contents is None and result.exit_code == 0 and "None" not in result.stdout


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"train": {"files": [1]}}'])
def test_mindrecord_without_its_list(converted, content):
    if content is None:
        (converted / files.RECORDS_FILE).unlink()
    else:
        (converted / files.RECORDS_FILE).write_text(content)
    failed(run("check", converted), converted / files.RECORDS_FILE, "convert the images again")


def test_list_of_another_form(converted):
    held = json.loads((converted / files.RECORDS_FILE).read_text())
    del held["classes"]
    (converted / files.RECORDS_FILE).write_text(json.dumps(held))
    failed(run("check", converted), converted / files.RECORDS_FILE, "classes")


# -- sample, check, help -------------------------------------------------------------------------


def test_sample_then_check(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    failed(run("check"), tmp_path / files.FOLDER, "arrange", "sample")
    result = run("sample")
    assert result.exit_code == 0 and "400 + 100 images" in result.stdout
    assert "already there" in run("sample").stdout
    info = files.check(tmp_path / "sample" / files.FOLDER)
    for args in (["check"], ["check", info.folder], ["check", info.folder, "--decode"]):
        result = run(*args)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert lines[0] == f"{info.folder}: {info.name}"
        assert ["train", "400", "images"] in [line.split() for line in lines]
        assert f"  10 classes: {', '.join(info.classes)}" in lines
        assert f"  sha256 {info.sha256} of paths and sizes" in lines
        assert f"  sha256 {info.contents} of all contents" in lines


def test_check_lists_every_bad_image(folder):
    names = sorted((folder / "train").rglob("*.JPEG"))[:2]
    names[0].write_bytes(b"")
    names[1].write_bytes(b"x" * 100)
    result = run("check", folder)
    failed(result, folder, "2 bad images")
    assert f"  bad: {names[0]}: empty" in result.stdout.splitlines()
    assert f"  bad: {names[1]}: not a JPEG or PNG image" in result.stdout.splitlines()
    result = run("check", folder, "--bad-images", "skip")
    assert result.exit_code == 0 and str(names[1]) in result.stdout


def test_damaged_sample(tmp_path):
    run("sample", "--out", tmp_path)
    image = next((tmp_path / "sample" / files.FOLDER / "val").rglob("*.JPEG"))
    image.write_bytes(b"")
    failed(run("sample", "--out", tmp_path), image, "empty", "--force")
    assert run("sample", "--out", tmp_path, "--force").exit_code == 0
    assert files.check(tmp_path / "sample" / files.FOLDER).test_images == 100


@pytest.mark.parametrize("command", [[], ["arrange"], ["sample"], ["mindrecord"], ["check"]])
def test_help_has_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example: python data_scripts/imagenet.py {' '.join(command)}" in result.stdout


def test_script_runs_from_anywhere(tmp_path):
    command = [sys.executable, str(SCRIPT), "sample", "--out", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("ready: "), done.stderr
