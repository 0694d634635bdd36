"""A job's YAML: what is sent for it, beside the vendor's model of a job; and one line for every bad key."""

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


def test_least(read):
    least = {key: JOB[key] for key in ("bucket", "code", "boot_file", "engine", "flavor")}
    body = read(least, name="given").body()
    assert body["metadata"] == {"name": "given"} and body["spec"]["resource"]["node_count"] == 1
    assert "log_export_path" not in body["spec"] and body["algorithm"]["inputs"] == []


def test_what_is_given_wins(read):
    """And is what is blamed, not the file."""
    assert read(JOB, flavor="other").flavor == "other"
    with pytest.raises(CloudError, match="^name: must match pattern"):
        read(JOB, name="a b")


@pytest.mark.parametrize("bucket, code, file, sent", [
    ("obs://my-bucket", "code/", "train.py", "/my-bucket/code/train.py"),
    ("obs://my-bucket/", "obs://b-2/c", "a/t.py", "/b-2/c/a/t.py"),
    ("obs://my-bucket", "obs://my-bucket/", "obs://my-bucket/t.py", "/my-bucket/t.py"),
    ("obs://my-bucket/a", "code", "obs://my-bucket/a/code/t.py", "/my-bucket/a/code/t.py"),
])  # fmt: skip
def test_start_files(read, bucket, code, file, sent):
    alone = {"outputs": {}, "log": None}
    algorithm = read(JOB | alone | {"bucket": bucket, "code": code, "boot_file": file}).body()["algorithm"]
    assert algorithm["boot_file"] == sent
    assert sent.startswith(algorithm["code_dir"]) and "//" not in algorithm["code_dir"]


BAD = [
    ("name", "a b", "name: must match pattern"), ("name", "", "name: "), ("name", "x" * 65, "name: "),
    ("name", "-x", "name: "), ("parameters", {"a": "b\0"}, "parameters.a: must match pattern"),
    ("name", "é", "name: "), ("name", "a\n", "name: "), ("name", 7, "name: must be a valid string, not 7"),
    ("name", None, "name: "), ("bucket", "my-bucket", "bucket: must be an obs:// URL"),
    ("bucket", "s3://my-bucket", "bucket: must be an obs://"), ("bucket", "obs://My/", "bucket: .*is no bucket's name"),
    ("bucket", "obs://my-bucket/../x", "bucket: .*leads out"), ("bucket", 1, "bucket: "),
    ("code", "../code", "code: .*leads out"), ("code", "/code", "code: .*absolute"), ("code", "", "code: .*empty"),
    ("code", "s3://my-bucket/code", "code: must be an obs://"), ("code", "file:///code", "code: must be an obs://"),
    ("code", "obs:/b/code", "code: .*begins with obs://"), ("code", "a//b", "code: .*empty"),
    ("boot_file", "../train.py", "boot_file: .*leads out"), ("boot_file", "/train.py", "boot_file: .*absolute"),
    ("boot_file", "obs://my-bucket/course/train.py", "boot_file: must be inside the code folder, obs://my-bucket/"),
    ("boot_file", "obs://my-bucket/course/code-2/train.py", "boot_file: must be inside the code folder"),
    ("boot_file", "obs://my-bucket/course/code/../t.py", "boot_file: .*leads out"),
    ("boot_file", "train.sh", "boot_file: must be a Python file"), ("boot_file", "", "boot_file: "),
    ("boot_file", ["train.py"], "boot_file: must be a valid string"),
    ("engine", "mindspore", "engine: "), ("engine", {"name": "x"}, "engine.version: missing"),
    ("engine", {"name": "", "version": "1"}, "engine.name: "),
    ("engine", {"name": "x", "version": 2.3}, "engine.version: must be a valid string, not 2.3"),
    ("engine", {"name": "x", "version": "1", "image": "y"}, "engine.image: unknown key"),
    ("flavor", "", "flavor: "), ("flavor", None, "flavor: "), ("nodes", 0, "nodes: must be greater"),
    ("nodes", "2", "nodes: "), ("nodes", 1.5, "nodes: "), ("nodes", True, "nodes: "),
    ("inputs", ["x"], "inputs: "), ("inputs", {"data url": "x"}, "inputs.data url: "),
    ("inputs", {"data_url": "/tmp"}, "inputs.data_url: .*absolute"),
    ("inputs", {"data_url": None}, "inputs.data_url: "),
    ("outputs", {"train_url": "http://x/y"}, "outputs.train_url: .*none of obs://"),
    ("outputs", {"data_url": "x"}, "outputs: 'data_url' is the name of an input"),
    ("parameters", {"train_url": "x"}, "parameters: 'train_url' is the name of an input or output"),
    ("parameters", {"a": None}, "parameters.a: "), ("parameters", {"a": ["b"]}, "parameters.a: "),
    ("parameters", {"a b": "c"}, "parameters.a b: "), ("parameters", 3, "parameters: "),
    ("environment", {"1A": "b"}, "environment.1A: "), ("environment", {"A-B": "c"}, "environment.A-B: "),
    ("environment", {"A": ["hush"]}, "environment.A: "), ("environment", {"A": "hush" * 1025}, "environment.A: "),
    ("environment", {f"A{n}": "b" for n in range(101)}, "environment: "),
    ("log", "s3://my-bucket/x", "log: must be an obs://"), ("log", "../x", "log: .*leads out"),
    ("flavour", "x", "flavour: unknown key, did you mean flavor?"), ("region", "x", "region: unknown key"),
]  # fmt: skip


