"""`labkit submit` at ModelArts: the stub for jobs, a real object server for the bucket."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import modelarts_stub as stubs
import pytest
from running import labkit
from waiting import wait_until

from labkit.modelarts import submission
from labkit.obs import copying
from labkit.system.environment import REPO
from labkit.training import runs


@pytest.fixture
def account(request, stub, sample_data, tmp_path, monkeypatch):
    """A bucket, and ModelArts with the same keys and what cifar10's job.yaml asks for.

    Of moto, where the 80 files of a job's code take little; of Swift where a test asks for it.
    """
    server = request.getfixturevalue(getattr(request, "param", "moto"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stubs, "ACCESS", server.environment["OBS_ACCESS_KEY_ID"])
    monkeypatch.setattr(stubs, "SECRET", server.environment["OBS_SECRET_ACCESS_KEY"])
    monkeypatch.setattr(stubs, "FLAVORS", [{"flavor_id": "modelarts.bm.910.arm.public.1", "flavor_type": "Ascend"}])
    engine = {"engine_name": "Ascend-Powered-Engine", "engine_version": "mindspore_2.8.0"}
    monkeypatch.setattr(stubs, "ENGINES", [engine])
    monkeypatch.setattr(submission, "POLL", 0.05)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return f"obs://{server.new_bucket()}/course"


def submit(bucket, *arguments):
    return labkit("submit", "cifar10", "--profile", "sample", "--bucket", bucket, *arguments)


@pytest.mark.parametrize("account", ["swift"], indirect=True)
def test_submit(account, stub):
    """The code and the data are there when the job is created; what is printed is its id, and how to go on."""
    done = submit(account, "--name", "mine")
    assert (done.exit_code, done.stdout) == (0, "job-1\n"), done.stderr
    for command in ("labkit jobs show job-1", "labkit jobs logs job-1", "labkit jobs stop job-1"):
        assert command in done.stderr
    assert f"its Run, when it has ended: labkit jobs fetch mine --bucket {account}\n" in done.stderr
    body = stub.asked[-1][1]
    assert stub.operations()[-1] == "POST training-jobs" and body["metadata"]["name"] == "mine"
    code = "obs:/" + body["algorithm"]["code_dir"]
    assert {"train.py", "recipe.yaml", "labkit/modelarts/start_files.py"} <= {item.name for item in copying.ls(code)}
    data = "obs:/" + body["algorithm"]["inputs"][0]["remote"]["obs"]["obs_url"]
    assert copying.verify(os.environ["LABKIT_DATA"] + "/sample/cifar-10-batches-bin", data) == []
    again = submit(account, "--name", "mine")
    assert again.exit_code == 1 and "mine: there is a job of this name already (job-1)" in again.stderr


def test_a_folder_with_a_space_in_its_name(account):
    """The command that is told can be typed as it is."""
    done = submit(account, "--name", "mine", "--out", "my runs/one")
    command = done.stderr.partition("when it has ended: ")[2]
    assert shlex.split(command) == ["labkit", "jobs", "fetch", "mine", "--bucket", account, "--out", "my runs/one"]


def test_dry_run(account, stub, tmp_path):
    """The body that would be sent, on stdout; nobody is asked anything and nothing is copied."""
    done = submit(account, "--name", "mine", "--dry-run", "--set", "epochs=2")
    assert done.exit_code == 0 and json.loads(done.stdout)["metadata"]["name"] == "mine"
    assert f"would copy data: 8 files of {os.environ['LABKIT_DATA']}" in done.stderr
    assert f"would fetch the Run from {account}/jobs/mine/run" in done.stderr
    assert stub.asked == [] and copying.ls(account) == [] and os.listdir() == []


def test_dry_run_shows_no_variables(nobody, small_lab):
    """One of job.yaml may be a key, as a parameter may. The commit and the profile are labkit's own."""
    lab = small_lab()
    with open(lab / "job.yaml", "a") as file:
        file.write("environment: {WANDB_API_KEY: hush}\nparameters: {key: hush}\nbucket: obs://my-bucket\n")
    done = labkit("submit", lab, "--profile", "sample", "--dry-run")
    assert done.exit_code == 0 and "hush" not in done.output
    told = json.loads(done.stdout)["algorithm"]["environments"]
    assert told["WANDB_API_KEY"] == "***" and len(told["LABKIT_COMMIT"]) >= 40
    assert json.loads(done.stdout)["algorithm"]["parameters"] == [
        {"name": "key", "value": "***"}, {"name": "profile", "value": "sample"}
    ]  # fmt: skip


