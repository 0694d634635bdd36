"""Submitting: what a job is made of, what is packed and copied, how it is followed and its Run fetched. No training."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from labkit.modelarts import packing, submission
from labkit.obs import copying
from labkit.obs.place import CloudError
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.files import locked
from labkit.training import recipes, runs

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
    assert asked.run == f"file://{tmp_path}/b/jobs/mine/run" and asked.local
    asked = prepare(f"file://{tmp_path}/b", data="obs://rehearsal/x")
    assert asked.data == "obs://rehearsal/x"
    assert not prepare("obs://rehearsal").local  # a bucket's name as any other


def test_data_with_links_out_is_refused_at_once(prepare, sample_data, tmp_path):
    shutil.copytree(sample_data / "cifar-10-batches-bin", tmp_path / "digits")
    (tmp_path / "digits/test_batch.bin").unlink()
    (tmp_path / "digits/test_batch.bin").symlink_to(sample_data / "cifar-10-batches-bin/test_batch.bin")
    with pytest.raises(CloudError, match="test_batch.bin: a link that leads out"):
        prepare("obs://my-bucket", data=str(tmp_path / "digits"))


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
    with open(lab / "job.yaml", "a") as file:
        file.write("bucket: obs://kept/course\n")
    assert prepare(None, lab=str(lab), name="mine").run == "obs://kept/course/jobs/mine/run"
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
    ("obs://my-bucket", {"data": "file:///data"}, "file:///data: no data: write obs://"),
    ("obs://my-bucket", {"data": "s3://b-1/x"}, "s3://b-1/x: no data: write obs://"),
    ("obs://my-bucket", {"name": "x" * 65}, "^name: must"), (None, {}, "job.yaml: bucket: missing; give one by"),
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
    assert again == asked.recipe and again.max_steps == 4 and list(yaml.safe_load(
        (code / "recipe.yaml").read_text())["profiles"]) == ["sample"]  # fmt: skip


@pytest.mark.parametrize("to", ["../secret", "/etc/hostname", "untracked.env", "../other/tracked"])
def test_a_link_to_what_is_not_tracked_is_refused(prepare, small_lab, tmp_path, to):
    """A credentials file outside the lab, in the case that was tried, would be uploaded under the link's name."""
    lab = small_lab()
    (tmp_path / "secret").write_text("hush")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tracked").write_text("hush")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", tmp_path / "other", *command], check=True)
    (lab / "settings.py").symlink_to(to)
    subprocess.run(["git", "-C", lab, "add", "-A"], check=True)
    (lab / "untracked.env").write_text("hush")
    with pytest.raises(CloudError, match="lab/settings.py: a link to a file that git does not track here: remove it"):
        packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_code_that_git_does_not_track(prepare, small_lab, tmp_path):
    lab = small_lab()
    shutil.rmtree(lab / ".git")
    with pytest.raises(CloudError, match="lab: no checkout of git; a job gets what git tracks"):
        packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")
    subprocess.run(["git", "-C", lab, "init", "-q"], check=True)
    with pytest.raises(CloudError, match="lab: git tracks nothing there"):
        packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")
    (lab / ".git" / "HEAD").unlink()
    with pytest.raises(CloudError, match=r"lab: git cannot say what it tracks \(fatal: not a git repository.*\)$"):
        packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")


def test_a_name_that_is_not_utf8_is_packed(prepare, small_lab, tmp_path):
    lab, name = small_lab(), os.fsdecode(b"caf\xe9.py")
    (lab / name).write_text("x")
    subprocess.run(["git", "-C", lab, "add", "--all"], check=True)
    assert name in packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")


def test_a_start_file_that_git_does_not_track(prepare, small_lab, tmp_path):
    """The job would have none."""
    lab = small_lab()
    subprocess.run(["git", "-C", lab, "rm", "-q", "--cached", "train.py"], check=True)
    with pytest.raises(CloudError, match="^.*lab/train.py: git does not track it; .*`git add` it$") as caught:
        packing.pack(prepare("obs://my-bucket", lab=str(lab)), tmp_path / "code")
    assert len(str(caught.value).splitlines()) == 1 and not (tmp_path / "code").exists()


LOADED = """
import ast, sys
from labkit.modelarts import start_files
print(start_files.__file__)
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
    assert file == str(tmp_path / "labkit" / "modelarts" / "start_files.py")
    installed = {MODULES.get(name, name) for name in packing.NEEDS}
    others = set(modules) - set(sys.stdlib_module_names) - {"labkit"} - WITH_OTHERS
    assert others <= installed and {"pydantic", "yaml", "psutil"} <= others


def test_needs_are_pinned():
    lines = packing.needs()
    assert [line.partition("==")[0] for line in lines] == list(packing.NEEDS)
    pinned = (REPO / "requirements.txt").read_text().splitlines()
    assert all(line in pinned for line in lines)


# -- Copying ---------------------------------------------------------------------------------------------


@pytest.fixture
def in_bucket(uploaded, tmp_path):
    """A job whose code and data are in a bucket, and the bucket's folder."""
    return uploaded(), tmp_path / "b"


