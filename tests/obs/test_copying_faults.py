"""Copying under faults: equal bytes in the end, or an error within the deadline."""

import hashlib
import mmap
import os
import signal
import threading
import time

import pytest
from copies import BIG, LARGE, PART, content_of, contents, make, notes, open_uploads, put
from proxy import ERROR, HTML, FaultProxy, busy
from swift import environment

from labkit.obs.copying import CopyError, copy, rm, stat, verify
from labkit.obs.place import CloudError
from labkit.obs.store import Store

pytestmark = pytest.mark.usefixtures("direct")


UP = {
    "503 and 429": [{"times": 2, "answer": busy(503)}, {"times": 2, "answer": busy(429)}],
    "reset mid-part": [{"method": "PUT", "path": "partNumber=2", "reset_upload": 1 << 20}],
    "reset after a part": [{"method": "PUT", "path": "partNumber", "reset_download": 0}],
    "a flipped byte": [{"method": "PUT", "path": "partNumber", "flip_upload": 4321}],
    "stall": [{"method": "PUT", "path": "partNumber=1", "stall": 3.5}],
    "stall in an answer": [{"method": "PUT", "path": "partNumber=3", "stall_answer": 3.5}],
    "the begin's answer is lost": [{"method": "POST", "path": "uploads", "times": 2, "reset_download": 0}],
    "the begin is answered with HTML": [{"method": "POST", "path": "uploads", "answer": (200, HTML, {})}],
    "complete: 200 with an error in it": [{"method": "POST", "path": "uploadId", "times": 2,
                                           "answer": (200, ERROR % b"InternalError", {})}],
    "complete: done, the answer is lost": [{"method": "POST", "path": "uploadId", "served": True, "answer": busy()}],
    "HEAD busy": [{"method": "HEAD", "times": 3, "answer": busy(500)}],
}  # fmt: skip


@pytest.mark.parametrize("fault", UP)
def test_faults_on_the_way_up(swift, direct, through, proxy, bucket, big, fault):
    if "stall" in fault:
        through.client.timeout = 3
    planted, told = [proxy.plant(**one) for one in UP[fault]], []
    copy(big, f"obs://{bucket}/k", store=through, progress=lambda *now: told.append(now))
    assert content_of(direct, bucket, "k") == BIG and told[-1] == (len(BIG), len(BIG))
    assert planted[0].times == 0 and notes() == []
    assert parts_kept(swift, bucket) == 3  # of the object; an upload whose beginning nobody heard of has none
    assert fault == "the begin's answer is lost" or open_uploads(direct, bucket, "k") == []


def parts_kept(swift, bucket):
    """How many parts the server keeps of this bucket's objects and uploads."""
    return sum(name.rpartition("/")[2].isdigit() for name in swift.parts(bucket))


DOWN = {
    "503 and 429": [{"times": 2, "answer": busy(503)}, {"times": 2, "answer": busy(429)}],
    "reset mid-part": [{"method": "GET", "path": "/k", "times": 2, "reset_download": 1 << 20}],
    "truncation": [{"method": "GET", "path": "/k", "times": 3, "truncate": 1 << 20}],
    "stall": [{"method": "GET", "path": "/k", "stall": 3.5}],
    "stall in the answer": [{"method": "GET", "path": "/k", "stall_answer": 3.5}],
    "a flipped byte": [{"method": "GET", "path": "/k", "flip_download": 54321}],
    "HTML in place of a part": [{"method": "GET", "path": "/k", "answer": (200, HTML, {})}],
    "HTML in the listing": [{"method": "GET", "path": "prefix=", "times": 2, "answer": (200, HTML, {})}],
}


SIZES = ((1 << 20 | 1 << 17, True), (len(BIG), False))  # and whether progress is shown


