"""A lab to submit, jobs of it, and the servers that they talk to."""

import shutil
import subprocess
import sys

import pytest

from labkit.modelarts import packing, submission
from labkit.obs import copying
from labkit.system.environment import REPO

sys.path.insert(0, str(REPO / "book" / "4-cloud"))

import modelarts_server
from object_server import Server

NAMES = ("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "ACCESS_KEY_ID", "HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK",
         "MODELARTS_REGION", "MODELARTS_ENDPOINT", "MODELARTS_PROJECT_ID", "OBS_ENDPOINT")  # fmt: skip
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


@pytest.fixture
def prepare(sample_data):
    """Function: the job of a lab's profile sample."""
    return lambda url, lab="cifar10", **options: submission.prepare(
        lab, "sample", **options, **({"bucket": url} if url else {})
    )


@pytest.fixture
def uploaded(prepare, tmp_path):
    """Function: the job `mine`, packed into tmp_path/code and copied to a bucket, by default the folder tmp_path/b."""

    def uploaded(url=f"file://{tmp_path}/b", **options):
        asked = prepare(url, name="mine", **options)
        packing.pack(asked, tmp_path / "code")
        submission.require_new(asked)
        for _, source, target in submission.copies(asked, tmp_path / "code"):
            copying.copy(source, target)
        return asked

    return uploaded


@pytest.fixture
def nobody(tmp_path, monkeypatch):
    """An environment without an account."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stub(nobody, monkeypatch):
    """ModelArts on this machine, and the environment that leads to it."""
    with modelarts_server.serve() as stub:
        project = {"MODELARTS_ENDPOINT": stub.url, "MODELARTS_PROJECT_ID": modelarts_server.PROJECT}
        for name, value in {**modelarts_server.KEYS, **project, "no_proxy": "127.0.0.1,localhost"}.items():
            monkeypatch.setenv(name, value)
        yield stub


@pytest.fixture
def objects(monkeypatch, tmp_path):
    """An object server on this machine with the bucket "course", and the environment that leads to it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = Server("course", access=modelarts_server.ACCESS, secret=modelarts_server.SECRET).start()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
