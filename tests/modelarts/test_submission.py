"""Submitting: what a job is made of, what is packed and copied, and how its Run is fetched. No training."""

import shutil
import subprocess
import sys

import pytest
import yaml

from labkit.modelarts import packing, submission
from labkit.obs import copying
from labkit.obs.place import CloudError, parse
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.training import recipes, runs

# -- What a job is made of --------------------------------------------------------------------------------


def test_a_job_of_a_lab(prepare):
    asked = prepare("obs://my-bucket/course/", name="mine")
    algorithm = asked.spec.body()["algorithm"]
    assert algorithm["code_dir"] == "/my-bucket/course/jobs/mine/code/"
    assert algorithm["boot_file"] == "/my-bucket/course/jobs/mine/code/train.py"
    assert algorithm["parameters"] == [{"name": "profile", "value": "sample"}]
    assert (asked.data, asked.run) == (
        "obs://my-bucket/course/data/sample/cifar-10-batches-bin", "obs://my-bucket/course/jobs/mine/run"
    )  # fmt: skip
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert asked.spec.environment["LABKIT_COMMIT"].rstrip("+") == head.strip()


@pytest.mark.parametrize("lab", ["cifar10", "imagenet", "thor"])
def test_every_lab_has_a_job(prepare, lab):
    spec = prepare("obs://my-bucket", lab).spec
    assert spec.name.startswith(f"{lab}-sample-2") and spec.flavor and spec.engine.name and spec.nodes == 1
    assert prepare("obs://my-bucket", lab).spec.name != spec.name  # also within the same second


def test_data_elsewhere(prepare, sample_data, tmp_path, small_lab):
    """A URL is used where it is; a folder is copied by its name; job.yaml may name a place too."""
    url = prepare("obs://my-bucket", data="obs://other/cifar10")
    assert (url.data, url.data_here, url.data_at_home) == ("obs://other/cifar10", None, "sample/cifar-10-batches-bin")
    shutil.copytree(sample_data / "cifar-10-batches-bin", tmp_path / "my digits")
    folder = prepare("obs://my-bucket", data=str(tmp_path / "my digits"))
    assert folder.data == "obs://my-bucket/data/my-digits" and folder.data_at_home == str(tmp_path / "my digits")
    lab = small_lab()
    with open(lab / "job.yaml", "a") as file:
        file.write("inputs: {data_url: obs://other/kept, extra: more}\nparameters: {device_target: Ascend}\n")
        file.write("bucket: obs://kept/course\n")
    named = prepare(None, lab=str(lab), name="mine")
    assert (named.data, named.data_here, named.run) == ("obs://other/kept", None, "obs://kept/course/jobs/mine/run")
    assert named.spec.inputs["extra"] == "more"
    assert named.spec.parameters == {"device_target": "Ascend", "profile": "sample"}


@pytest.mark.parametrize("bucket, options, says", [
    ("my-bucket", {}, "bucket: must be obs://BUCKET"), ("obs://my-bucket", {"name": "a b"}, "name: "),
    ("obs://my-bucket", {"data": "nowhere"}, "nowhere: there is no such folder"),
    ("obs://my-bucket", {"data": "s3://b-1/x"}, "inputs.data_url: .* not 's3://b-1/x'"),
    (None, {}, "job.yaml: bucket: missing"),
    ("obs://my-bucket", {"settings": ("network.num_classes=7",)}, "num_classes: 7, but .* has 10"),
    ("obs://my-bucket", {"settings": ("data.batch_size=100000",)}, "data.batch_size: 100000, but "),
])  # fmt: skip
def test_mistakes(prepare, bucket, options, says):
    with pytest.raises(LabkitError, match=says) as caught:
        prepare(bucket, **options)
    assert len(str(caught.value).splitlines()) == 1


# -- Packing ---------------------------------------------------------------------------------------------


