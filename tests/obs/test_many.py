"""Over a thousand files and parts, and names that Swift does not take: on moto, where a request takes little."""

import random

import pytest
from copies import content_of, contents, make, open_uploads, put
from object_servers import use
from proxy import FaultProxy

from labkit.obs import transfers
from labkit.obs.copying import CopyError, copy, ls, rm, verify
from labkit.obs.store import Store


@pytest.fixture(autouse=True)
def store(moto, monkeypatch, tmp_path_factory):
    return use(moto, monkeypatch, tmp_path_factory)


@pytest.fixture
def bucket(moto):
    return moto.new_bucket()


def test_over_a_thousand_files(store, bucket, tmp_path):
    """Listings of two pages, with names that each page must encode at its ends."""
    files = {f"{number // 250} ä&<>/{number:04d} +%20.txt": b"%d" % number for number in range(1250)}
    source, url = make(tmp_path / "source", files), f"obs://{bucket}/in"
    report = copy(source, url)
    assert (report.copied, report.skipped, report.bytes) == (1250, 0, sum(map(len, files.values())))
    assert {item.name: item.size for item in ls(url)} == {name: len(content) for name, content in files.items()}
    assert copy(source, url).skipped == 1250 and verify(source, url) == []
    assert copy(url, tmp_path / "back").copied == 1250
    assert contents(tmp_path / "back") == files
    assert len(rm(url, recursive=True)) == 1250 and ls(f"obs://{bucket}") == []


def test_more_parts_than_a_page_has(moto, store, bucket, tmp_path, monkeypatch):
    """An upload that was cut off after 1,050 parts goes on with the others only."""
    monkeypatch.setattr(transfers, "PART", 1024)
    content = random.Random(5).randbytes(1100 * 1024)
    (tmp_path / "big").write_bytes(content)

    def interrupt(done, total):
        if done >= 1050 * 1024:
            raise KeyboardInterrupt

    with FaultProxy(moto.port) as proxy:
        through = Store.connect(moto.environment | {"OBS_ENDPOINT": proxy.url})
        with pytest.raises(KeyboardInterrupt):
            copy(tmp_path / "big", f"obs://{bucket}/k", progress=interrupt, store=through)
        sent = {one.path for one in proxy.requests("PUT") if one.status == 200}
        assert 1050 <= len(sent) < 1100
        proxy.clear()
        copy(tmp_path / "big", f"obs://{bucket}/k", store=through)
        again = {one.path for one in proxy.requests("PUT")}
    assert len(again) == 1100 - len(sent) and not again & sent
    assert content_of(store, bucket, "k") == content and open_uploads(store, bucket, "k") == []


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[2Jb", "a\x01b", "a\x7fb", "\t"])
def test_keys_with_control_characters(store, bucket, tmp_path, name):
    """Swift takes no NUL; another server may. No file has it in its name, which fails alone; others are copied."""
    put(store, bucket, "in/good")
    put(store, bucket, f"in/{name}")
    assert {item.name for item in ls(f"obs://{bucket}/in")} == {"good", name}
    if "\0" in name:
        with pytest.raises(CopyError, match="NUL character; 1 copied") as caught:
            copy(f"obs://{bucket}/in", tmp_path / "target")
        assert len(str(caught.value).splitlines()) == 1
    else:
        copy(f"obs://{bucket}/in", tmp_path / "target")
    assert contents(tmp_path / "target").keys() == {"good", name} - ({name} if "\0" in name else set())
    assert rm(f"obs://{bucket}/in/{name}") == [f"in/{name}"]
    assert [item.name for item in ls(f"obs://{bucket}/in")] == ["good"]