def test_upload(in_bucket, sample_data, tmp_path):
    _, bucket = in_bucket
    assert copying.verify(sample_data / "cifar-10-batches-bin", bucket / "data/sample/cifar-10-batches-bin") == []
    assert copying.verify(tmp_path / "code", bucket / "jobs/mine/code") == []


@pytest.mark.parametrize("left", ["run", "log"])
def test_a_name_that_is_taken(in_bucket, prepare, tmp_path, left):
    """By a job that has begun. What an interrupted submission left is gone on with."""
    asked, bucket = in_bucket
    submission.require_new(asked, tmp_path / "code")
    (bucket / "jobs/mine" / left).mkdir()
    with pytest.raises(CloudError, match="mine: the bucket has files of a job of this name; choose another --name"):
        submission.require_new(asked, tmp_path / "code")
    submission.require_new(prepare(f"file://{tmp_path}/b", name="other"), tmp_path / "code")  # the data is the same


def test_code_that_is_no_more(in_bucket, tmp_path):
    """It would be imported."""
    asked, bucket = in_bucket
    (bucket / "jobs/mine/code/helper.py").write_text("")
    with pytest.raises(CloudError, match="jobs/mine/code: has helper.py, which is not in the code; choose another"):
        submission.require_new(asked, tmp_path / "code")


def test_data_comes_first(in_bucket, tmp_path):
    """It may take hours, in which the code may change."""
    asked, _ = in_bucket
    assert [what for what, _, _ in submission.copies(asked, tmp_path / "code")] == ["data", "code"]


@pytest.mark.parametrize("change", ["another", "more"])
def test_other_data_of_this_name(in_bucket, prepare, tmp_path, change):
    """It may be another job's, which reads it now."""
    _, bucket = in_bucket
    folder = bucket / "data/sample/cifar-10-batches-bin"
    if change == "more":
        (folder / "extra.bin").write_bytes(b"x")
    else:
        (folder / "test_batch.bin").write_bytes((folder / "data_batch_1.bin").read_bytes())
    with pytest.raises(CloudError, match="holds other data than .*(extra.bin|test_batch.bin)"):
        submission.require_new(prepare(f"file://{tmp_path}/b", name="other"), tmp_path / "code")


def test_data_that_was_copied_in_part(in_bucket, prepare, tmp_path):
    _, bucket = in_bucket
    (bucket / "data/sample/cifar-10-batches-bin/test_batch.bin").unlink()
    submission.require_new(prepare(f"file://{tmp_path}/b", name="other"), tmp_path / "code")


# -- Following --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown, log, added", [
    ("", "", ""), ("", "a\n", "a\n"), ("a\n", "a\nb\n", "b\n"), ("a\n", "a\n", ""), ("a\nb\n", "", ""),
    ("x" * 600 + "\nend\n", "x" * 500 + "\nend\nmore\n", "more\n"), ("a" * 500, "b" * 500, "b" * 500),
])  # fmt: skip
def test_what_is_new_in_a_log(shown, log, added):
    """ModelArts shows the end of it, as long as that is."""
    assert submission._added(shown, log) == added


# -- Fetching --------------------------------------------------------------------------------------------


