"""The store against a true object server: every method, directly and under every fault that a network makes."""

import hashlib
import logging
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest
from proxy import ERROR, HTML, FaultProxy, busy
from swift import SECRET_KEY, environment

from labkit.cloud import store as module
from labkit.cloud.place import CloudError
from labkit.cloud.store import Entry, Store

SHA = "0123456789abcdef" * 4
TEXT = b"one two three four five"
BIG = bytes(range(256)) * (5 << 12)  # 5 MiB, the least that a part may have which is not the last
KEYS = [
    "a b", " x", "a+b", "a%20b", "%", "ä/ö ü.txt", "<&>\"'", "&amp;", "日本語/ファイル", "🙂", "q?x=1&y#z", "a//b",
    "folder/", "=;,:@!$*()[]{}|^~`", "a'b", "A", "a", "é", "e\u0301", "x" * 600,
]  # fmt: skip


@pytest.fixture
def store(swift):
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def through(proxy, monkeypatch):
    """The store behind the proxy, impatient: a second for an answer, no long waits between tries."""
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.05)
    store = Store.connect(environment(proxy.url), deadline=20)
    store.client.timeout = 1
    return store


def md5(content):
    return hashlib.md5(content).hexdigest()


# -- Every method, directly -----------------------------------------------------------------------------


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
    upload = store.begin(bucket, key, SHA)
    assert store.open_uploads(bucket, key) == [upload]
    part = store.put_part(bucket, key, upload, 1, b"part")
    assert store.parts(bucket, key, upload) == {1: part}
    store.complete(bucket, key, upload, [part])
    assert store.get(bucket, key, 0, 4, store.head(bucket, key).etag) == b"part"
    store.delete(bucket, key)
    assert list(store.list(bucket)) == []


@pytest.mark.parametrize("key", ["", "a\udcff"])
def test_no_key(through, proxy, bucket, key):
    """Without one, the request would be about the bucket."""
    calls = [(through.put, b"", SHA), (through.delete,), (through.begin, SHA), (through.get, 0, 1, "e"),
             (through.parts, "u"), (through.put_part, "u", 1, b""), (through.complete, "u", []),
             (through.abort, "u")]  # fmt: skip
    for call, *more in calls:
        with pytest.raises(CloudError, match="no key|not UTF-8"):
            call(bucket, key, *more)
    assert proxy.requests() == []
    assert through.head(bucket, "") is None


def test_an_upload_in_parts(store, bucket):
    upload = store.begin(bucket, "big", SHA)
    assert store.parts(bucket, "big", upload) == {}
    etags = {number: store.put_part(bucket, "big", upload, number, part) for number, part in ((2, TEXT), (1, BIG))}
    assert etags == {1: md5(BIG), 2: md5(TEXT)} == store.parts(bucket, "big", upload)
    assert store.head(bucket, "big") is None
    store.complete(bucket, "big", upload, [etags[1], etags[2]])
    whole = hashlib.md5(bytes.fromhex(etags[1] + etags[2])).hexdigest() + "-2"
    assert store.head(bucket, "big") == Entry("big", len(BIG) + len(TEXT), whole, SHA)
    assert store.get(bucket, "big", len(BIG) - 2, len(BIG) + 3, whole) == BIG[-2:] + b"one"
    assert store.open_uploads(bucket, "big") == []
    assert [entry.key for entry in store.list(bucket)] == ["big"]


def test_open_uploads_are_told_apart(store, bucket):
    ids = []
    for key in ("k", "k", "kk", "k/x"):
        ids.append(store.begin(bucket, key, SHA))
        time.sleep(0.01)
    assert sorted(store.open_uploads(bucket, "k")) == sorted(ids[:2])
    assert store.open_uploads(bucket, "kk") == ids[2:3]
    store.abort(bucket, "k", ids[0])
    store.abort(bucket, "k", ids[0])
    assert store.open_uploads(bucket, "k") == ids[1:2]
    assert store.parts(bucket, "k", ids[0]) is None
    with pytest.raises(CloudError, match="big|k") as caught:
        store.put_part(bucket, "k", ids[0], 1, TEXT)
    assert caught.value.status == 404 and caught.value.code == "NoSuchUpload"


