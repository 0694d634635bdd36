"""Copies that are processes: how much memory they take, killed ones, and one for all of a machine."""

import hashlib
import os
import random
import signal
import tempfile
import time

import pytest
from copies import LARGE, PART, TREE, content_of, contents, make, notes, open_uploads, put, start, start_copy
from proxy import ERROR, FaultProxy
from swift import environment
from waiting import wait_until

from labkit.modelarts.node_lock import copy_once_per_node, lock_file
from labkit.obs import transfers
from labkit.obs.checksums import digest
from labkit.obs.copying import copy, stat
from labkit.obs.local_files import held
from labkit.obs.place import CloudError
from labkit.obs.store import Store

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def through(proxy):
    """The server behind the proxy; what goes on after a kill is in no hurry."""
    return Store.connect(environment(proxy.url))


MEMORY = """
import sys
from pathlib import Path
from labkit.obs import transfers
from labkit.obs.copying import copy
assert transfers.PART >= 5 << 20  # S3 takes no smaller ones
copy(*sys.argv[2:], jobs=int(sys.argv[1]))
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.parametrize("jobs", [8, 64])
def test_memory_of_a_big_copy(proxy, bucket, tmp_path, jobs):
    """Up and down with the parts that a user has: 256 MiB in under 150 MB, however many requests at a time."""
    block = random.Random(3).randbytes(1 << 20)
    with open(tmp_path / "huge", "wb") as file:
        for _ in range(256):
            file.write(block)
    for ends in ((tmp_path / "huge", f"obs://{bucket}/k"), (f"obs://{bucket}/k", tmp_path / "back")):
        told, complaint = start(MEMORY, proxy, jobs, *ends).communicate()
        assert not complaint and int(told) * 1024 < 150e6
    assert digest(tmp_path / "back", "md5") == digest(tmp_path / "huge", "md5")


# -- Processes that are killed --------------------------------------------------------------------------


def kill_when(condition, child):
    """SIGKILL once the condition holds, if the process has not ended before."""
    while not condition() and child.is_alive():
        time.sleep(0.001)
    child.kill()
    child.join()


def points(size, count=20):
    """Bytes on their way at which to kill: some at the ends, the others anywhere."""
    return [0, 1, size - 1, size] + random.Random(2).sample(range(size), count - 4)


def test_uploads_that_are_killed_go_on(swift, direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    saved = 0
    for number, point in enumerate(points(len(LARGE))):
        key, url = f"k{number}", f"obs://{bucket}/k{number}"
        proxy.clear()
        if not point:
            proxy.plant(method="HEAD", stall=60)  # killed before it begins an upload that nobody would know of
        child = start_copy(environment(proxy.url), PART, tmp_path / "large", url)
        kill_when(lambda at=point: proxy.requests() and sum(one.up for one in proxy.requests("PUT")) >= at, child)
        time.sleep(0.1)
        finished = {one.path for one in proxy.requests("PUT", "partNumber") if one.status == 200}
        proxy.clear()
        copy(tmp_path / "large", url, store=through)
        sent = [one.path for one in proxy.requests("PUT", "partNumber")]
        assert not finished & set(sent), f"sent again after a kill at {point}"
        assert content_of(direct, bucket, key) == LARGE, point
        assert stat(url).sha256 == hashlib.sha256(LARGE).hexdigest()
        assert open_uploads(direct, bucket, key) == [], point
        saved += len(finished)
    assert saved > 40 and len(contents(tmp_path)) == 1
    assert len(swift.parts(bucket)) == 8 * 20  # of the objects, and no others


def test_downloads_that_are_killed_go_on(moto, tmp_path, monkeypatch):
    """On moto, with small parts."""
    part, bucket = 64 << 10, moto.new_bucket()
    content = LARGE[: 7 * part + 12345]
    monkeypatch.setattr(transfers, "PART", part)
    with FaultProxy(moto.port) as proxy:
        known = moto.environment | {"OBS_ENDPOINT": proxy.url}
        through = Store.connect(known)
        put(through, bucket, "k", content)
        saved = 0
        for number, point in enumerate(points(len(content))):
            target = tmp_path / f"target{number}"
            target.mkdir()
            proxy.clear()
            child = start_copy(known, part, f"obs://{bucket}/k", target)
            kill_when(lambda at=point: proxy.requests() and sum(one.down for one in proxy.requests("GET")) >= at, child)
            assert contents(target).get("k", content) == content
            whole = sum(one.down >= part for one in proxy.requests("GET", "/k"))
            proxy.clear()
            copy(f"obs://{bucket}/k", target, store=through)
            assert contents(target) == {"k": content}, point
            again = sum(one.down for one in proxy.requests("GET", "/k"))
            most = len(content) - (whole - 2) * part  # 2: on their way
            assert again <= most, f"got again after a kill at {point}"
            saved += len(content) - again
    assert saved > 20 * part


def test_an_upload_that_is_killed_and_then_another_file(direct, through, proxy, bucket, tmp_path):
    """What was sent of the old content is given up; the new one's SHA-256 is its own, though it begins alike."""
    (tmp_path / "large").write_bytes(LARGE)
    child = start_copy(environment(proxy.url), PART, tmp_path / "large", f"obs://{bucket}/k")
    kill_when(lambda: sum(one.status == 200 for one in proxy.requests("PUT", "partNumber")) >= 3, child)
    assert len(open_uploads(direct, bucket, "k")) == 1
    (tmp_path / "large").write_bytes(LARGE[:-1] + b"x")
    copy(tmp_path / "large", f"obs://{bucket}/k", store=through)
    assert content_of(direct, bucket, "k") == LARGE[:-1] + b"x"
    assert open_uploads(direct, bucket, "k") == [] and notes() == []
    copy(f"obs://{bucket}/k", tmp_path / "back")


