"""Fixtures: the servers that the tests of object storage and of jobs talk to. conftest.py of both imports them."""

import ssl
import subprocess
import sys

import pytest
from copies import BIG, PART
from moto_server import Moto
from proxy import FaultProxy
from swift import Swift, environment

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
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # no credentials there
    return use(swift, monkeypatch, tmp_path_factory)


def use(server, monkeypatch, tmp_path_factory):
    """A store at this server, whose address and account are in the environment from now on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Store.connect(server.environment, deadline=20)


@pytest.fixture
def proxy(swift):
    """A proxy in front of Swift that makes the faults a test asks for."""
    with FaultProxy(swift.port) as proxy:
        yield proxy


@pytest.fixture
def direct(swift, monkeypatch, tmp_path_factory):
    """The server without faults, what copy() connects to where it is given no store; parts are small, waits short."""
    monkeypatch.setattr(transfers, "PART", PART)
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.05)
    return use(swift, monkeypatch, tmp_path_factory)


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


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Folder with ca.pem, and a function: the SSLContext of a server with a certificate by it, HOST.pem, for a host."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(name, *more):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", *more],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip

    def context(host):
        openssl(host, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", f"subjectAltName={'IP' if host[0].isdigit() else 'DNS'}:{host}")  # fmt: skip
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key")
        return found

    openssl("ca")
    return folder, context
