"""labkit obs against a true object server and folders: what is printed, and exit statuses."""

import calendar
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import pytest
from click.testing import CliRunner
from copies import contents, make, put
from obs_cli import document, keys, refused, run
from proxy import ERROR, busy

from labkit.cli import main
from labkit.obs import access, bucket_commands, listing, retrying

TREE = {"a.txt": b"a", "empty": b"", "deep/b.bin": bytes(range(256)), "ä ö/日本 &<>.txt": b"unicode"}
TOTAL = sum(map(len, TREE.values()))


@pytest.fixture(autouse=True)
def store(account):
    return account


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", TREE)


# -- cp and sync ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["cp", "sync"])
def test_a_folder_up_and_down(source, bucket, tmp_path, command):
    url = f"obs://{bucket}/some/where"
    said = f"4 files copied, {TOTAL} bytes; 0 there already\n"
    assert run(command, source, url) == (0, said, "")
    assert run(command, url, tmp_path / "back") == (0, said, "")
    assert contents(tmp_path / "back") == TREE
    said = "0 files copied, 0 bytes; 4 there already\n"
    assert run(command, source, url) == run(command, url, tmp_path / "back") == (0, said, "")
    (source / "a.txt").write_bytes(b"b")
    assert run(command, source, url)[1] == "1 file copied, 1 bytes; 3 there already\n"
    assert run(command, source, url, "--force")[1].startswith("4 files copied")
    assert run(command, source, tmp_path / "local", "--jobs", 1)[1].startswith("4 files copied")
    assert contents(tmp_path / "local") == TREE | {"a.txt": b"b"}


def test_where_a_slash_at_the_end_matters(store, source, bucket, tmp_path):
    """As the help says: for a single file's target, and for a key that is object and folder."""
    url = f"obs://{bucket}"
    for target in ("new", "in/", ""):
        assert run("cp", source / "a.txt", f"{url}/{target}")[0] == 0
    assert keys(store, bucket) == ["a.txt", "in/a.txt", "new"]
    (tmp_path / "there").mkdir()
    for target, path in [("there", "there/new"), ("none", "none"), ("other/", "other/new")]:
        assert run("cp", f"{url}/new", f"{tmp_path}/{target}")[0] == 0
        assert (tmp_path / path).read_bytes() == b"a"
    put(store, bucket, "new/below", b"below")
    run("cp", f"{url}/new", tmp_path / "object")
    run("cp", f"{url}/new/", tmp_path / "folder")
    run("sync", f"{url}/new", tmp_path / "synced")
    assert (tmp_path / "object").read_bytes() == b"a"
    assert contents(tmp_path / "folder") == contents(tmp_path / "synced") == {"below": b"below"}
    for folder in ("x", "y/"):
        for slash in ("", "/"):
            run("cp", f"{source}{slash}", f"{url}/{folder}{len(slash)}")
    assert {name for name in keys(store, bucket) if name[0] in "xy"} == {
        f"{folder}{slash}/{name}" for folder in ("x", "y/") for slash in "01" for name in TREE
    }  # fmt: skip


def test_copy_as_json(source, bucket, tmp_path):
    url = f"obs://{bucket}/x"
    run("cp", source / "a.txt", url + "/")
    told = {"source": str(source), "target": url, "dry_run": False, "copied": 3, "skipped": 1, "bytes": TOTAL - 1}
    told |= {"failed": [], "files": sorted(TREE.keys() - {"a.txt"})}
    assert document("cp", source, url, "--dry-run") == told | {"dry_run": True}
    assert document("cp", source, url) == told
    assert document("cp", url, tmp_path / "back", "--include", "*.txt")["files"] == ["a.txt", "ä ö/日本 &<>.txt"]


def test_dry_run_copies_nothing(store, source, bucket, tmp_path):
    url = f"obs://{bucket}/x"
    status, said, _ = run("cp", source, url, "--dry-run")
    assert status == 0 and keys(store, bucket) == []
    assert [line.split()[-1] for line in said.splitlines()[:-1]] == ["a.txt", "deep/b.bin", "empty", "&<>.txt"]
    assert said.splitlines()[-1] == f"4 files would be copied, {TOTAL} bytes; 0 there already"
    run("cp", source, url)
    assert run("sync", url, tmp_path / "back", "--dry-run")[0] == 0 and not (tmp_path / "back").exists()


