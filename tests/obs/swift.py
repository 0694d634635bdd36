"""A true object server for the tests: OpenStack Swift with s3api, in a temporary folder, without root.

Four processes on free ports of 127.0.0.1, one device, one replica. Signatures (v2, v4) are checked. They end with the
process that started them, however that ends. Swift itself is installed on first use into _build/swift.
"""

import base64
import getpass
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import servers

from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.interrupts import die_with_parent

PACKAGES = ("swift==2.38.3", "setuptools==65.5.0")
HOME = REPO / "_build" / "swift"
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
RINGS = ("account", "container", "object")
SWIFT_CONF = """\
[swift-hash]
swift_hash_path_prefix = labkit
swift_hash_path_suffix = labkit
[storage-policy:0]
name = Policy-0
default = yes
"""
# With its own timeouts, a busy machine leaves a new object out of listings until a daemon, not run here, adds it.
COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}
mount_check = false
fallocate_reserve = 0
disable_fallocate = true
workers = 0
conn_timeout = 30
node_timeout = 60
container_update_timeout = 60
log_level = WARNING
log_address = {folder}/no-syslog
"""
STORAGE = COMMON + """\
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
# Parts of 2 MiB are enough where S3 itself asks for 5: a test has tens of megabytes less to send.
PROXY = COMMON + """\
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
min_segment_size = 2097152
max_upload_part_num = 10000
allow_multipart_uploads = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


class Swift:
    """A running server: `url`, `environment` for Store.connect, `new_bucket()`, `stop()`."""

    def __init__(self, folder: Path):
        self.folder, self.processes = Path(folder), []
        self.access_key, self.secret_key = ACCESS_KEY, SECRET_KEY
        self.binaries = binaries = install()
        try:
            with servers.alone(HOME):  # from the choice of ports until they are held
                ports = dict(zip((*RINGS, "proxy"), servers.free_ports(4)))
                self.port, self.url = ports["proxy"], f"http://127.0.0.1:{ports['proxy']}"
                self.container_port = ports["container"]
                self._configure(binaries, ports)
                for name in ports:
                    self._start(binaries, name)
                self._wait(60)
        except BaseException:
            self.stop()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """What labkit.obs.store.Store.connect reads."""
        return environment(self.url)

    def new_bucket(self) -> str:
        """Name of a bucket made just now."""
        bucket = f"b-{uuid.uuid4().hex[:12]}"
        status, body = self.request("PUT", f"/{bucket}")
        if status != 200:
            raise LabkitError(f"Swift made no bucket: status {status}: {body[:200]!r}")
        return bucket

    def serve_tls(self, folder) -> dict[str, str]:
        """What Store.connect reads for a second front of the server, with TLS; its certificate goes to `folder`."""
        (port,), pair = servers.free_ports(1), (folder / "tls.pem", folder / "tls.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=labkit", "-addext", "subjectAltName=IP:127.0.0.1", "-out", pair[0], "-keyout", pair[1]],
            check=True, capture_output=True,
        )  # fmt: skip
        text = PROXY.format(port=port, folder=self.folder, user=getpass.getuser())
        files = "cert_file = {}\nkey_file = {}\n[pipeline:main]".format(*pair)
        (self.folder / "tls.conf").write_text(text.replace("[pipeline:main]", files))
        self._start(self.binaries, "tls", "swift-proxy-server")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return environment(f"https://127.0.0.1:{port}") | {"OBS_CA_FILE": str(pair[0])}
            time.sleep(0.1)
        raise LabkitError("Swift's front with TLS was not ready in 60 s")

    def request(self, method, path, body=b"", timeout=30):
        """Status and body of one request, signed (v2) without the SDK that is under test."""
        date = formatdate(usegmt=True)
        text = f"{method}\n\n\n{date}\n{path}"
        signature = base64.b64encode(hmac.digest(SECRET_KEY.encode(), text.encode(), hashlib.sha1)).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Date": date, "Authorization": f"AWS {ACCESS_KEY}:{signature}"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def parts(self, bucket) -> list[str]:
        """Names of the open uploads of this bucket, and of all parts, also those in objects, which S3 does not list."""
        path = f"AUTH_test/{bucket}+segments"
        known = hashlib.md5(f"labkit/{path}labkit".encode(), usedforsecurity=False)
        partition = int.from_bytes(known.digest()[:4], "big") >> 28  # of the ring's 16
        with urlopen(f"http://127.0.0.1:{self.container_port}/d1/{partition}/{quote(path)}", timeout=30) as answer:
            return answer.read().decode().splitlines()

    def stop(self):
        """End the processes and remove the folder."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self, binaries, ports):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "d1").mkdir()
        (self.folder / "swift.conf").write_text(SWIFT_CONF)
        known = {"folder": self.folder, "user": getpass.getuser()}
        for name in RINGS:
            (self.folder / f"{name}.conf").write_text(STORAGE.format(name=name, port=ports[name], **known))
        (self.folder / "proxy.conf").write_text(PROXY.format(port=ports["proxy"], **known))
        script = (
            "import sys; from swift.common.ring import RingBuilder\n"
            "for name, port in zip(sys.argv[1::2], sys.argv[2::2]):\n"
            "    ring = RingBuilder(4, 1, 0)\n"
            "    ring.add_dev(dict(region=1, zone=1, ip='127.0.0.1', port=int(port), device='d1', weight=1.0,\n"
            "                      replication_ip='127.0.0.1', replication_port=int(port)))\n"
            "    ring.rebalance(); ring.get_ring().save(name + '.ring.gz')\n"
        )
        arguments = [word for name in RINGS for word in (name, str(ports[name]))]
        done = subprocess.run(
            [binaries / "python", "-c", script, *arguments],
            cwd=self.folder, capture_output=True, text=True, env=servers.outside(),
        )  # fmt: skip
        if done.returncode:
            raise LabkitError(f"Swift's rings were not made: {servers.last_line(done.stderr)}")

    def _start(self, binaries, name, program=None):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [binaries / (program or f"swift-{name}-server"), self.folder / f"{name}.conf", "--verbose"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=servers.outside(),
                    start_new_session=True, preexec_fn=die_with_parent,
                )  # fmt: skip
            )

    def _wait(self, seconds):
        """Until the first bucket is made: then all four servers answer."""
        end, last = time.monotonic() + seconds, "no answer"
        while time.monotonic() < end:
            for process in self.processes:
                if process.poll() is not None:
                    log = (self.folder / f"{Path(process.args[1]).stem}.log").read_text()
                    raise LabkitError(f"{Path(process.args[0]).name} ended at once: {servers.last_line(log)}")
            try:
                status, body = self.request("PUT", "/ready")
                if status == 200:
                    return
                last = f"status {status}: {body[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                last = str(error)
            time.sleep(0.1)
        raise LabkitError(f"Swift was not ready in {seconds} s: {last}")


def environment(url) -> dict[str, str]:
    """What labkit.obs.store.Store.connect reads, for Swift behind this URL."""
    return {"OBS_ENDPOINT": url, "OBS_ACCESS_KEY_ID": ACCESS_KEY, "OBS_SECRET_ACCESS_KEY": SECRET_KEY}


def install() -> Path:
    """Folder with Swift's programs; installed into _build/swift on first use. Raises LabkitError."""
    return servers.install(HOME, PACKAGES, "OpenStack Swift, the tests' object server,")
