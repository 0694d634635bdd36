"""Submitting: what a job is made of, what is packed and copied, how it is followed and its Run fetched. No training."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from labkit import recipe as recipes
from labkit import run as runs
from labkit.cloud import copying, submission
from labkit.cloud.modelarts import Job
from labkit.cloud.place import CloudError
from labkit.runtime import REPO, LabkitError


@pytest.fixture
def prepare(sample_data):
    """Function: the job of a lab's profile sample."""
    return lambda bucket, lab="cifar10", **options: submission.prepare(lab, "sample", bucket, **options)


# -- What a job is made of --------------------------------------------------------------------------------


def test_a_job_of_a_lab(prepare):
    asked = prepare("obs://my-bucket/course/", name="mine")
    body = asked.spec.body()
    assert body["algorithm"]["code_dir"] == "/my-bucket/course/jobs/mine/code/"
    assert body["algorithm"]["boot_file"] == "/my-bucket/course/jobs/mine/code/train.py"
    assert body["algorithm"]["parameters"] == [{"name": "profile", "value": "sample"}]
    assert (asked.data, asked.run) == (
        "obs://my-bucket/course/data/sample/cifar-10-batches-bin", "obs://my-bucket/course/jobs/mine/run"
    )  # fmt: skip
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert asked.spec.environment["LABKIT_COMMIT"].rstrip("+") == head.strip()


@pytest.mark.parametrize("lab", ["cifar10", "imagenet", "thor"])
def test_every_lab_has_a_job(prepare, lab):
    spec = prepare("obs://my-bucket", lab).spec
    assert spec.name.startswith(f"{lab}-sample-2") and spec.flavor and spec.engine.name and spec.nodes == 1


def test_a_rehearsal_has_its_places_in_the_folder(prepare, tmp_path):
    asked = prepare(f"file://{tmp_path}/b", name="mine")
    assert asked.data == f"file://{tmp_path}/b/data/sample/cifar-10-batches-bin"
    assert asked.run == f"file://{tmp_path}/b/jobs/mine/run" and asked.spec.bucket == submission.REHEARSAL


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
    named = prepare("obs://my-bucket", lab=str(lab))
    assert named.data == "obs://other/kept" and named.data_here is None
    assert named.spec.inputs["extra"] == "more" and named.spec.parameters == {
        "device_target": "Ascend", "profile": "sample"
    }  # fmt: skip


def test_what_is_given_wins(prepare):
    engine = {"name": "mine", "version": "1"}
    spec = prepare("obs://my-bucket", flavor="modelarts.npu.8", nodes=2, engine=engine).spec
    assert (spec.flavor, spec.nodes, spec.engine.name) == ("modelarts.npu.8", 2, "mine")