def test_include_and_exclude(store, source, bucket):
    run("cp", source, f"obs://{bucket}", "--include", "*.txt", "--include", "*.bin", "--exclude", "deep/*")
    assert keys(store, bucket) == ["a.txt", "ä ö/日本 &<>.txt"]


def test_some_files_fail(source, proxy, bucket, monkeypatch):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="PUT", path="empty|a.txt", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    status, said, errors = run("cp", source, f"obs://{bucket}")
    assert (status, said) == (1, "") and len(errors.splitlines()) == 2
    assert "empty: obs://" in errors and errors.splitlines()[-1].startswith("Error: a.txt: obs://")
    assert "status 400, InvalidArgument" in errors and "2 copied" in errors
    told = document("cp", source, f"obs://{bucket}", status=1)
    assert (told["copied"], told["skipped"], told["files"]) == (0, 2, [])
    assert [(one["name"], one["status"], one["code"]) for one in told["failed"]] == [
        (name, 400, "InvalidArgument") for name in ("a.txt", "empty")
    ]  # fmt: skip


def test_what_fails_as_a_whole(source, bucket, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for command in ("cp", "sync"):
        assert f"{tmp_path}/empty" in refused(command, tmp_path / "empty", f"obs://{bucket}")
        assert "/none: there is no such" in refused(command, tmp_path / "none", f"obs://{bucket}")
        assert f"obs://{bucket}/none" in refused(command, f"obs://{bucket}/none", tmp_path / "back")
        assert "obs://no-such-bucket/" in refused(command, source, "obs://no-such-bucket/x")
    told = document("ls", "obs://no-such-bucket", status=1)
    assert (told["status"], told["code"]) == (404, "NoSuchBucket") and told["request_id"]
    monkeypatch.setenv("OBS_SECRET_ACCESS_KEY", "hidden-and-wrong")
    for command in (["cp", source, f"obs://{bucket}"], ["ls", f"obs://{bucket}"], ["rm", f"obs://{bucket}/k"]):
        assert f"obs://{bucket}/" in (said := refused(*command)) and "status 403" in said and "hidden" not in said
    monkeypatch.delenv("OBS_SECRET_ACCESS_KEY")
    assert "OBS_SECRET_ACCESS_KEY is not set" in refused("ls", f"obs://{bucket}")
    monkeypatch.delenv("OBS_ACCESS_KEY_ID")
    assert "no credentials: set OBS_ACCESS_KEY_ID and" in refused("ls", f"obs://{bucket}")
    assert "no credentials" in document("cp", source, f"obs://{bucket}", status=1)["error"]
    monkeypatch.delenv("OBS_ENDPOINT")
    assert "no server: set OBS_ENDPOINT" in refused("verify", source, f"obs://{bucket}")


def test_a_server_that_stays_busy(source, proxy, bucket, monkeypatch):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(times=10**6, answer=busy(503))
    begun = time.monotonic()
    assert "given up" in refused("ls", f"obs://{bucket}", "--deadline", 0.5) and time.monotonic() - begun < 15


@pytest.mark.parametrize("command", [["ls"], ["cp", "SOURCE"]])
def test_waiting_is_not_silent(source, proxy, bucket, monkeypatch, command):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    monkeypatch.setattr(retrying, "QUIET", 0.2)
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.05)
    proxy.stop()
    arguments = [str(source) if word == "SOURCE" else word for word in command]
    status, said, errors = run(*arguments, f"obs://{bucket}", "--deadline", 1)
    told = [line for line in errors.splitlines() if not line.startswith("Error: ")]
    assert (status, said) == (1, "") and 1 <= len(told) <= 5 and len(errors.splitlines()) == len(told) + 1
    assert all(line.startswith(f"no answer from 127.0.0.1:{proxy.port} yet, trying again (") for line in told)


