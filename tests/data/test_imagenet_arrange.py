"""data_scripts/imagenet.py arrange, on tiny archives in ImageNet2012's true layout."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from data_script import failed
from imagenet_archives import (
    DEVKIT,
    IMAGES,
    SCRIPT,
    SYNSETS,
    TRAIN,
    TRUTH,
    VAL,
    VALIDATION,
    WNIDS,
    archives_module,
    arrange,
    devkit,
    files,
    good,
    jpeg,
    link,
    run,
    tar,
    train_tar,
    write_archives,
)


@pytest.fixture
def archives(tmp_path):
    return write_archives(tmp_path / "downloads")


def test_arrange(archives, tmp_path):
    out = tmp_path / "out"
    result = arrange(archives, out)
    assert result.exit_code == 0, result.output
    info = good(out)
    assert info.name == "ImageNet2012 (ILSVRC2012), arranged from its archives"
    # By WordNet ID, as torchvision numbers them, not by the development kit's own numbers.
    assert info.classes == ("tench, Tinca tinca", "English setter", "kit fox, Vulpes macrotis")
    assert (info.train_images, info.test_images) == (9, 5)
    assert files.listing(info.folder, "test")[1].tolist() == [0, 0, 1, 2, 2]
    assert "ready" in result.stdout and "100%" in result.stderr
    assert "already there" in arrange(archives, out).stdout


def test_arrange_is_what_torchvision_makes_of_the_archives(archives, tmp_path, monkeypatch, torchvision):
    imagenet = torchvision.datasets.imagenet
    md5 = {name: hashlib.md5((archives / name).read_bytes()).hexdigest() for name in archives_module.MD5}
    monkeypatch.setattr(archives_module, "MD5", md5)
    assert run("arrange", archives, "--out", tmp_path / "out").exit_code == 0
    info = good(tmp_path / "out")
    theirs = {"train": (TRAIN, md5[TRAIN]), "val": (VAL, md5[VAL]), "devkit": (DEVKIT, md5[DEVKIT])}
    monkeypatch.setattr(imagenet, "ARCHIVE_META", theirs)
    for split, name in files.SPLITS.items():
        made = imagenet.ImageNet(str(archives), split=name)
        paths, labels = files.listing(info.folder, split)
        assert [(Path(path).name, label) for path, label in made.samples] == [
            (Path(path).name, label) for path, label in zip(paths, labels)
        ]
        assert [", ".join(names) for names in made.classes] == list(info.classes)


def test_published_checksums_are_torchvisions(torchvision):
    published = torchvision.datasets.imagenet.ARCHIVE_META
    assert dict(published.values()) == archives_module.MD5


def test_wrong_checksum(archives, tmp_path, monkeypatch):
    md5 = {name: hashlib.md5((archives / name).read_bytes()).hexdigest() for name in archives_module.MD5}
    monkeypatch.setattr(archives_module, "MD5", {**md5, VAL: "0" * 32})
    result = run("arrange", archives, "--out", tmp_path / "out")
    failed(result, archives / VAL, f"MD5 {md5[VAL]}, not {'0' * 32}")
    assert not (tmp_path / "out" / files.FOLDER).exists()
    # What was right is not read again when the rest has been mended.
    (archives / VAL).write_bytes(tar(VALIDATION))
    monkeypatch.setattr(archives_module, "MD5", md5)
    read, file_md5 = [], archives_module.file_md5
    monkeypatch.setattr(
        archives_module, "file_md5", lambda path, progress: (read.append(path.name), file_md5(path, progress))[1]
    )
    assert run("arrange", archives, "--out", tmp_path / "out").exit_code == 0
    good(tmp_path / "out")
    assert read == [VAL]


@pytest.mark.parametrize("name", [DEVKIT, TRAIN, VAL])
def test_missing_archive(archives, tmp_path, name):
    (archives / name).unlink()
    failed(arrange(archives, tmp_path / "out"), archives / name, "missing", "image-net.org")
    assert not (tmp_path / "out").exists()


def bad(archives, tmp_path, name, content, *words):
    """With this content of an archive, arranging fails with these words and its name; the right one then goes on."""
    right = (archives / name).read_bytes()
    (archives / name).write_bytes(content)
    failed(arrange(archives, tmp_path / "out"), archives / name, *words)
    assert not (tmp_path / "out" / files.FOLDER).exists()
    inside = {path for path in tmp_path.rglob("*") if path.name.startswith("evil")}
    assert not inside
    (archives / name).write_bytes(right)
    assert arrange(archives, tmp_path / "out").exit_code == 0
    good(tmp_path / "out")


@pytest.mark.parametrize("name", [DEVKIT, TRAIN, VAL])
@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.6, 0.9])
def test_archive_cut_short(archives, tmp_path, name, share):
    whole = (archives / name).read_bytes().rstrip(b"\0")
    bad(archives, tmp_path, name, whole[: int(share * len(whole))])


@pytest.mark.parametrize("name", [DEVKIT, TRAIN, VAL])
def test_no_archive_at_all(archives, tmp_path, name):
    bad(archives, tmp_path, name, b"<html>please log in</html>" * 100, "not a whole")


def test_archive_cut_between_two_classes(archives, tmp_path):
    some = {wnid: IMAGES[wnid] for wnid in WNIDS[:2]}
    bad(archives, tmp_path, TRAIN, train_tar(some), "n02100735.tar is missing (1 of 3 classes are)")


def test_archive_cut_between_two_images(archives, tmp_path):
    some = dict(list(VALIDATION.items())[:4])
    bad(archives, tmp_path, VAL, tar(some), "4 images, but the ground truth has 5")


def test_class_cut_inside(archives, tmp_path):
    """The tar in the tar has lost its end, which only its own size tells."""
    contents = {f"{wnid}.tar": tar(IMAGES[wnid]) for wnid in WNIDS}
    contents["n01440764.tar"] = contents["n01440764.tar"][:800]
    bad(archives, tmp_path, TRAIN, tar(contents), "n01440764.tar: n01440764_18.JPEG: the archive is cut short")
    contents["n01440764.tar"] = tar({})
    shutil.rmtree(tmp_path / "out")
    bad(archives, tmp_path, TRAIN, tar(contents), "n01440764.tar: holds no image")


@pytest.mark.parametrize(
    "name",
    ["../evil.JPEG", "/evil.JPEG", "a/../../evil.JPEG", "..\\evil.JPEG", "n01440764_1.JPEG/../../evil.JPEG",
     "evil.JPEG", "n02119789_1.JPEG", "n01440764_1.txt", "x/n01440764_1.JPEG"],
)  # fmt: skip
def test_names_that_are_not_imagenets(archives, tmp_path, name):
    inner = {**IMAGES, "n01440764": {**IMAGES["n01440764"], name: jpeg()}}
    bad(archives, tmp_path, TRAIN, train_tar(inner), "n01440764.tar", repr(name), "not unpacked")
    shutil.rmtree(tmp_path / "out")
    bad(archives, tmp_path, VAL, tar({**VALIDATION, name: jpeg()}), repr(name), "not unpacked")
    shutil.rmtree(tmp_path / "out")
    outer = {f"{wnid}.tar": tar(IMAGES[wnid]) for wnid in WNIDS}
    bad(archives, tmp_path, TRAIN, tar({name: b"x", **outer}), repr(name), "not unpacked")


def test_damaged_header_inside(archives, tmp_path):
    """tarfile takes it for the end of the archive."""
    contents = {f"{wnid}.tar": tar(IMAGES[wnid]) for wnid in WNIDS}
    hurt = bytearray(contents["n01440764.tar"])
    hurt[hurt.index(b"n01440764_7.JPEG")] ^= 1
    bad(archives, tmp_path, TRAIN, tar({**contents, "n01440764.tar": bytes(hurt)}), "n01440764.tar: damaged after")


def test_links_in_an_archive(archives, tmp_path):
    (tmp_path / "secret").write_bytes(jpeg())
    for target in (tmp_path / "secret", tmp_path):
        inner = {**IMAGES, "n01440764": {link("n01440764_1.JPEG", target): b"", **IMAGES["n01440764"]}}
        bad(archives, tmp_path, TRAIN, train_tar(inner), "n01440764_1.JPEG", "not unpacked")
        shutil.rmtree(tmp_path / "out")
        outer = {link("n01440764.tar", target): b""}
        bad(archives, tmp_path, TRAIN, tar(outer), "n01440764.tar", "not unpacked")
        shutil.rmtree(tmp_path / "out")


def test_a_name_twice(archives, tmp_path):
    twice = tarfile.TarInfo("ILSVRC2012_val_00000002.JPEG")
    bad(archives, tmp_path, VAL, tar({**VALIDATION, twice: jpeg()}), "holds ILSVRC2012_val_00000002.JPEG twice")


def test_class_or_image_that_the_devkit_does_not_know(archives, tmp_path):
    more = {**IMAGES, "n99999999": {"n99999999_1.JPEG": jpeg()}}
    bad(archives, tmp_path, TRAIN, train_tar(more), "n99999999.tar", "no such class")
    shutil.rmtree(tmp_path / "out")
    more = {**VALIDATION, "ILSVRC2012_val_00000006.JPEG": jpeg()}
    bad(archives, tmp_path, VAL, tar(more), "ILSVRC2012_val_00000006.JPEG", "has 5 images")


@pytest.mark.parametrize(
    "content, words",
    [
        (devkit(truth=[*TRUTH, 4]), "no class 4"),
        (devkit(truth=["x"]), "ground_truth.txt: no class"),
        (devkit(SYNSETS[3:]), "meta.mat: cannot be read (no classes)"),
        (devkit([(1, "../evil", "evil", 0)]), "meta.mat: cannot be read ('../evil' is no WordNet ID)"),
        (devkit(**{"data/meta.mat": None}), "holds no data/meta.mat"),
        (devkit(**{"data/ILSVRC2012_validation_ground_truth.txt": None}), "holds no data/ILSVRC2012_validation"),
        (devkit(**{"data/meta.mat": b"no matrix" * 50}), "meta.mat: cannot be read"),
        (devkit(**{"data/meta.mat": b""}), "meta.mat: cannot be read"),
    ],
    ids=range(8),
)
def test_bad_devkit(archives, tmp_path, content, words):
    bad(archives, tmp_path, DEVKIT, content, words)


def test_interrupted_arrangement_goes_on(archives, tmp_path, monkeypatch):
    """Stopped inside the third class: the two that are complete are not unpacked again."""
    save, saved = archives_module.Archive.save, []

    def stop(self, entry, folder):
        saved.append(entry.name)
        if len(saved) == 8:
            raise KeyboardInterrupt
        save(self, entry, folder)

    monkeypatch.setattr(archives_module.Archive, "save", stop)
    assert arrange(archives, tmp_path / "out").exit_code == 1
    assert not (tmp_path / "out" / files.FOLDER).exists()
    result = arrange(archives, tmp_path / "out")
    assert result.exit_code == 0, result.output
    good(tmp_path / "out")
    assert saved[8:] == [*IMAGES[WNIDS[2]], *VALIDATION]


DIE_WHILE_ARRANGING = f"""
import os, signal, sys
sys.path.insert(0, {str(SCRIPT.parents[1])!r})
from data_scripts import imagenet