def test_parts_too_small_are_told_at_once(through, proxy, bucket):
    upload = through.begin(bucket, "k", SHA)
    etags = [through.put_part(bucket, "k", upload, number, TEXT) for number in (1, 2)]
    with pytest.raises(CloudError) as caught:
        through.complete(bucket, "k", upload, etags)
    assert caught.value.code == "EntityTooSmall"
    assert len(proxy.requests("POST", "uploadId")) == 1
    proxy.plant(method="POST", answer=(200, ERROR % b"EntityTooSmall", {}))  # as other servers say it
    with pytest.raises(CloudError, match="planted") as caught:
        through.complete(bucket, "k", upload, etags)
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
    ids = [store.begin(bucket, "a & ü", SHA) for _ in range(5)]
    store.begin(bucket, "a & ü/b", SHA)
    assert sorted(store.open_uploads(bucket, "a & ü")) == sorted(ids)
    parts = {number: store.put_part(bucket, "a & ü", ids[0], number, bytes([number])) for number in (1, 2, 3, 7, 9)}
    assert store.parts(bucket, "a & ü", ids[0]) == parts


@pytest.mark.slow
def test_over_a_thousand_keys(store, bucket):
    keys = [f"folder/{number:04d} ü&.txt" for number in range(1050)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(bucket, key, key.encode(), SHA), keys))
    found = list(store.list(bucket, "folder/"))
    assert [entry.key for entry in found] == keys
    assert all(entry.etag == md5(entry.key.encode()) for entry in found)


# -- Every method under every fault ---------------------------------------------------------------------


class Prepared:
    """A bucket with an object `k` and an open upload of `k` with one part, and each method with its proof."""

    def __init__(self, direct, bucket):
        self.direct, self.bucket = direct, bucket
        self.etag = direct.put(bucket, "k", TEXT, SHA)
        self.upload = direct.begin(bucket, "k", SHA)
        self.part = direct.put_part(bucket, "k", self.upload, 1, TEXT)

    def head(self, store):
        assert store.head(self.bucket, "k") == Entry("k", len(TEXT), self.etag, SHA)

    def list(self, store):
        assert list(store.list(self.bucket)) == [Entry("k", len(TEXT), self.etag)]

    def put(self, store):
        assert store.put(self.bucket, "new", TEXT, SHA) == md5(TEXT)
        assert self.direct.get(self.bucket, "new", 0, len(TEXT), md5(TEXT)) == TEXT

    def get(self, store):
        assert store.get(self.bucket, "k", 0, len(TEXT), self.etag) == TEXT

    def delete(self, store):
        store.delete(self.bucket, "k")
        assert self.direct.head(self.bucket, "k") is None

    def begin(self, store):
        assert store.begin(self.bucket, "new", SHA) in self.direct.open_uploads(self.bucket, "new")

    def open_uploads(self, store):
        assert store.open_uploads(self.bucket, "k") == [self.upload]

    def parts(self, store):
        assert store.parts(self.bucket, "k", self.upload) == {1: self.part}

    def put_part(self, store):
        assert store.put_part(self.bucket, "k", self.upload, 2, TEXT) == md5(TEXT)
        assert self.direct.parts(self.bucket, "k", self.upload) == {1: self.part, 2: md5(TEXT)}

    def complete(self, store):
        store.complete(self.bucket, "k", self.upload, [self.part])
        assert self.direct.head(self.bucket, "k").etag.endswith("-1")

    def abort(self, store):
        store.abort(self.bucket, "k", self.upload)
        assert self.direct.open_uploads(self.bucket, "k") == []