@pytest.mark.parametrize("bucket, options, says", [
    ("my-bucket", {}, "my-bucket: no bucket: write obs://"), ("s3://my-bucket", {}, "bucket: must be an obs:// URL"),
    ("obs://B", {}, "no bucket's name"), ("obs://my-bucket", {"name": "a b"}, "name: "),
    ("obs://my-bucket", {"data": "nowhere"}, "nowhere: there is no such folder"),
    ("obs://my-bucket", {"data": "file:///data"}, "inputs.data_url: must be an obs://"),
    ("obs://my-bucket", {"data": "s3://b-1/x"}, "inputs.data_url: must be an obs://"),
    ("obs://my-bucket", {"settings": ("epohcs=1",)}, "epohcs"), ("obs://my-bucket", {"lab": "nolab"}, "no lab 'nolab'"),
    ("obs://my-bucket", {"settings": ("network.num_classes=7",)}, "num_classes: 7, but .* has 10"),
])  # fmt: skip
def test_mistakes(prepare, bucket, options, says):
    with pytest.raises(LabkitError, match=says) as caught:
        prepare(bucket, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_lab_that_cannot_be_a_job(prepare, small_lab):
    lab = small_lab()
    (lab / "job.yaml").unlink()
    with pytest.raises(CloudError, match="job.yaml: cannot be read"):
        prepare("obs://my-bucket", lab=str(lab))
    (lab / "train.py").unlink()
    with pytest.raises(CloudError, match="no train.py"):
        prepare("obs://my-bucket", lab=str(lab))


# -- Packing ---------------------------------------------------------------------------------------------


def test_what_is_packed(prepare, small_lab, tmp_path):
    """What git tracks, as it is now; no more. The recipe is the one that was asked for."""
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
    packed = submission.pack(asked, tmp_path / "code")
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
    assert again == asked.recipe and again.max_steps == 4 and list(yaml.safe_load(
        (code / "recipe.yaml").read_text())["profiles"]) == ["sample"]  # fmt: skip


def test_code_that_git_does_not_track(prepare, small_lab, tmp_path):
    lab = small_lab()
    shutil.rmtree(lab / ".git")
    with pytest.raises(CloudError, match="lab: git tracks nothing there"):
        submission.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")


LOADED = """
import ast, sys
from labkit import jobs, training
print(jobs.__file__)
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


@pytest.mark.slow
def test_the_packed_code_is_enough(prepare, tmp_path):
    """It imports its own labkit, and of others what a job installs, or what comes with that or MindSpore."""
    submission.pack(prepare("obs://my-bucket"), tmp_path)
    (tmp_path / "loaded.py").write_text(LOADED)
    done = subprocess.run([sys.executable, tmp_path / "loaded.py"], capture_output=True, text=True, check=True)
    file, *modules = done.stdout.split()
    assert file == str(tmp_path / "labkit" / "jobs.py")
    installed = {MODULES.get(name, name) for name in submission.NEEDS}
    others = set(modules) - set(sys.stdlib_module_names) - {"labkit"} - WITH_OTHERS
    assert others <= installed and {"pydantic", "yaml", "psutil"} <= others


def test_needs_are_pinned():
    lines = submission.needs()
    assert [line.partition("==")[0] for line in lines] == list(submission.NEEDS)
    pinned = (REPO / "requirements.txt").read_text().splitlines()
    assert all(line in pinned for line in lines)


# -- Copying ---------------------------------------------------------------------------------------------


@pytest.fixture
def uploaded(prepare, tmp_path):
    """A job whose code and data are in a bucket, and the bucket's folder."""
    asked = prepare(f"file://{tmp_path}/b", name="mine")
    submission.pack(asked, tmp_path / "code")
    submission.require_new(asked)
    submission.upload(asked, tmp_path / "code")
    return asked, tmp_path / "b"


def test_upload(uploaded, sample_data, tmp_path):
    _, bucket = uploaded
    assert copying.verify(sample_data / "cifar-10-batches-bin", bucket / "data/sample/cifar-10-batches-bin") == []
    assert copying.verify(tmp_path / "code", bucket / "jobs/mine/code") == []


def test_a_name_that_is_taken(uploaded, prepare, tmp_path):
    with pytest.raises(CloudError, match="mine: the bucket has files of a job of this name; choose another --name"):
        submission.require_new(prepare(f"file://{tmp_path}/b", name="mine"))
    submission.require_new(prepare(f"file://{tmp_path}/b", name="other"))  # the data is the same: no objection


@pytest.mark.parametrize("change", ["another", "more"])
def test_other_data_of_this_name(uploaded, prepare, tmp_path, change):
    """It may be another job's, which reads it now."""
    _, bucket = uploaded
    folder = bucket / "data/sample/cifar-10-batches-bin"
    if change == "more":
        (folder / "extra.bin").write_bytes(b"x")
    else:
        (folder / "test_batch.bin").write_bytes((folder / "data_batch_1.bin").read_bytes())
    with pytest.raises(CloudError, match="holds other data than .*(extra.bin|test_batch.bin)"):
        submission.require_new(prepare(f"file://{tmp_path}/b", name="other"))


def test_data_that_was_copied_in_part(uploaded, prepare, tmp_path):
    _, bucket = uploaded
    (bucket / "data/sample/cifar-10-batches-bin/test_batch.bin").unlink()
    submission.require_new(prepare(f"file://{tmp_path}/b", name="other"))


# -- Following --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown, log, added", [
    ("", "", ""), ("", "a\n", "a\n"), ("a\n", "a\nb\n", "b\n"), ("a\n", "a\n", ""), ("a\nb\n", "", ""),
    ("x" * 600 + "\nend\n", "x" * 500 + "\nend\nmore\n", "more\n"), ("a" * 500, "b" * 500, "b" * 500),
])  # fmt: skip
def test_what_is_new_in_a_log(shown, log, added):
    """ModelArts shows the end of it, as long as that is."""
    assert submission._added(shown, log) == added


