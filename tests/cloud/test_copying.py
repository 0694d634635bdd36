"""Copying against a true object server: every direction, names, faults, and processes that are killed."""

import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from proxy import ERROR, HTML, busy
from swift import environment
from trees import content_of, contents, make, put

from labkit.cloud import store as store_module
from labkit.cloud import transfers
from labkit.cloud.copying import CopyError, copy, copy_parallel, exists, ls, rm, stat, verify
from labkit.cloud.once import _lock_file, copy_once_per_node
from labkit.cloud.place import CloudError
from labkit.cloud.store import Store
from labkit.runtime import die_with_parent

PART = 5 << 20  # the least that the server takes
BIG = random.Random(0).randbytes(2 * PART + 12345)  # three parts
LARGE = random.Random(1).randbytes(7 * PART + 12345)  # eight parts


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(transfers, "PART", PART)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(store_module, "LONGEST_WAIT", 0.05)


@pytest.fixture(autouse=True)
def direct(swift, monkeypatch):
    """The server without faults; what copy() connects to where it is given no store."""
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def through(proxy):
    """The server behind the proxy, with a second for an answer."""
    store = Store.connect(environment(proxy.url), deadline=20)
    store.client.timeout = 1
    return store


@pytest.fixture
def big(tmp_path):
    """A file of three parts."""
    path = tmp_path / "big.bin"
    path.write_bytes(BIG)
    return path


TREE = {"a.txt": b"a", "empty": b"", "deep/er/b.bin": bytes(range(256)),
        "ä ö/日本 🙂 &<>'\".txt": b"unicode", "big": BIG}  # fmt: skip


# -- Directions and kinds -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["obs", "s3"])
def test_a_folder_up_and_down(direct, bucket, tmp_path, scheme):
    source, url = make(tmp_path / "source", TREE), f"{scheme}://{bucket}/some/where"
    report = copy(source, url)
    total = sum(map(len, TREE.values()))
    assert (report.copied, report.skipped, report.failed, report.bytes) == (5, 0, (), total)
    assert {item.name: item.size for item in ls(url)} == {name: len(content) for name, content in TREE.items()}
    assert verify(source, url) == verify(url, source) == []
    assert copy(url, tmp_path / "back") == report
    assert contents(tmp_path / "back") == TREE
    for again in (copy(source, url), copy(url, tmp_path / "back")):
        assert (again.copied, again.skipped, again.bytes) == (0, 5, 0)
    assert direct.head(bucket, "some/where/big").sha256 == hashlib.sha256(BIG).hexdigest()


def test_a_single_file(direct, bucket, tmp_path, big):
    copy(big, f"obs://{bucket}/new")
    copy(big, f"obs://{bucket}/in/")
    copy(big, f"obs://{bucket}")
    assert [entry.key for entry in direct.list(bucket)] == ["big.bin", "in/big.bin", "new"]
    (tmp_path / "there").mkdir()
    for target, path in [("a/b", "a/b"), ("there", "there/new"), ("not-there/", "not-there/new")]:
        copy(f"obs://{bucket}/new", f"{tmp_path}/{target}")
        assert (tmp_path / path).read_bytes() == BIG
    with pytest.raises(CopyError, match="folder of this name"):
        (tmp_path / "there" / "big.bin").mkdir()
        copy(f"obs://{bucket}/big.bin", tmp_path / "there")


def test_an_object_and_a_folder_of_one_name(direct, bucket, tmp_path):
    put(direct, bucket, "a", b"object")
    put(direct, bucket, "a/b", b"below")
    copy(f"obs://{bucket}/a", tmp_path / "one")
    copy(f"obs://{bucket}/a/", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == b"object"
    assert contents(tmp_path / "two") == {"b": b"below"}
    with pytest.raises(CloudError, match="a file and a folder"):
        copy(f"obs://{bucket}", tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_local_to_local(tmp_path):
    source = make(tmp_path / "source", TREE)
    assert copy(source, f"file://{tmp_path}/target").copied == 5
    assert contents(tmp_path / "target") == TREE
    assert copy(source, tmp_path / "target").skipped == 5
    assert copy(source / "a.txt", tmp_path / "new.txt").copied == 1
    (tmp_path / "link").symlink_to(source)
    for same in (source, tmp_path / "link", f"{source}/../source/"):
        report = copy(source, same)
        assert (report.copied, report.skipped) == (0, 5)
    assert copy(source / "a.txt", source / "a.txt").copied == 0
    with pytest.raises(CloudError, match="inside the other"):
        copy(source, source / "deep")
    assert contents(source) == TREE


def test_what_a_killed_local_copy_left_is_used_up(tmp_path):
    source, target = make(tmp_path / "source", {"a": b"1"}), tmp_path / "target"
    script = "import os, sys; from labkit.cloud import copying as c; c.os.replace = lambda *_: os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", f"{script}; c.copy(*sys.argv[1:])", source, target])
    assert len(list(target.iterdir())) == 1 and not (target / "a").exists()
    copy(source, target)
    assert contents(target) == {"a": b"1"}


