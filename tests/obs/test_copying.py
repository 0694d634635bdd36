"""Copying: every direction, what is chosen, what is there already, and damage and change on the way."""

import hashlib
import os
import threading
import time

import pytest
from copies import BIG, PART, TREE, make, objects, put, records
from faulty import after, answer, damaged_down, damaged_unseen, error, lost, reset
from running import contents
from waiting import wait_until

from labkit.obs import CloudError, CopyError, copy, exists, rm, verify

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture
def big(tmp_path):
    """A file of three parts."""
    return make(tmp_path, {"big.bin": BIG}) / "big.bin"


def test_a_single_file(server, tmp_path, big):
    for target in ("obs://course/new", "obs://course/in/", "obs://course"):
        copy(big, target)
    assert objects(server) == {"new": BIG, "in/big.bin": BIG, "big.bin": BIG}
    (tmp_path / "there").mkdir()
    for target, path in [("a/b", "a/b"), ("there", "there/new"), ("not-there/", "not-there/new")]:
        copy("obs://course/new", f"{tmp_path}/{target}")
        assert (tmp_path / path).read_bytes() == BIG


def test_local_to_local(tmp_path):
    source = make(tmp_path / "source", TREE)
    assert copy(source, f"file://{tmp_path}/target").copied == 5 and contents(tmp_path / "target") == TREE
    assert copy(source, tmp_path / "target").skipped == 5
    (tmp_path / "link").symlink_to(source)
    for same in (source, tmp_path / "link", f"{source}/../source/"):
        assert copy(source, same).skipped == 5
    with pytest.raises(CloudError, match="inside the other"):
        copy(source, source / "deep")
    assert contents(source) == TREE


def test_what_is_there_already(server, tmp_path):
    source = make(tmp_path / "source", TREE)
    copy(source, "obs://course/x")
    make(source, {"a.txt": b"b", "big": BIG[:-1] + bytes([BIG[-1] ^ 1])})  # of the same size
    dry = copy(source, "obs://course/x", dry_run=True)
    assert (dry.copied, dry.skipped, dry.bytes) == (2, 3, 1 + len(BIG)) and objects(server)["x/a.txt"] == b"a"
    assert copy(source, "obs://course/x") == dry
    assert copy("obs://course/x", make(tmp_path / "back", TREE)) == dry
    assert contents(tmp_path / "back") == contents(source)
    assert copy(source, "obs://course/x", incremental=False).copied == 5


def test_progress(tmp_path, big):
    for ends in ((big, "obs://course/k"), ("obs://course/k", tmp_path / "back")):
        for again in (False, True):
            lines = []
            copy(*ends, progress=lambda done, total, lines=lines: lines.append((done, total)))
            assert lines == sorted(lines) and lines[-1] == (len(BIG), len(BIG)) and (again or len(lines) >= 3)


def test_exists(store):
    for key in ("a", "dir/b"):
        put(store, key)
    url = "obs://course"
    assert exists(f"{url}/a") and exists(f"{url}/dir") and exists(f"{url}/dir/") and exists(url)
    assert not exists(f"{url}/b") and not exists(f"{url}/di")


def test_what_has_no_checksum(server, store, tmp_path):
    """What another tool sent in parts is neither equal nor different; also with another object's metadata."""
    upload = store.create_multipart_upload("course", "k", {"upload": "2-0123456789abcdef"})
    etag = store.upload_part("course", "k", upload, 1, b"text", hashlib.md5(b"text"))
    store.complete_multipart_upload("course", "k", upload, [etag])
    unknown = []
    assert copy("obs://course/k", tmp_path / "k").copied == copy("obs://course/k", tmp_path / "k").copied == 1
    assert verify(tmp_path / "k", "obs://course/k", unknown=unknown) == [] and len(unknown) == 1
    assert verify(tmp_path / "k", "obs://course/k") == unknown == ["k: no checksum to compare"]


