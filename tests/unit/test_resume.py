"""A training that is killed goes on, and ends with the weights and the history of one that never stopped."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import mindspore as ms
import numpy as np
import pytest

LABKIT = "from labkit.cli import main; main(prog_name='labkit')"
# Dies inside the first checkpoint that is due: half of the new file is written, the old one is still there.
DIE_WHILE_CHECKPOINTING = """
import os, signal
from labkit import callbacks
write = callbacks.ms.save_checkpoint
def half(network, file, **options):
    write(network, file, **options)
    os.chmod(file, 0o600)
    os.truncate(file, os.path.getsize(file) // 2)
    os.kill(os.getpid(), signal.SIGKILL)
callbacks.ms.save_checkpoint = half
"""
# Dies when the checkpoint is written but not yet in its place.
DIE_BEFORE_RENAMING = """
import os, signal
rename = os.replace
def die(source, target):
    if str(target).endswith("latest.ckpt"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = die
"""
# Dies when everything is trained and the summary is about to appear.
DIE_BEFORE_SUMMARY = DIE_BEFORE_RENAMING.replace("latest.ckpt", "summary.json")
STEPS, EPOCHS = 10, 3  # 200 images in batches of 20


@pytest.fixture(scope="module")
def start(tmp_path_factory, repo_root):
    """Function that starts `labkit train` on a small data set: arguments and, before it, Python of one's own."""
    folder = tmp_path_factory.mktemp("resume")
    data = folder / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    for name, images in [*((f"data_batch_{i}.bin", 40) for i in range(1, 6)), ("test_batch.bin", 50)]:
        records = rng.integers(0, 256, (images, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(images) % 10
        (data / name).write_bytes(records.tobytes())
    settings = (f"data.folder={data}", "data.batch_size=20", "data.flip=0.5", f"epochs={EPOCHS}", "checkpoint_steps=4")
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}

    def start(run, *arguments, before=""):
        chosen = () if "--resume" in arguments else [f"--set={setting}" for setting in settings]
        return subprocess.Popen(
            [sys.executable, "-c", before + LABKIT, "train", "cifar10", "--out", str(run), *chosen, *arguments],
            cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    return start


def lines(run):
    """Whole lines of a Run's history so far."""
    file = run / "history.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    )


def kill_when(process, condition, how=signal.SIGKILL):
    """Kill the process as soon as the condition holds; return what it had printed."""
    end = time.monotonic() + 120
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"the training ended before it could be killed:\n{process.communicate()[0]}")
        time.sleep(0.002)
    process.send_signal(how)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == (-how if how == signal.SIGKILL else 130), output
    return output


def killed_by_itself(process):
    output = process.communicate(timeout=120)[0]
    assert process.returncode == -signal.SIGKILL, output


def finish(process):
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    return output


def weights(run):
    """Every parameter of the checkpoint: weights, batch norm's statistics, moments, the optimizer's counters."""
    params = ms.load_checkpoint(str(run / "checkpoints" / "latest.ckpt"))
    return {name: parameter.asnumpy() for name, parameter in params.items() if name != "history_bytes"}


def timeless(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def require_equal(run, reference):
    """The same history but for seconds, the same checkpoint bit by bit, and the same results."""
    assert timeless(lines(run)) == timeless(lines(reference))
    ours, theirs = weights(run), weights(reference)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert ours[name].tobytes() == value.tobytes(), name
    summary, expected = (json.loads((path / "summary.json").read_text()) for path in (run, reference))
    assert [summary[key] for key in ("accuracy", "epochs", "steps")] == [
        expected[key] for key in ("accuracy", "epochs", "steps")
    ]


@pytest.fixture(scope="module")
def reference(start, tmp_path_factory):
    """A Run that nobody stopped."""
    run = tmp_path_factory.mktemp("reference") / "run"
    finish(start(run))
    return run


@pytest.mark.slow
def test_the_unkilled_run_is_a_training(reference):
    """So that the comparison compares something: all steps, three evaluations, moving weights, filled moments."""
    history = lines(reference)
    assert [record["step"] for record in history if "step" in record] == list(range(1, STEPS * EPOCHS + 1))
    assert [record["epoch"] for record in history if "accuracy" in record] == [1, 2, 3]
    assert len({record["loss"] for record in history if "loss" in record}) == STEPS * EPOCHS
    kept = weights(reference)
    moments = {name for name in kept if name.startswith("moments.")}
    assert moments and all(np.abs(kept[name]).max() > 0 for name in moments)
    assert kept["step"] == STEPS * EPOCHS


@pytest.mark.slow
def test_killed_seven_times_and_resumed(start, reference, tmp_path):
    run = tmp_path / "run"
    checkpoint = run / "checkpoints" / "latest.ckpt"

    # 1. Before there is a checkpoint: it starts again, without the steps done twice.
    kill_when(start(run), lambda: len(lines(run)) >= 2)
    assert not checkpoint.exists() and len(lines(run)) < 4

    # 2. In the middle of an epoch, a step or more after the checkpoint at step 4.
    kill_when(start(run, "--resume"), lambda: len(lines(run)) >= 6 and checkpoint.exists())
    assert weights(run)["step"] == 4 and 6 <= len(lines(run)) < 8

    # 3. While the checkpoint at step 8 is being written: the one before stays whole.
    killed_by_itself(start(run, "--resume", before=DIE_WHILE_CHECKPOINTING))
    assert [record["step"] for record in lines(run)] == list(range(1, 9))
    part = checkpoint.with_name("part.ckpt")
    assert weights(run)["step"] == 4 and 0 < part.stat().st_size < checkpoint.stat().st_size

    # 4. Right at the end of an epoch, about when its evaluation is written and its checkpoint is due.
    kill_when(start(run, "--resume"), lambda: any("accuracy" in record for record in lines(run)))
    assert weights(run)["step"] in (8, STEPS)

    # 5. With the evaluation in the history and a checkpoint that did not get its name.
    killed_by_itself(start(run, "--resume", before=DIE_BEFORE_RENAMING))
    assert weights(run)["step"] in (8, STEPS)

    # 6. Somewhere in the second epoch.
    kill_when(start(run, "--resume"), lambda: lines(run)[-1].get("step", 0) > 14)
    assert weights(run)["step"] >= 12

    # 7. When all is trained and only the summary is missing.
    killed_by_itself(start(run, "--resume", before=DIE_BEFORE_SUMMARY))
    assert not (run / "summary.json").exists() and weights(run)["step"] == STEPS * EPOCHS

    finish(start(run, "--resume"))
    require_equal(run, reference)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["latest.ckpt"]


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(start, tmp_path):
    """MindData's own handler turns SIGINT into SIGTERM; the user must not notice."""
    run = tmp_path / "run"
    output = kill_when(start(run), lambda: len(lines(run)) > 5, signal.SIGINT)
    command = output.partition("go on with: ")[2].splitlines()[0]
    assert shlex.split(command) == ["labkit", "train", "cifar10", "--resume", "--out", str(run)]
    assert "Traceback" not in output
    assert weights(run)["step"] == 4


@pytest.mark.slow
def test_history_that_lost_lines_is_refused(reference, tmp_path, start):
    """The checkpoint knows how long the history was: what is lost cannot be made up."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "recipe.yaml").write_bytes((reference / "recipe.yaml").read_bytes())
    (run / "checkpoints" / "latest.ckpt").write_bytes((reference / "checkpoints" / "latest.ckpt").read_bytes())
    (run / "history.jsonl").write_bytes((reference / "history.jsonl").read_bytes()[:-10])
    process = start(run, "--resume")
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert "history.jsonl: shorter than it was" in output.splitlines()[-1]
    assert "Traceback" not in output


@pytest.mark.slow
def test_training_that_ends_early_and_is_killed_before_its_summary(start, reference, tmp_path):
    """`max_steps` on a checkpoint step: evaluated once, and the steps are those of the longer training."""
    run = tmp_path / "run"
    killed_by_itself(start(run, "--set=max_steps=8", before=DIE_BEFORE_SUMMARY))
    finish(start(run, "--resume"))
    assert timeless(lines(run))[:8] == timeless(lines(reference))[:8]
    assert [set(record) for record in lines(run)[8:]] == [{"epoch", "accuracy"}]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["epochs"], summary["accuracy"]) == (8, 1, lines(run)[8]["accuracy"])