@pytest.mark.parametrize("fault, size, shown", [
    (fault, *one) for fault in DOWN for one in SIZES if "stall" not in fault or one == SIZES[1]
])  # fmt: skip
def test_faults_on_the_way_down(direct, through, proxy, bucket, tmp_path, fault, size, shown):
    (tmp_path / "k").write_bytes(BIG[:size])
    copy(tmp_path / "k", f"obs://{bucket}/x/")
    if "stall" in fault:
        through.client.timeout = 3
    planted = [proxy.plant(**one) for one in DOWN[fault]]
    told = []
    progress = (lambda *now: told.append(now)) if shown else None
    copy(f"obs://{bucket}/x/", tmp_path / "back", store=through, progress=progress)
    assert contents(tmp_path / "back") == {"k": BIG[:size]}
    assert planted[0].times == 0 and told[-1:] == [(size, size)] * shown


STAYING = {
    "up: resets": {"method": "PUT", "path": "partNumber=2", "reset_upload": 1 << 20},
    "up: stalls": {"method": "PUT", "path": "partNumber=2", "stall": 3.5},
    "up: stalls in the answer": {"method": "POST", "path": "uploads", "stall_answer": 3.5},
    "up: complete, 200 with an error": {"method": "POST", "path": "uploadId", "answer": (200, ERROR % b"SlowDown", {})},
    "up: the answers are lost": {"method": "PUT", "path": "partNumber", "reset_download": 0},
    "down: resets": {"method": "GET", "path": "/k", "reset_download": 1 << 20},
    "down: truncation": {"method": "GET", "path": "/k", "truncate": 1 << 20},
    "down: stalls": {"method": "GET", "path": "/k", "stall_answer": 3.5},
    "down: HTML in place of a part": {"method": "GET", "path": "/k", "answer": (200, HTML, {})},
    "down: HTML in the listing": {"method": "GET", "path": "prefix=", "answer": (200, HTML, {})},
}


@pytest.mark.parametrize("fault", STAYING)
def test_faults_that_stay(swift, direct, through, proxy, bucket, tmp_path, big, fault):
    """An error within the deadline, in place of which the old content stays; when the fault is gone, all goes on."""
    up = fault.startswith("up")
    if not up:
        copy(big, f"obs://{bucket}/x/k")
    put(direct, bucket, "new/k", b"old")
    make(tmp_path / "back", {"k": b"old"})
    ends = (big, f"obs://{bucket}/new/k") if up else (f"obs://{bucket}/x/", tmp_path / "back")
    proxy.plant(times=10**6, **STAYING[fault])
    if "stall" in fault:
        through.client.timeout = 3
    through.deadline, begun = 2, time.monotonic()
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
    assert parts_kept(swift, bucket) == 3 and notes() == []


@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_bytes_that_are_always_flipped(direct, through, proxy, bucket, tmp_path, size):
    (tmp_path / "k").write_bytes(BIG[:size])
    copy(tmp_path / "k", f"obs://{bucket}/k")
    proxy.plant(method="GET", times=10**6, flip_download=10)
    with pytest.raises(CopyError, match="wrong checksum"):
        copy(f"obs://{bucket}/k", tmp_path / "back/", store=through)
    assert not (tmp_path / "back").exists() and list(tmp_path.iterdir()) == [tmp_path / "k"]
    proxy.clear()
    through.deadline = 2
    proxy.plant(method="PUT", times=10**6, flip_upload=10)
    with pytest.raises(CopyError) as caught:
        copy(tmp_path / "k", f"obs://{bucket}/other", store=through)
    assert caught.value.code == "BadDigest" and direct.head(bucket, "other") is None


@pytest.mark.parametrize("size, path", [(1000, "/k"), (len(BIG), "partNumber=1"), (len(BIG), "partNumber=3")])
def test_a_server_that_takes_what_was_damaged(moto, tmp_path, size, path):
    """moto asks no Content-MD5. The object has the file's SHA-256, so the next copy would pass over it: it goes."""
    bucket = moto.new_bucket()
    (tmp_path / "k").write_bytes(BIG[:size])
    with FaultProxy(moto.port) as proxy:
        through = Store.connect(moto.environment | {"OBS_ENDPOINT": proxy.url}, deadline=20)
        damage = proxy.plant(method="PUT", path=path, flip_upload=77)
        with pytest.raises(CopyError, match="k: damaged on its way up") as caught:
            copy(tmp_path / "k", f"obs://{bucket}/k", store=through)
        assert damage.times == 0 and caught.value.report.copied == 0
        assert copy(tmp_path / "k", f"obs://{bucket}/k", store=through).copied == 1
        assert content_of(through, bucket, "k") == BIG[:size] and notes() == []


