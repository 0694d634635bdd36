"""A job's YAML: what is sent for it, compared with the vendor's model of a job; and one line for every bad key."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from labkit.modelarts.job import read_job
from labkit.obs.place import CloudError

VENDOR = json.loads(Path(__file__).with_name("vendor.json").read_text(encoding="utf-8"))
JOB = {
    "name": "cifar10-full_1",
    "bucket": "obs://my-bucket/course/",
    "code": "code",
    "boot_file": "labs/cifar10/train.py",
    "engine": {"name": "Ascend-Powered-Engine", "version": "mindspore_2.3.0"},
    "flavor": "modelarts.npu.1",
    "nodes": 2,
    "inputs": {"data_url": "obs://other-bucket/cifar10"},
    "outputs": {"train_url": "runs/1/"},
    "parameters": {"profile": "full", "num_epochs": 90, "run_distribute": True},
    "environment": {"GLOG_v": 2},
    "log": "logs",
}


@pytest.fixture
def read(tmp_path):
    """Function that writes a job's YAML and reads it."""

    def read(tree, **given):
        file = tmp_path / "job.yaml"
        file.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree, sort_keys=False))
        return read_job(file, **given)

    return read


def test_body_as_the_vendor_sends_it(read):
    assert read(JOB).body() == VENDOR["job"]


@pytest.mark.parametrize("key, value, says", [
    ("name", "a b", "name: must match pattern"), ("name", 7, "name: must be a valid string, not 7"),
    ("bucket", "my-bucket", "bucket: must be obs://BUCKET"), ("bucket", "obs://My/", "bucket: .*invalid bucket name"),
    ("bucket", "obs://my-bucket/../x", "bucket: .*leads out"), ("code", "/code", "code: .*absolute"),
    ("code", "", "code: .*empty"), ("engine", {"name": "x"}, "engine.version: missing"), ("nodes", 0, "nodes: "),
    ("inputs", {"data_url": "/tmp"}, "inputs.data_url: .*absolute"), ("parameters", {"a b": "c"}, "parameters.a b: "),
    ("environment", {"A": ["hush"]}, "environment.A: "), ("flavour", "x", "flavour: unknown key"),
])  # fmt: skip
def test_bad_keys(read, key, value, says):
    with pytest.raises(CloudError, match=rf"job\.yaml: {says}") as caught:
        read(copy.deepcopy(JOB) | {key: value})
    assert len(str(caught.value).splitlines()) == 1 and "hush" not in str(caught.value)


@pytest.mark.parametrize("text, says", [("a: [", "not valid YAML"), ("- a", "must contain keys")])
def test_no_job(read, tmp_path, text, says):
    with pytest.raises(CloudError, match=says) as caught:
        read(text)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(CloudError, match=r"nowhere.yaml: cannot be read \(No such file"):
        read_job(tmp_path / "nowhere.yaml")
