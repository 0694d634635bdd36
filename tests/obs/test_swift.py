"""A real object server: OpenStack Swift does what the book's server does in the other tests."""

import hashlib
import io
import random

import pytest
from copies import TREE, make, put
from running import contents

from labkit.obs import CloudError, CopyError, copy, ls, rm, transfers, verify
from labkit.obs import store as module
from labkit.obs.copying import level
from labkit.obs.store import Entry, Store

PART = 5 << 20  # the least that it takes
CONTENT = random.Random(2).randbytes(2 * PART + 12345)


@pytest.fixture
def real(swift, account):
    """A Store at Swift, with a bucket `course`."""
    store = Store.connect(swift.environment(), deadline=60)
    swift.make_bucket("course")
    yield store
    for key in [entry.key for entry in store.list("course")]:
        store.delete("course", key)


def test_there_and_back(real, store, tmp_path, monkeypatch):
    """Both servers list the same, also page by page."""
    source = make(tmp_path / "source", TREE)
    for server in (real, store):
        assert copy(source, "obs://course/x", store=server).copied == 5
        assert copy(source, "obs://course/x", store=server).skipped == 5
        assert verify(source, "obs://course/x", store=server) == []
    monkeypatch.setattr(module, "PAGE", 2)
    listed = [[(item.name, item.size) for item in ls("obs://course", store=server)] for server in (real, store)]
    assert listed[0] == listed[1] and len(listed[0]) == 5
    files, folders = level("obs://course/x", store=real)
    assert [item.name for item in files] == ["a.txt", "big", "empty"] and folders == ["deep/", "ä ö/"]
    assert copy("obs://course/x", tmp_path / "back", store=real).copied == 5
    assert contents(tmp_path / "back") == TREE
    assert len(rm("obs://course/x", recursive=True, store=real)) == 5 and ls("obs://course", store=real) == []


def test_an_upload_in_parts_is_resumed(real, tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "PART", PART)
    make(tmp_path, {"big": CONTENT})

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    for ends in ((tmp_path / "big", "obs://course/k"), ("obs://course/k", tmp_path / "back")):
        with pytest.raises(KeyboardInterrupt):
            copy(*ends, jobs=1, progress=interrupt, store=real)
        assert copy(*ends, store=real).bytes < len(CONTENT)
    assert (tmp_path / "back").read_bytes() == CONTENT
    assert real.head("course", "k").part == PART


def test_ranges_and_if_match(real):
    etag = put(real, "a b/ü&+", b"one two")
    assert real.head("course", "a b/ü&+") == Entry("a b/ü&+", 7, etag, hashlib.sha256(b"one two").hexdigest())
    assert real.get("course", "a b/ü&+", 4, 7, etag) == b"two"
    put(real, "a b/ü&+", b"another")
    with pytest.raises(CloudError) as caught:
        real.get("course", "a b/ü&+", 0, 3, etag)
    assert caught.value.status == 412


def test_damage_is_refused(real, tmp_path, monkeypatch):
    """The server compares Content-MD5: what does not have it is sent again, and refused in the end."""
    monkeypatch.setattr(module, "_Stream", lambda content: io.BytesIO(bytes([content[0] ^ 1]) + bytes(content[1:])))
    make(tmp_path, {"k": b"text"})
    real.deadline = 1
    with pytest.raises(CopyError, match="BadDigest"):
        copy(tmp_path / "k", "obs://course/k", store=real)
    assert real.head("course", "k") is None


@pytest.mark.parametrize("signature", ["v2", "v4"])
def test_signatures(swift, real, signature):
    known = swift.environment() | {"OBS_SIGNATURE": signature}
    put(Store.connect(known), "ä b")
    with pytest.raises(CloudError, match="SignatureDoesNotMatch") as caught:
        list(Store.connect(swift.environment() | {"OBS_SECRET_ACCESS_KEY": "wrong"}).list("course"))
    assert caught.value.status == 403
