"""--bandwidth: the closed form of a limit, and copies that keep to it on a true object server."""

import itertools
import threading

import pytest
from copies import BIG, PART, contents, make
from obs_cli import refused, run

from labkit.obs import bandwidth
from labkit.obs.place import CloudError


@pytest.mark.parametrize("text, bytes_a_second", [
    ("5MiB", 5 * 2**20), ("5M", 5 * 2**20), ("5m/s", 5 * 2**20), ("5MB", 5e6), ("1.5 GB", 1.5e9), ("500k", 512_000),
    ("2048", 2048), ("2048B", 2048), ("1KiB/s", 1024),
])  # fmt: skip
def test_rates(text, bytes_a_second):
    assert bandwidth.rate(text) == bytes_a_second


@pytest.mark.parametrize(
    "text", ["", "fast", "0", "-5M", "5TiB", "1e9", "nan", "inf", "5 Mbit", "1023", "0.5K", "5M/h"]
)
def test_no_rates(text):
    with pytest.raises(CloudError):
        bandwidth.rate(text)


def test_never_more_than_the_rate():
    """Until any time t, at most rate x t bytes have their turn, and one part; after a pause nothing is made up for."""
    clock = itertools.count(100.0, 0.25)
    time = next(clock)
    pace = bandwidth.Pace(1000.0, now=lambda: time)
    begins = [(time := next(clock)) + pace.turn(size) for size in (500, 2000, 100, 3000)]
    assert begins == [100.25, 100.75, 102.75, 102.85]
    time = 200.0
    assert [pace.turn(1000), pace.turn(1000), pace.turn(1)] == [0.0, 1.0, 2.0]


@pytest.fixture
def waits(direct, monkeypatch):
    """Bytes that took their turn, and how long each had to wait by a clock that stands still; nobody really waits."""
    found, turn = [], bandwidth.Pace.turn

    def taken(self, size):
        self._now = lambda: 0.0
        found.append((size, turn(self, size)))
        return 0.0

    monkeypatch.setattr(bandwidth.Pace, "turn", taken)
    return found


@pytest.mark.parametrize("jobs", [1, 4])
def test_all_workers_share_the_limit(waits, bucket, tmp_path, jobs):
    source = make(tmp_path / "source", {"big": BIG, "a": b"a" * 1000, "b": b"b" * 500})
    total = len(BIG) + 1500
    for ends in ((source, f"obs://{bucket}/x"), (f"obs://{bucket}/x", tmp_path / "back")):
        waits.clear()
        assert run("cp", *ends, "--bandwidth", "1MiB", "--jobs", jobs)[0] == 0
        assert sorted(size for size, _ in waits) == sorted([500, 1000, 12345, PART, PART])
        last = max(seconds + size / 2**20 for size, seconds in waits)
        assert last == pytest.approx(total / 2**20)
    assert contents(tmp_path / "back") == contents(source)


def test_streams_keep_to_it(waits, bucket):
    assert run("cp", "-", f"obs://{bucket}/k", "--bandwidth", "1MiB", stdin=BIG)[0] == 0
    assert sum(size for size, _ in waits) == len(BIG)


def test_what_waits_for_its_turn_can_be_stopped(direct):
    store = bandwidth.PacedStore.at(1024.0)
    other = store.apart()
    assert other.pace is store.pace
    store.pace.turn(10**9)
    threading.Timer(0.1, other.stop).start()
    with pytest.raises(CloudError, match="stopped"):
        other.ask("obs://b/k", lambda: None, size=1)


@pytest.mark.parametrize("arguments, says", [
    (["SOURCE", "obs://one", "--bandwidth", "fast"], "fast: no bandwidth; write bytes a second"),
    (["SOURCE", "obs://one", "--bandwidth", "100"], "at least 1 KiB"),
    (["obs://one", "obs://two", "--bandwidth", "5MiB"], "nothing goes over the network"),
    (["SOURCE", "elsewhere", "--bandwidth", "5MiB"], "nothing goes over the network"),
])  # fmt: skip
def test_what_makes_no_sense(tmp_path, arguments, says):
    assert says in refused("cp", *[word.replace("SOURCE", str(tmp_path)) for word in arguments], status=2)
