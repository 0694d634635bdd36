"""data_scripts/cifar10.py import, sample, split and check, on real archives."""

import pytest
from cifar10_archive import ARCHIVE, CONTENTS, MD5, batches, files, good, run, script, tar_bytes, zip_bytes
from data_script import failed, link

# -- import --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "tar.xz", "zip", "folder"])
def test_import(tmp_path, kind):
    # The seed's layout: batches under train/ and eval/, with things that nobody asked for.
    nested = {f"cifar10/train/{name}": CONTENTS[name] for name in files.TRAIN_FILES}
    nested["cifar10/eval/test_batch.bin"] = CONTENTS["test_batch.bin"]
    nested["cifar10/batches.meta.txt"] = CONTENTS["batches.meta.txt"]
    nested |= {"cifar10/readme.html": b"<p>", "__MACOSX/train/._data_batch_1.bin": b"junk"}
    given = tmp_path / f"mine.{kind}"
    if kind == "folder":
        for name, content in nested.items():
            (given / name).parent.mkdir(parents=True, exist_ok=True)
            (given / name).write_bytes(content)
    elif kind == "zip":
        given.write_bytes(zip_bytes(nested))
    else:
        mode = {"tar.gz": "w:gz", "tar": "w", "tar.xz": "w:xz"}[kind]
        given.write_bytes(tar_bytes(nested, prefix="", mode=mode))
    result = run("import", given, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert good(tmp_path / "out").name == f"imported from mine.{kind}"
    assert sorted(p.name for p in (tmp_path / "out" / files.FOLDER).iterdir()) == sorted([*CONTENTS, "SOURCE.txt"])


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(ARCHIVE)
    return path


def test_import_of_the_official_archive_says_so(archive, tmp_path, monkeypatch):
    result = run("import", archive, "--out", tmp_path / "other")
    assert f"MD5 {MD5}, so not the official" in result.stderr
    assert good(tmp_path / "other").name == "imported from cifar-10-binary.tar.gz"
    monkeypatch.setattr(script, "OFFICIAL_MD5", MD5)
    result = run("import", archive, "--out", tmp_path / "other")  # the same bytes, better known
    assert "the same data" in result.stdout
    assert good(tmp_path / "other").name == "CIFAR-10, official binary archive"
    run("import", archive, "--out", tmp_path / "other", "--source", "CIFAR-10,\nmine")
    assert good(tmp_path / "other").name == "CIFAR-10, mine"


def test_import_spares_other_data_without_force(archive, tmp_path):
    (tmp_path / "b.tar").write_bytes(tar_bytes(batches(seed=1), mode="w"))
    assert run("import", archive, "--out", tmp_path / "out").exit_code == 0
    result = run("import", tmp_path / "b.tar", "--out", tmp_path / "out")
    failed(result, "holds other data (imported from cifar-10-binary.tar.gz)", "--force")
    good(tmp_path / "out")
    assert run("import", tmp_path / "b.tar", "--out", tmp_path / "out", "--force").exit_code == 0
    assert good(tmp_path / "out", batches(seed=1)).name == "imported from b.tar"


def bad_import(tmp_path, content, *words, name="bad.tar.gz"):
    """Importing this archive fails with these words and its name, and leaves nothing."""
    (tmp_path / name).write_bytes(content)
    failed(run("import", tmp_path / name, "--out", tmp_path / "out"), name, *words)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind, whole", [("tar.gz", ARCHIVE), ("zip", zip_bytes(CONTENTS))])
def test_damaged_archive(tmp_path, kind, whole):
    """Cut short; one wrong bit: pixels are random and so stored unchanged, only the archive's own checksum can tell."""
    for share in (0.001, 0.3, 0.99):
        bad_import(tmp_path, whole[: int(share * len(whole))], name=f"cut.{kind}")
    wrong = bytearray(whole)
    wrong[len(wrong) // 4] ^= 1
    bad_import(tmp_path, bytes(wrong), "not a complete", name=f"bit.{kind}")


def test_bad_or_other_data(tmp_path):
    contents = CONTENTS | {"test_batch.bin": CONTENTS["test_batch.bin"][:-5]}
    bad_import(tmp_path, tar_bytes(contents), "bad.tar.gz: test_batch.bin: record 29 is cut")
    bad_import(tmp_path, tar_bytes({"data_batch_1": b"pickle"}), "the version for Python; labkit reads the binary one")
    bad_import(tmp_path, b"plain text", "not a complete .tar.gz, .tar or .zip", name="notes.txt")


@pytest.mark.parametrize("prefix", ["a/../../", "/etc/", "..\\"])
def test_paths_that_lead_outside(tmp_path, prefix):
    for make in (tar_bytes, zip_bytes):
        bad_import(tmp_path, make(CONTENTS, prefix=prefix), "leads outside the archive")
    assert not list(tmp_path.rglob("*.bin"))


def test_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(CONTENTS["test_batch.bin"])
    others = {name: content for name, content in CONTENTS.items() if name != files.TEST_FILE}
    linked = link(f"{files.FOLDER}/{files.TEST_FILE}", tmp_path / "secret")
    bad_import(tmp_path, tar_bytes({**others, linked: b""}), "test_batch.bin: this batch is missing")


def test_batch_found_twice(tmp_path):
    folder = tmp_path / "given"
    for name, content in CONTENTS.items():
        for part in ("a", "b"):
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / name).write_bytes(content)
    assert run("import", folder, "--out", tmp_path / "out").exit_code == 0  # equal ones are one
    (folder / "b" / "data_batch_4.bin").write_bytes(bytes(3073))
    failed(run("import", folder, "--out", tmp_path / "out2"), folder, "two different files data_batch_4.bin")


# -- sample, check, help -------------------------------------------------------------------------


def test_sample_then_check(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    failed(run("check"), tmp_path / files.FOLDER, "download", "sample")
    result = run("sample")
    assert result.exit_code == 0 and "1,437 + 360 images" in result.stdout
    assert "already there" in run("sample").stdout
    (tmp_path / "sample" / files.FOLDER / "test_batch.bin").write_bytes(b"")
    failed(run("sample"), "test_batch.bin: record 0 is cut short", "--force")
    assert run("sample", "--force").exit_code == 0
    info = files.check(tmp_path / "sample" / files.FOLDER)
    assert "CIFAR-10 itself is missing" in run("check").stdout
    for args in (["check"], ["check", tmp_path / "sample"], ["check", info.folder]):
        rows = [line.split() for line in run(*args).stdout.splitlines()]
        assert ["zero", "142", "36"] in rows and ["sha256", info.sha256] in rows


def test_split(archive, tmp_path):
    """Every image is kept once; the last tenth becomes the test images, and the test images are not in it."""
    failed(run("split", "--out", tmp_path), tmp_path / files.FOLDER, "download")
    assert run("import", archive, "--out", tmp_path).exit_code == 0
    before = b"".join((tmp_path / files.FOLDER / name).read_bytes() for name in files.TRAIN_FILES)
    result = run("split", "--out", tmp_path)
    assert result.exit_code == 0 and "135 of the training images, and 15 others to test on" in result.stdout
    info = files.check(tmp_path / "arena" / files.FOLDER)
    assert (info.train_images, info.test_images) == (135, 15)
    assert before == b"".join((info.folder / name).read_bytes() for name in (*files.TRAIN_FILES, files.TEST_FILE))
    assert "already there" in run("split", "--out", tmp_path).stdout
