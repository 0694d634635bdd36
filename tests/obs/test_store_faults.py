"""The store against a true object server behind a proxy: every method under every fault that a network makes."""

import logging
import socket
import threading
import time
import traceback
from email.utils import formatdate

import pytest
from copies import BLOCK, SHA, TEXT, md5, open_uploads
from proxy import ERROR, HTML, FaultProxy, busy
from swift import environment
from waiting import wait_until

from labkit.obs import retrying, sdk
from labkit.obs.place import CloudError
from labkit.obs.store import Entry, Store


@pytest.fixture
def store(swift):
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def through(through, monkeypatch):
    """The store behind the proxy, without long waits between tries."""
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.05)
    return through


class Prepared:
    """A bucket with an object `k` and an open upload of `k` with one part, and each method with its proof."""

    def __init__(self, direct, bucket):
        self.direct, self.bucket = direct, bucket
        self.etag = direct.put(bucket, "k", TEXT, SHA)
        self.upload = direct.create_multipart_upload(bucket, "k", SHA)
        self.part = direct.upload_part(bucket, "k", self.upload, 1, TEXT)

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
        assert store.create_multipart_upload(self.bucket, "new", SHA) in open_uploads(self.direct, self.bucket, "new")

    def parts(self, store):
        assert store.list_parts(self.bucket, "k", self.upload) == {1: self.part}

    def put_part(self, store):
        assert store.upload_part(self.bucket, "k", self.upload, 2, TEXT) == md5(TEXT)
        assert self.direct.list_parts(self.bucket, "k", self.upload) == {1: self.part, 2: md5(TEXT)}

    def complete(self, store):
        store.complete_multipart_upload(self.bucket, "k", self.upload, [self.part])
        assert self.direct.head(self.bucket, "k").etag.endswith("-1")

    def abort(self, store):
        store.abort_multipart_upload(self.bucket, "k", self.upload)
        assert open_uploads(self.direct, self.bucket, "k") == []


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


ANSWERED = ("list", "get", "begin", "parts", "complete")  # with a body
# Of an answer without a body there is nothing to cut, and three methods are enough to wait for stalls with.
PAIRS = [
    (fault, method) for fault in FAULTS for method in METHODS
    if (method in ANSWERED or fault not in ("cut short", "reset in the answer"))
    and (method in ("head", "get", "put_part") or "stall" not in fault)
]  # fmt: skip


@pytest.mark.parametrize("fault, method", PAIRS)
def test_faults_pass(store, through, proxy, bucket, method, fault):
    prepared = Prepared(store, bucket)
    planted = [proxy.plant(**one) for one in FAULTS[fault]]
    if "stall" in fault:
        through.client.timeout = 1
    getattr(prepared, method)(through)
    assert all(one.times == 0 for one in planted)
    assert len(proxy.requests()) > sum(one.get("times", 1) for one in FAULTS[fault])


@pytest.mark.parametrize("method", METHODS)
def test_wrong_keys_fail_at_once(store, proxy, bucket, method):
    prepared = Prepared(store, bucket)
    stranger = Store.connect(environment(proxy.url) | {"OBS_SECRET_ACCESS_KEY": "hidden-and-wrong"}, deadline=20)
    with pytest.raises(CloudError) as caught:
        getattr(prepared, method)(stranger)
    assert caught.value.status == 403
    assert caught.value.code == "SignatureDoesNotMatch"
    assert "hidden-and-wrong" not in str(caught.value)
    assert len(proxy.requests()) == (2 if method == "head" else 1)  # after a HEAD, a GET says why


@pytest.mark.parametrize("method", METHODS)
def test_it_gives_up_at_the_deadline(store, through, proxy, bucket, method):
    prepared = Prepared(store, bucket)
    proxy.plant(times=10**6, answer=busy(503))
    through.deadline, begun = 2, time.monotonic()
    with pytest.raises(CloudError, match="given up after [0-9]+ tries") as caught:
        getattr(prepared, method)(through)
    assert caught.value.status == 503 and len(proxy.requests()) > 1
    assert 1 < time.monotonic() - begun < 15


@pytest.mark.parametrize("missing, says", [(True, "Connection"), (False, "status 503")])
def test_nobody_answers(swift, proxy, monkeypatch, missing, says):
    """Until it is given up, it is told now and then."""
    told = []
    store = Store.connect(environment(proxy.url), deadline=3, notice=told.append)
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(retrying, "QUIET", 0.9)
    if missing:
        proxy.stop()
    proxy.plant(times=10**6, answer=busy(503))
    with pytest.raises(retrying.GivenUp, match=says):
        store.head("bucket", "k")
    host = f"127.0.0.1:{proxy.port}"
    said = f"no answer from {host} yet" if missing else f"{host} answers with status 503"
    assert 2 <= len(told) <= 3 and all(line.startswith(f"{said}, trying again (") for line in told)