def test_two_buckets(tmp_path):
    with pytest.raises(CloudError, match="must be on this machine"):
        copy("obs://one", "obs://two")


def test_copy_parallel(bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "[c]": b"3"})
    copy_parallel(str(source), f"obs://{bucket}/x", ["a", "[c]"])
    copy_parallel(f"s3://{bucket}/x/", str(tmp_path / "back"))
    assert contents(tmp_path / "back") == {"a": b"1", "[c]": b"3"}
    with pytest.raises(CloudError, match="no d"):
        copy_parallel(str(source), f"obs://{bucket}/x", ["a", "d"])


def test_a_file_system_without_locks(direct, bucket, tmp_path, big, monkeypatch):
    def flock(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    copy(big, f"obs://{bucket}/k")
    copy(f"obs://{bucket}/k", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == BIG and notes() == []


# -- What is chosen, what is left -----------------------------------------------------------------------


def test_incremental(direct, through, proxy, bucket, tmp_path):
    source = make(tmp_path / "source", TREE)
    copy(source, f"obs://{bucket}/x")
    (source / "a.txt").write_bytes(b"b")  # of the same size
    changed = BIG[:-1] + bytes([BIG[-1] ^ 1])
    (source / "big").write_bytes(changed)
    report = copy(source, f"obs://{bucket}/x", store=through)
    assert (report.copied, report.skipped, report.bytes) == (2, 3, 1 + len(BIG))
    assert content_of(direct, bucket, "x/a.txt") == b"b" and content_of(direct, bucket, "x/big") == changed
    report = copy(f"obs://{bucket}/x", make(tmp_path / "back", TREE), store=through)
    assert (report.copied, report.skipped) == (2, 3)
    assert contents(tmp_path / "back") == contents(source)
    proxy.clear()
    assert copy(source, f"obs://{bucket}/x", incremental=False, store=through).copied == 5
    assert copy(f"obs://{bucket}/x", tmp_path / "back", incremental=False).copied == 5
    assert sum(one.up for one in proxy.requests("PUT")) == sum(map(len, TREE.values()))


def test_include_and_exclude(bucket, tmp_path):
    source = make(tmp_path / "source", {"a.bin": b"1", "b.txt": b"2", "deep/c.bin": b"3", "deep/d.txt": b"4"})
    copy(source, f"obs://{bucket}", include=["*.bin", "b*"], exclude=["deep/*"])
    assert [item.name for item in ls(f"obs://{bucket}")] == ["a.bin", "b.txt"]
    copy(f"obs://{bucket}", tmp_path / "back", exclude=["b*"])
    assert contents(tmp_path / "back") == {"a.bin": b"1"}
    with pytest.raises(CloudError, match="nothing to copy"):
        copy(source, f"obs://{bucket}", include=["*.png"])


def test_dry_run(direct, bucket, tmp_path):
    source = make(tmp_path / "source", TREE)
    put(direct, bucket, "x/a.txt", b"a")
    report = copy(source, f"obs://{bucket}/x", dry_run=True)
    assert (report.copied, report.skipped, report.bytes) == (4, 1, sum(map(len, TREE.values())) - 1)
    assert [item.name for item in ls(f"obs://{bucket}/x")] == ["a.txt"]
    copy(f"obs://{bucket}/x", tmp_path / "back", dry_run=True)
    assert not (tmp_path / "back").exists()


def test_progress(bucket, tmp_path, big):
    for ends in ((big, f"obs://{bucket}/k"), (f"obs://{bucket}/k", tmp_path / "back")):
        for again in (False, True):
            told = []
            copy(*ends, progress=lambda done, total, told=told: told.append((done, total)))
            assert told == sorted(told) and told[-1] == (len(BIG), len(BIG)) and (again or len(told) >= 3)


def test_nothing_to_copy(bucket, tmp_path):
    (tmp_path / "empty").mkdir()
    for source, target in [(tmp_path / "empty", f"obs://{bucket}"), (f"obs://{bucket}/none", tmp_path / "x"),
                           (f"obs://{bucket}", tmp_path / "x"), (tmp_path / "none", f"obs://{bucket}")]:  # fmt: skip
        with pytest.raises(CloudError, match="nothing to copy|no such file"):
            copy(source, target)
    with pytest.raises(CloudError) as caught:
        copy("obs://no-such-bucket-here/k", tmp_path / "x")
    assert caught.value.status == 404 and not (tmp_path / "x").exists()


def test_looking_and_removing(direct, bucket, tmp_path):
    for key in ("a", "dir/b", "dir/c", "dirt"):
        put(direct, bucket, key)
    url = f"obs://{bucket}"
    assert exists(f"{url}/a") and exists(f"{url}/dir") and exists(f"{url}/dir/") and exists(url)
    assert not exists(f"{url}/b") and not exists(f"{url}/di")
    assert stat(f"{url}/a").size == 4
    for wrong in (f"{url}/dir", tmp_path):
        with pytest.raises(CloudError, match="no such file"):
            stat(wrong)
    with pytest.raises(CloudError, match="recursively"):
        rm(f"{url}/dir")
    for wrong in (url, f"{url}/", tmp_path):
        with pytest.raises(CloudError):
            rm(wrong, recursive=True)
    assert rm(f"{url}/dir", recursive=True, dry_run=True) == ["dir/b", "dir/c"] and exists(f"{url}/dir/c")
    assert rm(f"{url}/dir", recursive=True) == ["dir/b", "dir/c"]
    assert rm(f"{url}/a") == ["a"]
    assert [item.name for item in ls(url)] == ["dirt"]


def test_verify(direct, bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "c": b"3", "big": BIG})
    copy(source, f"obs://{bucket}/x")
    make(source, {"a": b"0", "b": b"22", "d": b"4", "big": BIG[::-1]})
    told = ["a: another content", "b: 1 bytes instead of 2", "big: another content", "d: missing"]
    assert verify(source, f"obs://{bucket}/x") == told
    assert verify(f"obs://{bucket}/x", source) == told[:1] + ["b: 2 bytes instead of 1"] + told[2:3]


MEMORY = """
import sys
from pathlib import Path
from labkit.cloud.copying import copy
copy(*sys.argv[1:])
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
def test_memory_of_a_big_copy(proxy, bucket, tmp_path):
    """Up and down with the parts and threads that a user has: 256 MiB in under 150 MB."""
    block = random.Random(3).randbytes(1 << 20)
    with open(tmp_path / "huge", "wb") as file:
        for _ in range(256):
            file.write(block)
    for ends in ((tmp_path / "huge", f"obs://{bucket}/k"), (f"obs://{bucket}/k", tmp_path / "back")):
        told, complaint = start(MEMORY, proxy, *ends).communicate()
        assert not complaint and int(told) * 1024 < 150e6
    assert transfers.digest(tmp_path / "back", "md5") == transfers.digest(tmp_path / "huge", "md5")


# -- Names and links ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/abs", "a//b", "a\\b", "C:/x", "..", "./x", "nul", "x./y",
                                 "a\nb"])
def test_hostile_keys_are_refused(direct, bucket, tmp_path, key):
    put(direct, bucket, "in/good")
    put(direct, bucket, f"in/{key}")
    with pytest.raises(CloudError, match="not copied as a file"):
        copy(f"obs://{bucket}/in", tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


def test_collisions_are_refused(direct, bucket, tmp_path):
    for keys in (("a/B", "a/b"), ("a", "a/b")):
        for key in keys:
            put(direct, bucket, f"{len(keys[0])}/{key}")
        with pytest.raises(CloudError, match="one file where case|a file and a folder"):
            copy(f"obs://{bucket}/{len(keys[0])}", tmp_path / "target")
    assert list(tmp_path.iterdir()) == []
    make(tmp_path / "up", {"A": b"1", "a": b"2"})
    with pytest.raises(CloudError, match="one file where case"):
        copy(tmp_path / "up", f"obs://{bucket}/up")


def test_folder_markers(direct, bucket, tmp_path):
    for key in ("x/", "x/deep/", "only/"):
        put(direct, bucket, key, b"")
    put(direct, bucket, "x/deep/a")
    assert copy(f"obs://{bucket}/x", tmp_path / "target").copied == 1
    assert contents(tmp_path / "target") == {"deep/a": b"text"}
    with pytest.raises(CloudError, match="nothing to copy"):
        copy(f"obs://{bucket}/only", tmp_path / "none")
    put(direct, bucket, "x/odd/", b"has content")
    with pytest.raises(CloudError, match="not copied as a file"):
        copy(f"obs://{bucket}/x", tmp_path / "target")


def test_links_that_lead_out(direct, bucket, tmp_path):
    outside = make(tmp_path / "outside", {"secret": b"s"})
    source = make(tmp_path / "source", {"a": b"1"})
    (source / "inner").symlink_to("a")
    assert copy(source, f"obs://{bucket}/x").copied == 2
    for to in (outside / "secret", outside, "../outside/secret", "nowhere", "."):
        (source / "link").symlink_to(to)
        with pytest.raises(CloudError, match="a link"):
            copy(source, f"obs://{bucket}/y")
        assert copy(source, f"obs://{bucket}/z", exclude=["link"])
        (source / "link").unlink()
    assert list(direct.list(bucket, "y")) == []
    target = tmp_path / "target"
    target.mkdir()
    put(direct, bucket, "down/sub/secret", b"overwritten")
    put(direct, bucket, "down/file", b"fresh")
    (target / "sub").symlink_to(outside)
    (target / "file").symlink_to(outside / "secret")
    with pytest.raises(CopyError, match="leads out") as caught:
        copy(f"obs://{bucket}/down", target)
    assert [name for name, _ in caught.value.report.failed] == ["sub/secret"]
    assert contents(outside) == {"secret": b"s"} and (target / "file").read_bytes() == b"fresh"


def test_what_is_no_file(bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1"})
    os.mkfifo(source / "pipe")
    with pytest.raises(CloudError, match="neither a file nor a folder"):
        copy(source, f"obs://{bucket}")
    (source / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_bytes(b"")
    with pytest.raises(CloudError, match="UTF-8"):
        copy(source, f"obs://{bucket}")


# -- Faults ---------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("fault", UP)
def test_faults_on_the_way_up(direct, through, proxy, bucket, big, fault):
    planted = [proxy.plant(**one) for one in UP[fault]]
    copy(big, f"obs://{bucket}/k", store=through, progress=print)
    assert content_of(direct, bucket, "k") == BIG
    assert planted[0].times == 0 and direct.open_uploads(bucket, "k") == []
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


@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("size", [1 << 20 | 1 << 17, len(BIG)])
def test_faults_on_the_way_down(direct, through, proxy, bucket, tmp_path, fault, size):
    (tmp_path / "k").write_bytes(BIG[:size])
    copy(tmp_path / "k", f"obs://{bucket}/x/")
    planted = [proxy.plant(**one) for one in DOWN[fault]]
    told = []
    copy(f"obs://{bucket}/x/", tmp_path / "back", store=through, progress=lambda *now: told.append(now))
    assert contents(tmp_path / "back") == {"k": BIG[:size]}
    assert planted[0].times == 0 and told[-1] == (size, size)


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


def notes():
    """Files that uploads have left."""
    return [path for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if path.is_file()]


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
    assert direct.head(bucket, "k") is None and direct.open_uploads(bucket, "k") == [] and notes() == []


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
    assert direct.open_uploads(bucket, "k") == [theirs]
    assert stat(f"obs://{bucket}/k").sha256 == hashlib.sha256(BIG).hexdigest()


def test_an_upload_that_someone_gives_up(direct, through, proxy, bucket, big):
    proxy.plant(method="POST", path="uploadId", stall=0.5)

    def act():
        for upload in direct.open_uploads(bucket, "k"):
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
    assert verify(*ends) == [] and direct.open_uploads(bucket, "x/big") == [] and notes() == []


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


# -- Processes that are killed --------------------------------------------------------------------------

CHILD = f"""
import sys
from labkit.cloud import store, transfers
from labkit.cloud.copying import copy
transfers.PART, store.LONGEST_WAIT = {PART}, 0.05
copy(*sys.argv[1:], jobs=2)
"""


def start(script, proxy, *arguments, **more):
    """A process that runs this, with the server behind the proxy."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], env=os.environ | environment(proxy.url),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent, **more,
    )  # fmt: skip


