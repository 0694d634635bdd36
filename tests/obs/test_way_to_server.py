"""The way to a server: proxies, IPv6, nobody there, what is sent in the clear, and what a refusal says."""

import contextlib
import os
import select
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest
from copies import contents, make, put
from proxy import FaultProxy
from swift import environment

from labkit.obs import CloudError, CopyError, copy, rm
from labkit.obs.store import Store


class ConnectProxy(socketserver.ThreadingTCPServer):
    """A proxy that tunnels to one server, whatever it is asked for; `asked` has the requests' heads."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.to, self.asked = port, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Tunnel(socketserver.StreamRequestHandler):
    def handle(self):
        lines = iter(self.rfile.readline, b"\r\n")
        self.server.asked.append(b"".join(lines).decode())
        with socket.create_connection(("127.0.0.1", self.server.to)) as server, contextlib.suppress(OSError):
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            ends = {self.connection: server, server: self.connection}
            while True:
                for one in select.select(ends, [], [])[0]:
                    if not (block := one.recv(1 << 16)):
                        return
                    ends[one].sendall(block)


@pytest.fixture
def clean(monkeypatch):
    """An environment without settings for proxies."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_a_proxy_is_used(swift, bucket, tmp_path, clean):
    """The one that `labkit jobs` uses too; no_proxy and this machine are left out."""
    with ConnectProxy(swift.port) as proxy:
        clean.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{proxy.server_address[1]}")
        far = Store.connect(environment("http://192.0.2.1:8080"), deadline=10)
        copy(make(tmp_path / "up", {"a": b"1"}), f"obs://{bucket}/x", store=far)
        copy(f"obs://{bucket}/x", tmp_path / "down", store=far)
        assert contents(tmp_path / "down") == {"a": b"1"}
        assert all(head.startswith("CONNECT 192.0.2.1:8080 ") for head in proxy.asked) and proxy.asked
        assert "Proxy-Authorization: Basic bWU6cEBzcw==" in proxy.asked[0]
        count = len(proxy.asked)
        assert list(Store.connect(swift.environment, deadline=10).list(bucket)) and len(proxy.asked) == count
        clean.setenv("no_proxy", "192.0.2.0,192.0.2.1")
        assert not Store.connect(environment("http://192.0.2.1:8080")).client.proxy_host
        proxy.shutdown()


@pytest.mark.parametrize("text", ["ftp://h:1", "http://:80", "http://me:hush@h:port"])
def test_a_proxy_that_is_none(clean, text):
    clean.setenv("http_proxy", text)
    with pytest.raises(CloudError, match="^http_proxy: not of the form http://HOST:PORT$"):
        Store.connect(environment("http://192.0.2.1"))


def test_ipv6(swift, bucket):
    with FaultProxy(swift.port, host="::1") as proxy:
        store = Store.connect(environment(proxy.url), deadline=10)
        put(store, bucket, "k")
        assert [entry.key for entry in store.list(bucket)] == ["k"] and proxy.requests("PUT", f"^/{bucket}/k")


@pytest.mark.parametrize("url", ["https://h/path", "https://h:1/a/b/", "http://h?x=1", "h/#x"])
def test_an_endpoint_with_a_path_is_refused(url):
    """It was dropped, and another server's root asked."""
    with pytest.raises(CloudError, match="^OBS_ENDPOINT .*: must end after the host or port"):
        Store.connect(environment(url))
    assert Store.connect(environment("https://h/")).url == "https://h/"


