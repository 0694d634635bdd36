"""`labkit submit --target local`: the contract of a job, by a small start file; then a lab's own, which trains."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from swift import environment
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

    def submit(lab, bucket, *arguments, start=False, **variables):
        command = [sys.executable, "-m", "labkit", "submit", str(lab), "--target", "local"]
        command += ["--bucket", bucket] if bucket else []
        env = os.environ | {"PYTHONPATH": str(REPO), "TMPDIR": str(tmp_path / "tmp")} | variables
        (tmp_path / "tmp").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [*command, *arguments], cwd=tmp_path / "work", env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
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
    found = told(done.stdout)
    top = found["cwd"]
    assert found["given"] == {
        "data_url": f"{top}/inputs/data_url_0", "train_url": f"{top}/outputs/train_url_0", "profile": "sample"
    }  # fmt: skip
    assert found["labkit"] == f"{top}/user-job-dir/code/labkit/__init__.py"
    assert {"data_batch_1.bin", "test_batch.bin"} <= set(found["files"])
    assert {name: value for name, value in found["env"].items() if name != "LABKIT_COMMIT"} == {
        "MA_JOB_DIR": f"{top}/user-job-dir", "MA_LOG_DIR": f"{top}/log", "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2",
        "VC_WORKER_NUM": "1", "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "127.0.0.1",
    }  # fmt: skip
    assert (tmp_path / "b/jobs/mine/run/result.txt").read_text() == "here"
    assert told((tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()) == found
    assert "the job left no Run" in done.stderr and not (tmp_path / "work" / "runs").exists()


@pytest.mark.parametrize("action, status", [
    ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137), ("raise ArithmeticError('planted')", 1)
])  # fmt: skip
def test_a_failure_passes_its_status_on(submit, small_lab, tmp_path, action, status):
    done = submit(small_lab(action), f"file://{tmp_path}/b", "--name", "mine")
    assert done.returncode == status and "job mine: Failed, exit status" in done.stderr
    assert (tmp_path / "b/jobs/mine/run/result.txt").exists()  # and its outputs go back
    if status == 1:
        assert "ArithmeticError: planted" in (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()


def test_places_that_cannot_be_written(submit, small_lab, tmp_path):
    """Said before anything is copied, by the name of the option."""
    (tmp_path / "file").write_text("")
    lab, bucket = small_lab(), f"file://{tmp_path}/file/b"
    done = submit(lab, bucket)
    assert (done.returncode, done.stderr) == (1, f"Error: --bucket {bucket}: {tmp_path}/file cannot be written\n")
    done = submit(lab, f"file://{tmp_path}/b", "--out", tmp_path / "file" / "run")
    assert done.returncode == 1 and f"--out {tmp_path}/file/run: {tmp_path}/file cannot be written" in done.stderr
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("")
    done = submit(lab, f"file://{tmp_path}/b", "--out", tmp_path / "there")
    assert done.returncode == 1 and "already there; choose another --name, or --out" in done.stderr
    assert not (tmp_path / "b").exists()


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
        monkeypatch.setattr(rehearsal.tempfile, "tempdir", str(tmp_path))
        return asked

    return doing


GOES_ON = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"not yet\\n"))
child = subprocess.Popen(["sleep", "600"])
os.write(1, f"child {child.pid}\\n".encode())  # at once: print would do it in pieces
while True:
    time.sleep(600)
"""


