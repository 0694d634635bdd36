"""Connections to an object server: requests share them, and lose nothing when one has ended."""

import pytest
from copies import TEXT, contents, make, put, start
from proxy import FaultProxy
from swift import environment
from test_store_faults import METHODS, Prepared
from test_way_to_server import ConnectProxy, clean  # noqa: F401

from labkit.obs import copy, retrying, sdk
from labkit.obs.place import CloudError
from labkit.obs.store import Store

FILES = {f"{number:02}": b"%d" % number for number in range(40)}


@pytest.fixture
def no_wait(monkeypatch):
    """A request that waits for its second try is given up."""
    monkeypatch.setattr(retrying.random, "uniform", lambda *_: 1e6)


@pytest.mark.parametrize("tls", [False, True])
def test_copies_share_connections(swift, bucket, certificates, tmp_path, no_wait, tls):
    """As many as there are requests at a time, not as there are files."""
    folder, context = certificates
    with FaultProxy(swift.port, context("localhost") if tls else None) as proxy:
        store = Store.connect(environment(proxy.url) | {"OBS_CA_FILE": str(folder / "ca.pem")}, deadline=20)
        source = make(tmp_path / "source", FILES)
        copy(source, f"obs://{bucket}/x", jobs=4, store=store)
        assert copy(source, f"obs://{bucket}/x", jobs=4, store=store).skipped == len(FILES)
        copy(f"obs://{bucket}/x", tmp_path / "back", jobs=4, store=store)
        assert contents(tmp_path / "back") == FILES and len(proxy.requests()) > 2 * len(FILES)
        assert proxy.accepted <= 4


def test_an_idle_connection_that_the_server_closes(swift, bucket, proxy, through, no_wait):
    put(through, bucket, "k")
    for count in (1, 2, 3):
        assert through.head(bucket, "k").size == through.head(bucket, "k").size == 4
        assert proxy.accepted == count
        proxy.hang_up()
    assert len(proxy.requests("HEAD")) == 6


@pytest.mark.parametrize("method", METHODS)
def test_a_connection_that_ends_under_a_request(swift, direct, through, proxy, bucket, no_wait, method):
    """The server closes it while the request is on its way: the request is made again at once, on a new one."""
    prepared = Prepared(direct, bucket)
    assert through.head(bucket, "none") is None and proxy.accepted == 1
    proxy.plant(reset_upload=0)
    getattr(prepared, method)(through)
    assert proxy.accepted == 2


def test_a_new_connection_that_ends_is_no_stale_one(through, proxy, bucket, no_wait):
    """Nor is the one of the second try: the next one waits."""
    proxy.plant(reset_upload=0)
    with pytest.raises(CloudError, match="given up after 1 tries"):
        through.head(bucket, "k")
    assert through.head(bucket, "k") is None
    proxy.plant(times=2, reset_upload=0)
    with pytest.raises(CloudError, match="given up after 2 tries"):
        through.head(bucket, "k")


def test_one_that_was_idle_for_long_is_not_used(through, proxy, bucket, monkeypatch):
    """A router on the way may have forgotten it, and says nothing."""
    monkeypatch.setattr(sdk, "LONGEST_IDLE", 0)
    assert through.head(bucket, "a") is None and through.head(bucket, "b") is None
    assert proxy.accepted == 2


def test_an_answer_that_is_longer_than_asked_is_not_read_as_the_next_one(direct, through, proxy, bucket, no_wait):
    etag = put(direct, bucket, "k", TEXT)
    through.client._rename_request_headers = lambda headers, *_: {}  # no range is asked for
    with pytest.raises(CloudError, match="not whole"):
        through.get(bucket, "k", 0, 3, etag)
    del through.client._rename_request_headers
    assert through.get(bucket, "k", 0, len(TEXT), etag) == TEXT and proxy.accepted == 2


def test_each_bucket_has_its_own_host(swift, clean):  # noqa: F811
    """By a proxy, whose tunnel leads to one of them."""
    with ConnectProxy(swift.port) as proxy:
        clean.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_address[1]}")
        store = Store.connect(environment("http://s3.example:8080"), deadline=10)
        for name in ("one", "two", "one", "two"):
            assert store.head(name, "k") is None
        heads = [head.split()[1] for head in proxy.asked]
        assert heads == ["one.s3.example:8080", "two.s3.example:8080"]
        proxy.shutdown()


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's about a fork beside threads: that is tested
from labkit.obs.store import Store
store = Store.connect()
store.head(sys.argv[1], "k")
if not os.fork():
    store.head(sys.argv[1], "k")
    os._exit(0)
os.wait()
store.head(sys.argv[1], "k")
"""


def test_a_fork_opens_its_own(proxy, bucket):
    assert start(FORK, proxy, bucket).communicate() == ("", "")
    assert (proxy.accepted, len(proxy.requests("HEAD"))) == (2, 3)
