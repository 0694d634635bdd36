"""A training that is killed is resumed, and ends with the weights and the history of one that never stopped.

Every kill is put into the process itself, at a line of the history or a call: no test waits for a moment to come.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest

from labkit.training import loop, runs
from labkit.training.runs import RunError

pytestmark = pytest.mark.slow  # a dozen processes; `make test` has the chapter on training, which kills and resumes one

# Instead of a ResNet a network that compiles in a second: convolution, batch norm, a dense layer.
SMALL_NETWORK = """
from mindspore import nn
from labkit.training import build, loop
build.create_network = lambda recipe: nn.SequentialCell(
    nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(256, 10)
)
"""
LABKIT = "from labkit.cli import main; main(prog_name='labkit')"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
# What an interrupt from the keyboard does. MindData's handler answers in a thread of its own: wait for it.
CTRL_C = """
os.kill(os.getpid(), signal.SIGINT)
while not interrupts._stop.is_set():
    time.sleep(0.01)
"""
# Dies inside the checkpoint of step 8: half of the new file is written, the old one is still there.
DIE_WHILE_CHECKPOINTING = f"""
import os, signal
from labkit.training import checkpoint
write = checkpoint.ms.save_checkpoint
def half(network, file, **options):
    write(network, file, **options)
    if options["append_dict"]["step"] == 8:
        os.chmod(file, 0o600)
        os.truncate(file, os.path.getsize(file) // 2)
        {DIE}
checkpoint.ms.save_checkpoint = half
"""
STEP_10 = """'"step": 10,' in (Path(target).parents[1] / 'history.jsonl').read_text().splitlines()[-1]"""
STEPS, EPOCHS = 10, 3  # 200 images in batches of 20


def before_renaming(name, condition="True"):
    """Python that dies when a file is whole but not yet in its place."""
    return f"""
import os, signal
from pathlib import Path
rename = os.replace
def die(source, target):
    if str(target).endswith("{name}") and {condition}:
        {DIE}
    rename(source, target)
os.replace = die
"""


def after_line(condition, action):
    """Python that does something as soon as the history has a line, `record`, of which a condition holds."""
    action = action.strip().replace("\n", "\n        ")
    return f"""
import os, signal, time
from labkit.training import callbacks
from labkit.system import interrupts, environment
append = callbacks.append_line
def append_then_act(file, record):
    append(file, record)
    if {condition}:
        {action}
callbacks.append_line = append_then_act
"""


def after_step(step, action):
    """Python that does something as soon as the history has the line of a step."""
    return after_line(f"record.get('step') == {step}", action)


def in_evaluation(number, action):
    """Python that does something in the n-th evaluation of a process, which has a single step here."""
    action = action.strip().replace("\n", "\n        ")
    return f"""
import os, signal, time
from labkit.training import callbacks
from labkit.system import interrupts
predict, calls = callbacks.predict, []
def act_then_predict(network, dataset):
    calls.append(network)
    if len(calls) == {number}:
        {action}
    return predict(network, dataset)
callbacks.predict = act_then_predict
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory, repo_root, write_noise):
    """Function that starts `labkit train` on a small data set: arguments and, before it, Python of one's own."""
    folder = tmp_path_factory.mktemp("resume")
    data = folder / "data"
    write_noise(data)
    settings = (
        f"data.folder={data}",
        "data.batch_size=20",
        "data.flip=0.5",
        f"epochs={EPOCHS}",
        "checkpoint_steps=4",
    )
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}

    def start(run, *arguments, before=""):
        chosen = () if "--resume" in arguments else [f"--set={setting}" for setting in settings]
        program = SMALL_NETWORK + before + LABKIT
        return subprocess.Popen(
            [sys.executable, "-c", program, "train", "cifar10", "--out", str(run), *chosen, *arguments],
            cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    return start


def lines(run):
    """Whole lines of a Run's history so far."""
    file = run / "history.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    )


def ended(process, status):
    """What a process printed that ended with this status, or signal."""
    output = process.communicate(timeout=600)[0]
    assert process.returncode == status, output
    return output


def killed(process):
    return ended(process, -signal.SIGKILL)


def finish(process):
    return ended(process, 0)


def weights(run):
    """Every parameter of the checkpoint: weights, batch norm's statistics, moments, the optimizer's counters."""
    params = ms.load_checkpoint(str(run / "checkpoints" / "latest.ckpt"))
    return {name: parameter.asnumpy() for name, parameter in params.items()}


def timeless(history):
    return [{key: value for key, value in record.items() if key not in ("seconds", "compiled")} for record in history]


def require_equal(run, reference):
    """The same history but for seconds and who compiled, the same checkpoint bit by bit, and the same results."""
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


def test_killed_three_times_interrupted_and_resumed(start, reference, tmp_path):
    run = tmp_path / "run"
    checkpoint = run / "checkpoints" / "latest.ckpt"

    # Before there is a checkpoint: it starts again, without the steps done twice. The kill frees the Run.
    killed(start(run, before=after_step(2, DIE)))
    assert not checkpoint.exists() and [record["step"] for record in lines(run)] == [1, 2]

    # In the middle of an epoch, while the checkpoint at step 8 is being written: the one before stays whole.
    killed(start(run, "--resume", before=DIE_WHILE_CHECKPOINTING))
    assert [record["step"] for record in lines(run)] == list(range(1, 9))
    part = checkpoint.with_name("part.ckpt")
    assert weights(run)["step"] == 4 and 0 < part.stat().st_size < checkpoint.stat().st_size

    # At the end of an epoch, with a checkpoint that did not get its name.
    killed(start(run, "--resume", before=before_renaming("latest.ckpt", STEP_10)))
    assert lines(run)[-1]["step"] == STEPS and weights(run)["step"] == 8 and part.exists()

    # In the second epoch, a step after a checkpoint, by Ctrl-C: it keeps this step, and says how to resume.
    output = ended(start(run, "--resume", before=after_step(17, CTRL_C)), 130)
    assert "Traceback" not in output
    assert weights(run)["step"] == lines(run)[-1]["step"] == 17
    command = shlex.split(output.partition("resume with: ")[2].splitlines()[0])
    assert command == ["labkit", "train", "cifar10", "--resume", "--out", str(run)]

    finish(start(run, "--resume"))
    require_equal(run, reference)
    # Each start that got as far as a checkpoint compiled in its first step.
    assert [record["step"] for record in lines(run) if record.get("compiled")] == [1, 5, 9, 18]
    assert [path.name for path in checkpoint.parent.iterdir()] == ["latest.ckpt"]


def evaluated(run):
    return [record["epoch"] for record in lines(run) if "accuracy" in record]


def test_interrupted_and_killed_while_it_evaluates(start, reference, tmp_path):
    """No step is done twice, and every epoch is evaluated once: the checkpoint comes before the evaluation."""
    run = tmp_path / "run"

    def require(step, epochs):
        """What is kept: the checkpoint's step, the steps of the history, and the epochs that it has evaluated."""
        steps = [record["step"] for record in lines(run) if "step" in record]
        assert (weights(run)["step"], steps, evaluated(run)) == (step, list(range(1, step + 1)), epochs)

    output = ended(start(run, before=in_evaluation(1, CTRL_C)), 130)
    assert "stopped; resume with: labkit train cifar10 --resume" in output
    require(STEPS, [])
    killed(start(run, "--resume", before=in_evaluation(1, DIE)))  # of the first epoch again
    require(STEPS, [])
    killed(start(run, "--resume", before=after_line("'accuracy' in record", DIE)))
    require(STEPS, [1])
    # In the last step of an epoch: it is heard when the checkpoint is written.
    ended(start(run, "--resume", before=after_step(2 * STEPS, CTRL_C)), 130)
    require(2 * STEPS, [1])
    ended(start(run, "--resume", before=in_evaluation(2, CTRL_C)), 130)  # of the third epoch
    require(3 * STEPS, [1, 2])
    finish(start(run, "--resume"))
    require_equal(run, reference)
    assert [record["step"] for record in lines(run) if record.get("compiled")] == [1, 11, 21]


def test_training_that_ends_early_and_is_killed_before_its_summary(start, reference, tmp_path):
    """`max_steps` on a checkpoint step: evaluated once, and the steps are those of the longer training."""
    run = tmp_path / "run"
    killed(start(run, "--set=max_steps=8", before=in_evaluation(1, DIE)))
    assert len(lines(run)) == weights(run)["step"] == 8
    killed(start(run, "--resume", before=before_renaming("summary.json")))
    assert not (run / "summary.json").exists() and weights(run)["step"] == 8
    finish(start(run, "--resume"))
    assert timeless(lines(run))[:8] == timeless(lines(reference))[:8]
    assert [set(record) for record in lines(run)[8:]] == [{"epoch", "accuracy", "top_5_accuracy"}]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["epochs"], summary["accuracy"]) == (8, 1, lines(run)[8]["accuracy"])


