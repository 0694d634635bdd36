"""From bucket to bucket, on true object servers: the server copies, and nothing passes through this machine."""

import hashlib

import pytest
from copies import BIG, LARGE, PART, content_of, make, open_uploads, put, start_copy
from obs_cli import document, keys, refused, run
from proxy import ERROR
from swift import environment
from waiting import wait_until

from labkit.obs import checksums, server_copies

TREE = {"a": b"a", "empty": b"", "deep/ä + &.bin": BIG}
SIZE = sum(map(len, TREE.values()))


@pytest.fixture(autouse=True)
def store(direct, monkeypatch):
    monkeypatch.setattr(server_copies, "WHOLE", PART)
    return direct


@pytest.fixture
def source(bucket, tmp_path):
    run("cp", make(tmp_path / "here", TREE), f"obs://{bucket}/from")
    return f"obs://{bucket}/from"


def content(store, bucket):
    return {key: content_of(store, bucket, key) for key in keys(store, bucket)}


@pytest.mark.parametrize("command", ["cp", "sync"])
def test_a_folder(swift, store, source, tmp_path, proxy, monkeypatch, command):
    """Into another bucket and within one; no request for content is made, and the copies have labkit's checksum."""
    other = swift.new_bucket()
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="GET", path=r"^/[^?]+/from/", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    for target in (f"obs://{other}/to", f"s3://{source.partition('://')[2].partition('/')[0]}/to/"):
        assert run(command, source, target) == (0, f"3 files copied, {SIZE:,} bytes; 0 there already\n", "")
        assert run(command, source, target)[1] == "0 files copied, 0 bytes; 3 there already\n"
    assert content(store, other) == {f"to/{name}": file for name, file in TREE.items()}
    found = store.head(other, "to/deep/ä + &.bin")
    assert found.sha256 == hashlib.sha256(BIG).hexdigest() and found.etag.endswith("-3")
    assert run("verify", tmp_path / "here", f"obs://{other}/to")[0] == 0
    assert run("verify", source, f"obs://{other}/to")[0] == 0
    put(store, other, "to/a", b"b")
    assert document(command, source, f"obs://{other}/to")["files"] == ["a"]


def test_a_single_object(swift, store, source, bucket):
    url = f"obs://{bucket}"
    for target, name in (("new", "new"), ("in/", "in/a"), ("from/b", "from/b")):
        assert run("cp", f"{source}/a", f"{url}/{target}")[0] == 0 and content_of(store, bucket, name) == b"a"
    assert run("cp", f"{source}/a", f"obs://{(other := swift.new_bucket())}")[0] == 0 and keys(store, other) == ["a"]


@pytest.mark.parametrize("ends", [("from", "from"), ("from/", "from"), ("from/a", "from/a"), ("from/a", "from/")])
def test_onto_itself(store, source, bucket, ends):
    """Neither copied nor, with --delete, removed."""
    said = run("cp", *(f"obs://{bucket}/{end}" for end in ends), "--force")[1]
    assert said.startswith("0 files copied") and len(keys(store, bucket)) == 3
    assert run("sync", source, source, "--delete", "--yes")[1].endswith("; 0 files removed\n")
    assert len(keys(store, bucket)) == 3


@pytest.mark.parametrize("ends", [("from", "from/deep/er"), ("from/deep", "from"), ("from", ""), ("", "from")])
@pytest.mark.parametrize("command", ["cp", "sync"])
def test_one_inside_the_other(store, source, bucket, ends, command):
    status = 1 if command == "cp" and ends[0] else 2  # of obs://b/k only the server knows whether it is a folder
    assert "one is inside the other" in refused(command, *(f"obs://{bucket}/{end}" for end in ends), status=status)
    assert len(keys(store, bucket)) == 3


def test_sync_delete(swift, store, source):
    other = swift.new_bucket()
    put(store, other, "old")
    assert run("sync", source, f"obs://{other}", "--delete", "--yes")[1].endswith("; 1 file removed\n")
    assert content(store, other) == TREE


