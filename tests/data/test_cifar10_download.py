"""data_scripts/cifar10.py download, from a real HTTP server on loopback, with real kills."""

import signal
import subprocess
import sys
import time

import pytest
from cifar10_archive import ARCHIVE, MD5, batches, files, good, nothing, run, script, tar_bytes
from data_script import failed
from http_site import Site
from waiting import wait_until


@pytest.fixture
def site():
    site = Site(ARCHIVE)
    yield site
    site.server.shutdown()
    site.server.server_close()


def download(out, *urls, md5=MD5, retries=1, **options):
    args = ["download", "--out", out, "--md5", md5, "--retries", retries]
    for url in urls:
        args += ["--url", url]
    for name, value in options.items():
        args += [f"--{name}", value]
    return run(*args)


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


def test_dropped_connection_is_continued(site, tmp_path):
    result = download(tmp_path, site.page("/a", drop=[200_000]))
    assert result.exit_code == 0, result.output
    good(tmp_path)
    (_, range1, _, sent1), (_, range2, condition, sent2) = site.requests
    assert range1 is None and range2.startswith("bytes=") and condition == '"v1"'
    assert sent1 + sent2 < len(ARCHIVE) + 2 * (1 << 16)  # not all of it twice


def test_file_changed_on_the_server_is_fetched_whole(site, tmp_path):
    url = site.page("/a", content=b"old" * 200_000, drop=[300_000], etag='"old"')
    failed(download(tmp_path, url, retries=0), "connection")
    assert (tmp_path / "cifar-10-binary.tar.gz.part").stat().st_size > 100_000
    site.page("/a", etag='"new"')
    assert download(tmp_path, url, retries=0).exit_code == 0
    good(tmp_path)
    assert site.requests[1][2] == '"old"' and site.requests[1][3] == len(ARCHIVE)


def test_wrong_checksum_then_a_good_mirror(site, tmp_path):
    other = tar_bytes(batches(seed=1))
    result = download(tmp_path, site.page("/bad", content=other), site.page("/good"))
    assert result.exit_code == 0, result.output
    assert "wrong checksum" in result.stderr
    good(tmp_path)


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
    assert [entry[0] for entry in site.requests].count("/gone") == 1  # 404 stays: no retry
    assert [entry[0] for entry in site.requests].count("/busy") == 2
    nothing(tmp_path)


def test_without_a_network_it_ends_at_once(tmp_path, monkeypatch):
    # RFC 6761: names under .invalid are never found.
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits {seconds} s for another try"))
    result = download(tmp_path, "http://one.invalid/a", "http://two.invalid/a", retries=9)
    failed(result, "one.invalid", "two.invalid", "host name not found", "sample")


def test_disk_too_small(site, tmp_path):
    result = download(tmp_path, site.page("/a", claim=10**17), site.page("/b"))
    failed(result, tmp_path, "GiB free", "--out")
    assert len(site.requests) == 1  # no mirror makes the disk larger
    nothing(tmp_path)


def start(*args):
    command = [sys.executable, script.__file__, *map(str, args)]
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
    assert "resuming" in stderr and "ready: " in stdout
    good(tmp_path)
    assert site.requests[-1][1] == f"bytes={kept}-"
    assert site.requests[-1][3] == len(ARCHIVE) - kept


DIE_WHILE_UNPACKING = """
import os, shutil, signal
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
    command = [sys.executable, "-c", DIE_WHILE_UNPACKING, "import", source, "--out", out]
    done = subprocess.run(command)
    assert done.returncode == -signal.SIGKILL and list(out.glob(".*.unfinished/new/data_batch_3.bin"))
    assert not (out / files.FOLDER).exists()
    result = run("import", source, "--out", out)
    assert result.exit_code == 0, result.output
    assert files.check(out / files.FOLDER).train_images == 150
