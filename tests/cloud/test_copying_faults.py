"""Copying under faults: equal bytes in the end, or an error within the deadline."""

import hashlib
import os
import signal
import threading
import time

import pytest
from copies import BIG, LARGE, PART, content_of, contents, make, notes, open_uploads, put
from proxy import ERROR, HTML, busy
from swift import environment

from labkit.cloud.copying import CopyError, copy, rm, stat, verify
from labkit.cloud.place import CloudError
from labkit.cloud.store import Store

pytestmark = pytest.mark.usefixtures("direct")


UP = {
    "503 and 429": [{"times": 2, "answer": busy(503)}, {"times": 2, "answer": busy(429)}],
    "reset mid-part": [{"method": "PUT", "path": "partNumber=2", "reset_upload": 1 << 20}],
    "reset after a part": [{"method": "PUT", "path": "partNumber", "reset_download": 0}],
    "a flipped byte": [{"method": "PUT", "path": "partNumber", "flip_upload": 4321}],
    "stall": [{"method": "PUT", "path": "partNumber=1", "stall": 1.3}],
    "stall in an answer": [{"method": "PUT", "path": "partNumber=3", "stall_answer": 1.3}],
    "the begin's answer is lost": [{"method": "POST", "path": "uploads", "times": 2, "reset_download": 0}],
    "the begin is answered with HTML": [{"method": "POST", "path": "uploads", "answer": (200, HTML, {})}],
    "complete: 200 with an error in it": [{"method": "POST", "path": "uploadId", "times": 2,
                                           "answer": (200, ERROR % b"InternalError", {})}],
    "complete: done, the answer is lost": [{"method": "POST", "path": "uploadId", "served": True, "answer": busy()}],
    "HTML in the list of uploads": [{"method": "GET", "path": "uploads", "answer": (200, HTML, {})}],
    "HEAD busy": [{"method": "HEAD", "times": 3, "answer": busy(500)}],
}  # fmt: skip


@pytest.mark.parametrize("progress", [None, print])  # the SDK's own progress would turn its retries off
@pytest.mark.parametrize("fault", UP)
def test_faults_on_the_way_up(direct, through, proxy, bucket, big, fault, progress):
    planted = [proxy.plant(**one) for one in UP[fault]]
    copy(big, f"obs://{bucket}/k", store=through, progress=progress)
    assert content_of(direct, bucket, "k") == BIG
    assert planted[0].times == 0 and open_uploads(direct, bucket, "k") == []
    assert notes() == []


DOWN = {
    "503 and 429": [{"times": 2, "answer": busy(503)}, {"times": 2, "answer": busy(429)}],
    "reset mid-part": [{"method": "GET", "path": "/k", "times": 2, "reset_download": 1 << 20}],
    "truncation": [{"method": "GET", "path": "/k", "times": 3, "truncate": 1 << 20}],
    "stall": [{"method": "GET", "path": "/k", "stall": 1.3}],
    "stall in the answer": [{"method": "GET", "path": "/k", "stall_answer": 1.3}],
    "a flipped byte": [{"method": "GET", "path": "/k", "flip_download": 54321}],
    "HTML in place of a part": [{"method": "GET", "path": "/k", "answer": (200, HTML, {})}],
    "HTML in the listing": [{"method": "GET", "path": "prefix=", "times": 2, "answer": (200, HTML, {})}],
}


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("size", [1 << 20 | 1 << 17, len(BIG)])
def test_faults_on_the_way_down(direct, through, proxy, bucket, tmp_path, fault, size, shown):
    (tmp_path / "k").write_bytes(BIG[:size])
    copy(tmp_path / "k", f"obs://{bucket}/x/")
    planted = [proxy.plant(**one) for one in DOWN[fault]]
    told = []
    progress = (lambda *now: told.append(now)) if shown else None
    copy(f"obs://{bucket}/x/", tmp_path / "back", store=through, progress=progress)
    assert contents(tmp_path / "back") == {"k": BIG[:size]}
    assert planted[0].times == 0 and told[-1:] == [(size, size)] * shown