class Answers:
    """A ModelArts that gives these answers: a phase with the log of that moment, or an error."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def show(self, job):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        phase, self.text = answer
        return Job(job, "mine", phase)

    def log(self, job, task):
        return f"{self.text}" if task == "worker-0" else "another"


def test_follow_tells_each_thing_once():
    told = []
    client = Answers(
        ("Creating", None), ("Running", "a\n"), CloudError("gateway", 502), CloudError("no answer"),
        ("Running", "a\nb\n"), ("Running", "a\nb\n"), ("Completed", "a\nb\nc\n"),
    )  # fmt: skip
    ended = submission.follow(client, "job-1", told.append, poll=0)
    assert [one if isinstance(one, str) else one.phase for one in told] == [
        "Creating", "Running", "a\n", "b\n", "Completed", "c\n"
    ]  # fmt: skip
    assert ended.phase == "Completed" and client.answers == []


def test_follow_ends_where_it_is_refused_or_nobody_answers(monkeypatch):
    with pytest.raises(CloudError, match="forbidden"):
        submission.follow(Answers(("Creating", None), CloudError("forbidden", 403)), "job-1", print, poll=0)
    monkeypatch.setattr(submission, "PERSISTENT", 0.05)
    with pytest.raises(CloudError, match="gateway"):
        submission.follow(Answers(*[CloudError("gateway", 502)] * 99), "job-1", print, poll=0.01)


FLAVORS = [{"flavor_id": "modelarts.npu.1"}, {"flavor_id": "modelarts.cpu.8"}]
ENGINES = [{"engine_name": "A", "engine_version": "1"}, {"engine_name": "A", "engine_version": "2"}]


@pytest.mark.parametrize("flavor, engine, says", [
    ("modelarts.npu.1", ("A", "2"), None),
    ("npu", ("A", "2"), "flavor: npu: not offered here; there are modelarts.cpu.8, modelarts.npu.1"),
    ("modelarts.npu.1", ("A", "3"), "engine: A, 3: not offered here; there are 1, 2"),
    ("modelarts.npu.1", ("B", "1"), "engine: B, 1: not offered here; there are A"),
])  # fmt: skip
def test_what_is_offered(prepare, flavor, engine, says):
    client = SimpleNamespace(flavors=lambda: FLAVORS, engines=lambda: ENGINES)
    spec = prepare("obs://my-bucket", flavor=flavor, engine=dict(zip(("name", "version"), engine))).spec
    if says is None:
        return submission.require_offered(spec, client)
    with pytest.raises(CloudError, match=f"^{says}$"):
        submission.require_offered(spec, client)


# -- Fetching --------------------------------------------------------------------------------------------


def test_fetch(uploaded, tmp_path):
    """The Run names the data of this machine; a damaged one is an error; none is none."""
    asked, bucket = uploaded
    assert submission.fetch(asked, tmp_path / "none") is None and not (tmp_path / "none").exists()
    recorded = REPO / "labs" / "cifar10" / "runs" / "resnet20-laptop"
    shutil.copytree(recorded, bucket / "jobs/mine/run")
    there = runs.open_run(bucket / "jobs/mine/run")
    runs.relocate(there, "/home/ma-user/modelarts/inputs/data_url_0")
    run = submission.fetch(asked, tmp_path / "fetched")
    assert run.complete and run.recipe.data.folder == "sample/cifar-10-batches-bin"
    assert there.recipe.data.folder == "/home/ma-user/modelarts/inputs/data_url_0"
    assert run.history() == runs.open_run(recorded).history()
    lines = there.history_file.read_text().splitlines(keepends=True)
    there.history_file.write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(runs.RunError, match="ends at step .*, the summary at"):
        submission.fetch(asked, tmp_path / "short")
