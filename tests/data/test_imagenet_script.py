"""data_scripts/imagenet.py on tiny archives in ImageNet2012's true layout, and on image folders."""

import hashlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from data_script import failed
from image_files import change_a_byte
from PIL import Image
from scipy.io import savemat

from labkit.data import imagenet_files as files
from labkit.data import scan

SCRIPT = Path(files.__file__).resolve().parents[2] / "data_scripts" / "imagenet.py"
_spec = importlib.util.spec_from_file_location("imagenet_script", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)
archives_module = script.ilsvrc2012

DEVKIT, TRAIN, VAL = archives_module.DEVKIT, archives_module.TRAIN, archives_module.VAL
# ILSVRC2012_ID, WNID, words: not in the order of the WNIDs, as in ImageNet. The fourth groups the others.
SYNSETS = [
    (1, "n02119789", "kit fox, Vulpes macrotis", 0),
    (2, "n01440764", "tench, Tinca tinca", 0),
    (3, "n02100735", "English setter", 0),
    (4, "n00001740", "entity", 3),
]
WNIDS = [row[1] for row in SYNSETS[:3]]
TRUTH = [2, 3, 1, 1, 2]  # class of validation images 1 to 5
RNG = np.random.default_rng(0)


def jpeg():
    raw = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (24, 32, 3), np.uint8)).save(raw, "JPEG")
    return raw.getvalue()


IMAGES = {wnid: {f"{wnid}_{number}.JPEG": jpeg() for number in (18, 7, 10026)} for wnid in WNIDS}
VALIDATION = {f"ILSVRC2012_val_{number:08}.JPEG": jpeg() for number in range(1, 6)}


def tar(contents, mode="w"):
    """A tar of {name: bytes}; a TarInfo instead of a name goes in as it is."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as archive:
        for name, content in contents.items():
            entry = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def link(name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, str(target)
    return entry


def devkit(synsets=SYNSETS, truth=TRUTH, **replaced):
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = np.array([(number, wnid, words, "a gloss", n) for number, wnid, words, n in synsets], dtype=kinds)
    meta = io.BytesIO()
    savemat(meta, {"synsets": rows.reshape(-1, 1)})
    contents = {
        "readme.txt": b"read me",
        "data/meta.mat": meta.getvalue(),
        "data/ILSVRC2012_validation_ground_truth.txt": "".join(f"{number}\n" for number in truth).encode(),
        **replaced,
    }
    contents = {f"ILSVRC2012_devkit_t12/{name}": content for name, content in contents.items() if content is not None}
    return tar(contents, "w:gz")


def train_tar(images=IMAGES):
    return tar({f"{wnid}.tar": tar(content) for wnid, content in images.items()})


@pytest.fixture
def archives(tmp_path):
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name, content in ((DEVKIT, devkit()), (TRAIN, train_tar()), (VAL, tar(VALIDATION))):
        (folder / name).write_bytes(content)
    return folder


def run(*args):
    """Run the command in this process; returns its result (exit_code, stdout, stderr)."""
    return CliRunner().invoke(script.main, [str(arg) for arg in args])


def arrange(archives, out, *options):
    return run("arrange", archives, "--out", out, "--no-verify", *options)


def good(out, images=IMAGES):
    """The folder holds exactly the archives' images, each in its class, and nothing is left beside it."""
    folder = out / files.FOLDER
    wanted = {f"train/{wnid}/{name}": content for wnid in WNIDS for name, content in images[wnid].items()}
    for (name, content), number in zip(VALIDATION.items(), TRUTH):
        wanted[f"val/{WNIDS[number - 1]}/{name}"] = content
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.JPEG")}
    assert found == wanted
    assert sorted(path.name for path in folder.iterdir()) == ["SOURCE.txt", "classes.txt", "train", "val"]
    assert [path.name for path in out.iterdir()] == [files.FOLDER]
    return files.check(folder)


# -- arrange -------------------------------------------------------------------------------------


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


# -- mindrecord ----------------------------------------------------------------------------------


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
