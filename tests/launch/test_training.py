"""Trainings of two processes, by msrun: what their Run holds, how it is resumed, and that they do what one would do."""

import json
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from labkit.training import runs

pytestmark = pytest.mark.slow  # a dozen processes that import MindSpore, some of which wait half a minute on purpose

HERE = Path(__file__).parent
SETTINGS = (
    "data.batch_size=20", "data.flip=0.5", "epochs=2", "checkpoint_steps=3", "network.name=resnet8",
    "all_reduce_fusion=[10,20]",
)  # fmt: skip
STEPS = 10  # 200 images, 2 x 20 at a time, in 2 epochs


@pytest.fixture(scope="module")
def trained(labkit, place):
    """A Run that two processes trained without a disturbance, and what the launch printed."""
    settings = [f"--set={setting}" for setting in (f"data.folder={place / 'data'}", *SETTINGS)]
    (place / "random.py").write_text("raise SystemExit('a module of the working folder')")
    done = labkit.run("launch", "-n", 2, "--device-target", "CPU", "train", "cifar10", "--out", "trained", *settings)
    (place / "random.py").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    return runs.open_run(place / "trained"), done


def test_run_of_two_processes(trained, labkit):
    run, done = trained
    assert {path.name for path in run.path.iterdir()} == {
        "recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "checkpoints", "logs",
    }  # fmt: skip
    assert [record["step"] for record in run.steps()] == list(range(1, STEPS + 1))
    assert [record["epoch"] for record in run.evaluations()] == [1, 2]
    assert run.processes == 2
    rate = run.summary["images_per_second"]
    assert rate == pytest.approx(2 * 20_000 / run.summary["step_ms"], rel=0.01)
    assert f"accuracy {run.summary['accuracy']:.2%} after epoch 2," in done.stdout
    assert done.stdout.splitlines()[-1] == str(run.path.name)
    assert "10/10" in done.stdout  # rank 0's bar
    assert done.stdout.count("epoch 2 accuracy") == 1
    assert {path.name for path in (run.path / "logs").iterdir()} >= {"worker_0.log", "worker_1.log", "scheduler.log"}
    assert labkit.left() == []


def test_other_number_of_processes(trained, labkit, place):
    """A Run of two is resumed with two."""
    half = place / "half"
    half.mkdir()
    run, _ = trained
    for name in ("recipe.yaml", "provenance.json", "history.jsonl"):
        (half / name).write_bytes((run.path / name).read_bytes())
    done = labkit.run("launch", "-n", 3, "train", "cifar10", "--resume", "--out", "half")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: half: number of processes: began with 2, cannot be resumed with 3\n"


def test_a_killed_training_is_resumed(trained, labkit, place):
    """One that is killed stops the other; in the end nothing of it is to be seen."""
    run, _ = trained
    again = runs.create(place / "again", run.recipe)
    killed = labkit.run("launch", "-n", 2, "--log-dir", "killed-logs", HERE / "job.py", 1, 8, "again")
    assert killed.returncode == 137 and killed.stderr.startswith("Error: worker_1 was killed (SIGKILL); the end of ")
    assert "Traceback" not in killed.stderr and labkit.left() == []
    assert not again.complete and len(again.steps()) in (7, 8)  # rank 0 may not have written its last line yet
    resumed = labkit.run("launch", "-n", 2, "--device-target", "CPU", "train", "cifar10", "--resume", "--out", "again")
    assert resumed.returncode == 0, resumed.stderr
    assert again.evaluations() == run.evaluations()
    assert [(r["step"], r["loss"]) for r in again.steps()] == [(r["step"], r["loss"]) for r in run.steps()]
    expected, restored = (ms.load_checkpoint(str(trained.checkpoint)) for trained in (run, again))
    assert expected.keys() == restored.keys()
    for name in expected:
        np.testing.assert_array_equal(restored[name].asnumpy(), expected[name].asnumpy(), err_msg=name)


def test_two_with_batch_4_are_one_with_batch_8(labkit, tmp_path):
    """The mean of the losses at each step, and the weights after the last."""
    for count in (1, 2):
        done = labkit.run("launch", "-n", count, HERE / "together.py", tmp_path)
        assert done.returncode == 0, done.stderr
    one, two, other = (np.load(tmp_path / f"{name}.npy") for name in ("1-0", "2-0", "2-1"))
    losses = [[json.loads(line)["loss"] for line in (tmp_path / f"{count}.jsonl").open()] for count in (1, 2)]
    assert len(losses[0]) == 6 and losses[0][-1] < 0.99 * losses[0][0]  # it learns, so the weights did change
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(two, one, atol=1e-5)
    np.testing.assert_array_equal(two, other)
