"""Copying against a true object server: every direction, what is chosen, names and links."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import filelock
import pytest
from copies import BIG, TREE, content_of, contents, make, notes, open_uploads, put
from proxy import ERROR
from waiting import wait_until

from labkit.obs import CloudError, CopyError, RemoveError, copy, copy_parallel, exists, ls, rm, stat, verify
from labkit.obs.checksums import LIKELY_PARTS
from labkit.obs.local_files import held, short
from labkit.obs.upload_record import records_folder

pytestmark = pytest.mark.usefixtures("direct")


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
    with pytest.raises(CopyError, match="'a': there is a folder of this name too; 1 copied"):
        copy(f"obs://{bucket}", tmp_path / "three")
    assert contents(tmp_path / "three") == {"a/b": b"below"}


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
    script = "import os, sys; from labkit.obs import copy; os.replace = lambda *_: os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", f"{script}; copy(*sys.argv[1:])", source, target])
    assert len(list(target.iterdir())) == 1 and not (target / "a").exists()
    copy(source, target)
    assert contents(target) == {"a": b"1"}


def test_two_buckets(swift):
    """See test_server_copies for what is copied."""
    one, two = swift.new_bucket(), swift.new_bucket()
    with pytest.raises(CloudError, match=f"obs://{one}/x: nothing to copy"):
        copy(f"obs://{one}/x", f"s3://{two}/x")
    with pytest.raises(CloudError, match="one is inside the other"):
        copy(f"obs://{one}/", f"s3://{one}/x")


def test_copy_parallel(bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1", "b": b"2", "[c]": b"3"})
    copy_parallel(str(source), f"obs://{bucket}/x", ["a", "[c]"])
    copy_parallel(f"s3://{bucket}/x/", str(tmp_path / "back"))
    assert contents(tmp_path / "back") == {"a": b"1", "[c]": b"3"}
    with pytest.raises(CloudError, match="no d"):
        copy_parallel(str(source), f"obs://{bucket}/x", ["a", "d"])


def test_a_file_system_without_locks(direct, bucket, tmp_path, big, monkeypatch):
    def without(handle, blocking):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(filelock, "lock_descriptor", without)
    copy(big, f"obs://{bucket}/k")
    copy(f"obs://{bucket}/k", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == BIG and notes() == []


@pytest.mark.parametrize("temporary", [True, False])
def test_no_home_to_write_in(direct, bucket, tmp_path, big, monkeypatch, temporary):
    """What is remembered of an upload goes into the temporary folder, or nowhere."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("tmp" if temporary else "file")))
    seen = []
    copy(big, f"obs://{bucket}/k", progress=lambda *_: seen.append(records_folder()))
    assert content_of(direct, bucket, "k") == BIG and open_uploads(direct, bucket, "k") == []
    assert seen[0] == (tmp_path / "tmp" / f"labkit-{os.getuid()}" / "uploads" if temporary else None)
    assert not contents(tmp_path / "tmp")


@pytest.mark.parametrize("way", ["up", "down", "here"])
def test_a_file_that_another_process_copies(direct, bucket, tmp_path, way):
    """It is waited for until the deadline."""
    source, url = tmp_path / "source", f"obs://{bucket}/k"
    make(source, {"k": BIG})
    ends = {"up": (source / "k", url), "down": (url, tmp_path / "back"), "here": (source / "k", tmp_path / "back")}[way]
    if way == "down":
        copy(source / "k", url)
        interrupted(ends, direct)
    hidden = {
        "up": lambda: records_folder() / f"{short(direct.url, bucket, 'k')}.json",
        "down": lambda: next(tmp_path.glob(".labkit-*")),
        "here": lambda: tmp_path / f".labkit-{short('back')}-local.part",
    }[way]()
    options = {"deadline": 0.3} if way == "here" else {"store": direct}
    with held(hidden):
        direct.deadline, begun = 2, time.monotonic()
        with pytest.raises(CopyError, match="held by another process"):
            copy(*ends, **options)
        assert time.monotonic() - begun < 10
    direct.deadline = 20
    copy(*ends, **options)
    assert verify(*ends) == []


def test_one_waits_for_the_other(direct, through, proxy, bucket, tmp_path, big):
    hold, told = threading.Event(), []
    proxy.plant(method="PUT", path="partNumber=3", hold=hold)
    first = threading.Thread(target=lambda: told.append(copy(big, f"obs://{bucket}/k", store=through)))
    first.start()
    wait_until(lambda: proxy.requests("PUT", "partNumber=3"))
    second = threading.Thread(target=lambda: told.append(copy(big, f"obs://{bucket}/k", store=through)))
    second.start()
    wait_until(lambda: sum(one.status is not None for one in proxy.requests("HEAD")) >= 2)  # both have found nothing
    time.sleep(0.2)
    assert told == []
    hold.set()
    first.join()
    second.join()
    assert [report.copied for report in told] == [1, 1] and content_of(direct, bucket, "k") == BIG
    assert open_uploads(direct, bucket, "k") == [] and notes() == []