@pytest.mark.parametrize("arguments, says", [
    ([], "Missing command"), (["copy"], "No such command"), (["cp", "one"], "Missing argument 'DST'"),
    (["cp", "one", "two", "--fast"], "No such option"), (["cp", "http://b/k", "x"], "http://b/k: http:// is none of"),
    (["cp", "x", "obs://B/k"], "'B' is no bucket's name"), (["cp", "x", "obs:/bucket/k"], "begins with obs://"),
    (["cp", "", "x"], "no path"), (["ls", "obs:///k"], "no bucket's name"), (["cp", "a", "b", "--jobs", "0"], "--jobs"),
    (["cp", "obs://one", "s3://one/x"], "inside the other"), (["cp", "SOURCE", "SOURCE/deep"], "inside the other"),
    (["sync", "SOURCE/deep", "SOURCE"], "inside the other"), (["sync", "SOURCE/a.txt", "obs://one"], "labkit obs cp"),
    (["rm", "SOURCE"], "no files of this machine"), (["rm", "obs://one"], "--recursive"),
    (["rm", "obs://one/x/"], "--recursive"), (["rm", "obs://one", "--recursive"], "--yes"),
    (["rm", "obs://one//", "--recursive"], "--yes"),
])  # fmt: skip
def test_what_makes_no_sense(source, arguments, says):
    """Exit status 2, before any request."""
    arguments = [word.replace("SOURCE", str(source)) for word in arguments]
    if not arguments:
        status, _, stderr = run()
        assert status == 2 and "Usage: " in stderr
        return
    assert says in refused(*arguments, status=2)
    assert contents(source) == TREE


def test_to_the_same_place(source):
    assert run("cp", source, f"{source}/../source")[1] == "0 files copied, 0 bytes; 4 there already\n"


@pytest.mark.parametrize("command", ["obs", "jobs", "submit"])
def test_the_help_names_all_that_is_read(command):
    done = CliRunner().invoke(main, [command, "--help"])
    for names in (*access.KEYS, ("OBS_ENDPOINT", "S3_ENDPOINT", "S3_USE_HTTPS", "OBS_SIGNATURE", "OBS_REGION",
                                 "OBS_CA_FILE", access.FILE, "MODELARTS_PROJECT_ID", "HUAWEICLOUD_SDK_PROJECT_ID",
                                 "MODELARTS_REGION", "MODELARTS_ENDPOINT", "MODELARTS_CA_FILE")):  # fmt: skip
        assert all(name in done.stdout for name in names)
    assert max(map(len, done.stdout.splitlines())) <= 80


# -- ls, rm, verify -------------------------------------------------------------------------------------


def dated(name, content):
    """A line of ls, whose date is not compared."""
    return re.compile(rf"{len(content):15,}  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  {re.escape(name)}")


def test_ls(store, source, bucket):
    url = f"obs://{bucket}"
    assert run("ls", url) == (0, "", "              0  bytes in 0 files\n")
    assert f"{url}/none: there is no such" in refused("ls", f"{url}/none")
    run("cp", source, f"{url}/x")
    put(store, bucket, "x/marker/", b"")
    put(store, bucket, "x/", b"")
    for place in (source, f"{url}/x"):
        lines = run("ls", place, "--recursive")[1].splitlines()
        assert len(lines) == 4 and all(
            dated(*pair).fullmatch(line) for pair, line in zip(sorted(TREE.items()), lines)
        )  # fmt: skip
    (source / "marker").mkdir()
    for place in (source, f"{url}/x", f"{url}/x/"):
        status, said, summary = run("ls", place)
        folders, files = said.splitlines()[:3], said.splitlines()[3:]
        assert folders == [f"{'':38}{name}" for name in ("deep/", "marker/", "ä ö/")]
        assert [dated(name, TREE[name]).fullmatch(line) is not None for name, line in zip(("a.txt", "empty"), files)]
        assert (status, summary, len(files)) == (0, f"{1:15}  bytes in 2 files, 3 folders\n", 2)
    assert run("ls", url)[1:] == (f"{'':38}x/\n", f"{0:15}  bytes in 0 files, 1 folder\n")
    assert dated("a.txt", b"a").fullmatch(run("ls", f"{url}/x/a.txt")[1].rstrip("\n"))
    assert dated("a.txt", b"a").fullmatch(run("ls", source / "a.txt")[1].rstrip("\n"))


