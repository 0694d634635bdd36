"""A quick object server for the tests: moto, in memory. It asks for no keys: large cases, and names Swift refuses."""

import http.client
import subprocess
import time
import uuid
from pathlib import Path

import servers

from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.interrupts import die_with_parent

# moto[server] would bring what 200 other services need.
PACKAGES = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
HOME = REPO / "_build" / "moto"


class Moto:
    """A running server: `url`, `port`, `environment` for Store.connect, `new_bucket()`, `stop()`."""

    def __init__(self, folder: Path):
        binaries = servers.install(HOME, PACKAGES, "moto, the tests' second object server,")
        log = folder / "moto.log"
        with servers.alone(HOME):  # from the choice of the port until it is held
            (self.port,) = servers.free_ports(1)
            self.url = f"http://127.0.0.1:{self.port}"
            with open(log, "wb") as output:
                self.process = subprocess.Popen(
                    [binaries / "moto_server", "-H", "127.0.0.1", "-p", str(self.port)], stdin=subprocess.DEVNULL,
                    stdout=output, stderr=output, cwd=folder, preexec_fn=die_with_parent,
                    env=servers.outside() | {"S3_UPLOAD_PART_MIN_SIZE": "1", "AWS_DEFAULT_REGION": "us-east-1"},
                )  # fmt: skip
            end = time.monotonic() + 60
            while not self._answers():
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise LabkitError(f"moto did not start: {servers.last_line(log.read_text())}")
                time.sleep(0.05)

    @property
    def environment(self) -> dict[str, str]:
        """What labkit.obs.store.Store.connect reads."""
        return {"OBS_ENDPOINT": self.url, "OBS_ACCESS_KEY_ID": "any", "OBS_SECRET_ACCESS_KEY": "any"}

    def new_bucket(self) -> str:
        """Name of a bucket made just now."""
        bucket = f"m-{uuid.uuid4().hex[:12]}"
        if not self._answers("PUT", f"/{bucket}"):
            raise LabkitError("moto made no bucket")
        return bucket

    def stop(self):
        """End the process."""
        self.process.kill()
        self.process.wait()

    def _answers(self, method="GET", path="/moto-api/data.json"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers={"Authorization": "AWS any:any"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