def test_a_fraction_of_an_epoch(start, tmp_path):
    """1.5 epochs are 15 steps, with the schedule's end at their end; resumed in the second, too."""
    run = tmp_path / "run"
    killed(start(run, "--set=epochs=1.5", before=after_step(STEPS + 2, DIE)))
    finish(start(run, "--resume"))
    steps = runs.Run(run).steps()
    assert [record["step"] for record in steps] == list(range(1, 16)) and steps[-1]["epoch"] == 2
    assert steps[-1]["lr"] == pytest.approx(0.1 * (1 - 4 / 5) ** 2)  # the last of five after a warm-up of ten
    assert [record["epoch"] for record in runs.Run(run).evaluations()] == [1, 2]
    assert json.loads((run / "summary.json").read_text())["steps"] == 15


def test_a_lost_checkpoint_does_not_cost_the_history(reference, tmp_path):
    run = shutil.copytree(reference, tmp_path / "run")
    (run / "summary.json").unlink()
    (run / "checkpoints" / "latest.ckpt").unlink()
    with pytest.raises(RunError, match="latest.ckpt: missing"):
        loop.train(runs.open_run(run), progress=False)
    assert lines(run) == lines(reference)


def test_a_complete_run_is_never_trained_again(reference):
    before = {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="complete"):
        loop.train(runs.open_run(reference), progress=False)
    assert {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()} == before