def kill_when(condition, child):
    """SIGKILL once the condition holds, if the process has not ended before."""
    while not condition() and child.poll() is None:
        time.sleep(0.001)
    child.kill()
    child.communicate()


def points(count=20):
    """Bytes on their way at which to kill: some at the ends, the others anywhere."""
    return [0, 1, len(LARGE) - 1, len(LARGE)] + random.Random(2).sample(range(len(LARGE)), count - 4)


@pytest.mark.slow
def test_uploads_that_are_killed_go_on(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    saved = 0
    for number, point in enumerate(points()):
        key, url = f"k{number}", f"obs://{bucket}/k{number}"
        proxy.clear()
        child = start(CHILD, proxy, tmp_path / "large", url)
        kill_when(lambda at=point: proxy.requests() and sum(one.up for one in proxy.requests("PUT")) >= at, child)
        time.sleep(0.1)
        finished = {one.path for one in proxy.requests("PUT", "partNumber") if one.status == 200}
        proxy.clear()
        copy(tmp_path / "large", url, store=through)
        sent = [one.path for one in proxy.requests("PUT", "partNumber")]
        assert not finished & set(sent), f"sent again after a kill at {point}"
        assert content_of(direct, bucket, key) == LARGE, point
        assert stat(url).sha256 == hashlib.sha256(LARGE).hexdigest()
        assert direct.open_uploads(bucket, key) == [], point
        saved += len(finished)
    assert saved > 40 and len(contents(tmp_path)) == 1


@pytest.mark.slow
def test_downloads_that_are_killed_go_on(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    saved = 0
    for number, point in enumerate(points()):
        target = tmp_path / f"target{number}"
        target.mkdir()
        proxy.clear()
        child = start(CHILD, proxy, f"obs://{bucket}/k", target)
        kill_when(lambda at=point: proxy.requests() and sum(one.down for one in proxy.requests("GET")) >= at, child)
        assert contents(target).get("k", LARGE) == LARGE
        whole = sum(one.down >= PART for one in proxy.requests("GET", "/k"))
        proxy.clear()
        copy(f"obs://{bucket}/k", target, store=through)
        assert contents(target) == {"k": LARGE}, point
        again = sum(one.down for one in proxy.requests("GET", "/k"))
        assert again <= len(LARGE) - (whole - 2) * PART, f"got again after a kill at {point}"  # 2: on their way
        saved += len(LARGE) - again
    assert saved > 40 * PART


def test_an_upload_that_is_killed_and_then_another_file(direct, through, proxy, bucket, tmp_path):
    """What was sent of the old content is given up; the new one's SHA-256 is its own, though it begins alike."""
    (tmp_path / "large").write_bytes(LARGE)
    child = start(CHILD, proxy, tmp_path / "large", f"obs://{bucket}/k")
    kill_when(lambda: sum(one.status == 200 for one in proxy.requests("PUT", "partNumber")) >= 3, child)
    assert len(direct.open_uploads(bucket, "k")) == 1
    (tmp_path / "large").write_bytes(LARGE[:-1] + b"x")
    copy(tmp_path / "large", f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == LARGE[:-1] + b"x"
    assert direct.open_uploads(bucket, "k") == [] and notes() == []
    copy(f"obs://{bucket}/k", tmp_path / "back")


def test_a_download_that_is_killed_and_then_another_object(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    child = start(CHILD, proxy, f"obs://{bucket}/k", f"{tmp_path}/back/")
    kill_when(lambda: sum(one.down for one in proxy.requests("GET")) > 3 * PART, child)
    assert [name.startswith(".labkit-") for name in contents(tmp_path / "back")] == [True]
    put(direct, bucket, "k", b"new")
    copy(f"obs://{bucket}/k", tmp_path / "back/")
    assert contents(tmp_path / "back") == {"k": b"new"}


def test_what_was_kept_of_a_download_was_damaged(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    child = start(CHILD, proxy, f"obs://{bucket}/k", f"{tmp_path}/back/")
    kill_when(lambda: sum(one.down for one in proxy.requests("GET")) > 4 * PART, child)
    (hidden,) = (tmp_path / "back").iterdir()
    with open(hidden, "r+b") as file:
        file.write(b"damaged")
    copy(f"obs://{bucket}/k", tmp_path / "back/")
    assert contents(tmp_path / "back") == {"k": LARGE}


# -- Once per machine -----------------------------------------------------------------------------------

ONE_OF_EIGHT = f"""
import os, sys
from pathlib import Path
from labkit.cloud import store, transfers
from labkit.cloud.once import copy_once_per_node
transfers.PART, store.LONGEST_WAIT = {PART}, 0.05
src, dst, marks = sys.argv[1:]
copying = lambda done, total: Path(marks, str(os.getpid())).touch()
print("ready", flush=True)
try:
    print(copy_once_per_node(src, dst, jobs=1, progress=copying))
except Exception as error:
    print(type(error).__name__, error.status)
"""


@pytest.fixture
def eight(proxy, tmp_path, monkeypatch):
    """Starts eight processes that want the same copy, and lets them go when all wait."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "marks").mkdir()
    children = []

    def begin(source, target):
        with open(_lock_file(source, target), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            children.extend(start(ONE_OF_EIGHT, proxy, source, target, tmp_path / "marks") for _ in range(8))
            for child in children:
                assert child.stdout.readline() == "ready\n"
            time.sleep(0.5)
        return children

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def copiers(tmp_path):
    return [int(path.name) for path in (tmp_path / "marks").iterdir()]


def test_one_of_eight_copies(proxy, bucket, tmp_path, eight):
    source = make(tmp_path / "source", TREE)
    copy(source, f"obs://{bucket}/x")
    children = eight(f"obs://{bucket}/x", tmp_path / "target")
    told = {child.communicate()[0] for child in children}
    assert told == {f"Report(copied=5, skipped=0, failed=(), bytes={sum(map(len, TREE.values()))})\n"}
    assert contents(tmp_path / "target") == TREE and len(copiers(tmp_path)) == 1


def test_the_one_of_eight_is_killed(proxy, bucket, tmp_path, eight):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    proxy.plant(method="GET", times=10**6, stall=0.1)
    children = eight(f"obs://{bucket}/k", f"{tmp_path}/target/")
    while not copiers(tmp_path):
        time.sleep(0.01)
    (first,) = copiers(tmp_path)
    os.kill(first, signal.SIGKILL)
    told = [child.communicate()[0] for child in children if child.pid != first]
    assert len(told) == 7 and all(one.startswith("Report(copied=1, skipped=0") for one in told)
    assert contents(tmp_path / "target") == {"k": LARGE} and len(copiers(tmp_path)) == 2


def test_a_failure_reaches_all_eight(proxy, bucket, tmp_path, eight):
    make(tmp_path / "source", {"a": b"1"})
    proxy.plant(times=10**6, answer=(403, ERROR % b"AccessDenied", {}))
    children = eight(tmp_path / "source", f"obs://{bucket}/x")
    assert [child.communicate()[0] for child in children] == ["CloudError 403\n"] * 8
    assert len(proxy.requests()) == 1


def test_a_stale_outcome_does_not_matter(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source, target = make(tmp_path / "source", {"a": b"1"}), tmp_path / "target"
    _lock_file(source, target).write_text("half of an outco")
    assert copy_once_per_node(source, target).copied == 1
    (target / "a").unlink()
    assert copy_once_per_node(source, target, key="job-1").copied == 1
    assert copy_once_per_node(source, target, key="job-1").copied == 1  # told, not done
    assert copy_once_per_node(source, target, key="job-2").skipped == 1
    (source / "a").unlink()
    for _ in range(2):
        with pytest.raises(CloudError, match="nothing to copy"):
            copy_once_per_node(source, target, key="job-3")
    make(source, {"a": b"1"})
    assert copy_once_per_node(source, target, key="job-3").skipped == 1
    with open(_lock_file(source, target)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CloudError, match="in 0.1 s"):
            copy_once_per_node(source, target, timeout=0.1)