STAYING = {
    "up: resets": {"method": "PUT", "path": "partNumber=2", "reset_upload": 1 << 20},
    "up: stalls": {"method": "PUT", "path": "partNumber=2", "stall": 1.3},
    "up: stalls in the answer": {"method": "POST", "path": "uploads", "stall_answer": 1.3},
    "up: HTML in the list of uploads": {"method": "GET", "path": "uploads", "answer": (200, HTML, {})},
    "up: complete, 200 with an error": {"method": "POST", "path": "uploadId", "answer": (200, ERROR % b"SlowDown", {})},
    "up: the answers are lost": {"method": "PUT", "path": "partNumber", "reset_download": 0},
    "down: resets": {"method": "GET", "path": "/k", "reset_download": 1 << 20},
    "down: truncation": {"method": "GET", "path": "/k", "truncate": 1 << 20},
    "down: stalls": {"method": "GET", "path": "/k", "stall_answer": 1.3},
    "down: HTML in place of a part": {"method": "GET", "path": "/k", "answer": (200, HTML, {})},
    "down: HTML in the listing": {"method": "GET", "path": "prefix=", "answer": (200, HTML, {})},
}


@pytest.mark.parametrize("fault", STAYING)
def test_faults_that_stay(direct, through, proxy, bucket, tmp_path, big, fault):
    """An error within the deadline, in place of which the old content stays; when the fault is gone, all goes on."""
    up = fault.startswith("up")
    if not up:
        copy(big, f"obs://{bucket}/x/k")
    put(direct, bucket, "new/k", b"old")
    make(tmp_path / "back", {"k": b"old"})
    ends = (big, f"obs://{bucket}/new/k") if up else (f"obs://{bucket}/x/", tmp_path / "back")
    proxy.plant(times=10**6, **STAYING[fault])
    through.deadline, begun = 1, time.monotonic()
    with pytest.raises(CloudError, match="given up") as caught:
        copy(*ends, store=through)
    assert time.monotonic() - begun < 10 and len(str(caught.value).splitlines()) == 1
    assert content_of(direct, bucket, "new/k") == (tmp_path / "back" / "k").read_bytes() == b"old"
    proxy.clear()
    through.deadline = 20
    copy(*ends, store=through)
    if fault == "up: complete, 200 with an error":
        assert proxy.requests("PUT") == []  # the parts are there
    assert (content_of(direct, bucket, "new/k") if up else contents(tmp_path / "back")) == (BIG if up else {"k": BIG})
    assert open_uploads(direct, bucket, "new/k") == [] and notes() == []


@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_bytes_that_are_always_flipped(direct, through, proxy, bucket, tmp_path, size):
    (tmp_path / "k").write_bytes(BIG[:size])
    copy(tmp_path / "k", f"obs://{bucket}/k")
    proxy.plant(method="GET", times=10**6, flip_download=10)
    with pytest.raises(CopyError, match="wrong checksum"):
        copy(f"obs://{bucket}/k", tmp_path / "back/", store=through)
    assert not (tmp_path / "back").exists() and list(tmp_path.iterdir()) == [tmp_path / "k"]
    proxy.clear()
    through.deadline = 0.5
    proxy.plant(method="PUT", times=10**6, flip_upload=10)
    with pytest.raises(CopyError) as caught:
        copy(tmp_path / "k", f"obs://{bucket}/other", store=through)
    assert caught.value.code == "BadDigest" and direct.head(bucket, "other") is None


@pytest.mark.parametrize("status", [503, 429])
def test_a_server_that_stays_busy(direct, through, proxy, bucket, tmp_path, status):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(50)})
    proxy.plant(method="PUT", times=10**6, answer=busy(status))
    through.deadline, begun = 1, time.monotonic()
    with pytest.raises(CopyError, match="given up") as caught:
        copy(source, f"obs://{bucket}", store=through)
    assert caught.value.status == status and len(caught.value.report.failed) == 50
    assert time.monotonic() - begun < 5


def test_one_file_that_fails(direct, through, proxy, bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "c": b"3"})
    proxy.plant(method="PUT", path="/b$", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    with pytest.raises(CopyError, match="b: .*InvalidArgument.*; 2 copied, 0 there already") as caught:
        copy(source, f"obs://{bucket}", store=through)
    assert [name for name, _ in caught.value.report.failed] == ["b"] and caught.value.report.copied == 2
    assert (caught.value.status, caught.value.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("way", ["file up", "folder up", "file down", "folder down"])
def test_wrong_keys_fail_after_one_request(direct, proxy, bucket, tmp_path, way):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "c": BIG})
    copy(source, f"obs://{bucket}/x")
    stranger = Store.connect(environment(proxy.url) | {"OBS_SECRET_ACCESS_KEY": "hidden-and-wrong"}, deadline=20)
    ends = {"file up": (source / "a", f"obs://{bucket}/new"), "folder up": (source, f"obs://{bucket}/new"),
            "file down": (f"obs://{bucket}/x/a", tmp_path / "back"),
            "folder down": (f"obs://{bucket}/x", tmp_path / "back")}[way]  # fmt: skip
    with pytest.raises(CloudError) as caught:
        copy(*ends, store=stranger)
    assert caught.value.status == 403 and len(proxy.requests()) == 1
    assert "hidden-and-wrong" not in str(caught.value) and not (tmp_path / "back").exists()