def test_ls_as_json(store, source, bucket):
    url = f"obs://{bucket}"
    run("cp", source, f"{url}/x")
    told = document("ls", f"{url}/x", "--recursive")
    dates = [datetime.fromisoformat(one.pop("modified").replace("Z", "+00:00")) for one in told["files"]]
    files = [{"name": name, "size": len(content)} for name, content in sorted(TREE.items())]
    assert told == {"place": f"{url}/x", "folders": [], "files": files, "bytes": TOTAL}
    there = store.client.getObjectMetadata(bucket, "x/a.txt").body.lastModified
    assert dates[0] == parsedate_to_datetime(there)  # the same in a listing as in a header
    told = document("ls", f"{url}/x")
    assert told["folders"] == ["deep/", "ä ö/"] and [one["name"] for one in told["files"]] == ["a.txt", "empty"]
    assert document("ls", source)["folders"] == ["deep/", "ä ö/"]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be changed on Windows")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_dates_in_summer_and_winter(tmp_path, monkeypatch, zone):
    """What ls shows is what the standard library makes of the server's time, on either side of a change of clocks."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for text in ("2026-01-21T12:00:00.000Z", "2026-07-21T12:00:00.000Z", "2026-10-25T01:30:00Z"):
            seconds = calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
            assert listing.moment(text).timestamp() == seconds
            assert f"{listing.moment(text).astimezone():%H:%M}" == time.strftime("%H:%M", time.localtime(seconds))
        assert listing.moment("Sat, 21 Nov 2026 12:00:00 GMT") == listing.moment("2026-11-21T12:00:00.000Z")
        assert [listing.moment(wrong) for wrong in (None, "", "soon", "2026-13-01T00:00:00Z")] == [None] * 4
    finally:
        monkeypatch.undo()
        time.tzset()


def test_dates_that_are_none(tmp_path, monkeypatch):
    """A file of the year 10000 and a listing of the last day."""
    (tmp_path / "late").write_text("1")
    os.utime(tmp_path / "late", (253402300800,) * 2)
    assert "late" in run("ls", tmp_path)[1]
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert bucket_commands._local(listing.moment("9999-12-31T23:59:59.000Z")) == ""
    finally:
        monkeypatch.undo()
        time.tzset()


def test_du(source, bucket):
    url = f"obs://{bucket}"
    assert run("du", url)[1] == f"{0:15}  {'0 files':>15}  {url}\n"
    assert f"{url}/none: there is no such" in refused("du", f"{url}/none")
    run("cp", source, f"{url}/x")
    for place in (source, f"{url}/x"):
        assert run("du", place) == (0, (
            f"{256:15}  {'1 file':>15}  deep/\n{7:15}  {'1 file':>15}  ä ö/\n{TOTAL:15}  {'4 files':>15}  {place}\n"
        ), "")  # fmt: skip
    below = [{"name": "deep/", "files": 1, "bytes": 256}, {"name": "ä ö/", "files": 1, "bytes": 7}]
    assert document("du", f"{url}/x") == {"place": f"{url}/x", "folders": below, "files": 4, "bytes": TOTAL}


def test_names_that_would_move_the_cursor(store, bucket, tmp_path):
    put(store, bucket, "a\x1b[2Jb")
    assert run("ls", f"obs://{bucket}")[1].endswith("  'a\\x1b[2Jb'\n")
    said = run("cp", f"obs://{bucket}", tmp_path / "back", "--dry-run")[1]
    assert said.startswith(f"would copy {4:15}  'a\\x1b[2Jb'\n")
    (tmp_path / "back" / "a\x1b[2Jb").mkdir(parents=True)
    assert "a\\x1b[2Jb: there is a folder of this name" in refused("cp", f"obs://{bucket}", tmp_path / "back")
    assert "\\x1b" in run("rm", f"obs://{bucket}", "--recursive", "--yes")[1]


def test_ls_of_a_folder_is_quick(source):
    """The SDK, which takes most of a second, is not imported."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    code += "; from labkit.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "obs", "ls", source], capture_output=True, text=True)
    assert done.returncode == 0 and "a.txt" in done.stdout
    assert "labkit.obs.copying" in done.stderr.split()
    assert not {"obs", "Crypto", "requests", "mindspore", "numpy", "pydantic"} & set(done.stderr.split())


