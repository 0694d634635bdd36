"""The servers that the tests of object storage talk to."""

import sys

import pytest
from copies import PART
from faulty import Server
from swift import Swift

from labkit.obs import retrying, transfers
from labkit.obs.store import Store


@pytest.fixture(scope="session")
def swift(tmp_path_factory):
    """OpenStack Swift with s3api, one for each test process; see swift.Swift."""
    if sys.platform != "linux":
        pytest.skip("OpenStack Swift needs Linux")
    server = Swift(tmp_path_factory.mktemp("swift"))
    yield server
    server.stop()


@pytest.fixture
def server():
    """The book's object server, with the faults of faulty.py and the bucket `course`."""
    server = Server().start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def account(server, monkeypatch, tmp_path_factory):
    """The server; its address and account are in the environment, as a user's are. Waits between tries are short."""
    home = tmp_path_factory.mktemp("home")  # no credentials there
    for name, value in {**server.environment(), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.05)
    return server


@pytest.fixture
def small_parts(account, monkeypatch):
    monkeypatch.setattr(transfers, "PART", PART)


@pytest.fixture
def store(account):
    """A Store of the account."""
    return Store.connect(deadline=20)