def test_what_is_packed(prepare, small_lab, tmp_path):
    """What git tracks of the lab and of labkit, as it is now; no more. The recipe is the one that was asked for."""
    lab = small_lab("tracked")
    (lab / "act.py").write_text("changed")
    (lab / "secret.env").write_text("not added")
    (lab / "runs" / "recorded").mkdir(parents=True)
    (lab / "runs" / "recorded" / "history.jsonl").write_text("{}")
    (lab / "link.py").symlink_to("act.py")
    (lab / "gone.py").write_text("")
    subprocess.run(["git", "-C", lab, "add", "runs", "link.py", "gone.py"], check=True)
    (lab / "gone.py").unlink()
    asked = prepare("obs://my-bucket", lab=str(lab), settings=("max_steps=4", "schedule.lr_max=0.05"))
    packed = packing.pack(asked, tmp_path / "code")
    own = [name for name in packed if not name.startswith("labkit/")]
    assert own == ["act.py", "job.yaml", "link.py", "pip-requirements.txt", "recipe.yaml", "train.py"]
    code = tmp_path / "code"
    assert (code / "act.py").read_text() == (code / "link.py").read_text() == "changed"
    assert not (code / "link.py").is_symlink()
    tracked = subprocess.run(["git", "ls-files", "labkit"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert [name for name in packed if name.startswith("labkit/")] == sorted(
        name for name in tracked.splitlines() if (REPO / name).is_file()
    )
    again = recipes.load(code / "recipe.yaml", "sample")
    assert again == asked.recipe and again.max_steps == 4
    assert list(yaml.safe_load((code / "recipe.yaml").read_text())["profiles"]) == ["sample"]


def test_code_that_is_not_packed(prepare, small_lab, tmp_path):
    """A link out of the checkout, of a file with keys perhaps; a start file that git does not track; no checkout."""
    lab = small_lab()
    asked = prepare("obs://my-bucket", lab=str(lab))
    (tmp_path / "secret").write_text("hush")
    (lab / "settings.py").symlink_to("../secret")
    subprocess.run(["git", "-C", lab, "add", "-A"], check=True)
    with pytest.raises(CloudError, match="lab/settings.py: a link that leads out of this checkout: remove it"):
        packing.pack(asked, tmp_path / "code")
    (lab / "settings.py").unlink()
    subprocess.run(["git", "-C", lab, "rm", "-q", "--cached", "train.py"], check=True)
    with pytest.raises(CloudError, match="^.*lab/train.py: not tracked by git, .*`git add` it$"):
        packing.pack(asked, tmp_path / "code")
    shutil.rmtree(lab / ".git")
    with pytest.raises(CloudError, match="lab: not tracked by git, so a job would not get it"):
        packing.pack(asked, tmp_path / "code")
    assert not (tmp_path / "code").exists()


LOADED = """
import ast, sys
import labkit.launch.start_files, labkit.training.jobs, labkit.modelarts.job_io
print(labkit.launch.start_files.__file__)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "labkit":
        for line in ast.parse(open(module.__file__).read()).body:
            if isinstance(line, ast.Import):
                print(*(alias.name.partition(".")[0] for alias in line.names))
            elif isinstance(line, ast.ImportFrom):
                print(line.module.partition(".")[0])
"""
MODULES = {"PyYAML": "yaml", "esdk-obs-python": "obs"}  # what is imported of a package, where its name is another
WITH_OTHERS = {"mindspore", "numpy", "PIL", "pydantic_core"}


def test_the_packed_code_is_enough(prepare, tmp_path):
    """It imports its own labkit, and of others what a job installs, or what comes with that or MindSpore."""
    packing.pack(prepare("obs://my-bucket"), tmp_path)
    (tmp_path / "loaded.py").write_text(LOADED)
    done = subprocess.run([sys.executable, tmp_path / "loaded.py"], capture_output=True, text=True, check=True)
    file, *modules = done.stdout.split()
    assert file == str(tmp_path / "labkit" / "launch" / "start_files.py")
    installed = {MODULES.get(name, name) for name in packing.NEEDS}
    others = set(modules) - set(sys.stdlib_module_names) - {"labkit"} - WITH_OTHERS
    assert others <= installed and {"pydantic", "yaml", "psutil"} <= others


# -- Copying ---------------------------------------------------------------------------------------------


@pytest.fixture
def in_bucket(uploaded, tmp_path):
    """A job whose code and data are in a bucket, and the bucket's folder."""
    return uploaded(), tmp_path / "b"


def test_other_data_of_this_name(in_bucket, prepare, tmp_path):
    """It may be another job's, which reads it now. Data that was copied in part is completed."""
    _, bucket = in_bucket
    folder = bucket / "data/sample/cifar-10-batches-bin"
    (folder / "data_batch_2.bin").unlink()
    submission.require_new(prepare(f"file://{tmp_path}/b", name="part"))
    (folder / "test_batch.bin").write_bytes((folder / "data_batch_1.bin").read_bytes())
    with pytest.raises(CloudError, match="differs from .*test_batch.bin"):
        submission.require_new(prepare(f"file://{tmp_path}/b", name="other"))


# -- Fetching --------------------------------------------------------------------------------------------


def write_run(asked, folder):
    """The job's Run, as far as it has come."""
    run = runs.create(folder / "jobs/mine/run", asked.recipe)
    runs.relocate(run, "/home/ma-user/modelarts/inputs/data_url_0")
    run.checkpoint.write_text("1" * 1000)


def test_fetch(in_bucket, tmp_path):
    """The Run names the data of this machine; a damaged one is an error; none is none."""
    asked, bucket = in_bucket
    url = f"file://{bucket}"
    assert submission.fetch(url, "mine", tmp_path / "none") is None and not (tmp_path / "none").exists()
    write_run(asked, bucket)
    run = submission.fetch(url, "mine", tmp_path / "out" / "mine")
    assert run.recipe.data.folder == "sample/cifar-10-batches-bin" and run.checkpoint.read_text() == "1" * 1000
    with pytest.raises(runs.RunError, match="already there"):
        submission.fetch(url, "mine", tmp_path / "out" / "mine")
    with pytest.raises(CloudError, match="'mine/': not the name of a job"):
        submission.fetch(url, "mine/", tmp_path / "other")
    (bucket / "jobs/mine/run/recipe.yaml").write_text("lab: [")
    with pytest.raises(LabkitError, match=f"^{url}/jobs/mine/run/recipe.yaml"):
        submission.fetch(url, "mine", tmp_path / "damaged")
    assert not [path for path in tmp_path.iterdir() if "damaged" in path.name]


def test_an_interrupted_fetch_is_resumed(in_bucket, objects, tmp_path):
    """By the same command; what came whole is not copied again. Until then there is no Run."""
    asked, folder = in_bucket
    write_run(asked, folder)
    copying.copy(folder / "jobs", "obs://course/jobs")
    objects.fault("busy", "GET .*latest.ckpt", times=10**6)
    store = copying.connected(None, parse("obs://course"), deadline=5)
    with pytest.raises(CloudError, match="latest.ckpt: .*given up"):
        submission.fetch("obs://course", "mine", tmp_path / "mine", store=store)
    assert (tmp_path / ".mine-mine.part/recipe.yaml").exists() and not (tmp_path / "mine").exists()
    objects.faults.clear()
    objects.log.clear()
    run = submission.fetch("obs://course", "mine", tmp_path / "mine")
    assert run.checkpoint.read_text() == "1" * 1000 and not (tmp_path / ".mine-mine.part").exists()
    assert not [line for line in objects.log if line.startswith("GET") and "run/recipe.yaml" in line]
