"""Which names and links are copied, which fail alone, and which refuse the whole copy."""

import os
import stat
from pathlib import Path

import pytest
from copies import make, objects, put
from running import contents

from labkit.obs import CloudError, CopyError, copy, ls, verify
from labkit.obs.place import Remote, parse
from labkit.obs.plan import files_below


@pytest.mark.parametrize("text, place", [
    ("/data/x y", Path("/data/x y")), (Path("a/b"), Path("a/b")), ("file:///data", Path("/data")),
    ("file://localhost/data", Path("/data")),
    ("obs://my-bucket/", Remote("obs", "my-bucket", "")), ("s3://b.c/a//b", Remote("s3", "b.c", "a//b")),
])  # fmt: skip
def test_places(text, place):
    assert parse(text) == place


@pytest.mark.parametrize("text, says", [
    ("", "not a path"), ("a\0b", "not a path"), ("obs:/bucket/key", "must begin with obs://"),
    ("http://bucket/key", "obs://, s3:// or file://, not http://"), ("obs://Bucket/key", "bucket name 'Bucket'"),
    ("obs:///key", "name ''"), ("obs://a..b/key", "name 'a..b'"), ("obs://user@host.example/key", "bucket name"),
])  # fmt: skip
def test_no_places(text, says):
    with pytest.raises(CloudError, match=says) as caught:
        parse(text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/abs", ".."])
def test_keys_that_lead_out_refuse_all(store, tmp_path, key):
    put(store, "in/good")
    put(store, f"in/{key}")
    for act in (copy, verify):
        with pytest.raises(CloudError, match="leads out of the folder|an absolute path") as caught:
            act("obs://course/in", tmp_path / "target")
        assert repr(key) in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    copy("obs://course/in", tmp_path / "target", exclude=[key])
    assert contents(tmp_path / "target") == {"good": b"text"}


def test_targets_that_lead_out_are_refused(server, account, tmp_path):
    """A gateway that tidies paths would read another bucket's name in them."""
    source = make(tmp_path / "source", {"a": b"1"})
    for place in (source / "a", source):
        with pytest.raises(CloudError, match="leads out of the folder"):
            copy(place, "obs://course/../other/x")
    assert server.requests("PUT") == []


@pytest.mark.parametrize("key, says", [
    ("a//b", "empty"), ("./x", "empty"), ("odd/", "empty"), ("a\0b", "NUL"), ("x" * 256, "name too long"),
])  # fmt: skip
def test_keys_that_are_no_file_fail_alone(server, store, tmp_path, key, says):
    put(store, "in/good")
    server.buckets["course"][f"in/{key}"] = server.buckets["course"]["in/good"]
    with pytest.raises(CopyError, match=f"(?i){says}.*; 1 copied") as caught:
        copy("obs://course/in", tmp_path / "target")
    assert [name for name, _ in caught.value.report.failed] == [key]
    assert contents(tmp_path / "target")["good"] == b"text"


def test_names_of_other_systems_travel(server, account, tmp_path):
    files = {name: name.encode() for name in ("a\\b", "C:/x", "nul", "x./y", "a\nb", "README", "readme")}
    copy(make(tmp_path / "up", files), "obs://course/x")
    assert {item.name for item in ls("obs://course/x")} == set(files)
    assert copy("obs://course/x", tmp_path / "down").copied == len(files) and contents(tmp_path / "down") == files


def test_folder_markers(store, tmp_path):
    for key in ("x/", "x/deep/", "only/"):
        put(store, key, b"")
    put(store, "x/deep/a")
    assert copy("obs://course/x", tmp_path / "target").copied == 1
    assert contents(tmp_path / "target") == {"deep/a": b"text"}
    with pytest.raises(CloudError, match="nothing to copy"):
        copy("obs://course/only", tmp_path / "none")


def test_an_object_and_a_folder_of_one_name(store, tmp_path):
    put(store, "a", b"object")
    put(store, "a/b", b"below")
    copy("obs://course/a", tmp_path / "one")
    copy("obs://course/a/", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == b"object" and contents(tmp_path / "two") == {"b": b"below"}
    with pytest.raises(CopyError, match="1 copied, 0 there already"):
        copy("obs://course", tmp_path / "three", jobs=1)
    assert len(contents(tmp_path / "three")) == 1


@pytest.mark.parametrize("kind, says", [
    ("out", "a link that leads out of .*exclude it"), ("folder", "not a link to a file"),
    ("gone", "not a link to a file"), ("circle", "not a link to a file"), ("pipe", "neither a file nor a folder"),
])  # fmt: skip
def test_what_is_no_file_of_the_folder(server, account, tmp_path, kind, says):
    """It stops the copy, unless it is excluded or collected."""
    make(tmp_path, {"secret": b"s"})
    source = make(tmp_path / "source", {"a": b"1", "deep/b": b"2"})
    (source / "inner").symlink_to("a")
    if kind == "pipe":
        os.mkfifo(source / "odd")
    else:
        (source / "odd").symlink_to({"out": "../secret", "folder": "deep", "gone": "nowhere", "circle": "odd"}[kind])
    with pytest.raises(CloudError, match=f"odd: {says}"):
        copy(source, "obs://course/x")
    assert objects(server) == {}
    assert copy(source, "obs://course/x", exclude=["odd"]).copied == 3
    assert objects(server) == {"x/a": b"1", "x/inner": b"1", "x/deep/b": b"2"}


def test_links_of_the_target_that_lead_out(store, tmp_path):
    outside = make(tmp_path / "outside", {"secret": b"s"})
    target = make(tmp_path / "target", {})
    target.mkdir()
    put(store, "down/sub/secret", b"overwritten")
    put(store, "down/file", b"fresh")
    (target / "sub").symlink_to(outside)
    (target / "file").symlink_to(outside / "secret")
    with pytest.raises(CopyError, match="sub/secret: .*leads out of .*; 1 copied"):
        copy("obs://course/down", target)
    assert contents(outside) == {"secret": b"s"} and (target / "file").read_bytes() == b"fresh"


def test_a_name_that_is_not_utf_8_fails_alone(account, tmp_path):
    source = make(tmp_path / "source", {"a": b"1"})
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_bytes(b"")
    with pytest.raises(CopyError, match="UTF-8; 1 copied"):
        copy(source, "obs://course")
    assert copy(source, tmp_path / "here").copied == 2


@pytest.mark.parametrize("kind", ["FIFO", "link to a device"])
def test_a_device_is_not_replaced(store, tmp_path, kind):
    """A copy into it would make it a file: as root, /dev/null."""
    target = tmp_path / "target"
    os.mkfifo(target) if kind == "FIFO" else target.symlink_to("/dev/null")
    put(store, "name")
    for place in ("obs://course/name", make(tmp_path / "source", {"name": b"1"}) / "name"):
        with pytest.raises(CloudError, match="target: neither a file nor a folder, so it is not replaced"):
            copy(place, target)
    assert not target.is_file()


@pytest.mark.parametrize("mode", [0o600, 0o444])
def test_a_file_keeps_its_mode(store, tmp_path, mode):
    """What replaces it is no more readable than it was, also while it grows."""
    put(store, "k", b"new")
    for place in ("obs://course/k", make(tmp_path / "source", {"k": b"new"}) / "k"):
        target = tmp_path / "target"
        target.unlink(missing_ok=True)
        target.write_text("secret")
        target.chmod(mode)
        copy(place, target)
        assert stat.S_IMODE(target.stat().st_mode) == mode and target.read_bytes() == b"new"


def test_only_labkits_own_unfinished_files_are_left_out(tmp_path):
    source = make(tmp_path / "source", {".labkit-notes.part": b"1", f".labkit-{'0' * 16}.part": b"2"})
    assert [item.name for item in files_below(parse(source), None)[0]] == [".labkit-notes.part"]