def test_nobody_there_is_said_soon(swift, monkeypatch):
    """Not after five minutes; a server that has answered may start again."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(CloudError, match="ConnectionRefusedError.*is the server of OBS_ENDPOINT running.*given up"):
        Store.connect(environment(f"http://127.0.0.1:{port}")).head("my-bucket", "k")
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("url, warns", [
    ("http://192.0.2.1", True), ("https://192.0.2.1", False), ("http://127.0.0.1", False), ("http://[::1]:8", False),
])  # fmt: skip
def test_a_token_in_the_clear_is_mentioned(url, warns):
    lines = []
    Store.connect(environment(url), notice=lines.append)
    assert lines == []
    Store.connect(environment(url) | {"OBS_SECURITY_TOKEN": "hush"}, notice=lines.append)
    assert bool(lines) == warns and "hush" not in str(lines)
    assert not warns or lines[0].startswith("192.0.2.1: http://, so anybody on the way can read and use your token")


def test_a_refused_head_says_why(swift, bucket, direct, proxy):
    """As `ls` does: an answer to a HEAD has no body."""
    put(direct, bucket, "k")
    stranger = Store.connect(environment(proxy.url) | {"OBS_SECRET_ACCESS_KEY": "wrong"}, deadline=10)
    with pytest.raises(CloudError) as listed:
        list(stranger.list(bucket))
    with pytest.raises(CloudError) as asked:
        stranger.head(bucket, "k")
    assert (asked.value.code, asked.value.status) == (listed.value.code, 403) and listed.value.code
    assert listed.value.message.partition(": ")[2] == asked.value.message.partition(": ")[2] != "Forbidden"


LISTING = """<?xml version="1.0"?><ListBucketResult><Name>%s</Name><Prefix>x/</Prefix><MaxKeys>1000</MaxKeys>
<IsTruncated>false</IsTruncated><Contents><Key>%s</Key><Size>%s</Size><ETag>"0"</ETag></Contents></ListBucketResult>"""


@pytest.mark.parametrize("key, size, says", [
    ("other/thesis", "1", "the listing has 'other/thesis', which is not below it"),
    *[("x/a", size, "x/a: the size that the server gives is no number of bytes") for size in ("many", "-1", "1e9", "")],
])  # fmt: skip
def test_a_listing_that_cannot_be_is_not_believed(through, proxy, bucket, tmp_path, key, size, says):
    """Also where nothing would be removed yet."""
    proxy.plant(method="GET", times=10**6, answer=(200, (LISTING % (bucket, key, size)).encode(), {}))
    for act in (lambda: rm(f"obs://{bucket}/x", recursive=True, dry_run=True, store=through),
                lambda: rm(f"obs://{bucket}/x", recursive=True, store=through),
                lambda: copy(f"obs://{bucket}/x", tmp_path / "new", store=through)):  # fmt: skip
        with pytest.raises(CloudError, match=says):
            act()
    assert proxy.requests("DELETE") == [] and not (tmp_path / "new").exists()


def test_no_more_threads(direct, bucket, tmp_path):
    """As under `ulimit -u`: one line."""
    source = make(tmp_path / "source", {f"{number}": b"1" for number in range(40)})
    script = "import resource, sys; from labkit.cli import main; import labkit.obs.copying, obs, tqdm\n"
    script += "resource.setrlimit(resource.RLIMIT_AS, (600 << 20,) * 2); import threading\n"
    script += "threading.stack_size(64 << 20); main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, "obs", "cp", source, f"obs://{bucket}/x", "--jobs", "40"],
        env=os.environ | environment(direct.url), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "starts no further thread: choose a smaller --jobs" in done.stderr


@pytest.fixture
def disk(tmp_path):
    """A folder with room for one megabyte."""
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "disk"]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root mounts a small disk")
    yield tmp_path / "disk"
    subprocess.run(["umount", tmp_path / "disk"], check=True)


def test_a_full_disk_ends_a_copy(through, proxy, bucket, tmp_path, disk):
    """At the first file that has no room: few others are tried, nothing half stays, and the path is named."""
    source = make(tmp_path / "source", {f"{number:03}": bytes(100_000) for number in range(60)})
    copy(source, f"obs://{bucket}/x", store=through)
    for place in (f"obs://{bucket}/x", source):
        with pytest.raises(CopyError, match=r"disk/new/\d+: No space left on device") as caught:
            copy(place, disk / "new", jobs=4, store=through)
        report = caught.value.report
        assert report.copied + len(report.failed) == 60 and report.copied <= 10
        assert all("No space left" in str(error) for _, error in report.failed)
        assert len(os.listdir(disk / "new")) == report.copied and len(proxy.requests("GET", "/x/")) < 20
        shutil.rmtree(disk / "new")
