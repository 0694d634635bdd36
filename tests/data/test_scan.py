"""labkit.data.scan: what is a bad image, and what is kept of a look at a folder."""

import pytest
from image_files import CMYK, GREY, JPEG, PNG, change_a_byte, encoded, small_folder, write

from labkit.data import imagenet_files as files
from labkit.data import scan
from labkit.data.files import DataError


@pytest.fixture
def data(tmp_path):
    return small_folder(tmp_path / "d")


@pytest.mark.parametrize(
    "content",
    [
        encoded(GREY), encoded(CMYK), encoded(progressive=True), encoded(GREY.convert("1"), "PNG"),
        encoded(GREY.convert("P"), "PNG"), encoded(GREY.convert("RGBA"), "PNG"), JPEG + bytes(5000), PNG + bytes(5000),
    ],
    ids=["grey", "cmyk", "progressive", "1 bit png", "palette png", "png with alpha", "rest", "png with a rest"],
)  # fmt: skip
def test_unusual_images_are_good(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    assert scan.examine(tmp_path / "x") is None
    assert scan.examine(tmp_path / "x", decode=True) is None


def test_damage_in_the_middle_is_found_by_decoding(data):
    change_a_byte(data / "train/b/1.png")
    assert files.check(data).skipped == ()
    with pytest.raises(DataError, match="train/b/1.png: "):
        files.check(data, decode=True)


# -- What is kept ---------------------------------------------------------------------------------


@pytest.fixture
def checked(data, tmp_path, monkeypatch):
    """A folder that counts as large, with a bad image, checked once."""
    monkeypatch.setattr(scan, "LARGE", 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(data, {"val/a/w.JPEG": b""})
    files.check(data, "skip")
    return data


@pytest.fixture
def looked_at(monkeypatch):
    """Names of the files that have been read since."""
    seen, read = [], scan._read
    monkeypatch.setattr(scan, "_read", lambda path, decode: (seen.append(path.name), read(path, decode))[1])
    return seen


@pytest.mark.parametrize("in_another_process", [False, True])
def test_a_folder_is_read_once(checked, looked_at, in_another_process, monkeypatch):
    """A start checks it, and asks for both listings: it must not read 150 GB each time."""
    if in_another_process:
        monkeypatch.setattr(scan, "_findings", {})
    assert files.check(checked, "skip").skipped == (("val/a/w.JPEG", "empty"),)
    assert len(files.read(checked, "test", "skip")[0]) == 2
    with pytest.raises(DataError, match="w.JPEG: empty"):
        files.check(checked)
    assert looked_at == []
    files.check(checked, "skip", decode=True)
    files.check(checked, "skip")
    assert len(looked_at) == 8


def test_a_damaged_cache_is_made_again(checked, tmp_path, monkeypatch):
    cache, = (tmp_path / "cache" / "labkit").iterdir()
    cache.write_text('{"val/a": {"ke')
    monkeypatch.setattr(scan, "_findings", {})
    assert files.check(checked, "skip").skipped == (("val/a/w.JPEG", "empty"),)


@pytest.mark.parametrize(
    "change, bad, again",
    [
        ("added", 2, ["10.jpg", "9.jpg", "new.jpg", "x.jpg"]), ("removed", 1, ["10.jpg", "x.jpg"]),
        ("fixed", 0, ["v.JPEG", "w.JPEG"]), ("a byte", 1, ["v.JPEG", "w.JPEG"]),
    ],
)  # fmt: skip
def test_a_change_is_noticed(checked, change, bad, again, looked_at):
    """The class is read again that it is in, and no other."""
    before = files.check(checked, "skip")
    if change == "added":
        write(checked, {"train/a/new.jpg": b"x"})
    elif change == "removed":
        (checked / "train/a/9.jpg").unlink()
    elif change == "fixed":
        write(checked, {"val/a/w.JPEG": JPEG})
    else:
        change_a_byte(checked / "val/a/v.JPEG")
    after = files.check(checked, "skip")
    assert len(after.skipped) == bad and sorted(looked_at) == again
    assert (after.contents == before.contents) == (change == "added")  # of a bad image


def test_an_interrupted_check_keeps_what_it_has_read(checked, monkeypatch, looked_at):
    class Stop(scan.tqdm):
        def update(self, n=1):
            super().update(n)
            if self.n == 4:  # train/a has three images
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scan, "tqdm", Stop)
        with pytest.raises(KeyboardInterrupt):
            files.check(checked, "skip", decode=True)
    monkeypatch.setattr(scan, "_findings", {})
    looked_at.clear()
    files.check(checked, "skip", decode=True)
    assert len(looked_at) == 5


def test_a_cache_that_cannot_be_written_is_reported(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scan, "LARGE", 3)
    (tmp_path / "file").touch()
    monkeypatch.setattr(scan, "_cache", lambda place: tmp_path / "file" / "scan.json")
    assert files.check(data).train_images == 5
    assert "every start reads all" in capsys.readouterr().err
