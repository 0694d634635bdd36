"""labkit obs: what is printed, and exit statuses."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from copies import contents, make, objects, put, refused, run
from faulty import error

from labkit.cli import main
from labkit.obs import access

TREE = {"a.txt": b"a", "empty": b"", "deep/b.bin": bytes(range(256)), "ä ö/日本 &<>.txt": b"unicode"}
TOTAL = sum(map(len, TREE.values()))
URL = "obs://course/x"

pytestmark = pytest.mark.usefixtures("account")


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", TREE)


def test_a_folder_up_and_down(source, tmp_path):
    said = f"4 files copied, {TOTAL} bytes; 0 there already\n"
    assert run("cp", source, URL) == run("cp", URL, tmp_path / "back") == (0, said, "")
    assert contents(tmp_path / "back") == TREE
    said = "0 files copied, 0 bytes; 4 there already\n"
    assert run("cp", source, URL) == run("cp", URL, tmp_path / "back") == (0, said, "")
    (source / "a.txt").write_bytes(b"b")
    assert run("cp", source, URL)[1] == "1 file copied, 1 bytes; 3 there already\n"
    assert run("cp", source, URL, "--force")[1].startswith("4 files copied")
    assert run("cp", source, URL, "--force", "--quiet") == (0, "", "")
    assert run("cp", source, f"{source}/../source")[1].startswith("0 files copied")


def test_dry_run(server, source):
    lines = [f"would copy {len(TREE[name]):15}  {name}" for name in sorted(TREE)]
    lines += [f"4 files would be copied, {TOTAL} bytes; 0 there already", ""]
    assert run("cp", source, URL, "--dry-run") == (0, "\n".join(lines), "") and objects(server) == {}
    assert run("cp", source, "obs://course/y", "--include", "*.txt", "--exclude", "ä*")[0] == 0
    assert [key for key in objects(server) if key.startswith("y")] == ["y/a.txt"]


def test_some_files_fail(server, source):
    for name in ("empty", "a.txt"):
        server.plant(f"PUT x/{name}", error(400, "InvalidArgument"), times=2)
    status, said, errors = run("cp", source, URL)
    assert (status, said) == (1, "") and len(errors.splitlines()) == 2
    assert "empty: obs://" in errors and errors.splitlines()[-1].startswith("Error: a.txt: obs://course/x/a.txt: ")
    assert "status 400, InvalidArgument" in errors and "2 copied" in errors
    assert "0 copied, 2 there already" in run("cp", source, URL)[2]


def test_what_fails_as_a_whole(server, source, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty: nothing to copy" in refused("cp", tmp_path / "empty", URL)
    assert "/none: there is no such" in refused("cp", tmp_path / "none", URL)
    assert "obs://course/none" in refused("cp", "obs://course/none", tmp_path / "back")
    assert "must begin with obs://, s3:// or file://" in refused("cp", "http://b/k", "x")
    assert "status 404, NoSuchBucket, request " in refused("ls", "obs://no-such-bucket")
    monkeypatch.setenv("OBS_SECRET_ACCESS_KEY", "hidden-and-wrong")
    for command in (["cp", source, URL], ["ls", URL], ["rm", URL]):
        assert "obs://course/x" in (said := refused(*command)) and "status 403" in said and "hidden" not in said
    monkeypatch.delenv("OBS_ENDPOINT")
    assert "no server: set OBS_ENDPOINT" in refused("verify", source, URL)


@pytest.mark.parametrize("arguments, says", [
    (["cp", "one"], "Missing argument 'DST'"),
    (["cp", "a", "b", "--jobs", "0"], "--jobs"), (["ls", "x", "--deadline", "0"], "--deadline"),
])  # fmt: skip
def test_what_makes_no_sense(server, source, arguments, says):
    """Exit status 2, before any request."""
    assert says in refused(*[word.replace("SOURCE", str(source)) for word in arguments], status=2)
    assert contents(source) == TREE and server.log == []


@pytest.mark.parametrize("command", ["obs", "jobs", "submit"])
def test_the_help_names_all_that_is_read(command):
    done = CliRunner().invoke(main, [command, "--help"])
    for names in (*access.KEYS, ("OBS_ENDPOINT", "S3_ENDPOINT", "S3_USE_HTTPS", "OBS_SIGNATURE", "OBS_REGION",
                                 "OBS_CA_FILE", access.FILE, "MODELARTS_PROJECT_ID", "HUAWEICLOUD_SDK_PROJECT_ID",
                                 "MODELARTS_REGION", "MODELARTS_ENDPOINT", "MODELARTS_CA_FILE")):  # fmt: skip
        assert all(name in done.stdout for name in names)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_ls(store, source):
    assert run("ls", "obs://course") == (0, "", "              0  bytes in 0 files\n")
    assert f"{URL}/none: there is no such" in refused("ls", f"{URL}/none")
    run("cp", source, URL)
    for key in ("x/marker/", "x/"):
        put(store, key, b"")
    lines = run("ls", URL, "--recursive")[1].splitlines()
    assert [line[38:] for line in lines] == sorted(TREE)
    status, said, summary = run("ls", URL)
    assert [line[38:] for line in said.splitlines()] == ["deep/", "marker/", "ä ö/", "a.txt", "empty"]
    assert (status, summary) == (0, f"{1:15}  bytes in 2 files, 3 folders\n")
    assert re.fullmatch(r" {14}1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  a.txt\n", run("ls", f"{URL}/a.txt")[1])
    assert "must begin with obs:// or s3://" in refused("ls", source)


def test_names_that_would_move_the_cursor(store):
    put(store, "a\x1b[2Jb")
    assert run("ls", "obs://course")[1].endswith("  'a\\x1b[2Jb'\n")
    assert "\\x1b" in run("rm", "obs://course", "--recursive", "--yes")[1]


def test_help_and_ls_are_quick(source):
    """The SDK, which takes most of a second, is not imported, and no MindSpore either."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    code += "; from labkit.cli import main; main()"
    for arguments in (["--help"], ["ls", source]):
        done = subprocess.run([sys.executable, "-c", code, "obs", *arguments], capture_output=True, text=True)
        assert done.returncode == (arguments[0] == "ls") and "labkit.obs.commands" in done.stderr.split()
        assert not {"obs", "Crypto", "requests", "mindspore", "numpy", "pydantic"} & set(done.stderr.split())


def test_rm(server, store):
    for key in ("a", "dir/b", "dir/c", "dir/deep/", "dirt"):
        put(store, key, b"")
    url = "obs://course"
    assert "there is no such object" in refused("rm", f"{url}/none")
    assert "a folder needs --recursive" in refused("rm", f"{url}/dir")
    assert run("rm", f"{url}/a") == (0, f"removed  {url}/a\n", "")
    lines = [f"{url}/{key}\n" for key in ("dir/b", "dir/c", "dir/deep/")]
    assert run("rm", f"{url}/dir", "--recursive", "--dry-run")[1] == "".join(f"would remove  {line}" for line in lines)
    assert run("rm", f"{url}/dir", "--recursive")[1] == "".join(f"removed  {line}" for line in lines)
    assert list(objects(server)) == ["dirt"]
    assert run("rm", url, "--recursive", "--yes", "--quiet") == (0, "", "") and objects(server) == {}


def test_verify(store, source):
    run("cp", source, URL)
    assert run("verify", source, URL) == (0, "all is there\n", "")
    put(store, "x/a.txt", b"b")
    status, said, _ = run("verify", source, URL)
    assert status == 1 and said.splitlines()[0] == "a.txt: different content"