def test_objects_without_a_checksum_to_compare(swift, store, bucket):
    """Another tool has uploaded them in parts of different sizes: copied again, and not taken for equal."""
    upload = store.create_multipart_upload(bucket, "k")
    etags = [store.upload_part(bucket, "k", upload, n, LARGE[: n * PART]) for n in (1, 2)]
    store.complete_multipart_upload(bucket, "k", upload, etags)
    url = f"obs://{swift.new_bucket()}/k"
    for _ in range(2):
        assert run("cp", f"obs://{bucket}/k", url)[1].startswith("1 file copied")
    assert document("verify", f"obs://{bucket}/k", url, status=1)["unknown"] == ["k: no checksum to compare"]


@pytest.mark.parametrize("whole", [PART, 100 * PART])
def test_a_stream_in_parts_is_copied_in_the_same_parts(swift, store, bucket, monkeypatch, whole):
    """It has no SHA-256; with equal parts the copy has an equal ETag, so that it is not copied twice."""
    monkeypatch.setattr(server_copies, "WHOLE", whole)
    monkeypatch.setattr(checksums, "LIKELY_PARTS", [4 * PART, PART])
    run("cp", "-", f"obs://{bucket}/k", stdin=LARGE)
    url = f"obs://{swift.new_bucket()}/k"
    assert run("cp", f"obs://{bucket}/k", url)[1].startswith("1 file copied")
    assert run("cp", f"obs://{bucket}/k", url)[1] == "0 files copied, 0 bytes; 1 there already\n"
    assert run("verify", f"obs://{bucket}/k", url) == (0, "all is there\n", "")


def test_what_fails_leaves_no_upload(swift, store, source, bucket, proxy, monkeypatch):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="PUT", path="partNumber=2", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    other = swift.new_bucket()
    told = document("cp", source, f"obs://{other}", status=1)
    assert [one["name"] for one in told["failed"]] == ["deep/ä + &.bin"] and told["copied"] == 2
    assert open_uploads(store, other, "deep/ä + &.bin") == [] and keys(store, other) == ["a", "empty"]


def test_a_copy_that_is_killed_is_resumed(swift, store, source, bucket, proxy, monkeypatch):
    name, other = "deep/ä + &.bin", swift.new_bucket()
    proxy.plant(method="PUT", path="partNumber=2", stall=60)
    child = start_copy(environment(proxy.url), PART, f"{source}/{name}", f"obs://{other}/k")
    wait_until(lambda: any(one.status == 200 for one in proxy.requests("PUT", "partNumber=1")))
    child.kill()
    child.join()
    assert len(open_uploads(store, other, "k")) == 1
    proxy.clear()
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    run("cp", f"{source}/{name}", f"obs://{other}/k")
    assert proxy.requests("POST", "uploads$|uploads=") == proxy.requests("PUT", "partNumber=1") == []
    assert proxy.requests("PUT", "partNumber=2")
    assert content(store, other) == {"k": BIG} and open_uploads(store, other, "k") == []


@pytest.mark.parametrize("name", ["from/a", "from/deep/ä + &.bin"])
def test_an_object_that_changes_meanwhile(swift, store, source, bucket, name, monkeypatch):
    """It is replaced after it was listed."""
    whole, parts, other = server_copies._whole, server_copies._parts, swift.new_bucket()

    def replaced(function):
        def first(*arguments):
            put(store, bucket, name, b"other content")
            return function(*arguments)

        return first

    monkeypatch.setattr(server_copies, "_whole", replaced(whole))
    monkeypatch.setattr(server_copies, "_parts", replaced(parts))
    assert f"obs://{bucket}/{name}: changed or removed meanwhile" in refused(
        "cp", f"obs://{bucket}/{name}", f"obs://{other}"
    )
    assert keys(store, other) == []


def test_where_a_bucket_is_missing(source):
    assert "NoSuchBucket" in refused("cp", source, "obs://no-such-bucket")


def test_a_key_that_names_a_version(swift, store, bucket):
    put(store, bucket, "k?versionId=1", b"text")
    assert "cannot be copied within" in refused("cp", f"obs://{bucket}", f"obs://{swift.new_bucket()}/x")