@pytest.mark.parametrize("arguments, says", [
    (("--flavor", "npu"), "flavor: npu: not offered here; there are modelarts.bm.910.arm.public.1"),
    (("--engine", "Ascend-Powered-Engine:1"), "engine: Ascend-Powered-Engine, 1: not offered here"),
    (("--set", "epohcs=1"), "epohcs"), (("--name", "a b"), "name: "),
    (("--data", "obs://no-such-bucket/x"), "no-such-bucket"),
])  # fmt: skip
def test_mistakes_cost_nothing(account, stub, arguments, says):
    done = submit(account, *arguments)
    assert done.exit_code == 1 and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert "POST training-jobs" not in stub.operations() and copying.ls(account) == []


@pytest.mark.parametrize("arguments, says", [
    (("--engine", "one"), "write NAME:VERSION"), (("--target", "moon"), "moon"), (("--nodes", "0"), "--nodes"),
    (("--cards", "2"), "--cards: only for --target local"),
    (("--target", "local", "--nodes", "2"), "--nodes: only for --target modelarts"),
    (("--target", "local", "--flavor", "x"), "--flavor: only"), (("--target", "local", "--wait"), "--wait: only"),
    (("--target", "local", "--engine", "a:b"), "--engine: only"),
    (("--bucket", "file://b"), "a bucket on this machine is for --target local"),
])  # fmt: skip
def test_submit_wrong_usage(nobody, arguments, says):
    done = submit("obs://my-bucket", *arguments)
    assert done.exit_code == 2 and says in done.stderr


def test_submit_needs_a_bucket(nobody):
    done = labkit("submit", "cifar10")
    assert done.exit_code == 1 and "job.yaml: bucket: missing; give one by --bucket, or" in done.stderr
    assert "--target local" in done.stderr


def run_job(stub, bucket, phase, recorded, folder):
    """What ModelArts does: the job goes through its phases and leaves its Run in the bucket."""
    wait_until(lambda: stub.jobs, seconds=120)
    status = stub.jobs["job-1"]["status"]
    status["phase"] = "Running"
    # Until this phase has been told: the log is asked for after that.
    wait_until(lambda: "GET training-jobs/preview" in stub.operations(), seconds=120)
    if recorded:
        run = runs.Run(Path(shutil.copytree(REPO / "labs" / "cifar10" / "runs" / recorded, folder)))
        (run.path / "recipe.yaml").write_text(run.recipe.model_copy(update={"profile": "sample"}).dump())
        runs.relocate(run, "/home/ma-user/modelarts/inputs/data_url_0")
        copying.copy(folder, f"{bucket}/jobs/mine/run", exclude=() if phase == "Completed" else ("summary.json",))
    stub.log += "step 2\n"
    status["phase"] = phase


def test_a_batch_larger_than_the_data_is_refused(account, stub):
    """Before anything is copied."""
    done = submit(account, "--name", "mine", "--set", "data.batch_size=100000")
    assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1
    assert "data.batch_size: 100000, but " in done.stderr and "POST training-jobs" not in stub.operations()
    assert not copying.exists(account)