@pytest.mark.parametrize("method, part", [("head", "head"), ("put_part", "head"), ("list", "body"), ("get", "body")])
def test_an_answer_that_comes_a_byte_at_a_time(store, through, proxy, bucket, method, part):
    """The socket's timeout never passes; without another bound, the shortest of these would take 11 seconds."""
    prepared = Prepared(store, bucket)
    proxy.plant(times=10**6, drip=part)
    through.deadline, through.client.timeout, begun = 2, 1, time.monotonic()
    with pytest.raises(CloudError, match="given up after"):
        getattr(prepared, method)(through)
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize("method", METHODS)
def test_a_page_that_is_not_utf_8(store, through, proxy, bucket, method):
    prepared = Prepared(store, bucket)
    for status in (503, 429):
        proxy.plant(answer=(status, b"<html>Zu viele Anfragen f\xfcr uns \xff</html>", {"Content-Type": "text/html"}))
    getattr(prepared, method)(through)
    assert len(proxy.requests()) >= 3


def test_a_bucket_that_no_host_can_be_named_after():
    """It is part of the host's name; nobody is asked."""
    store = Store.connect(environment("https://obs.cn-north-4.myhuaweicloud.com"), deadline=20)
    with pytest.raises(CloudError, match=r"^obs://my\.\.bucket/k: .*no host has such a name") as caught:
        store.head("my..bucket", "k")
    assert "given up" not in str(caught.value)


def test_one_object_that_fails_is_not_the_server(store, through, proxy, bucket):
    """It is told apart from a server that is not there: other requests may fare better."""
    prepared = Prepared(store, bucket)
    through.deadline = 2
    for fault in ({"truncate": 3}, {"reset_download": 3}):
        proxy.plant(method="GET", path="/k$", times=10**6, **fault)
        with pytest.raises(CloudError, match="given up") as caught:
            prepared.get(through)
        assert not isinstance(caught.value, retrying.GivenUp)
        proxy.clear()


def test_a_host_that_is_not_known_fails_at_once(monkeypatch):
    asked = []

    def getaddrinfo(*arguments, **_):
        asked.append(arguments)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(CloudError, match="^obs://bucket/k: https://obs.example: Name or service not known$"):
        Store.connect(environment("https://obs.example"), deadline=20).head("bucket", "k")
    assert len(asked) == 1


def test_https_where_there_is_none_fails_at_once():
    asked = []

    def serve():
        while True:
            client = server.accept()[0]
            asked.append(client.recv(1000))
            if asked[-1] == b"end":
                return
            client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            client.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CloudError, match="WRONG_VERSION_NUMBER|wrong version number") as caught:
            Store.connect(environment(url), deadline=20).head("bucket", "k")
        # Left waiting, the thread would answer for a later server whose socket gets this one's number.
        socket.create_connection(server.getsockname()).sendall(b"end")
        thread.join()
    assert asked.pop() == b"end"
    assert "given up" not in str(caught.value) and len(asked) == 1


@pytest.mark.parametrize("method", METHODS)
def test_redirects_are_not_followed(store, through, proxy, swift, bucket, method):
    """Token and signature are for one server."""
    prepared = Prepared(store, bucket)
    with FaultProxy(swift.port) as other:
        location = {"Location": f"{other.url}/{bucket}/k"}
        proxy.plant(times=10**6, answer=(307, ERROR % b"TemporaryRedirect", location))
        with pytest.raises(CloudError, match="is OBS_ENDPOINT of the bucket's region") as caught:
            getattr(prepared, method)(through)
        assert f": {other.url.removeprefix('http://')} has it; " in str(caught.value)
        assert caught.value.status == 307 and len(proxy.requests()) == 1 and other.requests() == []


def test_a_stop_cuts_off_what_is_under_way(store, through, proxy, bucket):
    """The server would answer in a minute only."""
    prepared, failures = Prepared(store, bucket), []
    proxy.plant(stall=60)

    def get():
        try:
            prepared.get(through)
        except CloudError as error:
            failures.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    wait_until(proxy.requests)
    through.stop()
    thread.join(timeout=20)
    assert [type(error) for error in failures] == [retrying.GivenUp] and len(proxy.requests()) == 1


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
    assert caught.value.status == 429 and time.monotonic() - begun < 30


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
    assert sdk.seconds(asked, "Sat, 01 Jan 2000 00:00:00 GMT") == seconds


def test_resets_in_the_middle_of_a_part(store, through, proxy, bucket):
    upload = store.create_multipart_upload(bucket, "big", SHA)
    for place in (1, 1 << 20, len(BLOCK) - 1):
        proxy.plant(method="PUT", reset_upload=place)
    etag = through.upload_part(bucket, "big", upload, 1, BLOCK)
    assert etag == md5(BLOCK) and len(proxy.requests("PUT")) == 4
    store.complete_multipart_upload(bucket, "big", upload, [etag])
    whole = store.head(bucket, "big").etag
    for place in (1, 1 << 20, len(BLOCK) - 1):
        proxy.plant(method="GET", reset_download=place)
        proxy.plant(method="GET", truncate=place)
    assert through.get(bucket, "big", 0, len(BLOCK), whole) == BLOCK
    assert len(proxy.requests("GET", "big")) == 7