# -- Damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_damage_on_the_way_down(server, tmp_path, size):
    """Once: the file is fetched again. Twice: nothing gets the file's name, and nothing half stays."""
    make(tmp_path, {"k": BIG[:size]})
    copy(tmp_path / "k", "obs://course/")
    server.plant("GET k", damaged_down)
    copy("obs://course/k", f"{tmp_path}/back/")
    assert contents(tmp_path / "back") == {"k": BIG[:size]}
    server.plant("GET k", damaged_down, times=10**6)
    with pytest.raises(CopyError, match="downloaded twice, both times with a wrong checksum"):
        copy("obs://course/k", f"{tmp_path}/other/")
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("size, line", [(1000, "PUT k"), (len(BIG), "PUT part 1"), (len(BIG), "PUT part 3")])
def test_a_server_that_takes_what_was_damaged(server, tmp_path, size, line):
    """The object has the file's SHA-256, so the next copy would pass over it: it goes."""
    make(tmp_path, {"k": BIG[:size]})
    server.plant(line, damaged_unseen, times=2)
    with pytest.raises(CopyError, match="k: damaged during the upload"):
        copy(tmp_path / "k", "obs://course/k")
    assert objects(server) == {} and server.uploads == {}
    server.clear()
    assert copy(tmp_path / "k", "obs://course/k").copied == 1 and objects(server) == {"k": BIG[:size]}


def test_an_upload_with_a_sha256_is_of_one_content_only(server, store, tmp_path):
    """It was opened because an ETag was wrong, and cut: another file must not get its sha256."""
    make(tmp_path, {"k": BIG})
    server.plant("PUT part 1", damaged_unseen)
    server.plant("POST completion", reset, times=10**6)
    with pytest.raises(CopyError, match="given up"):
        copy(tmp_path / "k", "obs://course/k", deadline=1)
    server.clear()
    make(tmp_path, {"k": BIG[::-1]})
    assert copy(tmp_path / "k", "obs://course/k").copied == 1 and verify(tmp_path / "k", "obs://course/k") == []
    assert objects(server) == {"k": BIG[::-1]} and records() == [] and server.uploads == {}


@pytest.mark.parametrize("text", ['{"a": 1}', "5", "[1, 2, 3]", "[" * 100_000, "[null, null]"])
def test_a_record_that_somebody_else_wrote_is_none(server, big, text):
    server.plant("PUT part 3", reset, times=10**6)
    with pytest.raises(CopyError):
        copy(big, "obs://course/k", deadline=1)
    server.clear()
    (record,) = records()
    record.write_text(text)
    assert copy(big, "obs://course/k").copied == 1 and objects(server) == {"k": BIG} and records() == []


def test_a_hidden_file_that_was_removed_gives_its_name_to_nothing(server, tmp_path, big):
    copy(big, "obs://course/k")

    def replace():
        (hidden,) = (tmp_path / "back").glob(".labkit-*.part")
        hidden.unlink()
        hidden.write_bytes(b"another process's")

    server.plant(f"GET k, bytes {2 * PART} to", after(replace))
    with pytest.raises(CopyError, match="removed or replaced meanwhile"):
        copy("obs://course/k", f"{tmp_path}/back/", jobs=1)
    assert not (tmp_path / "back/k").exists()


def test_an_object_named_as_an_unfinished_download_is_passed_over(store, tmp_path):
    for key in ("x/f", f"x/.labkit-{'0' * 16}.part"):
        put(store, key)
    copy("obs://course/x", tmp_path / "back")
    assert contents(tmp_path / "back") == {"f": b"text"}


# -- What changes meanwhile ------------------------------------------------------------------------


def test_a_source_that_changes(server, big):
    server.plant("PUT part 1", after(lambda: big.write_bytes(BIG[::-1])))
    with pytest.raises(CopyError, match="big.bin: changed while it was copied"):
        copy(big, "obs://course/k", jobs=1)
    assert objects(server) == {} and server.uploads == {} and records() == []


