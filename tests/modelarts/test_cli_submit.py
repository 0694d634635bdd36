"""`labkit submit` at ModelArts: the book's stand-ins for jobs and for the bucket."""

import json
import os
import shlex
import shutil
import threading
from pathlib import Path

import modelarts_server as stubs
import pytest
from running import labkit
from waiting import wait_until

from labkit.modelarts import jobs_commands
from labkit.obs import copying
from labkit.system.environment import REPO
from labkit.training import runs

BUCKET = "obs://course/book"


@pytest.fixture
def account(stub, objects, sample_data, tmp_path, monkeypatch):
    """A bucket, and ModelArts with the same keys and what cifar10's job.yaml asks for."""
    monkeypatch.setattr(stubs, "FLAVORS", [{"flavor_id": "modelarts.bm.910.arm.public.1", "flavor_type": "Ascend"}])
    engine = {"engine_name": "Ascend-Powered-Engine", "engine_version": "mindspore_2.8.0"}
    monkeypatch.setattr(stubs, "ENGINES", [engine])
    monkeypatch.setattr(jobs_commands, "POLL", 0.05)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return objects


def submit(*arguments, bucket=BUCKET):
    return labkit("submit", "cifar10", "--profile", "sample", "--bucket", bucket, *arguments)


def test_submit(account, stub):
    """Code and data are there when the job is created; what is printed is its id, and what to do next."""
    done = submit("--name", "mine", "--out", "my runs/one")
    assert (done.exit_code, done.stdout) == (0, "job-1\n"), done.stderr
    for command in ("labkit jobs show job-1", "labkit jobs logs job-1", "labkit jobs stop job-1"):
        assert command in done.stderr
    command = done.stderr.partition("when it has ended: ")[2]  # which can be typed
    assert shlex.split(command) == ["labkit", "jobs", "fetch", "mine", "--bucket", BUCKET, "--out", "my runs/one"]
    body = stub.requests[-1][1]
    assert stub.operations()[-1] == "POST training-jobs" and body["metadata"]["name"] == "mine"
    code = {item.name for item in copying.ls("obs:/" + body["algorithm"]["code_dir"])}
    assert {"train.py", "recipe.yaml", "labkit/launch/start_files.py"} <= code
    data = "obs:/" + body["algorithm"]["inputs"][0]["remote"]["obs"]["obs_url"]
    assert copying.verify(os.environ["LABKIT_DATA"] + "/sample/cifar-10-batches-bin", data) == []


def test_one_name_one_job(account, stub):
    """Where ModelArts has a job of this name, and where only the bucket does."""
    assert submit("--name", "mine").exit_code == 0
    before = set(account.buckets["course"])
    again = submit("--name", "mine")
    assert again.exit_code == 1
    assert again.stderr == "Error: mine: there is a job of this name already (job-1, Creating)\n"
    stub.jobs.clear()
    again = submit("--name", "mine")
    assert again.exit_code == 1 and "mine: the bucket has files of a job of this name; choose" in again.stderr
    assert len(again.stderr.splitlines()) == 1 and set(account.buckets["course"]) == before
    assert stub.operations().count("POST training-jobs") == 1


def test_dry_run(account, stub):
    """The body that would be sent, on stdout; nobody is asked anything and nothing is copied."""
    done = submit("--name", "mine", "--dry-run", "--set", "epochs=2")
    assert done.exit_code == 0 and json.loads(done.stdout)["metadata"]["name"] == "mine"
    assert f"would copy data: 8 files of {os.environ['LABKIT_DATA']}" in done.stderr
    assert f"would fetch the Run from {BUCKET}/jobs/mine/run" in done.stderr
    assert stub.requests == [] and account.buckets["course"] == {} and os.listdir() == []