def save(self, entry, folder, save=imagenet.ilsvrc2012.Archive.save, saved=[]):
    save(self, entry, folder)
    saved.append(entry)
    if len(saved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

imagenet.ilsvrc2012.Archive.save = save
imagenet.main()
"""


def test_killed_arrangement_goes_on(archives, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", DIE_WHILE_ARRANGING, "arrange", archives, "--out", out, "--no-verify"]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert len(list(out.glob(".*.arranging/train/.*/*"))) == 2 and not (out / files.FOLDER).exists()
    assert arrange(archives, out).exit_code == 0
    good(out)


def test_other_data_is_spared_without_force(archives, tmp_path):
    files.write_sample(tmp_path / "out" / files.FOLDER)
    assert "already there" in arrange(archives, tmp_path / "out").stdout
    (tmp_path / "out" / files.FOLDER / "val" / "3").rename(tmp_path / "out" / files.FOLDER / "val" / "x")
    failed(arrange(archives, tmp_path / "out"), "val/x", "no such class", "--force")
    assert arrange(archives, tmp_path / "out", "--force").exit_code == 0
    good(tmp_path / "out")
    assert arrange(archives, tmp_path / "out", "--force").exit_code == 0
    good(tmp_path / "out")


def test_bad_image_in_the_archives_is_noted(archives, tmp_path):
    (archives / VAL).write_bytes(tar({**VALIDATION, "ILSVRC2012_val_00000001.JPEG": b"x"}))
    result = arrange(archives, tmp_path / "out")
    assert result.exit_code == 0 and "1 of 14 images are bad" in result.stderr


def test_two_at_once(archives, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "out").mkdir()
    handle = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    failed(arrange(archives, tmp_path / "out"), tmp_path / "out", "under way")
    os.close(handle)
    assert arrange(archives, tmp_path / "out").exit_code == 0