def tables(letters):
    return bytes.maketrans(b"0123456789abcdef", letters), bytes.maketrans(letters, b"0123456789abcdef")


VENDORS = {"no hexadecimal": tables(b"ghijklmnopqrstuv"), "the form of an MD5": tables(b"fedcba9876543210")}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_a_server_whose_etags_are_no_md5s(moto, tmp_path, size, vendor):
    """Nothing is taken for damaged, and nothing removed; what is damaged is found where an ETag has an MD5's form."""
    bucket = moto.new_bucket()
    file, url = tmp_path / "k", f"obs://{bucket}/k"
    with FaultProxy(moto.port) as proxy:
        through = Store.connect(moto.environment | {"OBS_ENDPOINT": proxy.url}, deadline=20)
        other = proxy.plant(times=10**6, etags=VENDORS[vendor])
        for content in (BIG[::-1][:size], BIG[:size]):  # over an older one
            file.write_bytes(content)
            assert copy(file, url, store=through).copied == 1
            assert content_of(through, bucket, "k") == content
        assert copy(file, url, store=through).skipped == 1 and verify(file, url, store=through) == []
        assert copy(url, tmp_path / "back", store=through).copied == 1
        assert (tmp_path / "back").read_bytes() == BIG[:size]
        assert proxy.requests("DELETE") == [] and notes() == []
        if vendor != "no hexadecimal":
            proxy.clear()
            proxy.plant(method="PUT", path="k", flip_upload=77, etags=other.etags)
            proxy.plant(times=10**6, etags=other.etags)
            with pytest.raises(CopyError, match="k: damaged on its way up"):
                copy(file, f"obs://{bucket}/new-k", jobs=1, store=through)
            assert through.head(bucket, "new-k") is None


def test_an_object_that_another_tool_put_on_such_a_server(moto, tmp_path):
    """It has no checksum to compare, and can be copied."""
    bucket = moto.new_bucket()
    with FaultProxy(moto.port) as proxy:
        through = Store.connect(moto.environment | {"OBS_ENDPOINT": proxy.url}, deadline=20)
        through.client.putContent(bucket, "k", "text")
        proxy.plant(times=10**6, etags=VENDORS["no hexadecimal"])
        assert copy(f"obs://{bucket}/k", tmp_path / "k", store=through).copied == 1
        assert verify(f"obs://{bucket}/k", tmp_path / "k", store=through) == ["k: no checksum to compare"]


