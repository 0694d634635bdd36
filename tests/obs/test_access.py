"""Which servers, and by whose keys: what the environment and the SDKs' file say, and what is refused of it."""

import pytest

from labkit.modelarts.client import Client
from labkit.obs import access
from labkit.obs.place import CloudError
from labkit.obs.store import Store

OWN = {"OBS_ACCESS_KEY_ID": "o", "OBS_SECRET_ACCESS_KEY": "p", "OBS_SECURITY_TOKEN": "t"}


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Writes the SDKs' file; there is none before."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(text):
        (tmp_path / ".huaweicloud").mkdir()
        (tmp_path / ".huaweicloud" / "credentials").write_text(text)

    return write


@pytest.mark.parametrize("environment, keys", [
    ({"ACCESS_KEY_ID": "j", "SECRET_ACCESS_KEY": "k"}, ("j", "k", None)),
    ({"ACCESS_KEY_ID": "j", "SECRET_ACCESS_KEY": "k"} | OWN, ("o", "p", "t")),
    ({"HUAWEICLOUD_SDK_AK": "h", "HUAWEICLOUD_SDK_SK": "i", "HUAWEICLOUD_SDK_SECURITY_TOKEN": "t"}, ("h", "i", "t")),
])  # fmt: skip
def test_credentials(environment, keys):
    assert access.credentials(environment) == keys


@pytest.mark.parametrize("environment, says", [
    ({}, "^no credentials: set OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY"),
    ({"OBS_ACCESS_KEY_ID": "hush"}, "^OBS_SECRET_ACCESS_KEY is not set, but OBS_ACCESS_KEY_ID is$"),
    (OWN | {"OBS_ACCESS_KEY_ID": "hush\n"}, "^OBS_ACCESS_KEY_ID: contains a space, a line break"),
    (OWN | {"OBS_SECURITY_TOKEN": "hush\nx"}, "^OBS_SECURITY_TOKEN: contains a space, a line break"),
    (OWN | {"OBS_SECURITY_TOKEN": "hush…"}, "^OBS_SECURITY_TOKEN: .* not ASCII"),
])  # fmt: skip
def test_no_credentials(environment, says):
    """http.client's own error, of a token with a line break in it, has the token."""
    servers = {"OBS_ENDPOINT": "https://h", "MODELARTS_ENDPOINT": "https://h", "MODELARTS_PROJECT_ID": "p"}
    for connect in (Store.connect, Client.connect):
        with pytest.raises(CloudError, match=says) as caught:
            connect(servers | environment)
        assert "hush" not in str(caught.value)


def test_the_sdks_file(write):
    write("[basic]\nak = a%\nsk = b\nsecurity_token = t\nproject_id = p\n")
    assert access.credentials({}) == ("a%", "b", "t") and access.project({}) == "p"
    assert access.credentials(OWN) == ("o", "p", "t")


@pytest.mark.parametrize("text, says", [
    ("sk = hush\n", "credentials: not an INI file$"), ("[basic]\nak = hush hush\nsk = b\n", "ak: contains a"),
    ("[basic]\nak = hush\n", "^no credentials"),
])  # fmt: skip
def test_a_file_that_is_of_no_use_is_not_quoted(write, text, says):
    write(text)
    with pytest.raises(CloudError, match=says) as caught:
        access.credentials({})
    assert "hush" not in str(caught.value)


def test_project():
    assert access.project({"HUAWEICLOUD_SDK_PROJECT_ID": "p"}) == "p"
    assert access.project({"HUAWEICLOUD_SDK_PROJECT_ID": "p", "MODELARTS_PROJECT_ID": "own"}) == "own"
    with pytest.raises(CloudError, match="no project: set MODELARTS_PROJECT_ID"):
        access.project({})


@pytest.mark.parametrize("environment, url", [
    ({"S3_ENDPOINT": "h:1", "S3_USE_HTTPS": " 0"}, "http://h:1"), ({"S3_ENDPOINT": "h:1"}, "https://h:1"),
    ({"S3_ENDPOINT": "h:1", "OBS_ENDPOINT": " h:2\n"}, "https://h:2"), ({"OBS_ENDPOINT": "HTTP://h:1"}, "http://h:1"),
])  # fmt: skip
def test_obs_url(environment, url):
    assert access.obs_url(environment) == url


@pytest.mark.parametrize("environment, url", [
    ({"MODELARTS_REGION": "cn-north-4"}, "https://modelarts.cn-north-4.myhuaweicloud.com"),
    ({"OBS_ENDPOINT": "obs.cn-east-3.myhuaweicloud.com"}, "https://modelarts.cn-east-3.myhuaweicloud.com"),
    ({"MODELARTS_ENDPOINT": "host.example"}, "https://host.example"),
])  # fmt: skip
def test_modelarts_url(environment, url):
    assert access.modelarts_url(environment) == url


@pytest.mark.parametrize("url", [
    "https://", "ftp://h", "https://u:hush@h", "http://h:port", "https://[", "https://a..b",
])  # fmt: skip
def test_what_is_no_server(url):
    for name, find in (("OBS_ENDPOINT", access.obs_url), ("MODELARTS_ENDPOINT", access.modelarts_url)):
        with pytest.raises(CloudError, match=f"^{name}.*: must be a URL") as caught:
            find({name: url})
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize("environment, says", [
    ({}, "set MODELARTS_REGION"), ({"OBS_ENDPOINT": "http://127.0.0.1:1"}, "set MODELARTS_REGION"),
    ({"MODELARTS_REGION": "x.evil.example/"}, "set MODELARTS_REGION"),
    ({"MODELARTS_ENDPOINT": "http://host.example"}, "must be https"),
])  # fmt: skip
def test_no_modelarts(environment, says):
    with pytest.raises(CloudError, match=says):
        access.modelarts_url(environment)


def test_no_such_authority(tmp_path):
    for name in ("OBS_CA_FILE", "MODELARTS_CA_FILE"):
        with pytest.raises(CloudError, match=f"^{name}: .*none.pem"):
            access.tls({name: str(tmp_path / "none.pem")}, name)


@pytest.mark.parametrize("url", ["https://h:1/a/b/", "h/#x"])
def test_an_endpoint_with_a_path_is_refused(url):
    with pytest.raises(CloudError, match="^OBS_ENDPOINT .*: must not have a path after the host or port"):
        Store.connect(OWN | {"OBS_ENDPOINT": url})


@pytest.mark.parametrize("url, warns", [
    ("http://192.0.2.1", True), ("https://192.0.2.1", False), ("http://127.0.0.1", False),
])  # fmt: skip
def test_a_token_in_the_clear_is_mentioned(url, warns):
    lines = []
    Store.connect(OWN | {"OBS_ENDPOINT": url}, notice=lines.append)
    assert [line.startswith("192.0.2.1: http:// lets others on the network") for line in lines] == [True] * warns


def test_a_proxy(monkeypatch):
    """The one that the environment names; this machine and the hosts of no_proxy are asked without."""
    monkeypatch.setenv("http_proxy", "http://me:p%40ss@proxy.example")
    monkeypatch.setenv("no_proxy", "near.example")
    account = {"proxy_username": "me", "proxy_password": "p@ss"}
    assert access.proxy("http://s3.example") == {"proxy_host": "proxy.example", "proxy_port": 80, **account}
    assert access.proxy("http://127.0.0.1:1") == access.proxy("http://near.example") == {}
    monkeypatch.setenv("http_proxy", "http://me:hush@h:port")
    with pytest.raises(CloudError, match="^http_proxy: must be a URL [^@]*$"):
        access.proxy("http://s3.example")
