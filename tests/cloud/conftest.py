"""The servers that the tests of the cloud talk to."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from copies import BIG, PART
from moto_server import Moto
from proxy import FaultProxy
from swift import Swift, environment

from labkit.obs import store as store_module
from labkit.obs import transfers
from labkit.obs.store import Store
from labkit.system.environment import REPO


@pytest.fixture(scope="session")
def swift(tmp_path_factory):
    """OpenStack Swift with s3api, one for each test process; see swift.Swift."""
    if sys.platform != "linux":
        pytest.skip("OpenStack Swift needs Linux")
    server = Swift(tmp_path_factory.mktemp("swift"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def moto(tmp_path_factory):
    """moto, one for each test process; see moto_server.Moto."""
    server = Moto(tmp_path_factory.mktemp("moto"))
    yield server
    server.stop()


@pytest.fixture
def bucket(swift):
    """A new bucket."""
    return swift.new_bucket()


@pytest.fixture
def account(swift, monkeypatch, tmp_path_factory):
    """The server; its address and account are in the environment, as a user's are."""
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # no credentials there
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def proxy(swift):
    """A proxy in front of Swift that makes the faults a test asks for."""
    with FaultProxy(swift.port) as proxy:
        yield proxy


@pytest.fixture
def direct(swift, monkeypatch, tmp_path_factory):
    """The server without faults, what copy() connects to where it is given no store; parts are small, waits short."""
    monkeypatch.setattr(transfers, "PART", PART)
    monkeypatch.setattr(store_module, "LONGEST_WAIT", 0.05)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    return Store.connect(swift.environment, deadline=20)


@pytest.fixture
def through(proxy):
    """The server behind the proxy."""
    return Store.connect(environment(proxy.url), deadline=20)


@pytest.fixture
def big(tmp_path):
    """A file of three parts."""
    path = tmp_path / "big.bin"
    path.write_bytes(BIG)
    return path


TRAIN = """
import json, os, sys
from pathlib import Path
import labkit
given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
names = [name for name in os.environ if name.startswith(("MA_", "VC_", "RANK_", "MS_ROLE", "LABKIT_COMMIT"))]
told = {"given": given, "cwd": os.getcwd(), "labkit": labkit.__file__, "files": sorted(os.listdir(given["data_url"]))}
print(json.dumps({**told, "env": {name: os.environ[name] for name in names}}), flush=True)
Path(given["train_url"], "result.txt").write_text("here")
exec((Path(__file__).parent / "act.py").read_text())
"""


@pytest.fixture
def small_lab(tmp_path, sample_data):
    """A lab of its own repository, by the recipe of cifar10; its train.py prints where it is, then does what is asked.

    small_lab(action): its folder.
    """

    def small_lab(action=""):
        lab = tmp_path / "lab"
        lab.mkdir()
        for name in ("recipe.yaml", "job.yaml"):
            shutil.copyfile(REPO / "labs" / "cifar10" / name, lab / name)
        (lab / "train.py").write_text(TRAIN)
        (lab / "act.py").write_text(action)
        for command in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", "-C", lab, *command], check=True)
        return lab

    return small_lab