def test_a_source_that_changes_by_a_memory_map(direct, through, proxy, bucket, big):
    """Its times and size stay. The object would have the SHA-256 of what was read before."""
    hold, before = threading.Event(), os.stat(big)

    def act():
        with open(big, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            content[2 * PART + 7] ^= 1
        os.utime(big, ns=(before.st_atime_ns, before.st_mtime_ns))

    proxy.plant(method="PUT", path="partNumber=1", hold=hold)
    acting = when(lambda: proxy.requests("PUT", "partNumber=1"), act, hold)
    with pytest.raises(CopyError, match="big.bin: changed while it was copied"):
        copy(big, f"obs://{bucket}/k", jobs=1, store=through)
    acting.join()
    assert direct.head(bucket, "k") is None and open_uploads(direct, bucket, "k") == [] and notes() == []


def test_a_record_that_cannot_be_written(direct, through, bucket, big, monkeypatch):
    """On a full disk. The upload could not be resumed, but is completed now."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        copy(big, f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == BIG
    assert open_uploads(direct, bucket, "k") == [] and notes() == []


@pytest.mark.parametrize("status", [503, 429])
def test_a_server_that_stays_busy(direct, through, proxy, bucket, tmp_path, status):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(50)})
    proxy.plant(method="PUT", times=10**6, answer=busy(status))
    through.deadline, begun = 1, time.monotonic()
    with pytest.raises(CopyError, match="given up") as caught:
        copy(source, f"obs://{bucket}", store=through)
    assert caught.value.status == status and len(caught.value.report.failed) == 50
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("way, fault", [
    ("up", {"reset_upload": 0}), ("up", {"answer": busy(503)}),
    ("up", {"answer": (403, ERROR % b"InvalidObjectState", {})}), ("down", {"truncate": 3}),
    ("down", {"answer": (403, ERROR % b"InvalidObjectState", {})}),
])  # fmt: skip
def test_one_file_that_always_fails_does_not_stop_the_others(through, proxy, bucket, tmp_path, way, fault):
    source = make(tmp_path / "source", {f"{number}": b"12345" for number in range(12)})
    ends = (source, f"obs://{bucket}/x")
    if way == "down":
        copy(*ends)
        ends = (ends[1], tmp_path / "back")
    proxy.plant(path="x/3$", times=10**6, **fault)
    through.deadline = 1.5
    with pytest.raises(CopyError) as caught:
        copy(*ends, jobs=1 if "truncate" in fault else 2, store=through)
    report = caught.value.report
    assert [name for name, _ in report.failed] == ["3"] and report.copied == 11


def test_a_server_that_refuses_all_is_not_asked_for_all(through, proxy, bucket, tmp_path):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(50)})
    proxy.plant(method="PUT", times=10**6, answer=(403, ERROR % b"AccessDenied", {}))
    with pytest.raises(CopyError, match="AccessDenied") as caught:
        copy(source, f"obs://{bucket}", jobs=2, store=through)
    assert len(caught.value.report.failed) == 50 and len(proxy.requests("PUT")) < 15


@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_a_server_that_encrypts(through, proxy, bucket, tmp_path, size):
    """Its ETags are no MD5s: size and SHA-256 are believed; what has none cannot be told. The proxy is that server."""
    (tmp_path / "k").write_bytes(BIG[:size])
    etag, url = {"ETag": '"not-hexadecimal-1"' if size > PART else f'"{"f" * 32}"'}, f"obs://{bucket}/k"
    kms = etag | {"x-amz-server-side-encryption": "aws:kms"}
    meta = {"x-amz-meta-sha256": hashlib.sha256(BIG[:size]).hexdigest()}
    proxy.plant(method="PUT", times=10**6, answer=(200, b"", etag))
    done = b"<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>" % etag["ETag"].encode()
    proxy.plant(method="POST", path="uploadId", times=10**6, answer=(200, done, {}))
    head = proxy.plant(method="HEAD", times=10**6, answer=(200, BIG[:size], kms | meta))
    copy(tmp_path / "k", url, incremental=False, store=through)
    assert copy(tmp_path / "k", url, store=through).skipped == 1
    head.answer = (200, BIG[:size], kms)
    with pytest.raises(CopyError, match="another object there"):
        copy(tmp_path / "k", url, store=through)
    unknown = []
    assert verify(url, tmp_path / "k", unknown=unknown, store=through) == []
    assert unknown == ["k: no checksum to compare"] == verify(url, tmp_path / "k", store=through)
    assert notes() == [] or size > PART


def test_one_file_that_fails(direct, through, proxy, bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "c": b"3"})
    proxy.plant(method="PUT", path="/b$", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    with pytest.raises(CopyError, match="b: .*InvalidArgument.*; 2 copied, 0 there already") as caught:
        copy(source, f"obs://{bucket}", store=through)
    assert [name for name, _ in caught.value.report.failed] == ["b"] and caught.value.report.copied == 2
    assert (caught.value.status, caught.value.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("way", ["file up", "folder up", "file down", "folder down"])
def test_wrong_keys_fail_at_once(direct, proxy, bucket, tmp_path, way):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "c": BIG})
    copy(source, f"obs://{bucket}/x")
    stranger = Store.connect(environment(proxy.url) | {"OBS_SECRET_ACCESS_KEY": "hidden-and-wrong"}, deadline=20)
    ends = {"file up": (source / "a", f"obs://{bucket}/new"), "folder up": (source, f"obs://{bucket}/new"),
            "file down": (f"obs://{bucket}/x/a", tmp_path / "back"),
            "folder down": (f"obs://{bucket}/x", tmp_path / "back")}[way]  # fmt: skip
    with pytest.raises(CloudError) as caught:
        copy(*ends, store=stranger)
    assert caught.value.status == 403 and caught.value.code == "SignatureDoesNotMatch"
    assert len(proxy.requests()) == (1 if way == "folder up" else 2)  # a HEAD, and a GET that says why it was refused
    assert "hidden-and-wrong" not in str(caught.value) and not (tmp_path / "back").exists()


def when(condition, action, hold=None):
    """Do something in the middle of a copy, once; then what is held in the proxy goes on."""

    def watch():
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            time.sleep(0.005)
        action()
        if hold:
            hold.set()

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

    hold = threading.Event()
    proxy.plant(method="PUT", path="partNumber=3", hold=hold)
    acting = when(lambda: proxy.requests("PUT", "partNumber=3"), act, hold)
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
    hold = threading.Event()
    proxy.plant(method="GET")  # the first part passes
    proxy.plant(method="GET", hold=hold)
    act = (lambda: put(direct, bucket, "k", b"new")) if change == "overwritten" else (lambda: rm(f"obs://{bucket}/k"))
    acting = when(lambda: len(proxy.requests("GET")) == 2, act, hold)
    with pytest.raises(CopyError, match="changed or removed meanwhile"):
        copy(f"obs://{bucket}/k", tmp_path / "target", jobs=1, store=through)
    acting.join()
    assert contents(tmp_path / "target") == {"k": b"old"}


def test_others_uploads_are_left_alone(direct, through, proxy, bucket, big):
    """Neither used nor given up, even if they are of the same content and begin while ours begins."""
    sha256, hold, theirs = hashlib.sha256(BIG).hexdigest(), threading.Event(), []

    def act():
        theirs.append(direct.create_multipart_upload(bucket, "k", sha256))
        direct.upload_part(bucket, "k", theirs[0], 1, BIG[:PART])

    proxy.plant(method="POST", path="uploads", reset_download=0)  # the answer is lost: this one's id we never know
    proxy.plant(method="POST", path="uploads", hold=hold)
    acting = when(lambda: len(proxy.requests("POST", "uploads")) == 2, act, hold)
    copy(big, f"obs://{bucket}/k", store=through)
    acting.join()
    assert theirs[0] in open_uploads(direct, bucket, "k") and len(proxy.requests("PUT")) == 3
    assert direct.list_parts(bucket, "k", theirs[0]).keys() == {1} and proxy.requests("DELETE") == []
    assert stat(f"obs://{bucket}/k").sha256 == sha256


def test_an_upload_that_someone_gives_up(direct, through, proxy, bucket, big):
    hold = threading.Event()
    proxy.plant(method="POST", path="uploadId", hold=hold)

    def act():
        for upload in open_uploads(direct, bucket, "k"):
            direct.abort_multipart_upload(bucket, "k", upload)

    acting = when(lambda: proxy.requests("POST", "uploadId"), act, hold)
    with pytest.raises(CopyError, match="uploaded, but not there: somebody has removed it, or the upload"):
        copy(big, f"obs://{bucket}/k", store=through)
    acting.join()
    copy(big, f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == BIG and notes() == []


@pytest.mark.parametrize("way", ["up", "down"])
def test_an_interrupt_ends_it_soon_and_it_goes_on(direct, through, proxy, bucket, tmp_path, way):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(90)} | {"big": LARGE})
    ends = (source, f"obs://{bucket}/x")
    if way == "down":
        copy(*ends)
        ends = (ends[1], tmp_path / "back")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(*ends, jobs=2, progress=interrupt, store=through)
    assert len(proxy.requests("PUT" if way == "up" else "GET")) < 30
    copy(*ends, store=through)
    assert verify(*ends) == [] and open_uploads(direct, bucket, "x/big") == [] and notes() == []


@pytest.fixture
def interruptible():
    """A process of pytest-xdist ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
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
