"""Requests that fail: tried again until a deadline, on connections that lose nothing; what stays is an error."""

import contextlib
import hashlib
import os
import select
import socket
import socketserver
import threading
import time

import pytest
from copies import SHA, TEXT, contents, make, md5, objects, put
from faulty import answer, cut_short, damaged_up, error, lost, reset, stall

from labkit.obs import copy, retrying, sdk
from labkit.obs.place import CloudError
from labkit.obs.store import Entry, Store


def get(store):
    assert store.get("course", "k", 0, len(TEXT), md5(TEXT)) == TEXT


def head(store):
    assert store.head("course", "k") == Entry("k", len(TEXT), md5(TEXT), hashlib.sha256(TEXT).hexdigest())


def listing(store):
    assert list(store.list("course", "k")) == [Entry("k", len(TEXT), md5(TEXT))]


def parts(store):
    """An upload in parts, from its beginning to its completion."""
    upload = store.create_multipart_upload("course", "big", SHA)
    etag = store.upload_part("course", "big", upload, 1, TEXT, hashlib.md5(TEXT))
    assert store.list_parts("course", "big", upload) == {1: etag} == {1: md5(TEXT)}
    store.complete_multipart_upload("course", "big", upload, [etag])
    assert store.head("course", "big").size == len(TEXT)


CASES = {
    "busy": (get, "GET k", answer(503)), "too many": (get, "GET k", error(429, "SlowDown")),
    "HTML that says busy": (listing, "GET list", answer(503, b"<html>later\xff</html>")),
    "reset": (get, "GET k", reset), "reset of a HEAD": (head, "HEAD k", reset), "cut short": (get, "GET k", cut_short),
    "a listing cut short": (listing, "GET list", cut_short), "stall": (get, "GET k", stall(1.5)),
    "a delete that is lost": (lambda store: store.delete("course", "k"), "DELETE k", lost),
    "a put that is lost": (lambda store: put(store, "k", TEXT), "PUT k", lost),
    "damaged on the way up": (lambda store: put(store, "k", TEXT), "PUT k", damaged_up),
    "the begin is lost": (parts, "POST new upload", lost), "a part is lost": (parts, "PUT part", lost),
    "a part is damaged": (parts, "PUT part", damaged_up), "a part is reset": (parts, "PUT part", reset),
    "the parts are cut short": (parts, "GET parts", cut_short),
    "complete: done, the answer is lost": (parts, "POST completion", lost),
    "complete: 200 with an error in it": (parts, "POST completion", error(200, "InternalError")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_faults_pass(server, store, case):
    request, line, fault = CASES[case]
    put(Store.connect(), "k", TEXT)
    server.clear()
    store.client.timeout = 1 if case == "stall" else 20
    server.plant(line, fault, times=1 if case == "stall" else 2)
    request(store)
    assert len(server.requests(line)) == (2 if case == "stall" else 3)


@pytest.mark.parametrize("fault, kind, says", [
    (answer(503), retrying.GivenUp, "status 503"), (reset, retrying.GivenUp, "RemoteDisconnected|ConnectionReset"),
    (error(200, "SlowDown"), retrying.GivenUp, "planted.*SlowDown"), (cut_short, CloudError, "the answer is not whole"),
])  # fmt: skip
def test_it_gives_up_at_the_deadline(server, store, fault, kind, says):
    """In one line; and meanwhile it says that it waits."""
    put(store, "k", TEXT)
    lines = []
    store.deadline, store.notice, begun = 1, lines.append, time.monotonic()
    server.plant("GET k", fault, times=10**6)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CloudError, match="given up after [0-9]+ tr") as caught:
        patch.setattr(retrying, "QUIET", 0.2)
        get(store)
    assert type(caught.value) is kind and len(server.requests("GET k")) > 2 and 0.5 < time.monotonic() - begun < 10
    assert len(str(caught.value).splitlines()) == 1 and 1 <= len(lines) <= 5 and "trying again (" in lines[0]


def test_a_request_that_drips_is_cut_off(server, store, monkeypatch):
    """Each byte comes in time; all of them do not."""

    def drip(handler, real):
        for byte in b"HTTP/1.1 200 OK\r\n" * 100:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.2)

    put(store, "k")
    server.plant("HEAD k", drip)
    store.deadline, begun = 1, time.monotonic()
    with pytest.raises(CloudError):
        store.head("course", "k")
    assert time.monotonic() - begun < 10


def test_what_will_not_pass_is_not_tried_again(server, store):
    server.plant("GET k", error(403, "InvalidObjectState"))
    with pytest.raises(CloudError, match="planted .status 403, InvalidObjectState") as caught:
        get(store)
    assert type(caught.value) is CloudError and len(server.seen) == 1