@pytest.mark.parametrize("key, value, says", BAD)
def test_bad_keys(read, key, value, says):
    with pytest.raises(CloudError, match=rf"job\.yaml: {says}") as caught:
        read(copy.deepcopy(JOB) | {key: value})
    assert len(str(caught.value).splitlines()) == 1 and "hush" not in str(caught.value)


@pytest.mark.parametrize("key, value, says", [
    ("outputs", {"a": "x", "b": "obs://my-bucket/course/x/"}, "outputs.b: .* overlaps outputs.a"),
    ("outputs", {"a": "x", "b": "x/y"}, "outputs.b: 'x/y' overlaps outputs.a"),
    ("outputs", {"a": "code"}, "outputs.a: 'code' overlaps code"),
    ("outputs", {"a": "obs://other-bucket"}, "outputs.a: .* overlaps inputs.data_url"),
    ("log", "runs", "log: 'runs' overlaps outputs.train_url"),
])  # fmt: skip
def test_places_that_would_be_written_over(read, key, value, says):
    with pytest.raises(CloudError, match=rf"job\.yaml: {says}$"):
        read(JOB | {key: value})
    read(JOB | {"outputs": {"a": "x", "b": "xy"}})


@pytest.mark.parametrize("key", ["name", "bucket", "code", "boot_file", "engine", "flavor"])
def test_missing_keys(read, key):
    with pytest.raises(CloudError, match=rf"job\.yaml: {key}: missing"):
        read({name: value for name, value in JOB.items() if name != key})


@pytest.mark.parametrize("text, says", [
    ("a: [", "line 1: not valid YAML"), ("", "holds keys and values"), ("- a", "holds keys"), ("a: 2026-13-45", "YAML"),
    ("a: !!python/object:os.system x", "not valid YAML"), ("a: " + "[" * 2000, "not valid YAML"),
])  # fmt: skip
def test_no_job(read, text, says):
    with pytest.raises(CloudError, match=says) as caught:
        read(text)
    assert len(str(caught.value).splitlines()) == 1


def test_no_file(tmp_path):
    with pytest.raises(CloudError, match=r"nowhere.yaml: cannot be read \(No such file"):
        read_job(tmp_path / "nowhere.yaml")