def interrupted(ends, store):
    """A copy that ends after its first part."""

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(*ends, jobs=1, progress=interrupt, store=store)


def test_an_upload_that_an_earlier_version_began_is_resumed(direct, through, proxy, bucket, big):
    interrupted((big, f"obs://{bucket}/k"), through)
    record = records_folder() / f"{short(through.url, bucket, 'k')}.json"
    sha256, upload = json.loads(record.read_text())
    record.write_text(json.dumps({"place": [through.url, bucket, "k"], "sha256": sha256, "upload": upload}))
    proxy.clear()
    copy(big, f"obs://{bucket}/k", store=through)
    assert 0 < len(proxy.requests("PUT", "partNumber")) < 3
    assert content_of(direct, bucket, "k") == BIG and open_uploads(direct, bucket, "k") == [] and notes() == []


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("resume", [True, False])
def test_resume(direct, through, proxy, bucket, tmp_path, big, way, resume):
    ends = (big, f"obs://{bucket}/k")
    if way == "down":
        copy(*ends)
        ends = (ends[1], tmp_path / "back")
    interrupted(ends, through)
    proxy.clear()
    copy(*ends, resume=resume, store=through)
    sent = [*proxy.requests("PUT", "partNumber"), *proxy.requests("GET", "/k$")]
    assert len(sent) == 3 if not resume else 0 < len(sent) < 3
    assert verify(*ends) == [] and open_uploads(direct, bucket, "k") == [] and notes() == []


def test_verify_can_be_left_out(direct, through, proxy, bucket, tmp_path):
    """Then a byte that is damaged on the way down stays so, and the object is not looked at after an upload."""
    (tmp_path / "k").write_bytes(b"text")
    proxy.plant(method="PUT", served=True, answer=(200, b"", {"ETag": f'"{"f" * 32}"'}))
    copy(tmp_path / "k", f"obs://{bucket}/in/", verify=False, store=through)
    proxy.plant(method="GET", path="/k$", flip_download=0)
    copy(f"obs://{bucket}/in/k", tmp_path / "back", verify=False, store=through)
    assert (tmp_path / "back").read_bytes() == b"uext" and len(proxy.requests("GET", "/k$")) == 1
    assert verify(tmp_path / "back", f"obs://{bucket}/in/k") == ["back: another content"]


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
    with pytest.raises(CloudError, match="a folder needs --recursive"):
        rm(f"{url}/dir")
    for wrong in (url, f"{url}/", tmp_path):
        with pytest.raises(CloudError, match="whole bucket|no files of this machine"):
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


@pytest.mark.parametrize("part, known", [(LIKELY_PARTS[0], True), (LIKELY_PARTS[1], True), (6 << 20, False)])
def test_an_object_in_parts_by_another_tool(direct, bucket, tmp_path, part, known):
    """It has no SHA-256; parts of a likely size tell that it is the same, and nothing that it is another."""
    content = (4 * BIG)[: 13 << 20]
    (tmp_path / "k").write_bytes(content)
    upload = direct.client.initiateMultipartUpload(bucket, "k").body.uploadId
    parts = [content[begin : begin + part] for begin in range(0, len(content), part)]
    etags = [direct.upload_part(bucket, "k", upload, *one) for one in enumerate(parts, start=1)]
    direct.complete_multipart_upload(bucket, "k", upload, etags)
    unknown, url = [], f"obs://{bucket}/k"
    assert verify(tmp_path / "k", url, unknown=unknown) == []
    assert unknown == ([] if known else ["k: no checksum to compare"]) == verify(url, tmp_path / "k")
    assert copy(url, tmp_path / "k").skipped == known
    (tmp_path / "k").write_bytes(content[::-1])
    assert verify(tmp_path / "k", url) == ["k: no checksum to compare"]


def test_removing_that_fails_halfway(direct, through, proxy, bucket):
    for key in "abc":
        put(direct, bucket, f"x/{key}")
    proxy.plant(method="DELETE", path="x/b", times=10**6, answer=(403, ERROR % b"AccessDenied", {}))
    with pytest.raises(RemoveError, match="2 objects removed, 1 not: obs://.*/x/b: .*AccessDenied") as caught:
        rm(f"obs://{bucket}/x", recursive=True, store=through)
    assert caught.value.removed == ["x/a", "x/c"] and [key for key, _ in caught.value.failed] == ["x/b"]
    assert caught.value.status == 403 and [item.name for item in ls(f"obs://{bucket}/x")] == ["b"]


def test_errors_of_the_file_system(bucket, tmp_path, monkeypatch):
    source = make(tmp_path / "source", {"a": b"1"})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(CopyError, match="^a: .*back/a: No space left on device; 0 copied"):
            copy(source, tmp_path / "back")

    def unreadable(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", unreadable)
        for act in (copy, verify):
            with pytest.raises(CloudError, match=f"^{source}: Permission denied$"):
                act(source, tmp_path / "back")
