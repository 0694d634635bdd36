"""The servers of these tests themselves: the proxy passes everything on, and Swift leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import swift as module
from swift import SECRET_KEY, Swift, environment

from labkit.obs.store import Store
from labkit.system.errors import LabkitError


def test_the_proxy_changes_nothing_and_counts(proxy, bucket):
    store = Store.connect(environment(proxy.url))
    content = os.urandom(300_000)
    etag = store.put(bucket, "a b", content, "0" * 64)
    assert store.get(bucket, "a b", 0, len(content), etag) == content
    assert [(one.method, one.up, one.down, one.status) for one in proxy.requests()] == [
        ("PUT", len(content), 0, 200), ("GET", 0, len(content), 206),
    ]  # fmt: skip
    assert len(proxy.requests("GET", f"^/{bucket}/a")) == 1 and proxy.requests("HEAD") == []
    proxy.clear()
    assert proxy.requests() == []


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM])
def test_swift_ends_with_who_started_it(tmp_path, ended):
    code = f"import time\nfrom swift import Swift\nserver = Swift({str(tmp_path / 'swift')!r})\n"
    code += "print(*[one.pid for one in server.processes], flush=True)\ntime.sleep(100)"
    folders = os.pathsep.join([os.path.dirname(module.__file__), str(module.REPO)])
    known = {**os.environ, "PYTHONPATH": folders}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=known) as starter:
        started = [psutil.Process(int(pid)) for pid in starter.stdout.readline().split()]
        assert len(started) == 4 and all(one.is_running() for one in started)
        starter.send_signal(ended)
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_stop_leaves_nothing(tmp_path):
    server = Swift(tmp_path / "swift")
    assert server.request("GET", f"/{server.new_bucket()}")[0] == 200
    started = [psutil.Process(one.pid) for one in server.processes]
    server.stop()
    assert not any(one.is_running() for one in started) and not (tmp_path / "swift").exists()


def test_a_server_that_does_not_start_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PROXY", module.PROXY.replace("egg:swift#s3api", "egg:swift#none"))
    begun = time.monotonic()
    with pytest.raises(LabkitError, match="^swift-proxy-server ended at once: .*none") as caught:
        Swift(tmp_path / "swift")
    assert "\n" not in str(caught.value) and SECRET_KEY not in str(caught.value) and time.monotonic() - begun < 300
    assert not (tmp_path / "swift").exists()


def test_what_cannot_be_installed_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HOME", tmp_path / "swift")
    monkeypatch.setattr(module, "PACKAGES", (str(tmp_path / "nothing-here"),))
    with pytest.raises(LabkitError, match="^OpenStack Swift, .* cannot be installed: .") as caught:
        module.install()
    assert "\n" not in str(caught.value) and not (tmp_path / "swift" / ".stamp").exists()


def test_swift_tells_the_parts_that_it_keeps(swift, bucket):
    store = Store.connect(swift.environment)
    upload = store.create_multipart_upload(bucket, "a b", "0" * 64)
    for number in (1, 3):
        store.upload_part(bucket, "a b", upload, number, b"part")
    assert swift.parts(bucket) == [f"a b/{upload}{part}" for part in ("", "/1", "/3")]
    store.abort_multipart_upload(bucket, "a b", upload)
    assert swift.parts(bucket) == []
