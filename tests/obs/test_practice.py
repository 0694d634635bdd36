"""The object server of the book: labkit finds there what Swift has, and the faults that a chapter asks for."""

import runpy
import shutil

import pytest

from labkit.obs import buckets, copying, listing, server_copies
from labkit.obs import store as module
from labkit.obs.place import CloudError, parse
from labkit.obs.store import Store
from labkit.system.environment import REPO

NAMES = runpy.run_path(str(REPO / "book" / "4-cloud" / "object_server.py"))


@pytest.fixture
def practice(monkeypatch, tmp_path):
    server = NAMES["Server"]("course").start()
    for name, value in {**server.environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


def test_there_and_back(practice, tmp_path, direct, bucket, monkeypatch):
    """Small files, odd names and parts come back equal; the listing is Swift's."""
    folder = tmp_path / "here"
    (folder / "ü & <b>").mkdir(parents=True)
    (folder / "ü & <b>" / "a+b c%20.txt").write_text("text")
    (folder / "empty").touch()
    (folder / "big.bin").write_bytes(bytes(range(251)) * 80_000)
    here = Store.connect(practice.environment())
    for store, url in ((here, "obs://course/x"), (direct, f"obs://{bucket}/x")):
        assert copying.copy(folder, url, store=store).copied == 3
        assert copying.copy(folder, url, store=store).skipped == 3 and copying.verify(folder, url, store=store) == []
    listed = [[(item.name, item.size) for item in copying.ls(url, store=store)]
              for store, url in ((here, "obs://course"), (direct, f"obs://{bucket}"))]  # fmt: skip
    assert listed[0] == listed[1]
    for page in (1000, 1):
        monkeypatch.setattr(module, "PAGE", page)
        places = (here, "obs://course/x"), (direct, f"obs://{bucket}/x")
        levels = [listing.below(url, store=store) for store, url in places]
        names, folders = zip(*(([item.name for item in files], folders) for files, folders in levels))
        assert names == (["big.bin", "empty"],) * 2 and folders == (["ü & <b>/"],) * 2
    monkeypatch.setattr(module, "PAGE", 1000)
    copying.copy("obs://course/x", tmp_path / "back", store=here)
    assert copying.verify(tmp_path / "back", folder) == [] and practice.uploads == {}
    shutil.rmtree(tmp_path / "back")
    assert len(copying.rm("obs://course/x", recursive=True, store=here)) == 3 and practice.buckets == {"course": {}}


@pytest.mark.parametrize("jobs", [1, 8])
def test_from_bucket_to_bucket(practice, tmp_path, monkeypatch, jobs):
    """Also one after the other on one connection: no request remembers the one before."""
    monkeypatch.setattr(server_copies, "WHOLE", 1000)
    (tmp_path / "a small &").write_bytes(b"small")
    (tmp_path / "large").write_bytes(bytes(range(250)) * 10)
    store, old = Store.connect(), "obs://course/x"
    assert buckets.make("other", store) and practice.buckets == {"course": {}, "other": {}}
    copying.copy(tmp_path, old)
    assert copying.copy(old, "obs://other/y", jobs=jobs).copied == 2
    assert copying.copy(old, "obs://other/y", jobs=jobs).skipped == 2
    assert copying.verify(tmp_path, "obs://other/y") == copying.verify(old, "obs://other/y") == []
    store.create_multipart_upload("other", "open")
    assert [one.key for one in buckets.open_uploads(parse("obs://other"), store)] == ["open"]


@pytest.mark.parametrize("change, status", [({"OBS_SECRET_ACCESS_KEY": "x"}, 403), ({"OBS_ACCESS_KEY_ID": "x"}, 403)])
def test_who_does_not_know_the_keys_is_refused(practice, change, status):
    with pytest.raises(CloudError) as caught:
        copying.ls("obs://course", store=Store.connect(practice.environment() | change))
    assert caught.value.status == status and len(practice.log) == 1


def test_faults(practice, tmp_path):
    (tmp_path / "file").write_text("content")
    practice.fault("busy", "PUT file")
    copying.copy(tmp_path / "file", "obs://course/")
    practice.fault("flip", "GET file")
    copying.copy("obs://course/file", tmp_path / "again")
    assert (tmp_path / "again").read_text() == "content"
    assert [line for line in practice.log if not line.startswith("HEAD")] == [
        "PUT file: 503", "PUT file: 200", "GET file, bytes 0 to 6: 206", "GET file, bytes 0 to 6: 206"
    ]  # fmt: skip
    store = Store.connect()
    with pytest.raises(CloudError) as caught:
        store.get("course", "file", 0, 3, "0" * 32)
    assert caught.value.status == 412