def test_fetch(in_bucket, tmp_path):
    """The Run names the data of this machine; a damaged one is an error; none is none."""
    asked, bucket = in_bucket
    url = f"file://{bucket}"
    assert submission.fetch(url, "mine", tmp_path / "none") is None and not (tmp_path / "none").exists()
    recorded = REPO / "labs" / "cifar10" / "runs" / "resnet20-laptop"
    shutil.copytree(recorded, bucket / "jobs/mine/run")
    there = runs.open_run(bucket / "jobs/mine/run")
    lines = there.recipe.model_copy(update={"profile": "sample"}).dump()  # as the job would have had it
    (there.path / "recipe.yaml").write_text(lines)
    runs.relocate(there, "/home/ma-user/modelarts/inputs/data_url_0")
    run = submission.fetch(url, "mine", tmp_path / "fetched")
    assert run.complete and run.recipe.data.folder == "sample/cifar-10-batches-bin"
    assert there.recipe.data.folder == "/home/ma-user/modelarts/inputs/data_url_0"
    assert run.history() == runs.open_run(recorded).history()
    lines = there.history_file.read_text().splitlines(keepends=True)
    for some in (lines[: len(lines) // 2], []):
        there.history_file.write_text("".join(some))
        shutil.rmtree(tmp_path / "short", ignore_errors=True)
        with pytest.raises(runs.RunError, match="ends at step .*, the summary at"):
            submission.fetch(url, "mine", tmp_path / "short")


def test_fetch_a_run_that_failed_before_its_first_step(in_bucket, tmp_path):
    asked, bucket = in_bucket
    runs.create(bucket / "jobs/mine/run", asked.recipe)
    run = submission.fetch(f"file://{bucket}", "mine", tmp_path / "fetched")
    assert not run.complete and not run.history_file.exists()


def test_a_fetched_run_finds_data_that_was_given(uploaded, sample_data, tmp_path):
    """Also where that is no folder of the recipe."""
    shutil.copytree(sample_data / "cifar-10-batches-bin", tmp_path / "digits")
    asked = uploaded(data=str(tmp_path / "digits"))
    runs.create(tmp_path / "b/jobs/mine/run", asked.recipe)
    run = submission.fetch(f"file://{tmp_path}/b", "mine", tmp_path / "fetched")
    assert run.recipe.data.folder == str(tmp_path / "digits")


@pytest.fixture
def fetched_run(in_bucket, tmp_path):
    """Function that fetches the job's Run to this folder; in the bucket it has a checkpoint."""
    asked, bucket = in_bucket
    runs.create(bucket / "jobs/mine/run", asked.recipe)
    (bucket / "jobs/mine/run/checkpoints/latest.ckpt").write_text("1")
    return lambda out: submission.fetch(f"file://{bucket}", "mine", out)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_fetch_to_a_folder_that_is_there(fetched_run, tmp_path, monkeypatch):
    """An empty one, also as "."; or with what a killed process left, which holds nothing."""
    for name, leaves in (("empty", ()), ("killed", ("checkpoints", "recipe.yaml.part"))):
        (tmp_path / name).mkdir()
        for one in leaves:
            (tmp_path / name / one).touch() if "." in one else (tmp_path / name / one).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert fetched_run(submission.Path(".")).checkpoint.read_text() == "1"
        assert {"checkpoints/latest.ckpt", "recipe.yaml"} <= set(names(tmp_path / name))
    assert not list(tmp_path.glob(".*"))


def test_fetch_to_a_folder_with_something_in_it(fetched_run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(runs.RunError, match="mine: already there"):
        fetched_run(tmp_path / "mine")
    assert names(tmp_path / "mine") == ["thesis.txt"] and not list(tmp_path.glob(".*"))


def test_what_another_fetch_left_is_no_part_of_a_run(fetched_run, tmp_path):
    """Of another job, to a folder of the same name: it was complete, and this one is not."""
    part = tmp_path / ".mine.part"
    part.mkdir()
    for name in ("summary.json", "recipe.yaml"):
        (part / name).write_text("{}")
    assert not fetched_run(tmp_path / "mine").complete
    assert names(tmp_path / "mine") == ["checkpoints/latest.ckpt", "recipe.yaml"] and not part.exists()


def test_a_fetch_whose_last_question_fails_can_be_repeated(in_bucket, fetched_run, tmp_path):
    """Nothing is at its place before no server is asked any more."""
    _, bucket = in_bucket
    (bucket / "jobs/mine/code/recipe.yaml").rename(tmp_path / "kept")
    with pytest.raises(CloudError, match="recipe.yaml: there is no such file"):
        fetched_run(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    (tmp_path / "kept").rename(bucket / "jobs/mine/code/recipe.yaml")
    assert fetched_run(tmp_path / "mine").checkpoint.read_text() == "1" and not (tmp_path / ".mine.part").exists()


def test_two_fetches_to_one_folder(fetched_run, tmp_path):
    (tmp_path / ".mine.part").mkdir()
    with locked(tmp_path / ".mine.part", CloudError("")), pytest.raises(CloudError, match="mine: another fetch to"):
        fetched_run(tmp_path / "mine")
    assert fetched_run(tmp_path / "mine").checkpoint.exists()


def test_an_interrupted_fetch_goes_on(in_bucket, direct, through, proxy, bucket, tmp_path):
    """By the same command; what came whole is not copied again. Until then there is no Run."""
    asked, folder = in_bucket
    runs.create(folder / "jobs/mine/run", asked.recipe)
    (folder / "jobs/mine/run/checkpoints/latest.ckpt").write_text("1" * 1000)
    copying.copy(folder / "jobs", f"obs://{bucket}/jobs", store=direct)
    proxy.plant(method="GET", path="latest.ckpt", times=10**6, reset_download=500)
    through.deadline = 2
    with pytest.raises(CloudError, match="latest.ckpt: .*given up"):
        submission.fetch(f"obs://{bucket}", "mine", tmp_path / "mine", store=through)
    assert not (tmp_path / "mine").exists() and (tmp_path / ".mine.part/recipe.yaml").exists()
    proxy.clear()
    through.deadline = 20
    run = submission.fetch(f"obs://{bucket}", "mine", tmp_path / "mine", store=through)
    assert run.checkpoint.read_text() == "1" * 1000 and names(run.path) == ["checkpoints/latest.ckpt", "recipe.yaml"]
    assert not (tmp_path / ".mine.part").exists() and not proxy.requests("GET", "run/recipe.yaml")
