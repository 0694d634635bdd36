"""The store against a true object server: every method, any key, certificates and signatures."""

import hashlib
import time

import pytest
from copies import BLOCK, SHA, TEXT, md5, open_uploads
from proxy import ERROR, FaultProxy
from swift import SECRET_KEY, environment

from labkit.obs import store as module
from labkit.obs.place import CloudError
from labkit.obs.store import Entry, Store

KEYS = [
    "a b", " x", "a+b", "a%20b", "%", "ä/ö ü.txt", "<&>\"'", "&amp;", "日本語/ファイル", "🙂", "q?x=1&y#z", "a//b",
    "folder/", "=;,:@!$*()[]{}|^~`", "a'b", "A", "a", "é", "e\u0301", "x" * 600,
]  # fmt: skip


@pytest.fixture
def store(swift):
    return Store.connect(swift.environment, deadline=20)


def test_an_object(store, bucket):
    assert store.head(bucket, "a/b.txt") is None
    assert store.put(bucket, "a/b.txt", TEXT, SHA) == md5(TEXT)
    assert store.head(bucket, "a/b.txt") == Entry("a/b.txt", len(TEXT), md5(TEXT), SHA)
    assert store.get(bucket, "a/b.txt", 0, len(TEXT), md5(TEXT)) == TEXT
    assert store.get(bucket, "a/b.txt", 4, 7, md5(TEXT)) == b"two"
    assert store.get(bucket, "a/b.txt", 4, 4, md5(TEXT)) == b""
    store.delete(bucket, "a/b.txt")
    store.delete(bucket, "a/b.txt")
    assert store.head(bucket, "a/b.txt") is None


def test_an_empty_object(store, bucket):
    assert store.put(bucket, "empty", b"", SHA) == md5(b"")
    assert store.head(bucket, "empty") == Entry("empty", 0, md5(b""), SHA)


@pytest.mark.parametrize("key", KEYS)
def test_any_key(store, bucket, key):
    etag = store.put(bucket, key, TEXT, SHA)
    assert store.head(bucket, key) == Entry(key, len(TEXT), etag, SHA)
    assert list(store.list(bucket)) == [Entry(key, len(TEXT), etag)]
    assert list(store.list(bucket, key)) == [Entry(key, len(TEXT), etag)]
    assert store.get(bucket, key, 0, 3, etag) == b"one"
    upload = store.create_multipart_upload(bucket, key, SHA)
    assert open_uploads(store, bucket, key) == [upload]
    part = store.upload_part(bucket, key, upload, 1, b"part")
    assert store.list_parts(bucket, key, upload) == {1: part}
    store.complete_multipart_upload(bucket, key, upload, [part])
    assert store.get(bucket, key, 0, 4, store.head(bucket, key).etag) == b"part"
    store.delete(bucket, key)
    assert list(store.list(bucket)) == []


@pytest.mark.parametrize("key", ["", "a\udcff"])
def test_no_key(through, proxy, bucket, key):
    """Without one, the request would be about the bucket."""
    calls = [
        (through.put, b"", SHA), (through.delete,), (through.get, 0, 1, "e"), (through.create_multipart_upload, SHA),
        (through.list_parts, "u"), (through.upload_part, "u", 1, b""), (through.complete_multipart_upload, "u", []),
        (through.abort_multipart_upload, "u"),
    ]  # fmt: skip
    for call, *more in calls:
        with pytest.raises(CloudError, match="no key|not UTF-8"):
            call(bucket, key, *more)
    assert proxy.requests() == []
    assert through.head(bucket, "") is None


def test_an_upload_in_parts(store, bucket):
    upload = store.create_multipart_upload(bucket, "big", SHA)
    assert store.list_parts(bucket, "big", upload) == {}
    etags = {number: store.upload_part(bucket, "big", upload, number, part) for number, part in ((2, TEXT), (1, BLOCK))}
    assert etags == {1: md5(BLOCK), 2: md5(TEXT)} == store.list_parts(bucket, "big", upload)
    assert store.head(bucket, "big") is None
    store.complete_multipart_upload(bucket, "big", upload, [etags[1], etags[2]])
    whole = hashlib.md5(bytes.fromhex(etags[1] + etags[2])).hexdigest() + "-2"
    assert store.head(bucket, "big") == Entry("big", len(BLOCK) + len(TEXT), whole, SHA)
    assert store.get(bucket, "big", len(BLOCK) - 2, len(BLOCK) + 3, whole) == BLOCK[-2:] + b"one"
    assert open_uploads(store, bucket, "big") == []
    assert [entry.key for entry in store.list(bucket)] == ["big"]


def test_uploads_are_told_apart(store, bucket):
    ids = [store.create_multipart_upload(bucket, key, SHA) for key in ("k", "k", "kk", "k/x")]
    assert sorted(open_uploads(store, bucket, "k")) == sorted(ids[:2])
    assert open_uploads(store, bucket, "kk") == ids[2:3]
    store.abort_multipart_upload(bucket, "k", ids[0])
    store.abort_multipart_upload(bucket, "k", ids[0])
    assert open_uploads(store, bucket, "k") == ids[1:2]
    assert store.list_parts(bucket, "k", ids[0]) is None
    with pytest.raises(CloudError, match="big|k") as caught:
        store.upload_part(bucket, "k", ids[0], 1, TEXT)
    assert caught.value.status == 404 and caught.value.code == "NoSuchUpload"