def test_a_job_that_does_not_end_is_ended(doing, tmp_path, monkeypatch):
    """With all that it has started; what it printed meanwhile is in its log."""
    monkeypatch.setattr(rehearsal, "TIME_TO_SAVE", 5)

    def printed(text):
        if "child" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rehearsal.rehearse(doing(GOES_ON), printed=printed)
    log = (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()
    child = int(log.partition("child ")[2].split()[0])
    assert log.endswith("not yet\n")
    wait_until(lambda: ended(child))


LEAVES = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
print(f"child {child.pid}\\n" + "x" * 200_000 + "\\nthe end")
"""


def test_what_a_job_leaves_running_is_not_waited_for(doing, tmp_path):
    """It holds the other end of the pipe; it is ended."""
    begun, told = time.monotonic(), []
    assert rehearsal.rehearse(doing(LEAVES), printed=told.append) == 0
    assert time.monotonic() - begun < 300
    log = (tmp_path / "b/jobs/mine/log/mine-worker-0.log").read_text()
    assert log == "".join(told) and log.endswith("x\nthe end\n") and log.count("x") > 200_000
    child = int(log.partition("child ")[2].split()[0])
    wait_until(lambda: ended(child))


def test_all_that_a_job_wrote_comes_back(doing, tmp_path):
    """Whatever it is called: a Run's own halves are left out only where labkit sends a Run."""
    names = ("depart.ckpt", "part.ckpt", "a.part", "deep/b.part")
    action = f"for name in {names}:\n    path = Path(given['train_url'], name)\n"
    action += "    path.parent.mkdir(exist_ok=True)\n    path.write_text(name)\n"
    assert rehearsal.rehearse(doing(action)) == 0
    assert {name: (tmp_path / "b/jobs/mine/run" / name).read_text() for name in names} == dict(zip(names, names))


ODD = """
out = Path(given["train_url"])
for name in ("Best.ckpt", "best.ckpt", "ends.", "aux.c", "checkpoints/latest.ckpt", "history.jsonl", "summary.json"):
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text(name)
os.mkfifo(out / "pipe")
(out / "out").symlink_to("/etc/hostname")
(out / "gone").symlink_to("nowhere")
(out / "self").symlink_to("self")
(out / "folder").symlink_to("checkpoints")
"""


def test_odd_entries_keep_nothing_else_back(doing, submit, tmp_path):
    """They are listed, all else comes back, and the status is the job's."""
    doing(ODD + "sys.exit(7)")
    done = submit(tmp_path / "lab", f"file://{tmp_path}/c", "--name", "odd")
    assert done.returncode == 7 and "job odd: Failed, exit status 7" in done.stderr, done.stderr
    assert {path.name for path in (tmp_path / "c/jobs/odd/run").rglob("*") if path.is_file()} == {
        "Best.ckpt", "best.ckpt", "ends.", "aux.c", "latest.ckpt", "history.jsonl", "summary.json", "result.txt"
    }  # fmt: skip
    for name, why in (("pipe", "neither a file"), ("out", "a link that leads out"), ("gone", "a link to nothing"),
                      ("self", "a link in circles"), ("folder", "a link to a folder")):  # fmt: skip
        assert f"not copied: outputs/train_url_0/{name}: {why}" in done.stderr


def test_a_file_that_fails_keeps_only_the_status_of_a_failure(doing, tmp_path):
    """The others come back; a job that ended well did not bring all its output."""
    asked = doing("for name in ('blocked', 'summary.json'): Path(given['train_url'], name).write_text(name)")
    (tmp_path / "b/jobs/mine/run/blocked").mkdir(parents=True)
    with pytest.raises(submission.CloudError, match="blocked: there is a folder of .*what the job wrote stays"):
        rehearsal.rehearse(asked)
    assert (tmp_path / "b/jobs/mine/run/summary.json").exists()


def test_what_cannot_go_back_stays(doing, tmp_path):
    """The bucket goes away while the job runs."""
    bucket = tmp_path / "b"
    asked = doing(f"import shutil; shutil.rmtree({str(bucket)!r}); Path({str(bucket)!r}).write_text('')")
    with pytest.raises(submission.CloudError, match="what the job wrote stays in ") as caught:
        rehearsal.rehearse(asked)
    kept = rehearsal.Path(str(caught.value).rpartition("stays in ")[2])
    assert (kept / "outputs" / "train_url_0" / "result.txt").read_text() == "here"


@pytest.mark.parametrize("status", [0, 7])
def test_a_job_that_removes_its_own_folders(doing, submit, tmp_path, status):
    """The status is the job's own, where that is a failure."""
    doing(f"import shutil; shutil.rmtree(os.getcwd()); sys.exit({status})")
    done = submit(tmp_path / "lab", f"file://{tmp_path}/c", "--name", "gone")
    assert done.returncode == (status or 1), done.stderr
    assert "the job has removed its own folders, and with them what it wrote" in done.stderr
    assert ("Failed, exit status 7" in done.stderr) == (status == 7)


def test_an_output_that_has_become_a_file_stays(doing):
    action = "import shutil; out = Path(given['train_url']); shutil.rmtree(out); out.write_text('all of it')"
    with pytest.raises(submission.CloudError, match="has replaced this folder; what the job wrote stays in ") as caught:
        rehearsal.rehearse(doing(action))
    kept = rehearsal.Path(str(caught.value).rpartition("stays in ")[2])
    assert (kept / "outputs" / "train_url_0").read_text() == "all of it"


def test_mistakes_are_told_before_anything_is_done(submit, small_lab, tmp_path):
    for arguments, says in (
        (("--name", "a b"), "name: "), (("--set", "epohcs=1"), "epohcs"), (("--data", "nowhere"), "nowhere"),
        (("--out", str(tmp_path)), "already there"),
    ):  # fmt: skip
        lab = tmp_path / "lab" if (tmp_path / "lab").exists() else small_lab()
        done = submit(lab, f"file://{tmp_path}/b", *arguments)
        assert done.returncode == 1 and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "b").exists()


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