METHODS = [name for name in vars(Prepared) if not name.startswith("_")]
FAULTS = {
    "503 and 429": [{"times": 2, "answer": busy(503)}, {"times": 2, "answer": busy(429)}],
    "500 without a body": [{"answer": (500, b"", {})}],
    "503 that is HTML": [{"answer": (503, HTML, {"Content-Type": "text/html"})}],
    "done, but the answer is lost": [{"served": True, "answer": busy(503)}],
    "reset before the answer": [{"reset_upload": 0}, {"reset_download": 0}],
    "cut short": [{"truncate": 3}],
    "reset in the answer": [{"reset_download": 3}],
    "stall": [{"stall": 1.3}],
    "stall in the answer": [{"stall_answer": 1.3}],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", METHODS)
def test_faults_pass(store, through, proxy, bucket, method, fault):
    prepared = Prepared(store, bucket)
    planted = [proxy.plant(**one) for one in FAULTS[fault]]
    getattr(prepared, method)(through)
    assert proxy.requests() and planted[0].times == 0
    if fault not in ("cut short", "reset in the answer"):  # of an answer without a body there is nothing to cut
        assert len(proxy.requests()) > sum(one.get("times", 1) for one in FAULTS[fault])


@pytest.mark.parametrize("method", METHODS)
def test_wrong_keys_fail_after_one_request(store, proxy, bucket, method):
    prepared = Prepared(store, bucket)
    stranger = Store.connect(environment(proxy.url) | {"OBS_SECRET_ACCESS_KEY": "hidden-and-wrong"}, deadline=20)
    with pytest.raises(CloudError) as caught:
        getattr(prepared, method)(stranger)
    assert caught.value.status == 403
    assert caught.value.code == (None if method == "head" else "SignatureDoesNotMatch")
    assert "hidden-and-wrong" not in str(caught.value)
    assert len(proxy.requests()) == 1


@pytest.mark.parametrize("method", METHODS)
def test_it_gives_up_at_the_deadline(store, through, proxy, bucket, method):
    prepared = Prepared(store, bucket)
    proxy.plant(times=10**6, answer=busy(503))
    through.deadline, begun = 0.5, time.monotonic()
    with pytest.raises(CloudError, match="given up after [0-9]+ tries") as caught:
        getattr(prepared, method)(through)
    assert caught.value.status == 503 and len(proxy.requests()) > 1
    assert 0.3 < time.monotonic() - begun < 5


def test_nobody_answers(swift):
    with FaultProxy(swift.port) as proxy:
        store = Store.connect(environment(proxy.url), deadline=0.5)
    with pytest.raises(CloudError, match="Connection"):
        store.head("bucket", "k")


def test_it_waits_as_long_as_the_server_asks(store, through, proxy, bucket):
    prepared = Prepared(store, bucket)
    proxy.plant(answer=busy(429, retry_after=1))
    begun = time.monotonic()
    prepared.head(through)
    assert time.monotonic() - begun >= 1
    proxy.plant(answer=busy(429, retry_after=50))
    begun = time.monotonic()
    with pytest.raises(CloudError) as caught:
        prepared.head(through)
    assert caught.value.status == 429 and time.monotonic() - begun < 5


@pytest.mark.parametrize("known", [
    lambda: {"Retry-After": formatdate(time.time() + 2.5, usegmt=True)},
    # of a server whose clock is behind
    lambda: {"Retry-After": "Sat, 01 Jan 2000 00:00:02 GMT", "Date": "Sat, 01 Jan 2000 00:00:01 GMT"},
])  # fmt: skip
def test_it_waits_until_the_date_that_the_server_names(store, through, proxy, bucket, known):
    prepared = Prepared(store, bucket)
    proxy.plant(answer=(503, b"", known()))
    begun = time.monotonic()
    prepared.head(through)
    assert 1 <= time.monotonic() - begun < 10 and len(proxy.requests()) == 2


@pytest.mark.parametrize("asked, seconds", [
    ("7", 7), ("0", 0), ("3600", 60), ("Sat, 01 Jan 2000 00:00:30 GMT", 30), ("Sat, 01 Jan 2000 01:00:00 GMT", 60),
    ("Fri, 31 Dec 1999 23:59:59 GMT", 0), ("Sat, 01 Jan 2000 00:00:30 -0000", 0), ("soon", 0), ("-1", 0), ("²", 0),
])  # fmt: skip
def test_retry_after(asked, seconds):
    assert module._seconds(asked, "Sat, 01 Jan 2000 00:00:00 GMT") == seconds


def test_resets_in_the_middle_of_a_part(store, through, proxy, bucket):
    upload = store.begin(bucket, "big", SHA)
    for place in (1, 1 << 20, len(BIG) - 1):
        proxy.plant(method="PUT", reset_upload=place)
    etag = through.put_part(bucket, "big", upload, 1, BIG)
    assert etag == md5(BIG) and len(proxy.requests("PUT")) == 4
    store.complete(bucket, "big", upload, [etag])
    whole = store.head(bucket, "big").etag
    for place in (1, 1 << 20, len(BIG) - 1):
        proxy.plant(method="GET", reset_download=place)
        proxy.plant(method="GET", truncate=place)
    assert through.get(bucket, "big", 0, len(BIG), whole) == BIG
    assert len(proxy.requests("GET", "big")) == 7


def test_a_byte_flipped_on_the_way_up_is_sent_again(store, through, proxy, bucket):
    for _ in range(2):
        proxy.plant(method="PUT", flip_upload=7)
    assert through.put(bucket, "k", TEXT, SHA) == md5(TEXT)
    assert store.get(bucket, "k", 0, len(TEXT), md5(TEXT)) == TEXT
    upload = store.begin(bucket, "k", SHA)
    proxy.plant(method="PUT", flip_upload=7)
    assert through.put_part(bucket, "k", upload, 1, TEXT) == md5(TEXT)
    assert store.parts(bucket, "k", upload) == {1: md5(TEXT)}
    assert len(proxy.requests("PUT")) == 5


def test_a_byte_flipped_on_the_way_down_is_for_the_reader_to_find(store, through, proxy, bucket):
    """A range has no checksum; who puts ranges together compares the file's."""
    etag = store.put(bucket, "k", TEXT, SHA)
    proxy.plant(method="GET", flip_download=0)
    assert through.get(bucket, "k", 0, len(TEXT), etag) == b"n" + TEXT[1:]


@pytest.mark.parametrize("html", [HTML, HTML.replace(b"</h1>", b"<br>"), b"", ERROR % b"InternalError"])
@pytest.mark.parametrize("method", ["list", "open_uploads", "parts", "begin", "complete"])
def test_status_200_with_another_page_in_it(store, through, proxy, bucket, method, html):
    """HTML that is XML as well reads as an empty listing."""
    prepared = Prepared(store, bucket)
    proxy.plant(times=2, answer=(200, html, {}))
    getattr(prepared, method)(through)
    assert len(proxy.requests()) == 3


@pytest.mark.parametrize("method", ["put", "put_part", "head"])
def test_status_200_by_someone_else(store, through, proxy, bucket, method):
    """What a captive portal says to everything."""
    prepared = Prepared(store, bucket)
    proxy.plant(times=2, answer=(200, HTML, {}))
    getattr(prepared, method)(through)


def test_a_whole_object_where_a_range_was_asked(store, through, proxy, bucket):
    etag = store.put(bucket, "k", TEXT, SHA)
    proxy.plant(answer=(200, TEXT, {"ETag": f'"{etag}"'}))
    assert through.get(bucket, "k", 0, 3, etag) == b"one"


def test_complete_with_an_error_in_it_that_stays(store, through, proxy, bucket):
    prepared = Prepared(store, bucket)
    proxy.plant(times=10**6, answer=(200, ERROR % b"InternalError", {}))
    through.deadline = 0.5
    with pytest.raises(CloudError) as caught:
        prepared.complete(through)
    assert caught.value.code == "InternalError"
    assert store.parts(bucket, "k", prepared.upload) == {1: prepared.part}


# -- Secrets, TLS ---------------------------------------------------------------------------------------


def test_no_secret_is_told(store, proxy, bucket, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    prepared = Prepared(store, bucket)
    known = environment(proxy.url) | {"OBS_SECURITY_TOKEN": "a-hidden-token"}
    for name in METHODS:
        getattr(prepared, name)(Store.connect(known))
    told = caplog.text + "".join(capfd.readouterr())
    assert all(word not in told for word in ("testing", "a-hidden-token", "Signature", TEXT.decode()))


@pytest.mark.parametrize("signature", ["v2", "v4"])
def test_both_signatures_that_the_server_knows(swift, bucket, signature):
    store = Store.connect(swift.environment | {"OBS_SIGNATURE": signature})
    store.put(bucket, "ä b", TEXT, SHA)
    assert store.head(bucket, "ä b").sha256 == SHA


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Folder with ca.pem, and for `localhost` and `other.example` a certificate by it with its key."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(name, *more):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
             "-keyout", f"{name}.key", "-out", f"{name}.pem", *more],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip

    openssl("ca")
    for host in ("localhost", "other.example"):
        openssl(host, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", f"subjectAltName=DNS:{host}",
                "-addext", "basicConstraints=critical,CA:FALSE")  # fmt: skip
    return folder


def tls(folder, host):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key")
    return context


def test_tls(swift, bucket, certificates):
    with FaultProxy(swift.port, tls(certificates, "localhost")) as proxy:
        store = Store.connect(environment(proxy.url) | {"OBS_CA_FILE": str(certificates / "ca.pem")}, deadline=5)
        etag = store.put(bucket, "k", BIG, SHA)
        assert store.get(bucket, "k", 0, len(BIG), etag) == BIG
        assert len(proxy.requests()) == 2
        proxy.plant(reset_download=1 << 20)
        assert store.get(bucket, "k", 0, len(BIG), etag) == BIG


@pytest.mark.parametrize("host, authority, says", [
    ("other.example", "ca.pem", "Hostname mismatch"), ("localhost", "other.example.pem", "unable to get"),
    ("localhost", None, "certificate"),
])  # fmt: skip
def test_a_certificate_that_proves_nothing_is_refused(swift, certificates, host, authority, says):
    with FaultProxy(swift.port, tls(certificates, host)) as proxy:
        more = {"OBS_CA_FILE": str(certificates / authority)} if authority else {}
        store = Store.connect(environment(proxy.url) | more, deadline=20)
        begun = time.monotonic()
        with pytest.raises(CloudError, match=f"certificate refused: .*{says}"):
            store.head("bucket", "k")
        assert time.monotonic() - begun < 5 and proxy.requests() == []