def test_parts_too_small_are_told_at_once(through, proxy, bucket):
    upload = through.create_multipart_upload(bucket, "k", SHA)
    etags = [through.upload_part(bucket, "k", upload, number, TEXT) for number in (1, 2)]
    with pytest.raises(CloudError) as caught:
        through.complete_multipart_upload(bucket, "k", upload, etags)
    assert caught.value.code == "EntityTooSmall"
    assert len(proxy.requests("POST", "uploadId")) == 1
    proxy.plant(method="POST", answer=(200, ERROR % b"EntityTooSmall", {}))  # as other servers say it
    with pytest.raises(CloudError, match="planted") as caught:
        through.complete_multipart_upload(bucket, "k", upload, etags)
    assert (caught.value.status, caught.value.code) == (200, "EntityTooSmall")
    assert len(proxy.requests("POST", "uploadId")) == 2


def test_an_overwritten_object_is_not_mixed(store, bucket):
    etag = store.put(bucket, "k", TEXT, SHA)
    store.put(bucket, "k", TEXT[::-1], SHA)
    with pytest.raises(CloudError) as caught:
        store.get(bucket, "k", 0, 3, etag)
    assert caught.value.status == 412


def test_no_bucket(store):
    with pytest.raises(CloudError) as caught:
        list(store.list("no-such-bucket-here"))
    assert caught.value.status == 404 and caught.value.code == "NoSuchBucket" and caught.value.request_id
    assert "obs://no-such-bucket-here/" in str(caught.value) and SECRET_KEY not in str(caught.value)


def test_an_error_about_an_odd_key_is_one_line(store, bucket):
    with pytest.raises(CloudError, match=r"/a.nb\\x1b") as caught:
        store.get(bucket, "a\nb\x1b", 0, 3, "0" * 32)
    assert len(str(caught.value).splitlines()) == 1


def test_pages(store, bucket, monkeypatch):
    """Listings that come in several answers: with keys that an answer must encode at its end."""
    monkeypatch.setattr(module, "PAGE", 2)
    keys = sorted(["a b", "a%20b", "a&b", "a+b", "a<b", "ä", "日本", "🙂", "z/"], key=str.encode)
    for key in keys:
        store.put(bucket, key, TEXT, SHA)
    assert [entry.key for entry in store.list(bucket)] == keys
    assert [entry.key for entry in store.list(bucket, "a")] == [key for key in keys if key.startswith("a")]
    ids = [store.create_multipart_upload(bucket, "a & ü", SHA) for _ in range(5)]
    store.create_multipart_upload(bucket, "a & ü/b", SHA)
    assert sorted(open_uploads(store, bucket, "a & ü")) == sorted(ids)
    parts = {number: store.upload_part(bucket, "a & ü", ids[0], number, bytes([number])) for number in (1, 2, 3, 7, 9)}
    assert store.list_parts(bucket, "a & ü", ids[0]) == parts


@pytest.mark.parametrize("signature", ["v2", "v4"])
def test_both_signatures_that_the_server_knows(swift, bucket, signature):
    store = Store.connect(swift.environment | {"OBS_SIGNATURE": signature})
    store.put(bucket, "ä b", TEXT, SHA)
    assert store.head(bucket, "ä b").sha256 == SHA


def test_other_signatures(swift):
    with pytest.raises(CloudError, match="^OBS_SIGNATURE: must be obs, v2 or v4, not 'v3'$"):
        Store.connect(swift.environment | {"OBS_SIGNATURE": "v3"})
    for host, name in [("obs.x.myhuaweicloud.com", "obs"), ("obs.x.myhuaweicloud.eu", "obs"), ("s3.example", "v4")]:
        assert Store.connect(swift.environment | {"OBS_ENDPOINT": host}).client.signature == name


def test_tls(swift, bucket, certificates):
    folder, context = certificates
    with FaultProxy(swift.port, context("localhost")) as proxy:
        store = Store.connect(environment(proxy.url) | {"OBS_CA_FILE": str(folder / "ca.pem")}, deadline=5)
        etag = store.put(bucket, "k", BLOCK, SHA)
        assert store.get(bucket, "k", 0, len(BLOCK), etag) == BLOCK
        assert len(proxy.requests()) == 2
        proxy.plant(reset_download=1 << 20)
        assert store.get(bucket, "k", 0, len(BLOCK), etag) == BLOCK


@pytest.mark.parametrize("host, authority, says", [
    ("other.example", "ca.pem", "Hostname mismatch"), ("localhost", "other.example.pem", "unable to get"),
    ("localhost", None, "certificate"),
])  # fmt: skip
def test_a_certificate_that_proves_nothing_is_refused(swift, certificates, host, authority, says):
    folder, context = certificates
    context("other.example")
    with FaultProxy(swift.port, context(host)) as proxy:
        more = {"OBS_CA_FILE": str(folder / authority)} if authority else {}
        store = Store.connect(environment(proxy.url) | more, deadline=20)
        begun = time.monotonic()
        with pytest.raises(CloudError, match=f"certificate refused: .*{says}"):
            store.head("bucket", "k")
        assert time.monotonic() - begun < 15 and proxy.requests() == []
