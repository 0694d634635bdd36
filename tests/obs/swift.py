"""A real object server for the tests: OpenStack Swift with s3api, in a temporary folder, without root.

Four processes on free ports of 127.0.0.1, one device, one replica. Signatures (v2, v4) are checked. They end with the
process that started them, however that ends. Swift itself is installed on first use into _build/swift.
"""

import fcntl
import getpass
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.obs.place import CloudError
from labkit.obs.store import Store
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.interrupts import die_with_parent

PACKAGES = ("swift==2.38.3", "setuptools==65.5.0")
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
HOME = REPO / "_build" / "swift"
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
MAKE_RINGS = """\
import sys; from swift.common.ring import RingBuilder
for name, port in zip(sys.argv[1::2], sys.argv[2::2]):
    ring = RingBuilder(4, 1, 0)
    ring.add_dev(dict(region=1, zone=1, ip='127.0.0.1', port=int(port), device='d1', weight=1.0,
                      replication_ip='127.0.0.1', replication_port=int(port)))
    ring.rebalance(); ring.get_ring().save(name + '.ring.gz')
"""


class Swift:
    """A running server: `url`, `environment()` for Store.connect, `new_bucket()`, `stop()`."""

    def __init__(self, folder: Path):
        self.folder, self.processes = Path(folder), []
        binaries = install()
        try:
            with _alone():  # from the choice of ports until they are held
                ports = dict(zip((*RINGS, "proxy"), _free_ports(4)))
                self.url = f"http://127.0.0.1:{ports['proxy']}"
                self._configure(binaries, ports)
                for name in ports:
                    self._start(binaries, name)
                self._wait(60)
        except BaseException:
            self.stop()
            raise

    def environment(self) -> dict[str, str]:
        """What leads labkit here."""
        keys = {"OBS_ACCESS_KEY_ID": "test:tester", "OBS_SECRET_ACCESS_KEY": "testing"}
        return {"OBS_ENDPOINT": self.url, **keys}

    def new_bucket(self) -> str:
        """Name of a bucket made just now."""
        bucket = f"b-{uuid.uuid4().hex[:12]}"
        self.make_bucket(bucket)
        return bucket

    def make_bucket(self, bucket):
        """Make a bucket, unless there is one."""
        store = Store.connect(self.environment(), deadline=20)
        with suppress(CloudError):
            store.ask(bucket, lambda: store.client.createBucket(bucket))
        assert list(store.list(bucket)) is not None

    def stop(self):
        """End the processes and remove the folder."""
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self, binaries, ports):
        (self.folder / "d1").mkdir(parents=True)
        (self.folder / "swift.conf").write_text(SWIFT_CONF)
        known = {"folder": self.folder, "user": getpass.getuser()}
        for name, port in ports.items():
            text = (PROXY if name == "proxy" else STORAGE).format(name=name, port=port, **known)
            (self.folder / f"{name}.conf").write_text(text)
        arguments = [word for name in RINGS for word in (name, str(ports[name]))]
        _run([binaries / "python", "-c", MAKE_RINGS, *arguments], cwd=self.folder)

    def _start(self, binaries, name):
        with open(self.folder / f"{name}.log", "wb") as log:
            command = [binaries / f"swift-{name}-server", self.folder / f"{name}.conf", "--verbose"]
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.processes.append(
                subprocess.Popen(command, cwd=self.folder, env=_outside(), preexec_fn=die_with_parent, **streams)
            )

    def _wait(self, seconds):
        """Until the first bucket is made: then all four servers answer."""
        end, last = time.monotonic() + seconds, None
        while time.monotonic() < end and all(process.poll() is None for process in self.processes):
            try:
                self.new_bucket()
                return
            except CloudError as error:
                last = error
        logs = [(self.folder / f"{name}.log").read_text() for name in (*RINGS, "proxy")]
        raise LabkitError(f"Swift did not start: {last}: {[_last_line(log) for log in logs if log]}")


def install() -> Path:
    """Folder with Swift's programs, in an environment of their own; made anew where a pin has changed."""
    stamp, binaries, wanted = HOME / ".stamp", HOME / "bin", "\n".join(PACKAGES) + CONSTRAINTS.read_text()
    with _alone():
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(HOME, ignore_errors=True)
            _run([sys.executable, "-m", "venv", HOME])
            _run([binaries / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "10",
                  "-c", CONSTRAINTS, *PACKAGES])  # fmt: skip
            stamp.write_text(wanted)
    return binaries


def _run(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, env=_outside(), **how)
    if done.returncode:
        raise LabkitError(f"OpenStack Swift: {command[1:4]}: {_last_line(done.stderr or done.stdout)}")


def _outside():
    """This environment without what leads Swift's Python to the project's modules: some have its names."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@contextmanager
def _alone():
    """One test process at a time."""
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "swift.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_ports(count):
    """Below those that the system gives to outgoing connections: a server's port could be lost to one of these."""
    ports = []
    for port in random.SystemRandom().sample(range(20000, 32000), 200):
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            ports.append(port)
    return ports[:count]


def _last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