def test_a_download_that_is_killed_and_then_another_object(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    child = start_copy(environment(proxy.url), PART, f"obs://{bucket}/k", f"{tmp_path}/back/")
    kill_when(lambda: sum(one.down for one in proxy.requests("GET")) > 3 * PART, child)
    assert [name.startswith(".labkit-") for name in contents(tmp_path / "back")] == [True]
    put(direct, bucket, "k", b"new")
    copy(f"obs://{bucket}/k", tmp_path / "back/")
    assert contents(tmp_path / "back") == {"k": b"new"}


def test_what_was_kept_of_a_download_was_damaged(direct, through, proxy, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    copy(tmp_path / "large", f"obs://{bucket}/k")
    child = start_copy(environment(proxy.url), PART, f"obs://{bucket}/k", f"{tmp_path}/back/")
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
from labkit.obs import local_files, retrying, transfers
from labkit.modelarts.node_lock import copy_once_per_node
transfers.PART, retrying.LONGEST_WAIT = {PART}, 0.05
src, dst, marks = sys.argv[1:]
def lock(handle, lock=local_files.lock):
    Path(marks, f"waits-{{os.getpid()}}").touch()
    return lock(handle)
local_files.lock = lock
copying = lambda done, total: Path(marks, str(os.getpid())).touch()
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
        with held(lock_file(source, target)):
            children.extend(start(ONE_OF_EIGHT, proxy, source, target, tmp_path / "marks") for _ in range(8))
            while len(list((tmp_path / "marks").glob("waits-*"))) < 8:
                assert all(child.poll() is None for child in children)
                time.sleep(0.05)
        return children

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def copiers(tmp_path):
    return [int(path.name) for path in (tmp_path / "marks").glob("[0-9]*")]


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
    wait_until(lambda: copiers(tmp_path))
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
    lock_file(source, target).write_text("half of an outco")
    for _ in range(2):
        assert copy_once_per_node(source, target).copied == 1
        (target / "a").unlink()  # so it is done again, not told from the first time
    (source / "a").unlink()
    for _ in range(2):
        with pytest.raises(CloudError, match="nothing to copy"):
            copy_once_per_node(source, target)
    make(source, {"a": b"1"})
    assert copy_once_per_node(source, target).copied == 1
    with held(lock_file(source, target)), pytest.raises(CloudError, match="after 0.1 s"):
        copy_once_per_node(source, target, timeout=0.1)