@pytest.mark.parametrize("phase, recorded, status", [
    ("Completed", "resnet20-laptop", 0), ("Failed", "resnet20-laptop", 1), ("Failed", None, 1), ("Completed", None, 1)
])  # fmt: skip
def test_wait_and_fetch(account, stub, phase, recorded, status, tmp_path):
    thread = threading.Thread(target=run_job, args=(stub, account, phase, recorded, tmp_path / "job"))
    thread.start()
    done = submit(account, "--name", "mine", "--wait")
    thread.join()
    assert done.exit_code == status, done.output
    assert "job mine: Running" in done.stderr and f"job mine: {phase}" in done.stderr
    assert "step 1\nstep 2\n" in done.stdout
    if not recorded:
        assert f"the job left no Run in {account}/jobs/mine/run" in done.stderr and os.listdir() == []
        return
    run = runs.open_run("runs/mine")
    assert run.complete == (phase == "Completed") and run.recipe.data.folder == "sample/cifar-10-batches-bin"
    assert "runs/mine" in done.stdout and ("--resume" in done.stdout) == (phase == "Failed")
    again = labkit("jobs", "fetch", "mine", "--bucket", account)
    assert again.exit_code == 1 and "runs/mine: already there" in again.stderr
    again = labkit("jobs", "fetch", "mine", "--bucket", account, "--out", "again")
    assert again.exit_code == 0 and again.stdout == done.stdout.partition("step 2\n")[2].replace("runs/mine", "again")
    assert runs.open_run("again").recipe == run.recipe


def test_fetch_of_nothing(account):
    done = labkit("jobs", "fetch", "mine", "--bucket", account)
    assert done.exit_code == 1 and f"{account}/jobs/mine: there is no job of this name" in done.stderr


def begin(bucket):
    """`labkit submit --wait`, in a process of its own that Ctrl-C reaches."""
    command = ["submit", "cifar10", "--profile", "sample", "--bucket", bucket, "--name", "mine", "--wait"]
    return subprocess.Popen(
        [sys.executable, "-m", "labkit", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(REPO)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def test_ctrl_c_while_waiting_leaves_the_job_alone(account, stub):
    process = begin(account)
    for line in process.stderr:
        if line == "job mine: Creating\n":
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the job keeps running; look at it with: labkit jobs show job-1" in stderr and "Traceback" not in stderr
    assert "POST training-jobs/actions" not in stub.operations() and stub.jobs["job-1"]["status"]["phase"] == "Creating"


def test_ctrl_c_while_the_job_is_created(account, stub):
    """Nobody knows whether it was; how to see that is told."""
    stub.faults["POST training-jobs"] = ["stall"]
    process = begin(account)
    wait_until(lambda: "POST training-jobs" in stub.operations(), seconds=120)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "look with: labkit jobs list --name mine" in stderr
    assert stub.operations().count("POST training-jobs") == 1


def test_a_baseline_is_no_part_of_the_job(stub, sample_data):
    done = labkit("submit", "thor", "--profile", "sample", "--bucket", "obs://my-bucket", "--dry-run")
    assert done.exit_code == 0 and "a job of its own: --profile sample-momentum" in done.stderr


def test_a_job_that_is_refused(account, stub):
    stub.faults["POST training-jobs"] = [(400, {"error_code": "ModelArts.0104", "error_msg": "quota"})]
    done = submit(account, "--name", "mine", "--wait")
    assert done.exit_code == 1 and "quota" in done.stderr and not os.path.exists("runs")
    assert submit(account, "--name", "mine").exit_code == 0  # the same command goes on


def test_a_damaged_run_does_not_hide_how_the_job_ended(account, stub, tmp_path):
    def run_damaged():
        wait_until(lambda: stub.jobs)
        (tmp_path / "recipe.yaml").write_text("network: [")
        copying.copy(tmp_path / "recipe.yaml", f"{account}/jobs/mine/run/")
        stub.jobs["job-1"]["status"]["phase"] = "Failed"

    thread = threading.Thread(target=run_damaged)
    thread.start()
    done = submit(account, "--name", "mine", "--wait")
    thread.join()
    assert done.exit_code == 1 and "job mine: Failed" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: runs/mine/recipe.yaml")