def test_rm(store, bucket):
    url = f"obs://{bucket}"
    for key in ("a", "dir/b", "dir/c", "dir/deep/", "dirt"):
        put(store, bucket, key, b"")
    assert "there is no such object" in refused("rm", f"{url}/none")
    assert "a folder needs --recursive" in refused("rm", f"{url}/dir")
    assert "there is no such object" in refused("rm", f"{url}/none", "--recursive")
    assert len(keys(store, bucket)) == 5
    assert run("rm", f"{url}/a") == (0, f"removed  {url}/a\n", "")
    below = ["dir/b", "dir/c", "dir/deep/"]
    assert run("rm", f"{url}/dir", "--recursive", "--dry-run")[1].split() == [
        word for key in below for word in ("would", "remove", f"{url}/{key}")
    ]  # fmt: skip
    told = document("rm", f"{url}/dir", "--recursive")
    assert told == {"url": f"{url}/dir", "dry_run": False, "removed": below, "failed": []}
    assert keys(store, bucket) == ["dirt"]
    assert document("rm", url, "--recursive", "--dry-run")["removed"] == ["dirt"]
    assert keys(store, bucket) == ["dirt"]
    assert document("rm", url, "--recursive", "--yes")["removed"] == ["dirt"]
    assert keys(store, bucket) == [] and run("ls", url)[0] == 0


def test_rm_that_fails_halfway(store, proxy, bucket, monkeypatch):
    for key in ("x/a", "x/b"):
        put(store, bucket, key)
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="DELETE", path="x/b", times=10**6, answer=(403, ERROR % b"AccessDenied", {}))
    url = f"obs://{bucket}/x"
    status, said, errors = run("rm", url, "--recursive")
    assert (status, said) == (1, f"removed  {url}/a\n")
    assert errors.startswith(f"Error: {url}: 1 objects removed, 1 not: ") and "AccessDenied" in errors
    told = document("rm", url, "--recursive", status=1)
    assert told["removed"] == [] and [(one["key"], one["status"]) for one in told["failed"]] == [("x/b", 403)]


def test_verify_what_has_no_checksum(store, bucket, tmp_path):
    """Told apart from what differs, and not taken for equal."""
    (tmp_path / "k").write_bytes(bytes(11 << 20))
    upload = store.client.initiateMultipartUpload(bucket, "k").body.uploadId
    parts = [store.upload_part(bucket, "k", upload, number, bytes(size << 20)) for number, size in ((1, 6), (2, 5))]
    store.complete_multipart_upload(bucket, "k", upload, parts)
    url = f"obs://{bucket}/k"
    assert run("verify", tmp_path / "k", url) == (1, (
        f"k: no checksum to compare\n1 file of {tmp_path}/k the same size in {url}, but without a checksum to compare\n"
    ), "")  # fmt: skip
    told = document("verify", tmp_path / "k", url, status=1)
    assert (told["ok"], told["differences"], told["unknown"]) == (False, [], ["k: no checksum to compare"])


def test_verify(store, source, bucket):
    url = f"obs://{bucket}/x"
    run("cp", source, url)
    assert run("verify", source, url) == (0, "all is there\n", "")
    assert document("verify", url, source) == {
        "source": url, "target": str(source), "ok": True, "differences": [], "unknown": [],
    }  # fmt: skip
    put(store, bucket, "x/a.txt", b"b")
    store.delete(bucket, "x/empty")
    status, said, _ = run("verify", source, url)
    assert status == 1 and said.splitlines() == [
        "a.txt: another content", "empty: missing", f"2 files of {source} missing in {url}, or different there",
    ]  # fmt: skip
    told = document("verify", source, url, status=1)
    assert told["ok"] is False and told["differences"] == said.splitlines()[:2]
