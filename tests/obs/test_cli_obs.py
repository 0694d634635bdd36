"""labkit obs: what is printed, and exit statuses."""

import re
import subprocess
import sys

import pytest
from copies import BIG, TREE, make, objects, put, records, refused, run
from faulty import error
from running import contents, labkit

from labkit.obs import access

TOTAL = sum(map(len, TREE.values()))
URL = "obs://course/x"

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", TREE)


@pytest.mark.parametrize("scheme", ["obs", "s3"])
def test_a_folder_up_and_down(server, source, tmp_path, scheme):
    url = URL.replace("obs", scheme)
    said = f"5 files copied, {TOTAL:,} bytes; 0 there already\n"
    assert run("cp", source, url) == run("cp", url, tmp_path / "back") == (0, said, "")
    assert objects(server) == {f"x/{name}": content for name, content in TREE.items()}
    assert contents(tmp_path / "back") == TREE
    assert server.uploads == {} and records() == []
    said = "0 files copied, 0 bytes; 5 there already\n"
    assert run("cp", source, url) == run("cp", url, tmp_path / "back") == (0, said, "")
    (source / "a.txt").write_bytes(b"b")
    assert run("cp", source, url)[1] == "1 file copied, 1 bytes; 4 there already\n"
    assert run("cp", source, url, "--force")[1].startswith("5 files copied")
    assert run("cp", source, url, "--force", "--quiet") == (0, "", "")
    assert run("cp", source, f"{source}/../source")[1].startswith("0 files copied")


def test_dry_run(server, source):
    lines = [f"would copy {len(TREE[name]):15,}  {name}" for name in sorted(TREE)]
    lines += [f"5 files would be copied, {TOTAL:,} bytes; 0 there already", ""]
    assert run("cp", source, URL, "--dry-run") == (0, "\n".join(lines), "") and objects(server) == {}
    assert run("cp", source, "obs://course/y", "--include", "*.txt", "--exclude", "ä*")[0] == 0
    assert [key for key in objects(server) if key.startswith("y")] == ["y/a.txt"]


def test_some_files_fail(server, source):
    for name in ("empty", "a.txt"):
        server.plant(f"PUT x/{name}", error(400, "InvalidArgument"), times=2)
    status, said, errors = run("cp", source, URL)
    assert (status, said) == (1, "") and len(errors.splitlines()) == 2
    assert "empty: obs://" in errors and errors.splitlines()[-1].startswith("Error: a.txt: obs://course/x/a.txt: ")
    assert "status 400, InvalidArgument" in errors and "3 copied" in errors
    assert "0 copied, 3 there already" in run("cp", source, URL)[2]


def test_what_fails_as_a_whole(server, source, tmp_path, monkeypatch):
    """Nothing to copy as well: a typing error must not look like success."""
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", "obs://course/", "obs://course/none"):
        target = tmp_path / "x" if "obs:" in str(place) else URL
        assert f"{place}: nothing to copy" in refused("cp", place, target)
    assert "nothing to copy" in refused("cp", source, URL, "--include", "*.png")
    assert not (tmp_path / "x").exists()
    assert "/none: there is no such" in refused("cp", tmp_path / "none", URL)
    assert "must begin with obs://, s3:// or file://" in refused("cp", "http://b/k", "x")
    assert "status 404, NoSuchBucket, request " in refused("ls", "obs://no-such-bucket")
    monkeypatch.setenv("OBS_SECRET_ACCESS_KEY", "hidden-and-wrong")
    for command in (["cp", source, URL], ["ls", URL], ["rm", URL]):
        said = refused(*command)
        assert "obs://course/x" in said and "status 403, SignatureDoesNotMatch" in said and "hidden" not in said
    monkeypatch.delenv("OBS_ENDPOINT")
    assert "no server: set OBS_ENDPOINT" in refused("verify", source, URL)


@pytest.mark.parametrize("arguments, says", [
    (["cp", "one"], "Missing argument 'DST'"),
    (["cp", "a", "b", "--jobs", "0"], "--jobs"), (["ls", "x", "--deadline", "0"], "--deadline"),
])  # fmt: skip
def test_what_makes_no_sense(server, source, arguments, says):
    """Exit status 2, before any request."""
    assert says in refused(*arguments, status=2)
    assert contents(source) == TREE and server.log == []


@pytest.mark.parametrize("command", ["obs", "jobs", "submit"])
def test_the_help_names_all_that_is_read(command):
    done = labkit(command, "--help")
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
    assert [line[38:] for line in said.splitlines()] == ["deep/", "marker/", "ä ö/", "a.txt", "big", "empty"]
    assert (status, summary) == (0, f"{1 + len(BIG):15,}  bytes in 3 files, 3 folders\n")
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


def test_rm(server, store, source):
    for key in ("a", "dir/b", "dir/c", "dir/deep/", "dirt"):
        put(store, key, b"")
    url = "obs://course"
    assert "there is no such object" in refused("rm", f"{url}/none")
    assert "a folder needs --recursive" in refused("rm", f"{url}/dir")
    assert "not files on this machine" in refused("rm", source, "--recursive")
    for whole in (url, f"{url}/"):
        assert "a whole bucket is emptied with --recursive and --yes" in refused("rm", whole, "--recursive")
    for empty in (f"{url}/dir//", f"{url}//"):  # as from "dir/$NAME/" without a NAME
        assert "there is no such object" in refused("rm", empty, "--recursive", "--yes")
    assert run("rm", f"{url}/a") == (0, f"removed  {url}/a\n", "")
    lines = [f"{url}/{key}\n" for key in ("dir/b", "dir/c", "dir/deep/")]
    assert run("rm", f"{url}/dir", "--recursive", "--dry-run")[1] == "".join(f"would remove  {line}" for line in lines)
    assert run("rm", f"{url}/dir", "--recursive")[1] == "".join(f"removed  {line}" for line in lines)
    assert list(objects(server)) == ["dirt"]
    server.plant("DELETE", error(403, "AccessDenied"))
    assert "obs://course/dirt: planted (status 403, AccessDenied" in refused("rm", url, "--recursive", "--yes")
    assert run("rm", url, "--recursive", "--yes", "--quiet") == (0, "", "") and objects(server) == {}


def test_verify(store, source, tmp_path):
    run("cp", source, URL)
    assert run("verify", source, URL) == run("verify", URL, source) == (0, "all is there\n", "")
    make(source, {"a.txt": b"0", "big": BIG[::-1], "empty": b"22", "more": b"4"})
    lines = ["a.txt: different content", "big: different content", "empty: 0 bytes instead of 2", "more: missing"]
    status, said, _ = run("verify", source, URL)
    assert status == 1 and said.splitlines()[:4] == lines
    assert run("verify", URL, source)[1].splitlines()[:3] == [*lines[:2], "empty: 2 bytes instead of 0"]
    store.put("course", "k", b"text", "0" * 64)  # a sha256 that another tool wrote, of what it compressed, say
    assert run("cp", "obs://course/k", tmp_path / "k")[0] == run("verify", tmp_path / "k", "obs://course/k")[0] == 0
