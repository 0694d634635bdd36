"""`labkit submit --target local`: the contract of a job, by a small start file; then a lab's own, which trains."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waiting import ended, wait_until

from labkit.modelarts import rehearsal, submission
from labkit.obs import copying
from labkit.system.environment import REPO
from labkit.training import evaluation, runs

SHORT = ("--set", "network.name=resnet8", "--set", "max_steps=4")


@pytest.fixture
def submit(tmp_path):
    """Function that runs `labkit submit --target local` in a folder of its own, in a process of its own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()

    def submit(lab, bucket, *arguments, start=False, **variables):
        command = [sys.executable, "-m", "labkit", "submit", str(lab), "--target", "local"]
        command += ["--bucket", bucket] if bucket else []
        process = subprocess.Popen(
            [*command, *arguments], cwd=tmp_path / "work", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(tmp_path / "tmp")} | variables,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        if start:
            return process
        stdout, stderr = process.communicate(timeout=400)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    yield submit
    assert os.listdir(tmp_path / "tmp") == []  # what a job had here has gone


def told(stdout):
    return json.loads(stdout.splitlines()[0])


# -- The contract ------------------------------------------------------------------------------------------


def test_what_a_job_is_given(submit, small_lab, tmp_path):
    """Fresh folders, the arguments and environment of a job of ModelArts, and none of another launch."""
    bucket = f"file://{tmp_path}/b"
    done = submit(small_lab(), bucket, "--name", "mine", "--cards", "2", RANK_TABLE_FILE="/t", RANK_ID="5", MS_ROLE="x")
    assert done.returncode == 1 and "job mine: Completed, exit status 0" in done.stderr  # but it left no Run
    given = told(done.stdout)
    top = given["cwd"]
    assert given["given"] == {
        "data_url": f"{top}/inputs/data_url_0", "train_url": f"{top}/outputs/train_url_0", "profile": "sample"
    }  # fmt: skip
    assert given["labkit"] == f"{top}/user-job-dir/code/labkit/__init__.py"
    assert {"data_batch_1.bin", "test_batch.bin"} <= set(given["files"])
    assert {name: value for name, value in given["env"].items() if name != "LABKIT_COMMIT"} == {
        "MA_JOB_DIR": f"{top}/user-job-dir", "MA_LOG_DIR": f"{top}/log", "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2",
        "VC_WORKER_NUM": "1", "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "127.0.0.1",
    }  # fmt: skip
    assert (tmp_path / "b/jobs/mine/run/result.txt").read_text() == "here"
    assert told((tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()) == given
    assert "the job left no Run" in done.stderr and not (tmp_path / "work" / "runs").exists()


@pytest.mark.parametrize("action, status", [("os.kill(os.getpid(), 9)", 137), ("raise ArithmeticError('planted')", 1)])
def test_a_failure_passes_its_status_on(submit, small_lab, tmp_path, action, status):
    done = submit(small_lab(action), f"file://{tmp_path}/b", "--name", "mine")
    assert done.returncode == status and "job mine: Failed, exit status" in done.stderr
    assert (tmp_path / "b/jobs/mine/run/result.txt").exists()  # and its outputs are copied
    if status == 1:
        assert "ArithmeticError: planted" in (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()


def test_three_jobs_of_one_name(submit, small_lab, tmp_path):
    """At the same second: one trains, the others are refused in one line."""
    lab, bucket = small_lab(), f"file://{tmp_path}/b"
    jobs = [submit(lab, bucket, "--name", "mine", "--out", f"run-{n}", start=True) for n in range(3)]
    results = [job.communicate(timeout=200) for job in jobs]
    refusals = [stderr for stdout, stderr in results if "choose another --name" in stderr]
    assert refusals == ["Error: mine: the bucket has files of a job of this name; choose another --name\n"] * 2
    assert sum("job mine: Completed" in stderr for _, stderr in results) == 1
    assert (tmp_path / "b/jobs/mine/run/result.txt").read_text() == "here"


SAVES = """
import signal, time
def save(*_):
    print("saving", flush=True)
    time.sleep(1)
    Path(given["train_url"], "saved.txt").write_text("saved")
    print("saved", flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_gives_the_job_time_to_save(submit, small_lab, tmp_path, number):
    process = submit(small_lab(SAVES), f"file://{tmp_path}/b", "--name", "mine", start=True)
    assert told(process.stdout.readline()) and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    wait_until(lambda: any(b"saving" in log.read_bytes() for log in tmp_path.glob("tmp/*/log/*.log")))
    process.send_signal(number)  # once more: it is saved all the same
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 128 + number and "stopped; what it wrote is in" in stderr
    assert f"fetch it with: labkit jobs fetch mine --bucket file://{tmp_path}/b" in stderr
    assert (tmp_path / "b/jobs/mine/run/saved.txt").read_text() == "saved"
    assert "saved" in (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()


@pytest.fixture
def doing(uploaded, small_lab, tmp_path, monkeypatch):
    """Function: a job of a small lab that does this, copied to tmp_path/b; it runs below tmp_path too."""

    def doing(action):
        asked = uploaded(lab=str(small_lab(action)))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return asked.spec

    return doing


HOLDS_OUT = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"not yet\\n"))
child = subprocess.Popen(["sleep", "600"])
os.write(1, f"child {child.pid}\\n".encode())  # at once: print would do it in pieces
while True:
    time.sleep(600)
"""


def test_a_job_that_does_not_end_is_ended(doing, tmp_path, monkeypatch):
    """With all that it has started; what it printed meanwhile is in its log."""
    monkeypatch.setattr(rehearsal, "TIME_TO_SAVE", 3)
    asked = doing(HOLDS_OUT)

    def printed(text):
        if "child" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rehearsal.rehearse(asked, printed=printed)
    log = (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()
    assert log.endswith("not yet\n")
    wait_until(lambda: ended(int(log.partition("child ")[2].split()[0])))


LEAVES = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
print(f"child {child.pid}\\n" + "x" * 200_000 + "\\nthe end")
"""


def test_what_a_job_leaves_running_is_not_waited_for(doing, tmp_path):
    texts = []
    assert rehearsal.rehearse(doing(LEAVES), printed=texts.append) == 0
    log = (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()
    assert log == "".join(texts) and log.endswith("x\nthe end\n") and log.count("x") > 200_000
    wait_until(lambda: ended(int(log.partition("child ")[2].split()[0])))


@pytest.mark.parametrize("action", [
    "(Path(given['train_url']) / 'out').symlink_to('/etc/hostname')",
    "import shutil; shutil.rmtree('{bucket}'); Path('{bucket}').write_text('')",
])  # fmt: skip
def test_what_cannot_be_copied_stays(doing, tmp_path, action):
    """A link that leads out of the folder; a bucket that goes away while the job runs."""
    asked = doing(action.format(bucket=tmp_path / "b"))
    with pytest.raises(submission.CloudError, match="what the job wrote stays in ") as caught:
        rehearsal.rehearse(asked)
    kept = Path(str(caught.value).rpartition("stays in ")[2])
    assert (kept / "outputs" / "train_url_0" / "result.txt").read_text() == "here"


# -- Training ----------------------------------------------------------------------------------------------


def completed(done, folder, steps):
    """The Run that was fetched, which is whole and can be evaluated here."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == str(folder.relative_to(folder.parent.parent))
    run = runs.open_run(folder)
    assert run.complete and [record["step"] for record in run.steps()] == list(range(1, steps + 1))
    assert run.recipe.max_steps == steps and run.recipe.data.folder == "sample/cifar-10-batches-bin"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert run.provenance["commit"] == head.strip()
    return run


def test_a_lab_with_no_other_option(submit, tmp_path):
    """The profile sample, its data, and a folder below runs/ as bucket. (Named, and short, for this test.)"""
    done = submit("cifar10", None, *SHORT, "--name", "one")
    run = completed(done, tmp_path / "work" / "runs" / "one", 4)
    assert run.processes == 1
    assert evaluation.evaluate(run)["accuracy"] == run.summary["accuracy"]  # its data and its checkpoint are found
    assert "epoch 1 accuracy" in (tmp_path / "work/runs/bucket/jobs/one/log/one-worker-0.log").read_text()
    for line in ("copying data: 8 files of ", "copying code: ", "job one: Running, ", "job one: Completed, "):
        assert f"\n{line}" in f"\n{done.stderr}"


@pytest.mark.slow  # msrun and two processes that train
def test_a_lab_on_an_object_server_with_two_cards(submit, objects, tmp_path):
    """As on a machine with two and nothing started: the start file starts msrun."""
    arguments = (*SHORT, "--name", "one", "--cards", "2")
    run = completed(submit("cifar10", "obs://course/book", *arguments), tmp_path / "work/runs/one", 4)
    assert run.processes == 2
    names = {item.name for item in copying.ls("obs://course/book/jobs/one/run")}
    assert names == {"recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "checkpoints/latest.ckpt"}
    assert copying.verify(run.path / "checkpoints", "obs://course/book/jobs/one/run/checkpoints") == []
    logs = {item.name for item in copying.ls("obs://course/book/jobs/one/log/workers")}
    assert {"worker_0.log", "worker_1.log", "scheduler.log"} <= logs


# -- A job with URLs (API v1), by its start file -------------------------------------------------------------

SAVE_OFTEN = """
import runpy, sys
from labkit.modelarts import job_io
job_io.PERIOD = 0.05
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow  # trains three times
@pytest.mark.parametrize("number, status", [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_a_job_with_urls_that_is_stopped_and_resumes(uploaded, objects, tmp_path, monkeypatch, number, status):
    """The start file copies by itself. Killed or stopped, its Run is in the bucket; the next one resumes it."""
    settings = ("network.name=resnet8", "max_steps=12", "checkpoint_steps=1")
    asked = uploaded("obs://course", settings=settings)
    command = [sys.executable, "-c", SAVE_OFTEN, tmp_path / "code" / "train.py", "--data_url", asked.data,
               "--train_url", asked.run, "--profile", "sample"]  # fmt: skip

    def environment(machine):
        (tmp_path / machine).mkdir(exist_ok=True)
        return os.environ | {"TMPDIR": str(tmp_path / machine), "PYTHONPATH": str(tmp_path / "code")}

    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, env=environment("first"), stdout=log, stderr=log, cwd=tmp_path)
    wait_until(lambda: "jobs/mine/run/checkpoints/latest.ckpt" in objects.buckets["course"], seconds=300)
    process.send_signal(number)
    assert process.wait(timeout=300) == status, (tmp_path / "log").read_text()
    first = submission.fetch("obs://course", "mine", tmp_path / "fetched")
    assert not first.complete and first.checkpoint.exists() and first.steps()
    # Another machine, and so another folder for the data.
    done = subprocess.run(command, env=environment("second"), capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Run: {asked.run}, " in done.stdout and f"data: {asked.data}, 8 files, copied to" in done.stdout
    run = submission.fetch("obs://course", "mine", tmp_path / "whole")
    assert run.complete and [record["step"] for record in run.steps()] == list(range(1, 13))
    assert run.steps()[0]["loss"] == first.steps()[0]["loss"]
    done = subprocess.run(command, env=environment("second"), capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 0 and "is complete: nothing to train" in done.stdout
