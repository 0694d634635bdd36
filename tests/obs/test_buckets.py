"""labkit obs mb and uploads, on true object servers."""

import re
import uuid
from datetime import datetime, timedelta, timezone
from urllib.request import Request, urlopen

import pytest
from copies import open_uploads, put
from object_servers import use
from obs_cli import document, keys, refused, run

from labkit.obs import access, buckets
from labkit.obs.place import parse


@pytest.fixture(params=["swift", "moto"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def store(server, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    return use(server, monkeypatch, tmp_path_factory)


@pytest.fixture
def bucket(server):
    return server.new_bucket()


def test_mb(store):
    name = f"new-{uuid.uuid4().hex[:12]}"
    assert run("mb", f"obs://{name}") == (0, f"made  obs://{name}\n", "")
    put(store, name, "k")
    assert run("mb", f"obs://{name}/")[0] == 0 and keys(store, name) == ["k"]  # its own owner may make it again
    assert run("mb", f"obs://{name}", "--quiet") == (0, "", "")
    assert document("mb", f"obs://{name}2") == {"url": f"obs://{name}2", "made": True}


@pytest.mark.parametrize("arguments, says", [
    (["mb", "obs://one/k"], "obs://BUCKET"), (["mb", "folder"], "obs://BUCKET"), (["mb", "obs://UP"], "no bucket's"),
    (["uploads", "folder"], "only buckets"), (["uploads", "obs://one", "--abort"], "--yes"),
    (["uploads", "obs://one//", "--abort"], "--yes"), (["uploads", "obs://one", "--older", "-1"], "--older"),
    (["uploads", "obs://one", "--older", "nan"], "--older"), (["uploads", "obs://one", "--older", "inf"], "--older"),
])  # fmt: skip
def test_what_makes_no_sense(arguments, says):
    assert says in refused(*arguments, status=2)


def test_what_is_not_there_or_refused(monkeypatch, server):
    assert "NoSuchBucket" in refused("uploads", "obs://no-such-bucket-anywhere")
    if server.new_bucket().startswith("m-"):  # which asks for no keys
        return
    monkeypatch.setenv("OBS_SECRET_ACCESS_KEY", "wrong")
    assert "status 403" in refused("mb", "obs://some-new-bucket")
    assert "status 403" in refused("uploads", "obs://some-new-bucket")


@pytest.mark.parametrize("environment, region", [
    ({"OBS_ENDPOINT": "https://obs.cn-north-4.myhuaweicloud.com"}, "cn-north-4"),
    ({"OBS_ENDPOINT": "obs.ap-southeast-3.myhuaweicloud.com/", "OBS_REGION": "x"}, "ap-southeast-3"),
    ({"OBS_ENDPOINT": "https://s3.eu-west-1.amazonaws.com", "OBS_REGION": "eu-west-1"}, "eu-west-1"),
    ({"OBS_ENDPOINT": "https://s3.amazonaws.com", "OBS_REGION": "us-east-1"}, None), ({}, None),
])  # fmt: skip
def test_the_region_of_a_new_bucket(environment, region):
    """OBS takes only its endpoint's, S3 no us-east-1."""
    assert access.region(environment) == region


def test_a_bucket_in_another_region(moto, store, server, monkeypatch):
    if server is not moto:
        return  # Swift has one region
    monkeypatch.setenv("OBS_REGION", "eu-west-1")
    name = f"new-{uuid.uuid4().hex[:12]}"
    assert run("mb", f"obs://{name}")[0] == 0
    asked = Request(f"{moto.url}/{name}?location", headers={"Authorization": "AWS any:any"})
    with urlopen(asked) as answer:
        assert b">eu-west-1</LocationConstraint>" in answer.read()


KEYS = ["runs/a", "runs/a", "runs/b/c ä&+", "runs-2"]


@pytest.fixture
def begun(store, bucket):
    """Ids of open uploads, by key and number; one of them has a part."""
    found = [store.create_multipart_upload(bucket, key) for key in KEYS]
    store.upload_part(bucket, KEYS[0], found[0], 1, bytes(2 << 20))
    return found


@pytest.mark.parametrize("page", [1000, 1])
def test_uploads(store, bucket, begun, monkeypatch, page):
    """Page by page as well."""
    monkeypatch.setattr(buckets, "PAGE", page)
    url = f"obs://{bucket}"
    told = document("uploads", url)
    assert sorted((one["key"], one["id"]) for one in told["uploads"]) == sorted(zip(KEYS, begun))
    assert [one["key"] for one in document("uploads", f"{url}/runs")["uploads"]] == KEYS[:3]
    assert [one["key"] for one in document("uploads", f"{url}/runs/a")["uploads"]] == KEYS[:2]
    lines = run("uploads", f"{url}/runs-2")[1].splitlines()
    assert len(lines) == 1 and re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  " + f"{url}/runs-2", lines[0])
    assert run("uploads", f"{url}/none") == (0, "", "")


def test_the_age_of_uploads(swift, store, server, bucket, begun):
    if server is not swift:
        return  # moto says 2010 of all
    now = datetime.now(timezone.utc)
    for one in buckets.open_uploads(parse(f"obs://{bucket}"), store):
        assert abs(now - one.begun) < timedelta(minutes=5)
    assert run("uploads", f"obs://{bucket}", "--abort", "--yes", "--older", 1) == (0, "", "")
    assert len(document("uploads", f"obs://{bucket}", "--older", 0)["uploads"]) == 4


def test_abort(store, bucket, begun):
    url = f"obs://{bucket}"
    put(store, bucket, "runs/a", b"object")
    assert run("uploads", f"{url}/runs/b", "--abort")[1] == f"{'aborted':19}  {url}/runs/b/c ä&+\n"
    assert run("uploads", f"{url}/runs", "--abort", "--quiet") == (0, "", "")
    assert [open_uploads(store, bucket, key) for key in KEYS] == [[], [], [], begun[3:]]
    assert document("uploads", url, "--abort", "--yes")["aborted"] is True
    assert document("uploads", url)["uploads"] == [] and keys(store, bucket) == ["runs/a"]