@pytest.mark.parametrize("change", ["overwritten", "removed"])
def test_an_object_that_changes_is_not_mixed(server, store, tmp_path, big, change):
    copy(big, "obs://course/k")
    make(tmp_path / "target", {"k": b"old"})
    act = (lambda: put(store, "k", BIG[::-1])) if change == "overwritten" else (lambda: rm("obs://course/k"))
    server.plant(f"GET k, bytes {PART} to", after(act))
    with pytest.raises(CopyError, match="changed or removed meanwhile"):
        copy("obs://course/k", tmp_path / "target", jobs=1)
    assert contents(tmp_path / "target") == {"k": b"old"}


def test_others_uploads_are_left_alone(server, store, big):
    """Neither used nor given up, even if they are of the same content."""
    theirs = store.create_multipart_upload("course", "k", {})
    store.upload_part("course", "k", theirs, 1, BIG[:PART], hashlib.md5(BIG[:PART]))
    server.clear()
    copy(big, "obs://course/k")
    assert list(server.uploads) == [theirs] and len(server.requests("PUT")) == 3 and not server.requests("DELETE")


def test_one_waits_for_the_other(server, big):
    hold, reports = threading.Event(), []
    server.plant("PUT part 3", after(hold.wait))
    threads = [threading.Thread(target=lambda: reports.append(copy(big, "obs://course/k"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.requests("PUT part 3") and len(server.requests("HEAD")) >= 2)  # both have found nothing
    time.sleep(0.2)
    assert reports == []
    hold.set()
    for thread in threads:
        thread.join()
    assert [report.copied for report in reports] == [1, 1] and objects(server) == {"k": BIG}
    assert server.uploads == {} and records() == []


# -- What fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way, line, fault", [("up", "PUT x/3", reset), ("down", "GET x/3", answer(503))])
def test_one_file_that_always_fails_does_not_stop_the_others(server, tmp_path, way, line, fault):
    source = make(tmp_path / "source", {f"{number}": b"12345" for number in range(9)})
    ends = (source, "obs://course/x")
    if way == "down":
        copy(*ends)
        ends = (ends[1], tmp_path / "back")
    server.plant(line, fault, times=10**6)
    with pytest.raises(CopyError, match="^3: obs://course/x/3: .*; 8 copied, 0 there already") as caught:
        copy(*ends, jobs=2, deadline=1)
    assert [name for name, _ in caught.value.report.failed] == ["3"]


def test_a_server_that_stays_busy_is_not_asked_for_every_file(server, tmp_path):
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(50)})
    server.plant("PUT", answer(503), times=10**6)
    begun = time.monotonic()
    with pytest.raises(CopyError, match="given up") as caught:
        copy(source, "obs://course", deadline=1)
    assert caught.value.status == 503 and len(caught.value.report.failed) == 50 and time.monotonic() - begun < 15


@pytest.mark.parametrize("line, fault", [
    ("PUT part 2", reset), ("POST new", lost), ("POST completion", error(200, "SlowDown")),
])  # fmt: skip
def test_the_old_object_stays_until_the_new_one_is_whole(server, store, big, line, fault):
    """And when the fault is gone, the same copy goes through, with the parts that arrived."""
    put(store, "k", b"old")
    server.plant(line, fault, times=10**6)
    with pytest.raises(CopyError, match="given up"):
        copy(big, "obs://course/k", deadline=1)
    assert objects(server) == {"k": b"old"}
    server.clear()
    copy(big, "obs://course/k")
    assert objects(server) == {"k": BIG} and records() == []
    assert len(server.requests("PUT")) == {"PUT part 2": 1, "POST new": 3, "POST completion": 0}[line]


def test_a_full_disk_ends_a_copy(tmp_path, monkeypatch):
    """At the first file that has no room."""
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(50)})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CopyError, match="^0: file system: No space left on device .and 49 more.; 0 copied"):
        copy(source, tmp_path / "back", jobs=1)
    assert list((tmp_path / "back").iterdir()) == []