def test_dry_run_shows_no_variables(nobody, small_lab):
    """One of job.yaml may be a key, as a parameter may. The commit and the profile are labkit's own."""
    lab = small_lab()
    (lab / "tools/runs").mkdir(parents=True)
    (lab / "runs/.ipynb_checkpoints").mkdir(parents=True)
    for name in ("helper.py", ".env", "tools/runs/one.py", "runs/one.py", "runs/.ipynb_checkpoints/one.py"):
        (lab / name).touch()
    with open(lab / "job.yaml", "a") as file:
        file.write("environment: {WANDB_API_KEY: hush}\nparameters: {key: hush}\nbucket: obs://my-bucket\n")
    done = labkit("submit", lab, "--profile", "sample", "--dry-run")
    assert done.exit_code == 0 and "hush" not in done.output
    others = ", ".join(f"{lab}/{name}" for name in (".env", "helper.py", "tools/runs/one.py"))
    assert f"not in the job (not tracked by git, or not checked out): {others}\n" in done.stderr
    algorithm = json.loads(done.stdout)["algorithm"]
    assert algorithm["environments"]["WANDB_API_KEY"] == "***"
    assert len(algorithm["environments"]["LABKIT_COMMIT"]) >= 40
    assert algorithm["parameters"] == [{"name": "key", "value": "***"}, {"name": "profile", "value": "sample"}]


@pytest.mark.parametrize("arguments, says", [
    (("--flavor", "npu"), "flavor: npu: not offered here; there are modelarts.bm.910.arm.public.1"),
    (("--engine", "Ascend-Powered-Engine:1"), "engine: Ascend-Powered-Engine:1: not offered here"),
    (("--set", "epohcs=1"), "epohcs"), (("--data", "obs://course/nothing"), "obs://course/nothing: there is no data"),
])  # fmt: skip
def test_mistakes_cost_nothing(account, stub, arguments, says):
    done = submit(*arguments)
    assert done.exit_code == 1 and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert "POST training-jobs" not in stub.operations() and account.buckets["course"] == {}


@pytest.mark.parametrize("arguments, says", [
    (("--engine", "one"), "must be NAME:VERSION"), (("--cards", "2"), "--cards: only for --target local"),
    (("--target", "local", "--nodes", "2"), "--nodes: only for --target modelarts"),
    (("--bucket", "file://b"), "a bucket on this machine needs --target local"),
])  # fmt: skip
def test_wrong_usage(nobody, arguments, says):
    done = submit(*arguments)
    assert done.exit_code == 2 and says in done.stderr


def run_job(stub, phase, recorded, folder):
    """What ModelArts does: the job goes through its phases and leaves its Run in the bucket."""
    wait_until(lambda: stub.jobs, seconds=120)
    status = stub.jobs["job-1"]["status"]
    status["phase"] = "Running"
    # Until this phase has been printed: the log is asked for after that.
    wait_until(lambda: "GET training-jobs/preview" in stub.operations(), seconds=120)
    if recorded:
        run = runs.Run(Path(shutil.copytree(REPO / "labs" / "cifar10" / "runs" / recorded, folder)))
        (run.path / "recipe.yaml").write_text(run.recipe.model_copy(update={"profile": "sample"}).dump())
        runs.relocate(run, "/home/ma-user/modelarts/inputs/data_url_0")
        copying.copy(folder, f"{BUCKET}/jobs/mine/run", exclude=() if phase == "Completed" else ("summary.json",))
    stub.log += "step 2\n"
    status["phase"] = phase


@pytest.mark.parametrize("phase, recorded, status", [
    ("Completed", "resnet20-laptop", 0), ("Failed", "resnet20-laptop", 1), ("Completed", None, 1)
])  # fmt: skip
def test_wait_and_fetch(account, stub, tmp_path, phase, recorded, status):
    """The Run comes back however the job ended; without one, the command fails."""
    machine = threading.Thread(target=run_job, args=(stub, phase, recorded, tmp_path / "made"), daemon=True)
    machine.start()
    done = submit("--name", "mine", "--wait")
    machine.join()
    assert done.exit_code == status, done.output
    assert f"job mine: Running\njob mine: {phase}\n" in done.stderr and "step 1\nstep 2\n" in done.stdout
    if recorded is None:
        assert "the job left no Run" in done.stderr and not Path("runs").exists()
        return
    run = runs.open_run(Path("runs/mine"))
    assert run.complete == (phase == "Completed") and run.recipe.data.folder == "sample/cifar-10-batches-bin"
    assert done.stdout.splitlines()[-1] == ("runs/mine" if run.complete else
        "the Run is not complete; resume it with: labkit train cifar10 --resume --out runs/mine")  # fmt: skip
