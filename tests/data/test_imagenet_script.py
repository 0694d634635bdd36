"""data_scripts/imagenet.py: arrange, on tiny archives in ImageNet2012's true layout; sample and check."""

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from data_script import failed, link, tar
from image_files import encoded
from imagenet_archives import (
    DEVKIT,
    IMAGES,
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
    run,
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
    assert files.read(info.folder, "test")[1].tolist() == [0, 0, 1, 2, 2]
    assert "ready" in result.stdout and "100%" in result.stderr
    assert "already there" in arrange(archives, out).stdout


def test_arrange_is_what_torchvision_makes_of_the_archives(archives, tmp_path, monkeypatch, torchvision):
    imagenet = torchvision.datasets.imagenet
    assert dict(imagenet.ARCHIVE_META.values()) == archives_module.MD5
    monkeypatch.setattr(imagenet, "ARCHIVE_META", {
        split: (name, hashlib.md5((archives / name).read_bytes()).hexdigest())
        for split, (name, _) in imagenet.ARCHIVE_META.items()
    })  # fmt: skip
    assert arrange(archives, tmp_path / "out").exit_code == 0
    info = good(tmp_path / "out")
    for split, name in files.SPLITS.items():
        made = imagenet.ImageNet(str(archives), split=name)
        paths, labels = files.read(info.folder, split)
        assert [(Path(path).name, label) for path, label in made.samples] == [
            (Path(path).name, label) for path, label in zip(paths, labels)
        ]
        assert [", ".join(names) for names in made.classes] == list(info.classes)


def test_wrong_checksum(archives, tmp_path, monkeypatch):
    """What was right is not read again when the rest has been fixed."""
    md5 = {name: hashlib.md5((archives / name).read_bytes()).hexdigest() for name in archives_module.MD5}
    monkeypatch.setattr(archives_module, "MD5", {**md5, VAL: "0" * 32})
    result = run("arrange", archives, "--out", tmp_path / "out")
    failed(result, archives / VAL, f"MD5 {md5[VAL]}, not {'0' * 32}")
    assert not (tmp_path / "out" / files.FOLDER).exists()
    monkeypatch.setattr(archives_module, "MD5", md5)
    read, file_md5 = [], archives_module.file_md5
    monkeypatch.setattr(
        archives_module, "file_md5", lambda path, progress: (read.append(path.name), file_md5(path, progress))[1]
    )
    assert run("arrange", archives, "--out", tmp_path / "out").exit_code == 0
    good(tmp_path / "out")
    assert read == [VAL]


# -- Bad archives ---------------------------------------------------------------------------------


def inside(name, change):
    """The training archive with another content of the class n01440764, and nothing else changed."""
    return train_tar({**IMAGES, "n01440764": {**IMAGES["n01440764"], name: change}})


def with_damaged_header():
    """tarfile takes it for the end of the archive."""
    contents = {f"{wnid}.tar": tar(IMAGES[wnid]) for wnid in WNIDS}
    hurt = bytearray(contents["n01440764.tar"])
    hurt[hurt.index(b"n01440764_7.JPEG")] ^= 1
    return tar({**contents, "n01440764.tar": bytes(hurt)})


BAD = {
    "a class is missing": (TRAIN, train_tar({wnid: IMAGES[wnid] for wnid in WNIDS[:2]}), "n02100735.tar is missing"),
    "an image is missing": (VAL, tar(dict(list(VALIDATION.items())[:4])), "4 images, but the ground truth has 5"),
    "a damaged header": (TRAIN, with_damaged_header(), "n01440764.tar: damaged after"),
    "another class": (TRAIN, train_tar({**IMAGES, "n99999999": {"n99999999_1.JPEG": encoded()}}), "not a class in"),
    "a path outside": (TRAIN, inside("../evil.JPEG", encoded()), "'../evil.JPEG' is not expected in this archive"),
    "of another class": (TRAIN, inside("n02119789_1.JPEG", encoded()), "'n02119789_1.JPEG' is not expected"),
    "a link": (TRAIN, inside(link("n01440764_1.JPEG", "/etc/passwd"), b""), "n01440764_1.JPEG", "not unpacked"),
    "another truth": (DEVKIT, devkit(truth=[*TRUTH, 4]), "no class 4"),
    "another name": (DEVKIT, devkit([(1, "../evil", "evil", 0)]), "('../evil' is not a WordNet ID)"),
    "no table": (DEVKIT, devkit(**{"data/meta.mat": None}), "contains no data/meta.mat"),
    "no matrix": (DEVKIT, devkit(**{"data/meta.mat": b"no matrix" * 50}), "meta.mat: cannot be read"),
    "a page": (VAL, b"<html>please log in</html>" * 100, "not a complete"),
    "cut": (TRAIN, train_tar()[:9000], ""),
}


@pytest.mark.parametrize("name, content, words", [(*case[:2], case[2:]) for case in BAD.values()], ids=BAD)
def test_bad_archive(archives, tmp_path, name, content, words):
    """Arranging fails with these words and the archive's name; with the right one, it continues."""
    right = (archives / name).read_bytes()
    (archives / name).write_bytes(content)
    failed(arrange(archives, tmp_path / "out"), archives / name, *words)
    assert not (tmp_path / "out" / files.FOLDER).exists()
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("evil") or path.is_symlink()]
    (archives / name).write_bytes(right)
    assert arrange(archives, tmp_path / "out").exit_code == 0
    good(tmp_path / "out")


