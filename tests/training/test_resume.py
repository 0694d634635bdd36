"""A training that is killed is resumed, and ends with the weights and the history of one that never stopped.

Every kill is put into the process itself, at a line of the history or a call: no test waits for a moment to come.
"""

import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from small_runs import require_equal, state, timeless

from labkit.training import loop, runs
from labkit.training.runs import RunError

pytestmark = pytest.mark.slow  # a dozen processes; `make test` has the chapter on training, which kills and resumes one

# Instead of a ResNet, which compiles for longer.
SMALL_NETWORK = """
from tests.small_runs import small_network
from labkit.training import build
build.create_network = small_network
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
KILLED, STOPPED = -signal.SIGKILL, 130  # exit statuses
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
def train(tmp_path_factory, write_noise):
    """Function that runs `labkit train` on a small data set: arguments, Python to run before it, its exit status."""
    folder = tmp_path_factory.mktemp("resume")
    write_noise(folder / "data")
    settings = (
        f"data.folder={folder / 'data'}", "data.batch_size=20", "data.flip=0.5", f"epochs={EPOCHS}",
        "checkpoint_steps=4",
    )  # fmt: skip

    def train(run, *arguments, before="", ends=0):
        chosen = () if "--resume" in arguments else [f"--set={setting}" for setting in settings]
        done = subprocess.run(
            [sys.executable, "-c", SMALL_NETWORK + before + LABKIT, "train", "cifar10", "--out", str(run.path),
             *chosen, *arguments],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == ends, done.stdout
        return done.stdout

    return train


@pytest.fixture
def run(tmp_path):
    return runs.Run(tmp_path / "run")


@pytest.fixture(scope="module")
def reference(train, tmp_path_factory):
    """A Run that nobody stopped: all steps, with losses and moments to compare."""
    run = runs.Run(tmp_path_factory.mktemp("reference") / "run")
    train(run)
    assert len({record["loss"] for record in run.steps()}) == STEPS * EPOCHS and evaluated(run) == [1, 2, 3]
    assert all(np.abs(value).max() > 0 for name, value in state(run).items() if name.startswith("moments."))
    return run


def steps(run):
    return [record["step"] for record in run.steps()]


def compiled(run):
    return [record["step"] for record in run.steps() if record.get("compiled")]


def evaluated(run):
    return [record["epoch"] for record in run.evaluations()]


def test_killed_three_times_interrupted_and_resumed(train, reference, run):
    # Before there is a checkpoint: it starts again, without the steps done twice. The kill frees the Run.
    train(run, before=after_step(2, DIE), ends=KILLED)
    assert not run.checkpoint.exists() and steps(run) == [1, 2]

    # In the middle of an epoch, while the checkpoint at step 8 is being written: the one before stays whole.
    train(run, "--resume", before=DIE_WHILE_CHECKPOINTING, ends=KILLED)
    assert steps(run) == list(range(1, 9))
    part = run.checkpoint.with_name("part.ckpt")
    assert state(run)["step"] == 4 and 0 < part.stat().st_size < run.checkpoint.stat().st_size

    # At the end of an epoch, with a checkpoint that did not get its name.
    train(run, "--resume", before=before_renaming("latest.ckpt", STEP_10), ends=KILLED)
    assert steps(run)[-1] == STEPS and state(run)["step"] == 8 and part.exists()

    # In the second epoch, a step after a checkpoint, by Ctrl-C: it keeps this step, and says how to resume.
    output = train(run, "--resume", before=after_step(17, CTRL_C), ends=STOPPED)
    assert "Traceback" not in output
    assert state(run)["step"] == steps(run)[-1] == 17
    command = shlex.split(output.partition("resume with: ")[2].splitlines()[0])
    assert command == ["labkit", "train", "cifar10", "--resume", "--out", str(run.path)]

    train(run, "--resume")
    require_equal(run, reference)
    assert compiled(run) == [1, 5, 9, 18]  # each start that got as far as a checkpoint, in its first step
    assert [path.name for path in run.checkpoint.parent.iterdir()] == ["latest.ckpt"]


def test_interrupted_and_killed_while_it_evaluates(train, reference, run):
    """No step is done twice, and every epoch is evaluated once: the checkpoint comes before the evaluation."""

    def require(step, epochs):
        """What is kept: the checkpoint's step, the steps of the history, and the epochs that it has evaluated."""
        assert (state(run)["step"], steps(run), evaluated(run)) == (step, list(range(1, step + 1)), epochs)

    train(run, before=in_evaluation(1, CTRL_C), ends=STOPPED)
    require(STEPS, [])
    train(run, "--resume", before=in_evaluation(1, DIE), ends=KILLED)  # of the first epoch again
    require(STEPS, [])
    train(run, "--resume", before=after_line("'accuracy' in record", DIE), ends=KILLED)
    require(STEPS, [1])
    # In the last step of an epoch: it is heard when the checkpoint is written.
    train(run, "--resume", before=after_step(2 * STEPS, CTRL_C), ends=STOPPED)
    require(2 * STEPS, [1])
    train(run, "--resume", before=in_evaluation(2, CTRL_C), ends=STOPPED)  # of the third epoch
    require(3 * STEPS, [1, 2])
    train(run, "--resume")
    require_equal(run, reference)
    assert compiled(run) == [1, 11, 21]


def test_training_that_ends_early_and_is_killed_before_its_summary(train, reference, run):
    """`max_steps` on a checkpoint step: evaluated once, and the steps are those of the longer training."""
    train(run, "--set=max_steps=8", before=in_evaluation(1, DIE), ends=KILLED)
    assert len(run.history()) == state(run)["step"] == 8
    train(run, "--resume", before=before_renaming("summary.json"), ends=KILLED)
    assert not run.complete and state(run)["step"] == 8
    train(run, "--resume")
    assert timeless(run.history())[:8] == timeless(reference.history())[:8]
    (evaluation,) = run.history()[8:]
    assert evaluation.keys() == {"epoch", "accuracy", "top_5_accuracy"}
    assert [run.summary[key] for key in ("steps", "epochs", "accuracy")] == [8, 1, evaluation["accuracy"]]


def test_a_fraction_of_an_epoch(train, run):
    """1.5 epochs are 15 steps, with the schedule's end at their end; resumed in the second, too."""
    train(run, "--set=epochs=1.5", before=after_step(STEPS + 2, DIE), ends=KILLED)
    train(run, "--resume")
    assert steps(run) == list(range(1, 16)) and evaluated(run) == [1, 2]
    last = run.steps()[-1]
    assert (last["epoch"], run.summary["steps"]) == (2, 15)
    assert last["lr"] == pytest.approx(0.1 * (1 - 4 / 5) ** 2)  # the last of five after a warm-up of ten


def test_a_lost_checkpoint_does_not_cost_the_history(reference, run):
    shutil.copytree(reference.path, run.path)
    (run.path / "summary.json").unlink()
    run.checkpoint.unlink()
    with pytest.raises(RunError, match="latest.ckpt: missing"):
        loop.train(run, progress=False)
    assert run.history() == reference.history()
