"""labkit obs against a true object server and folders: what is printed, exit statuses, and being stopped."""

import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from click.testing import CliRunner
from copies import content_of, contents, make, open_uploads, put
from proxy import ERROR, busy
from swift import SECRET_KEY, environment

from labkit.cli import main
from labkit.cloud.store import Store
from labkit.runtime import die_with_parent

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')", "obs"]
TREE = {"a.txt": b"a", "empty": b"", "deep/b.bin": bytes(range(256)), "ä ö/日本 &<>.txt": b"unicode"}
TOTAL = sum(map(len, TREE.values()))
PART = 8 << 20  # what the command sends at once


@pytest.fixture(autouse=True)
def store(swift, monkeypatch, tmp_path_factory):
    """The server; its address and account are in the environment, as a user's are."""
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # no credentials there
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", TREE)


def run(*arguments):
    """labkit obs with these, in this process: status, stdout, stderr; an error is one line and no traceback."""
    done = CliRunner().invoke(main, ["obs", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert SECRET_KEY not in done.output
    return done.exit_code, done.stdout, done.stderr


def document(*arguments, status=0):
    """The JSON document that is all of stdout."""
    found, stdout, stderr = run(*arguments, "--json")
    assert found == status, stderr
    return json.loads(stdout)


def refused(*arguments, status=1):
    """The error's line."""
    found, stdout, stderr = run(*arguments)
    assert (found, stdout) == (status, "")
    lines = stderr.splitlines()
    assert lines[-1].startswith("Error: ") and (status == 2 or len(lines) == 1)
    return lines[-1]


def keys(store, bucket):
    return [entry.key for entry in store.list(bucket)]


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
    assert "given up" in refused("ls", f"obs://{bucket}", "--deadline", 0.5) and time.monotonic() - begun < 5


@pytest.mark.parametrize("arguments, says", [
    ([], "Missing command"), (["copy"], "No such command"), (["cp", "one"], "Missing argument 'DST'"),
    (["cp", "one", "two", "--fast"], "No such option"), (["cp", "http://b/k", "x"], "http://b/k: http:// is none of"),
    (["cp", "x", "obs://B/k"], "'B' is no bucket's name"), (["cp", "x", "obs:/bucket/k"], "begins with obs://"),
    (["cp", "", "x"], "no path"), (["ls", "obs:///k"], "no bucket's name"), (["cp", "a", "b", "--jobs", "0"], "--jobs"),
    (["cp", "obs://one", "s3://two"], "must be on this machine"), (["cp", "SOURCE", "SOURCE/deep"], "inside the other"),
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


# -- ls, rm, verify -------------------------------------------------------------------------------------


def test_ls(store, source, bucket):
    url = f"obs://{bucket}"
    assert run("ls", url) == (0, "", "              0  bytes in 0 files\n")
    assert f"{url}/none: there is no such" in refused("ls", f"{url}/none")
    run("cp", source, f"{url}/x")
    lines = [f"{len(content):15,}  {name}" for name, content in sorted(TREE.items())]
    assert run("ls", source)[1].splitlines() == run("ls", f"{url}/x")[1].splitlines() == lines
    assert run("ls", f"{url}/x/a.txt")[1] == f"{1:15}  a.txt\n"
    files = [{"name": name, "size": len(content)} for name, content in sorted(TREE.items())]
    assert document("ls", f"{url}/x") == {"place": f"{url}/x", "files": files, "bytes": TOTAL}


def test_names_that_would_move_the_cursor(store, bucket, tmp_path):
    put(store, bucket, "a\x1b[2Jb")
    assert run("ls", f"obs://{bucket}")[1] == f"{4:15}  'a\\x1b[2Jb'\n"
    assert "'a\\x1b[2Jb'" in refused("cp", f"obs://{bucket}", tmp_path / "back")
    assert "\\x1b" in run("rm", f"obs://{bucket}", "--recursive", "--yes")[1]


def test_ls_of_a_folder_is_quick(source):
    """The SDK, which takes most of a second, is not imported."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    code += "; from labkit.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "obs", "ls", source], capture_output=True, text=True)
    assert done.returncode == 0 and "a.txt" in done.stdout
    assert "labkit.cloud.copying" in done.stderr.split()
    assert not {"obs", "Crypto", "requests", "mindspore", "numpy", "pydantic"} & set(done.stderr.split())


def test_rm(store, bucket):
    url = f"obs://{bucket}"
    for key in ("a", "dir/b", "dir/c", "dir/deep/", "dirt"):
        put(store, bucket, key, b"")
    assert "there is no such object" in refused("rm", f"{url}/none")
    assert "recursively" in refused("rm", f"{url}/dir")
    assert "there is no such object" in refused("rm", f"{url}/none", "--recursive")
    assert len(keys(store, bucket)) == 5
    assert run("rm", f"{url}/a") == (0, f"removed  {url}/a\n", "")
    below = ["dir/b", "dir/c", "dir/deep/"]
    assert run("rm", f"{url}/dir", "--recursive", "--dry-run")[1].split() == [
        word for key in below for word in ("would", "remove", f"{url}/{key}")
    ]  # fmt: skip
    assert document("rm", f"{url}/dir", "--recursive") == {"url": f"{url}/dir", "dry_run": False, "removed": below}
    assert keys(store, bucket) == ["dirt"]
    assert document("rm", url, "--recursive", "--dry-run")["removed"] == ["dirt"]
    assert keys(store, bucket) == ["dirt"]
    assert document("rm", url, "--recursive", "--yes")["removed"] == ["dirt"]
    assert keys(store, bucket) == [] and run("ls", url)[0] == 0


def test_verify(store, source, bucket):
    url = f"obs://{bucket}/x"
    run("cp", source, url)
    assert run("verify", source, url) == (0, "all is there\n", "")
    assert document("verify", url, source) == {"source": url, "target": str(source), "ok": True, "differences": []}
    put(store, bucket, "x/a.txt", b"b")
    store.delete(bucket, "x/empty")
    status, said, _ = run("verify", source, url)
    assert status == 1 and said.splitlines() == [
        "a.txt: another content", "empty: missing", f"2 files of {source} not as in {url}",
    ]  # fmt: skip
    told = document("verify", source, url, status=1)
    assert told["ok"] is False and told["differences"] == said.splitlines()[:2]


# -- As a process: a terminal, and being stopped --------------------------------------------------------


def start(proxy, *arguments, **more):
    return subprocess.Popen(
        [*LABKIT, *map(str, arguments)], env=os.environ | environment(proxy.url), text=True,
        preexec_fn=die_with_parent, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,
    )  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_bar_on_a_terminal_and_nowhere_else(proxy, bucket, tmp_path, more):
    (tmp_path / "big").write_bytes(bytes(PART + 1))
    for terminal in (True, False):
        proxy.plant(method="PUT", path="partNumber=2", stall=1.5)
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with start(proxy, "cp", tmp_path / "big", f"obs://{bucket}/k", "--force", *more, stderr=theirs) as child:
            os.close(theirs)
            shown = b""
            try:
                while block := os.read(ours, 1 << 16):
                    shown += block
            except OSError:  # how a terminal ends
                pass
            os.close(ours)
            said = child.communicate()[0]
        assert child.returncode == 0
        assert (b"8.39M/8.39M" in shown and b"%|" in shown) if terminal else shown == b""
        assert json.loads(said)["bytes"] == PART + 1 if more else said.startswith("1 file copied")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", ["up", "down"])
def test_stopped_and_given_again(store, proxy, bucket, tmp_path, way, sent):
    content = random.Random(1).randbytes(4 * PART + 12345)
    (tmp_path / "big").write_bytes(content)
    ends = (tmp_path / "big", f"obs://{bucket}/k")
    if way == "down":
        assert run("cp", *ends)[0] == 0
        ends = (ends[1], tmp_path / "back" / "big")
    method, path = ("PUT", "partNumber") if way == "up" else ("GET", "/k")
    for _ in range(2):
        proxy.plant(method=method, path=path)  # these pass
    proxy.plant(method=method, path=path, times=10**6, stall=60)
    with start(proxy, "cp", *ends, "--jobs", 2) as child:
        until = time.monotonic() + 60
        while len(proxy.requests(method, path)) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.3)
        child.send_signal(sent)
        begun = time.monotonic()
        said, errors = child.communicate(timeout=30)
    assert (child.returncode, said, errors) == (130, "", "\nstopped; the same command goes on from here\n")
    assert time.monotonic() - begun < 5
    proxy.clear()
    with start(proxy, "cp", *ends, "--json") as child:
        said, errors = child.communicate(timeout=60)
    assert child.returncode == 0 and errors == ""
    assert json.loads(said)["bytes"] == len(content) - 2 * PART
    assert len(proxy.requests(method, path)) == 3
    assert (tmp_path / "back" / "big").read_bytes() == content if way == "down" else (
        content_of(store, bucket, "k") == content and open_uploads(store, bucket, "k") == []
    )  # fmt: skip