def test_retry_after(server, store):
    put(store, "k", TEXT)
    server.plant("HEAD k", answer(503, Retry_After=1))
    begun = time.monotonic()
    head(store)
    assert 1 <= time.monotonic() - begun < 10


def test_a_redirect_is_an_error(server, store):
    """Keys and signature are for one server."""
    server.plant("GET list", answer(307, Location="https://other.example/course"))
    with pytest.raises(CloudError, match="other.example has it; is OBS_ENDPOINT of the bucket's region"):
        listing(store)
    assert len(server.seen) == 1


def test_nobody_there_is_said_soon(server, monkeypatch):
    """Not after five minutes."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        known = server.environment() | {"OBS_ENDPOINT": f"http://127.0.0.1:{holder.getsockname()[1]}"}
    monkeypatch.setattr(retrying, "ABSENT", 1)
    with pytest.raises(CloudError, match="ConnectionRefusedError.*is the server of OBS_ENDPOINT running.*given up"):
        Store.connect(known).head("course", "k")
    known["OBS_ENDPOINT"] = server.url.replace("http", "https")
    with pytest.raises(CloudError, match="speaks no https: does OBS_ENDPOINT begin with http://"):
        Store.connect(known).head("course", "k")


# -- Connections -----------------------------------------------------------------------------------


def test_copies_share_connections(server, store, tmp_path):
    """As many as there are requests at a time, not as there are files."""
    files = {f"{number:02}": b"%d" % number for number in range(40)}
    copy(make(tmp_path / "source", files), "obs://course/x", jobs=4, store=store)
    copy("obs://course/x", tmp_path / "back", jobs=4, store=store)
    assert contents(tmp_path / "back") == files and len(server.seen) > 80 and server.accepted <= 4


def test_a_connection_that_may_be_dead_is_not_used(server, store, monkeypatch):
    """One that the server has closed, and one that was idle for long: a router may have forgotten it."""
    closing = {"Connection": "close"}
    server.plant("HEAD a", answer(404, **closing))
    assert [store.head("course", key) for key in "abc"] == [None] * 3 and server.accepted == 2
    monkeypatch.setattr(sdk, "LONGEST_IDLE", 0)
    assert store.head("course", "d") is None and server.accepted == 3


def test_an_answer_that_is_longer_than_asked_is_not_read_as_the_next_one(server, store):
    put(store, "k", TEXT)
    server.plant("GET k", answer(206, TEXT))
    assert store.get("course", "k", 0, 3, md5(TEXT)) == b"one" and server.accepted == 2


class Tunnel(socketserver.StreamRequestHandler):
    """A proxy that tunnels to one server, whatever it is asked for."""

    def handle(self):
        self.server.asked.append(b"".join(iter(self.rfile.readline, b"\r\n")).decode())
        with socket.create_connection(("127.0.0.1", self.server.port)) as server, contextlib.suppress(OSError):
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            ends = {self.connection: server, server: self.connection}
            while True:
                for end in select.select(ends, [], [])[0]:
                    if not (block := end.recv(1 << 16)):
                        return
                    ends[end].sendall(block)


def test_a_proxy_is_used(server, monkeypatch):
    """The one that the environment names; no_proxy and this machine are left out. Each bucket's host has its tunnel."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    known = server.environment() | {"OBS_ENDPOINT": "http://s3.example:8080"}
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
        proxy.daemon_threads, proxy.asked, proxy.port = True, [], server.server_port
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{proxy.server_address[1]}")
        far = Store.connect(known)
        for name in ("one", "two", "one"):
            with pytest.raises(CloudError) as caught:
                list(far.list(name))
            assert caught.value.status in (403, 404)
        count = len(proxy.asked)
        assert {asked.split()[1] for asked in proxy.asked} == {"one.s3.example:8080", "two.s3.example:8080"}
        assert "Proxy-Authorization: Basic bWU6cEBzcw==" in proxy.asked[0]
        assert Store.connect(server.environment()).head("course", "k") is None and len(proxy.asked) == count
        monkeypatch.setenv("no_proxy", "s3.example")
        assert not Store.connect(known).client.proxy_host
        proxy.shutdown()
    monkeypatch.delenv("no_proxy")
    for text in ("ftp://h:1", "http://:80", "http://me:hush@h:port"):
        monkeypatch.setenv("http_proxy", text)
        with pytest.raises(CloudError, match="^http_proxy: ") as caught:
            Store.connect(known)
        assert "hush" not in str(caught.value)
    assert objects(server) == {}
