"""The store's requests, against the book's object server: any key, parts, pages, ranges, and errors in one line."""

import hashlib
import socket
import time

import pytest
from copies import SHA, TEXT, md5, objects, put
from faulty import ERROR, HTML, Server, answer, error

from labkit.obs.place import CloudError
from labkit.obs.store import Entry, Store


@pytest.mark.parametrize("key", [
    "a+b %20", "<&amp;>\"'", "日本語/🙂", "q?x=1&y#z", "a//b", "folder/", "=;,:@!$*()[]{}|^~`", "x" * 600,
])  # fmt: skip
def test_any_key(store, key):
    assert store.head("course", key) is None
    etag = store.put("course", key, TEXT, SHA)
    assert store.head("course", key) == Entry(key, len(TEXT), md5(TEXT), SHA) and etag == md5(TEXT)
    assert list(store.list("course")) == list(store.list("course", key)) == [Entry(key, len(TEXT), etag)]
    upload = store.create_multipart_upload("course", key, {"sha256": SHA})
    part = store.upload_part("course", key, upload, 1, b"part", hashlib.md5(b"part"))
    assert store.list_parts("course", key, upload) == {1: part}
    store.complete_multipart_upload("course", key, upload, [part])
    assert store.get("course", key, 0, 4, store.head("course", key).etag) == b"part"
    store.delete("course", key)
    store.delete("course", key)
    assert list(store.list("course")) == []


@pytest.mark.parametrize("key", ["", "a\udcff"])
def test_no_key(server, store, key):
    """Without one, the request would be about the bucket."""
    for call, *more in ((store.put, b"", SHA), (store.delete,), (store.get, 0, 1, "e"), (store.list_parts, "u")):
        with pytest.raises(CloudError, match="no key|not UTF-8"):
            call("course", key, *more)
    assert server.seen == [] and store.head("course", "") is None


def test_pages(server, store):
    """Listings that come in several answers, with keys that an answer must encode at its end."""
    keys = sorted(f"ä&<>/{number:04d} +%20" for number in range(2500))
    put(store, keys[0])
    server.buckets["course"] = dict.fromkeys(keys, server.buckets["course"][keys[0]])
    server.clear()
    assert [entry.key for entry in store.list("course", "ä&")] == keys and len(server.seen) == 3


def test_errors_are_one_line_and_quote_no_key(server, store, monkeypatch):
    with pytest.raises(CloudError, match=r"obs://course/a.nb\\x1b: ") as caught:
        store.get("course", "a\nb\x1b", 0, 3, "0" * 32)
    assert caught.value.status == 404 and caught.value.request_id and len(str(caught.value).splitlines()) == 1
    with pytest.raises(CloudError) as caught:
        list(store.list("no-such-bucket"))
    assert (caught.value.status, caught.value.code) == (404, "NoSuchBucket")
    monkeypatch.setenv("OBS_SECURITY_TOKEN", "a-hidden-token")
    text = b"you sent Credential=of-somebody/2026, Signature=abcdef01 and a-hidden-token and practice"
    for status in (403, 200, 307):
        server.plant("GET", answer(status, (ERROR % b"AccessDenied").replace(b"planted", text)))
        with pytest.raises(CloudError, match=r"you sent Credential=\*\*\*, Signature=\*\*\* and \*\*\* and \*\*\*"):
            list(Store.connect().list("course"))


@pytest.mark.parametrize("status, code", [(400, "ExpiredToken"), (401, "Unauthorized"), (409, "Conflict")])
def test_why_a_head_was_refused(server, store, status, code):
    server.plant("", error(status, code), times=2)
    with pytest.raises(CloudError, match=f"planted .status {status}, {code}"):
        store.head("course", "k")


def test_a_connection_that_nobody_accepts_is_given_up_at_the_deadline(account):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first, socket.socket() as second:
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        known = account.environment() | {"OBS_ENDPOINT": f"http://127.0.0.1:{full.getsockname()[1]}"}
        began = time.monotonic()
        with pytest.raises(CloudError, match="given up"):
            Store.connect(known, deadline=1).head("course", "k")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("signature, host, name", [
    ("", "obs.x.myhuaweicloud.com", "obs"), ("", "s3.example", "v4"), ("v2", "s3.example", "v2"),
])  # fmt: skip
def test_signatures(account, signature, host, name):
    keys = account.environment() | {"OBS_ENDPOINT": host, "OBS_SIGNATURE": signature}
    assert Store.connect(keys).client.signature == name
    with pytest.raises(CloudError, match="^OBS_SIGNATURE: must be obs, v2 or v4, not 'v3'$"):
        Store.connect(keys | {"OBS_SIGNATURE": "v3"})


LISTING = b"""<?xml version="1.0"?><ListBucketResult><Name>course</Name><Prefix>x/</Prefix><MaxKeys>1000</MaxKeys>
<IsTruncated>false</IsTruncated><Contents><Key>%s</Key><Size>%s</Size><ETag>"0"</ETag></Contents></ListBucketResult>"""


@pytest.mark.parametrize("key, size, says", [
    (b"other/thesis", b"1", "the listing contains 'other/thesis', which is not below it"),
    (b"x/a", b"many", "x/a: the server's size is not a number of bytes"),
])  # fmt: skip
def test_a_listing_that_cannot_be_is_not_believed(server, store, key, size, says):
    server.plant("GET list", answer(200, LISTING % (key, size)))
    with pytest.raises(CloudError, match=says):
        list(store.list("course", "x/"))


@pytest.mark.parametrize("body", [HTML, HTML.replace(b"</h1>", b"<br>"), b""])
def test_status_200_with_another_page_in_it(server, store, body):
    """What a captive portal says to everything; HTML that is XML as well reads as an empty listing."""
    put(store, "k")
    for line in ("GET list", "HEAD k", "PUT k", "POST new upload"):
        server.plant(line, answer(200, body))
    assert [entry.key for entry in store.list("course")] == ["k"] and store.head("course", "k").size == 4
    assert put(store, "k") == md5(b"text") and store.create_multipart_upload("course", "k", {}) in server.uploads


@pytest.fixture
def over_tls(certificates, monkeypatch, account):
    """Function: a server with a certificate for a host, and the store that trusts an authority's file."""
    servers = []

    def over_tls(host, authority="ca.pem"):
        folder, context = certificates
        servers.append(Server(context(host)).start())
        known = servers[-1].environment() | ({"OBS_CA_FILE": str(folder / authority)} if authority else {})
        return servers[-1], Store.connect(known, deadline=20)

    yield over_tls
    for server in servers:
        server.shutdown()
        server.server_close()


def test_tls(over_tls):
    server, store = over_tls("localhost")
    etag = put(store, "k", TEXT)
    assert store.get("course", "k", 0, 3, etag) == b"one" and objects(server) == {"k": TEXT}


@pytest.mark.parametrize("host, authority, says", [
    ("other.example", "ca.pem", "Hostname mismatch"), ("localhost", "other.example.pem", "unable to get"),
    ("localhost", None, "certificate"),
])  # fmt: skip
def test_a_certificate_that_proves_nothing_is_refused(certificates, over_tls, host, authority, says):
    """Another host's, another authority's, and one that nobody is told to trust."""
    certificates[1]("other.example")
    server, store = over_tls(host, authority)
    with pytest.raises(CloudError, match=f"certificate refused: .*{says}"):
        store.head("course", "k")
    assert server.seen == []