def when(condition, action):
    """Do something in the middle of a copy, once."""

    def watch():
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            time.sleep(0.005)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize("change", ["content", "shorter", "removed", "replaced"])
def test_a_source_that_changes_meanwhile(direct, through, proxy, bucket, big, change):
    def act():
        if change == "content":
            with open(big, "r+b") as file:
                file.write(b"other")
        elif change == "shorter":
            os.truncate(big, PART + 5)
        elif change == "removed":
            big.unlink()
        else:
            fresh = big.with_name("fresh")
            fresh.write_bytes(BIG)
            os.replace(fresh, big)

    proxy.plant(method="PUT", path="partNumber=3", stall=0.5)
    acting = when(lambda: proxy.requests("PUT", "partNumber=3"), act)
    with pytest.raises(CopyError, match="changed while|No such file"):
        copy(big, f"obs://{bucket}/k", store=through)
    acting.join()
    assert direct.head(bucket, "k") is None and open_uploads(direct, bucket, "k") == [] and notes() == []


@pytest.mark.parametrize("change", ["overwritten", "removed"])
def test_an_object_that_changes_meanwhile(direct, through, proxy, bucket, tmp_path, big, change):
    copy(big, f"obs://{bucket}/k")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "k").write_bytes(b"old")
    big.write_bytes(BIG[::-1])
    proxy.plant(method="GET")  # the first part passes
    proxy.plant(method="GET", stall=0.7)
    act = (lambda: put(direct, bucket, "k", b"new")) if change == "overwritten" else (lambda: rm(f"obs://{bucket}/k"))
    acting = when(lambda: len(proxy.requests("GET")) == 2, act)
    with pytest.raises(CopyError, match="changed or removed meanwhile"):
        copy(f"obs://{bucket}/k", tmp_path / "target", jobs=1, store=through)
    acting.join()
    assert contents(tmp_path / "target") == {"k": b"old"}


def test_others_uploads_are_left_alone(direct, through, bucket, big):
    """Neither used nor given up, even if their parts are the same."""
    theirs = direct.begin(bucket, "k", "0" * 64)
    direct.put_part(bucket, "k", theirs, 1, BIG[:PART])
    copy(big, f"obs://{bucket}/k", store=through)
    assert open_uploads(direct, bucket, "k") == [theirs]
    assert stat(f"obs://{bucket}/k").sha256 == hashlib.sha256(BIG).hexdigest()


def test_an_upload_that_someone_gives_up(direct, through, proxy, bucket, big):
    proxy.plant(method="POST", path="uploadId", stall=0.5)

    def act():
        for upload in open_uploads(direct, bucket, "k"):
            direct.abort(bucket, "k", upload)

    acting = when(lambda: proxy.requests("POST", "uploadId"), act)
    with pytest.raises(CopyError, match="another object there"):
        copy(big, f"obs://{bucket}/k", store=through)
    acting.join()
    copy(big, f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == BIG and notes() == []


@pytest.mark.parametrize("way", ["up", "down"])
def test_an_interrupt_ends_it_soon_and_it_goes_on(direct, through, proxy, bucket, tmp_path, way):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(30)} | {"big": LARGE})
    ends = (source, f"obs://{bucket}/x")
    if way == "down":
        copy(*ends)
        ends = (ends[1], tmp_path / "back")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(*ends, jobs=2, progress=interrupt, store=through)
    assert len(proxy.requests("PUT" if way == "up" else "GET")) < 10
    copy(*ends, store=through)
    assert verify(*ends) == [] and open_uploads(direct, bucket, "x/big") == [] and notes() == []


def test_an_interrupt_does_not_wait_for_a_busy_server(direct, through, proxy, bucket, big):
    proxy.plant(method="PUT", times=8, answer=busy(503, retry_after=30))
    through.deadline, begun = 100, time.monotonic()
    acting = when(lambda: len(proxy.requests("PUT")) >= 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        copy(big, f"obs://{bucket}/k", store=through)
    acting.join()
    assert time.monotonic() - begun < 10
    proxy.clear()
    copy(big, f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == BIG