def test_missing_archive(archives, tmp_path):
    (archives / VAL).unlink()
    failed(arrange(archives, tmp_path / "out"), archives / VAL, "missing", "image-net.org")
    assert not (tmp_path / "out").exists()


# -- Interrupted, repeated, at once ----------------------------------------------------------------

DIE_WHILE_ARRANGING = """
import os, signal
from data_scripts import imagenet

def save(self, entry, folder, save=imagenet.ilsvrc2012.Archive.save, saved=[]):
    save(self, entry, folder)
    saved.append(entry)
    if len(saved) == 5:
        os.kill(os.getpid(), signal.SIGKILL)

imagenet.ilsvrc2012.Archive.save = save
imagenet.main()
"""


def test_killed_arrangement_continues(archives, tmp_path):
    """Killed inside the second class: the first one, which is complete, is not unpacked again."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", DIE_WHILE_ARRANGING, "arrange", archives, "--out", out, "--no-verify"]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert len(list(out.glob(".*.arranging/train/.*/*"))) == 2 and not (out / files.FOLDER).exists()
    (complete,) = out.glob(".*.arranging/train/n*")
    inode = complete.stat().st_ino
    assert arrange(archives, out).exit_code == 0
    assert (good(out).folder / "train" / complete.name).stat().st_ino == inode


# -- sample and check -----------------------------------------------------------------------------


def test_sample_then_check(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    failed(run("check"), tmp_path / files.FOLDER, "arrange", "sample")
    result = run("sample")
    assert result.exit_code == 0 and "400 + 100 images" in result.stdout
    assert "already there" in run("sample").stdout
    info = files.check(tmp_path / "sample" / files.FOLDER)
    lines = run("check").stdout.splitlines()
    assert lines == run("check", info.folder, "--decode").stdout.splitlines()
    assert lines[0] == f"{info.folder}: {info.name}"
    assert f"  sha256 {info.contents} of all contents" in lines
    names = sorted((info.folder / "train").rglob("*.JPEG"))[:2]
    names[0].write_bytes(b"")
    names[1].write_bytes(b"x" * 100)
    result = run("check", info.folder)
    failed(result, info.folder, "2 bad images")
    assert f"  bad: {names[0]}: empty" in result.stdout.splitlines()
    assert f"  bad: {names[1]}: not a JPEG or PNG image" in result.stdout.splitlines()
