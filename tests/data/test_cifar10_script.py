"""data_scripts/cifar10.py against a real HTTP server on loopback, real archives and real kills."""

import hashlib
import importlib.util
import io
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from data_script import failed
from waiting import wait_until

from labkit.data import cifar10_files as files

SCRIPT = Path(files.__file__).resolve().parents[2] / "data_scripts" / "cifar10.py"
ALL = (*files.TRAIN_FILES, files.TEST_FILE)
_spec = importlib.util.spec_from_file_location("cifar10_script", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def batches(images=30, seed=0):
    """{file: bytes} of random records, which gzip cannot shrink; 553,140 bytes with 30 images."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in ALL:
        records = rng.integers(0, 256, (images, files.RECORD_BYTES), dtype=np.uint8)
        records[:, 0] = rng.integers(0, 10, images)
        made[name] = records.tobytes()
    made["batches.meta.txt"] = "\n".join(files.CLASSES).encode()
    return made


def tar_bytes(contents, prefix=files.FOLDER + "/", mode="w:gz"):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def zip_bytes(contents, prefix=""):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(prefix + name, content)
    return raw.getvalue()


CONTENTS = batches()
ARCHIVE = tar_bytes(CONTENTS)
MD5 = hashlib.md5(ARCHIVE).hexdigest()


class Site:
    """A web server with one page a behaviour. `requests` lists (path, Range, If-Range, sent)."""

    def __init__(self):
        self.pages, self.requests = {}, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.answer(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def page(self, path, content=ARCHIVE, **behaviour):
        """Serve `content`. Behaviour: ranges, etag, drop=[bytes sent of each answer, then cut],
        rate (bytes a second), stall (bytes, then silence), status, type, claim (Content-Length)."""
        self.pages[path] = {"content": content, "ranges": True, "etag": '"v1"', **behaviour}
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def answer(self, request):
        page = self.pages.get(request.path)
        wanted, condition = request.headers.get("Range"), request.headers.get("If-Range")
        log = [request.path, wanted, condition, 0]
        self.requests.append(log)
        if page is None or "status" in page:
            request.send_error(page["status"] if page else 404)
            return
        content, start = page["content"], 0
        if wanted and page["ranges"] and condition in (None, page["etag"]):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(content)}")
                request.end_headers()
                return
        request.send_response(206 if start else 200)
        if start:
            last = len(content) - 1
            request.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        if page["etag"]:
            request.send_header("ETag", page["etag"])
        request.send_header("Content-Type", page.get("type", "application/x-gzip"))
        request.send_header("Content-Length", str(page.get("claim", len(content) - start)))
        request.end_headers()
        end = len(content)
        if page.get("drop"):
            end = min(end, start + page["drop"].pop(0))
        step = 16384
        try:
            for at in range(start, end, step):
                if at - start >= page.get("stall", end):
                    time.sleep(1.5)
                    return
                piece = content[at : min(at + step, end)]
                request.wfile.write(piece)
                log[3] += len(piece)
                if "rate" in page:
                    time.sleep(len(piece) / page["rate"])
        except OSError:
            pass  # the client went away, which some tests want


@pytest.fixture
def site():
    site = Site()
    yield site
    site.server.shutdown()
    site.server.server_close()


def run(*args):
    """Run the command in this process; returns its result (exit_code, stdout, stderr)."""
    return CliRunner().invoke(script.main, [str(arg) for arg in args])


def download(out, *urls, md5=MD5, retries=1, **options):
    args = ["download", "--out", out, "--md5", md5, "--retries", retries]
    for url in urls:
        args += ["--url", url]
    for name, value in options.items():
        args += [f"--{name}", value]
    return run(*args)


def good(out, contents=CONTENTS):
    """`out` holds exactly the data, and nothing else is left beside it."""
    for name, content in contents.items():
        assert (out / files.FOLDER / name).read_bytes() == content
    assert sorted(path.name for path in out.iterdir()) == [files.FOLDER]
    return files.check(out / files.FOLDER)


def nothing(out):
    """No data, and nothing that could be mistaken for it: no batch under any folder."""
    assert not (out / files.FOLDER).exists()
    assert not list(out.rglob("*.bin"))


# -- download ------------------------------------------------------------------------------------


def test_download(site, tmp_path):
    url = site.page("/a.tar.gz")
    result = download(tmp_path, url)
    assert result.exit_code == 0, result.output
    assert good(tmp_path).name == f"downloaded from {url}"
    assert "ready: " in result.stdout and "150 + 30 images" in result.stdout
    assert "100%" in result.stderr  # the bar

    result = download(tmp_path, url)
    assert result.exit_code == 0 and "already there" in result.stdout
    assert len(site.requests) == 1


def test_official_checksum_names_the_official_archive(site, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "OFFICIAL_MD5", MD5)
    assert download(tmp_path, site.page("/a")).exit_code == 0
    assert good(tmp_path).name == "CIFAR-10, official binary archive"


def test_dropped_connection_is_continued(site, tmp_path):
    result = download(tmp_path, site.page("/a", drop=[200_000]))
    assert result.exit_code == 0, result.output
    good(tmp_path)
    (_, range1, _, sent1), (_, range2, condition, sent2) = site.requests
    assert range1 is None and range2.startswith("bytes=") and condition == '"v1"'
    assert sent1 + sent2 < len(ARCHIVE) + 2 * (1 << 16)  # not all of it twice


def test_progress_renews_the_tries(site, tmp_path):
    result = download(tmp_path, site.page("/a", drop=[150_000, 150_000, 150_000]), retries=1)
    assert result.exit_code == 0, result.output
    assert len(site.requests) == 4


def test_server_without_ranges_starts_over(site, tmp_path):
    result = download(tmp_path, site.page("/a", drop=[200_000], ranges=False, etag=None))
    assert result.exit_code == 0, result.output
    good(tmp_path)
    assert site.requests[1][1] is not None and site.requests[1][3] == len(ARCHIVE)


def test_file_changed_on_the_server_is_fetched_whole(site, tmp_path):
    url = site.page("/a", content=b"old" * 200_000, drop=[300_000], etag='"old"')
    failed(download(tmp_path, url, retries=0), "connection")
    assert (tmp_path / "cifar-10-binary.tar.gz.part").stat().st_size > 100_000
    site.page("/a", etag='"new"')
    assert download(tmp_path, url, retries=0).exit_code == 0
    good(tmp_path)
    assert site.requests[1][2] == '"old"' and site.requests[1][3] == len(ARCHIVE)


def test_wrong_rest_is_found_by_the_checksum_and_fetched_again(site, tmp_path):
    url = site.page("/a", content=b"old" * 200_000, drop=[300_000], etag=None)
    failed(download(tmp_path, url, retries=0))
    site.page("/a", etag=None)
    result = download(tmp_path, url, retries=0)
    assert result.exit_code == 0, result.output
    assert "starting over" in result.stderr
    good(tmp_path)


def test_mirror_continues_what_the_first_address_began(site, tmp_path):
    first = site.page("/first", drop=[300_000, 0])
    second = site.page("/second", etag='"other"')
    assert download(tmp_path, first, second, retries=0).exit_code == 0
    good(tmp_path)
    path, wanted, condition, sent = site.requests[-1]
    assert path == "/second" and wanted and condition is None and sent < 400_000


def test_wrong_checksum_then_a_good_mirror(site, tmp_path):
    other = tar_bytes(batches(seed=1))
    result = download(tmp_path, site.page("/bad", content=other), site.page("/good"))
    assert result.exit_code == 0, result.output
    assert "wrong checksum" in result.stderr
    good(tmp_path)


def test_wrong_checksum_everywhere(site, tmp_path):
    other = tar_bytes(batches(seed=1))
    result = download(tmp_path, site.page("/bad", content=other))
    failed(result, "/bad (wrong checksum: MD5", hashlib.md5(other).hexdigest(), MD5)
    assert list(tmp_path.iterdir()) == []


def test_all_mirrors_fail(site, tmp_path):
    urls = [
        site.page("/gone", status=404),
        site.page("/busy", status=503),
        site.page("/cut", drop=[9, 0]),
        "http://127.0.0.1:9/closed",
        "gopher:nonsense",
    ]
    result = download(tmp_path, *urls, retries=1)
    line = failed(result, *urls, "HTTP 404 Not Found", "HTTP 503", "connection", "refused", "valid")
    assert len(line.splitlines()) == 1
    assert [entry[0] for entry in site.requests].count("/gone") == 1  # 404 stays: no new try
    assert [entry[0] for entry in site.requests].count("/busy") == 2
    nothing(tmp_path)


def test_without_a_network_it_ends_at_once(tmp_path, monkeypatch):
    # RFC 6761: names under .invalid are never found.
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits {seconds} s for another try"))
    result = download(tmp_path, "http://one.invalid/a", "http://two.invalid/a", retries=9)
    failed(result, "one.invalid", "two.invalid", "host name not found", "sample")


def test_silent_server_times_out(site, tmp_path):
    result = download(tmp_path, site.page("/a", stall=100_000), retries=0, timeout=0.3)
    failed(result, "no answer for 0.3 s")
    nothing(tmp_path)


def test_login_page_is_no_archive(site, tmp_path):
    url = site.page("/a", content=b"<html>log in</html>", type="text/html; charset=utf-8")
    failed(download(tmp_path, url), "web page")
    assert list(tmp_path.iterdir()) == []


def test_disk_too_small(site, tmp_path):
    result = download(tmp_path, site.page("/a", claim=10**17), site.page("/b"))
    failed(result, tmp_path, "GiB free", "--out")
    assert len(site.requests) == 1  # no mirror makes the disk larger
    nothing(tmp_path)


def test_whole_part_file_needs_no_network(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(ARCHIVE)
    assert download(tmp_path, "http://127.0.0.1:9/closed").exit_code == 0
    good(tmp_path)


def test_part_file_longer_than_the_archive(site, tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(ARCHIVE + b"x")
    result = download(tmp_path, site.page("/a"))
    assert result.exit_code == 0, result.output
    good(tmp_path)
    assert [entry[1] for entry in site.requests] == [f"bytes={len(ARCHIVE) + 1}-", None]


def test_right_checksum_of_a_bad_archive(site, tmp_path):
    contents = {**CONTENTS, "data_batch_2.bin": CONTENTS["data_batch_2.bin"][:-1]}
    archive = tar_bytes(contents)
    result = download(tmp_path, site.page("/a", archive), md5=hashlib.md5(archive).hexdigest())
    failed(result, "data_batch_2.bin: record 29 is cut short")
    assert list(tmp_path.iterdir()) == []


def test_damaged_data_is_replaced_only_with_force(site, tmp_path):
    url = site.page("/a")
    download(tmp_path, url)
    (tmp_path / files.FOLDER / "test_batch.bin").unlink()
    failed(download(tmp_path, url), "test_batch.bin: this batch is missing", "--force")
    args = ["download", "--out", tmp_path, "--md5", MD5, "--url", url, "--force"]
    assert run(*args).exit_code == 0
    good(tmp_path)


def test_md5_must_be_one(tmp_path):
    result = download(tmp_path, "http://127.0.0.1:9/", md5="12")
    assert result.exit_code == 2 and "32 hexadecimal digits" in result.stderr


def start(*args):
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_download_continues(site, tmp_path):
    url = site.page("/a", rate=100_000)
    part = tmp_path / "cifar-10-binary.tar.gz.part"
    args = ["download", "--out", tmp_path, "--md5", MD5, "--url", url]
    process = start(*args)
    wait_until(lambda: part.exists() and part.stat().st_size > 100_000, seconds=300)

    # A second one into the same folder keeps its hands off.
    failed(run(*args), tmp_path, "another download")

    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    nothing(tmp_path)
    kept = part.stat().st_size
    assert kept < len(ARCHIVE)

    site.page("/a")
    process = start(*args)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert "continuing" in stderr and "ready: " in stdout
    good(tmp_path)
    assert site.requests[-1][1] == f"bytes={kept}-"
    assert site.requests[-1][3] == len(ARCHIVE) - kept


DIE_WHILE_UNPACKING = f"""
import os, shutil, signal, sys
sys.path.insert(0, {str(SCRIPT.parents[1])!r})
from data_scripts import cifar10

def half(source, target, *size, copy=shutil.copyfileobj):
    if str(target.name).endswith("data_batch_3.bin"):
        target.write(source.read(1000))
        target.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    copy(source, target, *size)

shutil.copyfileobj = half
cifar10.main()
"""


def test_killed_while_unpacking_leaves_no_data(tmp_path):
    source = tmp_path / "mine.tar.gz"
    source.write_bytes(ARCHIVE)
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", DIE_WHILE_UNPACKING, "import", source, "--out", out])
    assert done.returncode == -signal.SIGKILL and list(out.glob(".*.unfinished/data_batch_3.bin"))
    assert not (out / files.FOLDER).exists()
    result = run("import", source, "--out", out)
    assert result.exit_code == 0, result.output
    assert files.check(out / files.FOLDER).train_images == 150


# -- import --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "tar.xz", "zip", "folder"])
def test_import(tmp_path, kind):
    # The seed's layout: batches under train/ and eval/, with things that nobody asked for.
    nested = {f"cifar10/train/{name}": CONTENTS[name] for name in files.TRAIN_FILES}
    nested["cifar10/eval/test_batch.bin"] = CONTENTS["test_batch.bin"]
    nested["cifar10/batches.meta.txt"] = CONTENTS["batches.meta.txt"]
    nested |= {"cifar10/readme.html": b"<p>", "__MACOSX/train/._data_batch_1.bin": b"junk"}
    given = tmp_path / f"mine.{kind}"
    if kind == "folder":
        for name, content in nested.items():
            (given / name).parent.mkdir(parents=True, exist_ok=True)
            (given / name).write_bytes(content)
    elif kind == "zip":
        given.write_bytes(zip_bytes(nested))
    else:
        mode = {"tar.gz": "w:gz", "tar": "w", "tar.xz": "w:xz"}[kind]
        given.write_bytes(tar_bytes(nested, prefix="", mode=mode))
    result = run("import", given, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert good(tmp_path / "out").name == f"imported from mine.{kind}"
    assert sorted(p.name for p in (tmp_path / "out" / files.FOLDER).iterdir()) == sorted(
        [*CONTENTS, "SOURCE.txt"]
    )


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(ARCHIVE)
    return path


def test_import_of_the_official_archive_says_so(archive, tmp_path, monkeypatch):
    result = run("import", archive, "--out", tmp_path / "other")
    assert f"MD5 {MD5}, so not the official" in result.stderr
    assert good(tmp_path / "other").name == "imported from cifar-10-binary.tar.gz"
    monkeypatch.setattr(script, "OFFICIAL_MD5", MD5)
    result = run("import", archive, "--out", tmp_path / "other")  # the same bytes, better known
    assert "the same data" in result.stdout
    assert good(tmp_path / "other").name == "CIFAR-10, official binary archive"
    run("import", archive, "--out", tmp_path / "other", "--source", "CIFAR-10,\nmine")
    assert good(tmp_path / "other").name == "CIFAR-10, mine"


def test_import_spares_other_data_without_force(archive, tmp_path):
    (tmp_path / "b.tar").write_bytes(tar_bytes(batches(seed=1), mode="w"))
    assert run("import", archive, "--out", tmp_path / "out").exit_code == 0
    result = run("import", tmp_path / "b.tar", "--out", tmp_path / "out")
    failed(result, "holds other data (imported from cifar-10-binary.tar.gz)", "--force")
    good(tmp_path / "out")
    assert run("import", tmp_path / "b.tar", "--out", tmp_path / "out", "--force").exit_code == 0
    assert good(tmp_path / "out", batches(seed=1)).name == "imported from b.tar"


def bad_import(tmp_path, content, *words, name="bad.tar.gz"):
    """Importing this archive fails with these words and its name, and leaves nothing."""
    (tmp_path / name).write_bytes(content)
    failed(run("import", tmp_path / name, "--out", tmp_path / "out"), name, *words)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("share", [0.001, 0.3, 0.99])
@pytest.mark.parametrize("kind", ["tar.gz", "tar", "tar.xz", "zip"])
def test_truncated_archive(tmp_path, kind, share):
    if kind == "zip":
        whole = zip_bytes(CONTENTS)
    else:
        whole = tar_bytes(CONTENTS, mode={"tar.gz": "w:gz", "tar": "w", "tar.xz": "w:xz"}[kind])
    bad_import(tmp_path, whole[: int(share * len(whole))], name=f"cut.{kind}")


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "zip"])
def test_one_wrong_bit_in_an_archive(tmp_path, kind):
    # The pixels are random and so stored as they are: only the archive's own checksum can tell.
    if kind == "zip":
        content = bytearray(zip_bytes(CONTENTS))
    else:
        content = bytearray(tar_bytes(CONTENTS, mode={"tar.gz": "w:gz", "tar.xz": "w:xz"}[kind]))
    content[len(content) // 4] ^= 1
    bad_import(tmp_path, bytes(content), "not a whole", name=f"bit.{kind}")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"data_batch_3.bin": None}, "data_batch_3.bin: this batch is missing"),
        ({"data_batch_3.bin": b""}, "data_batch_3.bin: the file is empty"),
        ({"test_batch.bin": CONTENTS["test_batch.bin"][:-5]}, "test_batch.bin: record 29 is cut"),
        ({"data_batch_1.bin": b"\x0a" + bytes(3072)}, "data_batch_1.bin: record 0 has label 10"),
        ({"batches.meta.txt": b"one\n"}, "batches.meta.txt: 1 class names"),
    ],
)
def test_import_of_bad_data_names_archive_and_file(tmp_path, change, words):
    contents = {name: change.get(name, content) for name, content in CONTENTS.items()}
    contents = {name: content for name, content in contents.items() if content is not None}
    bad_import(tmp_path, tar_bytes(contents), f"bad.tar.gz: {words}")


def test_import_of_something_else(tmp_path):
    bad_import(tmp_path, tar_bytes({"data_batch_1": b"pickle"}), "holds none of CIFAR-10's files")
    bad_import(tmp_path, b"plain text", "not a whole .tar.gz, .tar or .zip", name="notes.txt")


@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
@pytest.mark.parametrize("prefix", ["../", "a/../../", "/etc/", "..\\"])
def test_paths_that_lead_outside(tmp_path, make, prefix):
    bad_import(tmp_path, make(CONTENTS, prefix=prefix), "leads outside the archive")
    assert not list(tmp_path.rglob("*.bin"))


def test_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(CONTENTS["test_batch.bin"])
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in ALL:
            entry = tarfile.TarInfo(name)
            if name == files.TEST_FILE:
                entry.type, entry.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
                archive.addfile(entry)
            else:
                entry.size = len(CONTENTS[name])
                archive.addfile(entry, io.BytesIO(CONTENTS[name]))
    bad_import(tmp_path, raw.getvalue(), "test_batch.bin: this batch is missing")


def test_batch_found_twice(tmp_path):
    folder = tmp_path / "given"
    for name, content in CONTENTS.items():
        for part in ("a", "b"):
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / name).write_bytes(content)
    assert run("import", folder, "--out", tmp_path / "out").exit_code == 0
    good(tmp_path / "out")
    (folder / "b" / "data_batch_4.bin").write_bytes(bytes(3073))
    result = run("import", folder, "--out", tmp_path / "out2")
    failed(result, folder, "two different files data_batch_4.bin")
    nothing(tmp_path / "out2")


def test_import_of_the_data_folder_itself(archive, tmp_path):
    run("import", archive, "--out", tmp_path / "out")
    result = run("import", tmp_path / "out" / files.FOLDER, "--out", tmp_path / "out", "--force")
    failed(result, "the data folder itself")
    good(tmp_path / "out")


def test_out_below_a_file(archive, tmp_path):
    failed(run("import", archive, "--out", archive / "x"), archive, "Not a directory")


# -- sample, check, help -------------------------------------------------------------------------


def test_sample_then_check(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    failed(run("check"), tmp_path / files.FOLDER, "download", "sample")
    result = run("sample")
    assert result.exit_code == 0 and "1,437 + 360 images" in result.stdout
    assert "already there" in run("sample").stdout
    info = files.check(tmp_path / "sample" / files.FOLDER)
    assert "CIFAR-10 itself is not there" in run("check").stdout
    for args in (["check"], ["check", tmp_path / "sample"], ["check", info.folder]):
        lines = run(*args).stdout.splitlines()
        assert lines[0] == f"{info.folder}: {info.name}"
        rows = [line.split() for line in lines]
        assert ["data_batch_5.bin", "287"] in rows and ["test_batch.bin", "360"] in rows
        assert ["zero", "142", "36"] in rows and ["all", "1,437", "360"] in rows
        assert ["sha256", info.sha256] in rows


def test_check_of_damaged_data_fails(archive, tmp_path):
    run("import", archive, "--out", tmp_path / "out")
    (tmp_path / "out" / files.FOLDER / "data_batch_1.bin").write_bytes(bytes(3000))
    failed(run("check", tmp_path / "out"), "data_batch_1.bin: record 0 is cut short")


def test_damaged_sample(tmp_path):
    run("sample", "--out", tmp_path)
    (tmp_path / "sample" / files.FOLDER / "test_batch.bin").write_bytes(b"")
    failed(run("sample", "--out", tmp_path), "test_batch.bin: the file is empty", "--force")
    assert run("sample", "--out", tmp_path, "--force").exit_code == 0
    assert files.check(tmp_path / "sample" / files.FOLDER).test_images == 360


@pytest.mark.parametrize("command", [[], ["download"], ["import"], ["sample"], ["check"]])
def test_help_has_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example: python data_scripts/cifar10.py {' '.join(command)}" in result.stdout


def test_built_in_addresses_are_the_archive_on_four_hosts():
    assert script.URLS[0] == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert len({url.split("/")[2] for url in script.URLS}) == 4
    assert all(url.startswith("https://") and url.endswith(script.ARCHIVE) for url in script.URLS)
