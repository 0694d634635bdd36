"""Requests that fail: tried again until a deadline, on connections that lose nothing; what stays is an error."""

import hashlib
import socket
import time

import pytest
from copies import TEXT, md5, put
from faulty import answer, cut_short, damaged_up, error, lost, reset, stall

from labkit.obs import retrying
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
    upload = store.create_multipart_upload("course", "big", {})
    etag = store.upload_part("course", "big", upload, 1, TEXT, hashlib.md5(TEXT))
    assert store.list_parts("course", "big", upload) == {1: etag} == {1: md5(TEXT)}
    store.complete_multipart_upload("course", "big", upload, [etag])
    assert store.head("course", "big").size == len(TEXT)


CASES = {
    "busy": (listing, "GET list", answer(503, b"<html>later\xff</html>")), "reset": (head, "HEAD k", reset),
    "too many": (get, "GET k", error(429, "SlowDown")), "stall": (get, "GET k", stall(1.5)),
    "cut short": (get, "GET k", cut_short), "damaged on the way up": (parts, "PUT part", damaged_up),
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
    (error(200, "SlowDown"), retrying.GivenUp, "planted.*SlowDown"), (cut_short, CloudError, "answer is incomplete"),
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


def test_what_will_not_pass_is_not_tried_again(server, store):
    server.plant("GET k", error(403, "InvalidObjectState"))
    with pytest.raises(CloudError, match="planted .status 403, InvalidObjectState") as caught:
        get(store)
    assert type(caught.value) is CloudError and len(server.seen) == 1


def test_a_redirect_is_an_error(server, store):
    """Keys and signature are for one server."""
    server.plant("GET list", answer(307, Location="https://other.example/course"))
    with pytest.raises(CloudError, match="the bucket is at other.example; is OBS_ENDPOINT in the bucket's region"):
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
    with pytest.raises(CloudError, match="the server does not use https: should OBS_ENDPOINT begin with http://"):
        Store.connect(known).head("course", "k")


def test_an_answer_that_is_longer_than_asked_is_not_read_as_the_next_one(server, store):
    put(store, "k", TEXT)
    server.plant("GET k", answer(206, TEXT))
    assert store.get("course", "k", 0, 3, md5(TEXT)) == b"one" and store.head("course", "k").size == len(TEXT)