def test_a_byte_flipped_on_the_way_up_is_sent_again(store, through, proxy, bucket):
    for _ in range(2):
        proxy.plant(method="PUT", flip_upload=7)
    assert through.put(bucket, "k", TEXT, SHA) == md5(TEXT)
    assert store.get(bucket, "k", 0, len(TEXT), md5(TEXT)) == TEXT
    upload = store.create_multipart_upload(bucket, "k", SHA)
    proxy.plant(method="PUT", flip_upload=7)
    assert through.upload_part(bucket, "k", upload, 1, TEXT) == md5(TEXT)
    assert store.list_parts(bucket, "k", upload) == {1: md5(TEXT)}
    assert len(proxy.requests("PUT")) == 5


def test_a_byte_flipped_on_the_way_down_is_for_the_reader_to_find(store, through, proxy, bucket):
    """A range has no checksum; who puts ranges together compares the file's."""
    etag = store.put(bucket, "k", TEXT, SHA)
    proxy.plant(method="GET", flip_download=0)
    assert through.get(bucket, "k", 0, len(TEXT), etag) == b"n" + TEXT[1:]


@pytest.mark.parametrize("html", [HTML, HTML.replace(b"</h1>", b"<br>"), b"", ERROR % b"InternalError"])
@pytest.mark.parametrize("method", ["list", "parts", "begin", "complete"])
def test_status_200_with_another_page_in_it(store, through, proxy, bucket, method, html):
    """HTML that is XML as well reads as an empty listing."""
    prepared = Prepared(store, bucket)
    proxy.plant(times=2, answer=(200, html, {}))
    getattr(prepared, method)(through)
    assert len(proxy.requests()) == 3


@pytest.mark.parametrize("name, content, known", [
    ("x-amz-meta-sha256", SHA, SHA), ("x-amz-meta-sha256", "none", None), ("x-amz-meta-original-sha256", SHA, None),
    ("x-amz-content-sha256", SHA, None),
])  # fmt: skip
def test_only_our_header_is_our_checksum(through, proxy, name, content, known):
    proxy.plant(method="HEAD", answer=(200, TEXT, {"ETag": '"e"', name: content}))
    assert through.head("bucket", "k") == Entry("k", len(TEXT), "e", known)


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
    through.deadline = 2
    with pytest.raises(CloudError) as caught:
        prepared.complete(through)
    assert caught.value.code == "InternalError"
    assert store.list_parts(bucket, "k", prepared.upload) == {1: prepared.part}


def test_no_secret_is_told(store, proxy, bucket, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    prepared, told = Prepared(store, bucket), []
    asking = Store.connect(environment(proxy.url) | {"OBS_SECURITY_TOKEN": "a-hidden-token"}, 20, told.append)
    for name in METHODS:
        getattr(prepared, name)(asking)
    asking.deadline = 0.2
    proxy.plant(times=10**6, answer=busy(503))
    for name in METHODS:
        with pytest.raises(CloudError) as caught:
            getattr(prepared, name)(asking)
        told += traceback.format_exception(caught.value)
    said = caplog.text + "".join(capfd.readouterr()) + "".join(told)
    assert all(word not in said for word in ("testing", "a-hidden-token", "Signature", TEXT.decode()))


ECHO = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>AccessDenied</Code><Message>you sent AWS4-HMAC-SHA256 "
    b"Credential=of-somebody/2026, SignedHeaders=host, Signature=abcdef01 and x-amz-security-token:a-hidden-token "
    b"/k?Signature=abcdef02&amp;x=1</Message></Error>"
)


@pytest.mark.parametrize("status", [403, 200, 307])
@pytest.mark.parametrize("method", ["list", "begin", "complete"])
def test_a_server_that_repeats_what_it_was_sent(store, proxy, bucket, caplog, capfd, method, status):
    caplog.set_level(logging.DEBUG)
    prepared = Prepared(store, bucket)
    asking = Store.connect(environment(proxy.url) | {"OBS_SECURITY_TOKEN": "a-hidden-token"}, deadline=20)
    proxy.plant(answer=(status, ECHO, {}))
    with pytest.raises(CloudError, match=r"you sent .*Credential=\*\*\*, .*Signature=\*\*\* and ") as caught:
        getattr(prepared, method)(asking)
    said = caplog.text + "".join(capfd.readouterr()) + "".join(traceback.format_exception(caught.value))
    assert not [word for word in ("a-hidden-token", "of-somebody", "abcdef", "testing") if word in said]
