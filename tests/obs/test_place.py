"""Places and names: what is taken, which names lead out of a folder, and which no file of this machine can have."""

from pathlib import Path

import pytest

from labkit.obs import place as module
from labkit.obs.place import CloudError, Local, Remote, parse, why_no_file, why_outside


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


SAFE = ["a", "a/b.c", "ä ö/日本 &<>.txt", "-", ".hidden", "a..b/c", "a" * 255, "%2e%2e/x"]
OUTSIDE = {"leads out": ["../a", "..", "a/../../b"], "absolute": ["/etc/passwd"]}
NO_FILE = {"empty": ["", "a//b", "a/", "./a"], "NUL": ["a\0"], "255 bytes": ["a" * 256, "ä" * 128]}
ODD = ["a\\b", "..a\\b", "a\nb", "a\x7f", "a/NUL", "aux.txt", "a./b", "a /b", "C:/x", "c:x"]  # files of Linux as others
ON_WINDOWS = {"absolute": ["C:/x", "c:x", "\\x"], "leads out": ["a\\..\\..\\b"],
              "Windows has no such name": ["a\\b", "a/NUL", "aux.txt", "a./b", "a /b"]}  # fmt: skip


def cases(names):
    return [(says, name) for says, those in names.items() for name in those]


@pytest.mark.parametrize("name", SAFE + ODD)
def test_names_that_any_target_holds(name):
    assert why_outside(name) is None and why_no_file(name) is None


@pytest.mark.parametrize("says, name", cases(OUTSIDE))
def test_names_that_lead_out(says, name):
    assert says in why_outside(name)


@pytest.mark.parametrize("says, name", cases(NO_FILE))
def test_names_of_no_file(says, name):
    assert why_outside(name) is None and says in why_no_file(name)


@pytest.mark.parametrize("says, name", cases(ON_WINDOWS))
def test_names_on_windows(monkeypatch, says, name):
    monkeypatch.setattr(module.sys, "platform", "win32")
    assert says in (why_outside(name) or why_no_file(name))
    assert all(why_outside(one) is None and why_no_file(one) is None for one in SAFE)
