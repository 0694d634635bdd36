"""Places and names: what is taken, and that every hostile one is refused with its reason."""

from pathlib import Path

import pytest

from labkit.obs.place import CloudError, Local, Remote, parse, require_no_collisions, require_safe


@pytest.mark.parametrize("text, place", [
    ("data", Local(Path("data"))), ("/data/x y", Local(Path("/data/x y"))), (Path("a/b"), Local(Path("a/b"))),
    ("file:///data", Local(Path("/data"))), ("file://data/x", Local(Path("data/x"))),
    ("obs://my-bucket", Remote("obs", "my-bucket", "")), ("obs://my-bucket/", Remote("obs", "my-bucket", "")),
    ("obs://b-1/a/b.txt", Remote("obs", "b-1", "a/b.txt")), ("s3://b.c/a//b", Remote("s3", "b.c", "a//b")),
])  # fmt: skip
def test_places(text, place):
    assert parse(text) == place


@pytest.mark.parametrize("text, says", [
    ("", "no path"), ("a\0b", "no path"), ("file://", "no path"), ("obs:/bucket/key", "begins with obs://"),
    ("s3:bucket", "begins with s3://"), ("http://bucket/key", "none of obs://, s3:// and file://"),
    ("obs:///key", "'' is no bucket's name"), ("obs://Bucket/key", "'Bucket' is no"), ("obs://ab/key", "'ab' is no"),
    ("obs://user@host.example/key", "is no bucket's name"),
])  # fmt: skip
def test_no_places(text, says):
    with pytest.raises(CloudError, match=says) as caught:
        parse(text)
    assert len(str(caught.value).splitlines()) == 1


def test_below():
    assert str(parse("obs://bucket").below("a/b")) == "obs://bucket/a/b"
    assert str(parse("obs://bucket/run/").below("a")) == str(parse("obs://bucket/run").below("a")) == "obs://bucket/run/a"


@pytest.mark.parametrize("name", ["a", "a/b.c", "ä ö/日本 &<>.txt", "-", ".hidden", "a..b/c", "a" * 255, "%2e%2e/x"])
def test_names_that_may_travel(name):
    assert require_safe(name) == name


HOSTILE = {
    "empty": ["", "a//b", "a/", "./a"],
    "leads out": ["../a", "..", "a/../../b"],
    "absolute": ["/etc/passwd", "C:/x", "c:x"],
    "backslash": ["a\\b", "..a\\b"],
    "control": ["a\0", "a\nb", "a\x7f"],
    "255 bytes": ["a" * 256, "ä" * 128],
    "not every machine": ["a/NUL", "aux.txt", "a./b", "a /b"],
}


@pytest.mark.parametrize("says, name", [(says, name) for says, names in HOSTILE.items() for name in names])
def test_names_that_may_not(says, name):
    with pytest.raises(CloudError, match=says) as caught:
        require_safe(name)
    assert repr(name) in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b/a", "b/b/a"], ["ab", "a/b", "a-b"], ["folder/a", "folder/b"]])
def test_no_collision(names):
    require_no_collisions(names)


@pytest.mark.parametrize("names, says", [
    (["a/B", "a/b"], "'a/B' and 'a/b': one file"), (["STRASSE", "straße"], "one file"), (["a", "a/b"], "'a' and 'a/b'"),
    (["a/b/c", "A"], "'A' and 'a/b/c'"), (["x/y/z", "x/Y"], "a file and a folder"),
])  # fmt: skip
def test_collisions(names, says):
    with pytest.raises(CloudError, match=says):
        require_no_collisions(names)
    with pytest.raises(CloudError):
        require_no_collisions(names[::-1])