def test_a_lab_on_an_object_server_with_two_cards(submit, swift, bucket, tmp_path, monkeypatch):
    """As on a machine with two and nothing started: the start file starts msrun."""
    keys = environment(swift.url)
    arguments = (*SHORT, "--name", "one", "--cards", "2")
    run = completed(submit("cifar10", f"obs://{bucket}/course", *arguments, **keys), tmp_path / "work/runs/one", 4)
    assert run.processes == 2
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    there = {item.name for item in copying.ls(f"obs://{bucket}/course/jobs/one/run")}
    assert there == {
        "recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "checkpoints/latest.ckpt"
    }  # fmt: skip
    assert copying.verify(run.path / "checkpoints", f"obs://{bucket}/course/jobs/one/run/checkpoints") == []
    logs = {item.name for item in copying.ls(f"obs://{bucket}/course/jobs/one/log/workers")}
    assert {"worker_0.log", "worker_1.log", "scheduler.log"} <= logs


# -- A job with URLs (API v1), by its start file -------------------------------------------------------------


def test_a_job_with_urls_that_is_stopped_and_goes_on(uploaded, swift, bucket, tmp_path, monkeypatch):
    """The start file copies by itself. SIGTERM is how a job is stopped; the next one goes on from the bucket."""
    env = os.environ | environment(swift.url) | {"TMPDIR": str(tmp_path / "tmp")}
    for name, value in environment(swift.url).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    settings = ("network.name=resnet8", "max_steps=6", "checkpoint_steps=2")
    asked = uploaded(f"obs://{bucket}", settings=settings)
    command = [sys.executable, tmp_path / "code" / "train.py", "--data_url", asked.data, "--train_url", asked.run,
               "--profile", "sample"]  # fmt: skip
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=tmp_path)
    end = time.monotonic() + 300
    while not list(tmp_path.glob("tmp/labkit-*/runs/*/checkpoints/latest.ckpt")) and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) == 130, (tmp_path / "log").read_text()
    assert list(tmp_path.glob("tmp/labkit-*/runs/*")) == []
    first = submission.fetch(asked.bucket, "mine", tmp_path / "first")
    assert not first.complete and first.checkpoint.exists()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))  # another machine: another folder for the data
    (tmp_path / "other").mkdir()
    env["TMPDIR"] = str(tmp_path / "other")
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Run: {asked.run}, " in done.stdout and f"data: {asked.data}, 8 files, copied to" in done.stdout
    run = submission.fetch(asked.bucket, "mine", tmp_path / "whole")
    assert run.complete and [record["step"] for record in run.steps()] == [1, 2, 3, 4, 5, 6]
    begun = first.steps()[:2]
    assert [r["loss"] for r in run.steps()[:2]] == [r["loss"] for r in begun]
    again = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert again.returncode == 0 and "is complete: nothing to train" in again.stdout
