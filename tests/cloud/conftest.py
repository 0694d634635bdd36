"""The servers that the tests of the cloud talk to."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from proxy import FaultProxy
from swift import Swift


@pytest.fixture(scope="session")
def swift(tmp_path_factory):
    """OpenStack Swift with s3api, one for each test process; see swift.Swift."""
    if sys.platform != "linux":
        pytest.skip("OpenStack Swift needs Linux")
    server = Swift(tmp_path_factory.mktemp("swift"))
    yield server
    server.stop()


@pytest.fixture
def bucket(swift):
    """A new bucket."""
    return swift.new_bucket()


@pytest.fixture
def proxy(swift):
    """A proxy in front of Swift that makes the faults a test asks for."""
    with FaultProxy(swift.port) as proxy:
        yield proxy
