"""labkit obs cp with -, on a true object server: what goes through a pipe comes back equal, or the command fails."""

import hashlib
import os
import subprocess
import sys

import pytest
from copies import BIG, LARGE, PART, content_of, open_uploads, put
from obs_cli import keys, refused, run
from proxy import ERROR

from labkit.obs import streams
from labkit.obs.place import parse
from labkit.obs.store import Store

SIZES = [1, PART - 1, PART, PART + 1, len(BIG)]


@pytest.fixture(autouse=True)
def store(direct):
    return direct


def up(url, content, *options):
    return run("cp", "-", url, *options, stdin=content)


@pytest.mark.parametrize("size", SIZES)
def test_there_and_back(store, bucket, tmp_path, monkeypatch, size):
    url, content = f"obs://{bucket}/in/ä &.bin", BIG[:size]
    assert up(url, content) == (0, f"1 file copied, {size:,} bytes\n", "")
    assert keys(store, bucket) == ["in/ä &.bin"] and content_of(store, bucket, "in/ä &.bin") == content
    done = labkit("cp", url, "-")
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout == content
    (tmp_path / "file").write_bytes(content)
    assert run("cp", tmp_path / "file", url)[1].endswith(
        "; 0 there already\n" if size > PART else "; 1 there already\n"
    )
    assert open_uploads(store, bucket, "in/ä &.bin") == []


def labkit(*arguments, **more):
    """labkit obs in a process of its own, whose standard output is a pipe."""
    code = f"from labkit.obs import transfers; transfers.PART = {PART}; from labkit.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, "obs", *arguments], capture_output=True, **more)


def test_what_was_copied_in_another_way_goes_out_as_well(store, bucket, tmp_path):
    (tmp_path / "large").write_bytes(LARGE)
    run("cp", tmp_path / "large", f"obs://{bucket}/large")
    put(store, bucket, "empty", b"")
    assert labkit("cp", f"obs://{bucket}/large", "-", "--jobs", "3").stdout == LARGE
    done = labkit("cp", f"obs://{bucket}/empty", "-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_more_parts_in_memory_than_jobs(store, bucket, monkeypatch):
    """The stream is not read while as many parts as there are jobs wait to be sent."""

    class Stream:
        def __init__(self):
            self.read_so_far = 0

        def read(self, size):
            part = LARGE[self.read_so_far : self.read_so_far + size]
            self.read_so_far += len(part)
            return part

    stream, seen, send = Stream(), [], Store.upload_part

    def sent(self, bucket, key, upload, number, content, md5=None):
        seen.append(stream.read_so_far - (number - 1) * PART)
        return send(self, bucket, key, upload, number, content, md5)

    monkeypatch.setattr(Store, "upload_part", sent)
    assert streams.upload(stream, parse(f"obs://{bucket}/k"), store, jobs=2) == len(LARGE)
    assert len(seen) == 8 and max(seen) <= 4 * PART
    assert content_of(store, bucket, "k") == LARGE


def test_an_empty_stream_is_an_error(store, bucket):
    status, said, errors = up(f"obs://{bucket}/k", b"")
    assert (status, said) == (1, "") and f"obs://{bucket}/k: not written, as there is nothing on standard" in errors
    assert keys(store, bucket) == []


def test_where_a_folder_has_that_name(store, bucket):
    put(store, bucket, "k/x", b"1")
    status, _, errors = up(f"obs://{bucket}/k", b"2")
    assert status == 1 and "there is a folder of this name" in errors
    assert keys(store, bucket) == ["k/x"]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_upload_that_fails_leaves_nothing(store, bucket, proxy, monkeypatch, method):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method=method, path="partNumber=2|uploadId=", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    status, said, errors = up(f"obs://{bucket}/k", BIG)
    assert (status, said) == (1, "") and "status 400, InvalidArgument" in errors and len(errors.splitlines()) == 1
    assert keys(store, bucket) == [] and open_uploads(store, bucket, "k") == []


def test_a_damaged_download_is_an_error(store, bucket):
    """The object has a SHA-256 that is not its content's, and an ETag that another tool's sizes of parts make."""
    upload = store.create_multipart_upload(bucket, "k", hashlib.sha256(b"other").hexdigest())
    etags = [store.upload_part(bucket, "k", upload, n, BIG[:size]) for n, size in ((1, PART + 1), (2, PART))]
    store.complete_multipart_upload(bucket, "k", upload, etags)
    done = labkit("cp", f"obs://{bucket}/k", "-")
    assert done.returncode == 1 and b"came with a wrong checksum; do not use what was written" in done.stderr


def test_a_reader_that_goes_away(store, bucket):
    """As with `| head`."""
    put(store, bucket, "k", BIG)
    read, write = os.pipe()
    os.close(read)
    code = "from labkit.cli import main; main()"
    command = [sys.executable, "-c", code, "obs", "cp", f"obs://{bucket}/k", "-"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_json_and_quiet(bucket):
    url = f"obs://{bucket}/in/k"
    assert up(url, b"text", "--quiet") == (0, "", "")
    status, said, _ = up(url, b"text", "--json")
    assert status == 0 and '"bytes": 4' in said and '"files": [\n    "k"\n  ]' in said
    assert refused("cp", f"obs://{bucket}/none", "-") == f"Error: obs://{bucket}/none: there is no such object"


@pytest.mark.parametrize("arguments, says", [
    (["-", "-"], "must be an object"), (["-", "file"], "file: must be an object"), (["file", "-"], "must be an object"),
    (["-", "obs://one"], "whole key"), (["-", "obs://one/x/"], "whole key"), (["obs://one/x/", "-"], "whole key"),
    (["-", "obs://one/k", "--dry-run"], "--dry-run"), (["-", "obs://one/k", "--exclude", "x"], "--exclude"),
    (["obs://one/k", "-", "--json"], "--json cannot"), (["obs://one/k", "-", "--force"], "--force"),
])  # fmt: skip
def test_what_makes_no_sense(arguments, says):
    assert says in refused("cp", *arguments, status=2)


@pytest.mark.parametrize("arguments", [["-", "obs://one"], ["obs://one", "-"]])
def test_folders_are_no_streams(arguments):
    assert "only `labkit obs cp` copies standard input" in refused("sync", *arguments, status=2)
