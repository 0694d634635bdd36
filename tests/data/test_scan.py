"""labkit.data.scan: what is a bad image, and what is kept of a look at a large folder."""

import json

import pytest
from image_files import CMYK, GREY, JPEG, change_a_byte, encoded, small_folder, write

from labkit.data import imagenet_files as files
from labkit.data import scan
from labkit.data.files import DataError


@pytest.fixture
def data(tmp_path):
    return small_folder(tmp_path / "d")


@pytest.mark.parametrize(
    "content",
    [
        encoded(GREY), encoded(CMYK), encoded(progressive=True), encoded(quality=1), encoded(GREY, "PNG"),
        encoded(GREY.convert("1"), "PNG"), encoded(GREY.convert("P"), "PNG"), encoded(GREY.convert("RGBA"), "PNG"),
        JPEG + bytes(5000),
    ],
    ids=["grey", "cmyk", "progressive", "coarse", "grey png", "1 bit png", "palette png", "png with alpha", "rest"],
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


def test_photographs_are_good():
    for path in files.photographs():
        assert scan.examine(path, decode=True) is None


# -- The stamp of a large folder ------------------------------------------------------------------


@pytest.fixture
def large(data, tmp_path, monkeypatch):
    """A folder that counts as large, with a bad image, checked once."""
    monkeypatch.setattr(scan, "LARGE_FILES", 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(data, {"val/a/w.JPEG": b""})
    files.check(data, "skip")
    return data


@pytest.fixture
def looked_at(monkeypatch):
    """Names of the files that have been read since."""
    seen, read = [], scan.read
    monkeypatch.setattr(scan, "read", lambda path, *options: (seen.append(path.name), read(path, *options))[1])
    return seen


def test_large_folder_is_scanned_once(large, looked_at):
    assert files.check(large, "skip").skipped == (("val/a/w.JPEG", "empty"),)
    assert len(files.listing(large, "test", "skip")[0]) == 2
    with pytest.raises(DataError, match="w.JPEG: empty"):
        files.check(large)
    assert looked_at == []
    files.check(large, "skip", decode=True)
    assert len(looked_at) == 8
    files.check(large, "skip", decode=True)
    files.check(large, "skip")
    assert len(looked_at) == 8


@pytest.mark.parametrize(
    "change, bad, again",
    [
        ("added", 2, ["10.jpg", "9.jpg", "new.jpg", "x.jpg"]), ("removed", 1, ["10.jpg", "x.jpg"]),
        ("mended", 0, ["v.JPEG", "w.JPEG"]), ("a byte", 1, ["v.JPEG", "w.JPEG"]),
    ],
)  # fmt: skip
def test_change_in_a_large_folder_is_noticed(large, change, bad, again, looked_at):
    """The class is read again that it is in, and no other."""
    before = files.check(large, "skip")
    if change == "added":
        write(large, {"train/a/new.jpg": b"x"})
    elif change == "removed":
        (large / "train/a/9.jpg").unlink()
    elif change == "mended":
        write(large, {"val/a/w.JPEG": JPEG})
    else:
        change_a_byte(large / "val/a/v.JPEG")
    after = files.check(large, "skip")
    assert len(after.skipped) == bad and sorted(looked_at) == again
    assert (after.contents == before.contents) == (change == "added")  # of a bad image


def test_digest_of_a_large_folder_is_that_of_a_small_one(large, monkeypatch):
    kept = files.check(large, "skip")
    monkeypatch.setattr(scan, "LARGE_FILES", 100)
    assert files.check(large, "skip") == kept


def test_listing_alone_reads_no_contents(large, looked_at):
    """What every process does, while the first one has checked: it must not read 150 GB in each."""
    (large / scan.STAMP_FILE).unlink()
    files.listing(large, "train", "skip")
    parts = json.loads((large / scan.STAMP_FILE).read_text())
    assert {part["sha256"] for part in parts.values()} == {None} and len(looked_at) == 8
    assert files.check(large, "skip").contents and len(looked_at) == 16
    files.listing(large, "train", "skip")
    assert len(looked_at) == 16


def test_interrupted_check_keeps_what_it_has_read(large, monkeypatch, looked_at):
    (large / scan.STAMP_FILE).unlink()

    class Stop(scan.tqdm):
        def update(self, n=1):
            super().update(n)
            if self.n == 4:  # train/a has three images
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scan, "tqdm", Stop)
        with pytest.raises(KeyboardInterrupt):
            files.check(large, "skip")
    assert list(json.loads((large / scan.STAMP_FILE).read_text())) == ["train/a"]
    looked_at.clear()
    files.check(large, "skip")
    assert len(looked_at) == 5


def test_read_only_folder_is_kept_in_the_users_cache(large, tmp_path, looked_at):
    (large / scan.STAMP_FILE).unlink()
    (large / scan.STAMP_FILE).mkdir()  # as root every folder is writable, so stand in its way
    assert files.check(large, "skip").note == "1 of 8 images are bad and skipped"
    assert len(looked_at) == 8 and len(list((tmp_path / "cache/labkit").iterdir())) == 1
    files.check(large, "skip")
    assert len(looked_at) == 8


@pytest.mark.parametrize("content", ["", "[]", "{", '{"key": 1}', '{"train/a": {"key": "k", "bad": 1}}'])
def test_damaged_stamp_is_made_anew(large, content, looked_at):
    (large / scan.STAMP_FILE).write_text(content)
    assert files.check(large, "skip").skipped == (("val/a/w.JPEG", "empty"),)
    assert len(looked_at) == 8
    files.check(large, "skip")
    assert len(looked_at) == 8


def test_stamp_that_cannot_be_written_is_noted(large, tmp_path):
    (large / scan.STAMP_FILE).unlink()
    for place in (large / scan.STAMP_FILE, tmp_path / "cache" / "labkit"):
        place.parent.mkdir(exist_ok=True)
        place.mkdir() if place.parent == large else place.write_text("no folder")
    note = files.check(large, "skip").note
    assert scan.STAMP_FILE in note and "1 of 8" in note
