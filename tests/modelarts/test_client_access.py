"""Who asks ModelArts, and whom: keys, secrets, certificates."""

import logging
import time

import modelarts_stub as stubs
import pytest

from labkit.modelarts.client import Client
from labkit.obs.place import CloudError

KEYS = (stubs.ACCESS, stubs.SECRET, stubs.TOKEN)
ENVIRONMENT = stubs.KEYS | {"MODELARTS_PROJECT_ID": stubs.PROJECT}


@pytest.mark.parametrize("keys, says", [
    (("OTHER", stubs.SECRET, None), "no such access key"), ((stubs.ACCESS, "other", stubs.TOKEN), "signature is wrong"),
])  # fmt: skip
def test_wrong_keys(stub, keys, says):
    with pytest.raises(CloudError, match=says) as caught:
        Client(stub.url, stubs.PROJECT, keys).engines()
    assert (caught.value.status, caught.value.code) == (401, "APIG.0301") and stub.asked == []


def test_no_secret_anywhere(stub, caplog, capfd, monkeypatch):
    """The server repeats what it was sent; none of it reaches a message, a log or the terminal."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(stubs, "SECRET", "another")  # the stub's answer has the token and the signature in it
    asked = Client(stub.url, stubs.PROJECT, KEYS)
    with pytest.raises(CloudError, match="verify aksk signature fail") as caught:
        asked.engines()
    shown = " ".join([str(caught.value), repr(caught.value), repr(asked), caplog.text, *capfd.readouterr()])
    assert "Signature=***" in shown and len(str(caught.value).splitlines()) == 1
    assert not any(secret in shown for secret in KEYS)


def test_from_the_environment(stub):
    assert Client.connect(ENVIRONMENT | {"MODELARTS_ENDPOINT": stub.url}).engines() == stubs.ENGINES


def test_from_the_sdks_file(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".huaweicloud").mkdir()
    lines = ["[basic]", *map(" = ".join, zip(("ak", "sk", "security_token"), KEYS)), f"project_id = {stubs.PROJECT}"]
    (tmp_path / ".huaweicloud" / "credentials").write_text("\n".join(lines))
    assert Client.connect({"MODELARTS_ENDPOINT": stub.url}).engines() == stubs.ENGINES


@pytest.mark.parametrize("host, trusted, says", [
    ("127.0.0.1", True, None), ("127.0.0.1", False, "certificate refused: unable to get"),
    ("modelarts.example", True, "certificate refused: IP address mismatch"),
])  # fmt: skip
def test_tls(monkeypatch, certificates, host, trusted, says):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder, context = certificates
    tls = context(host)
    with stubs.serve(lambda plain: tls.wrap_socket(plain, server_side=True)) as stub:
        environment = ENVIRONMENT | {"MODELARTS_ENDPOINT": stub.url}
        environment |= {"MODELARTS_CA_FILE": str(folder / "ca.pem")} if trusted else {}
        if says is None:
            assert Client.connect(environment).engines() == stubs.ENGINES
            return
        begun = time.monotonic()
        with pytest.raises(CloudError, match=says):
            Client.connect(environment).engines()
        assert time.monotonic() - begun < 30 and stub.asked == []  # not repeated
