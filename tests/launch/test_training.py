"""Trainings of two processes: what a Run of them holds, how they end when something goes wrong, and what one would do.

By msrun and MindSpore's AllReduce they do what one process does.
"""

import json
import re

import mindspore as ms
import numpy as np
import pytest

from labkit.training import runs

pytestmark = pytest.mark.slow  # a dozen processes that import MindSpore, some of which wait half a minute on purpose

SETTINGS = (
    "data.batch_size=20", "data.flip=0.5", "epochs=2", "checkpoint_steps=3", "network.name=resnet8",
    "all_reduce_fusion=[10,20]",
)  # fmt: skip
STEPS = 10  # 200 images, 2 x 20 at a time, in 2 epochs


@pytest.fixture(scope="module")
def trained(labkit, place, together):
    """A Run that two processes trained without a disturbance, and what the launch printed."""
    settings = [f"--set={setting}" for setting in (f"data.folder={place / 'data'}", *SETTINGS)]
    done = labkit.run("launch", "-n", 2, "--device-target", "CPU", "train", "cifar10", "--out", "trained", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return runs.open_run(place / "trained"), done


@pytest.fixture(scope="module")
def job(labkit, here, place):
    """Function that launches job.py in two processes: the Run's name, and what goes wrong where."""

    def job(out, *bad):
        logs = place / f"{out}-logs"
        return labkit.run("launch", "-n", 2, "--log-dir", logs, here / "job.py", out, place / "data", *bad)

    return job


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
    assert labkit.left() == []


def test_logs_are_in_the_run_and_nowhere_else(trained, place):
    run, _ = trained
    assert {path.name for path in (run.path / "logs").iterdir()} >= {"worker_0.log", "worker_1.log", "scheduler.log"}
    assert not list((run.path / "logs").glob("*.pid"))
    assert "epoch 2 accuracy" in (run.path / "logs" / "worker_0.log").read_text()
    assert "accuracy" not in (run.path / "logs" / "worker_1.log").read_text()
    assert [path.name for path in place.iterdir() if re.match("msrun|rank_|kernel|worker|sched|om$", path.name)] == []


def test_other_number_of_processes(trained, labkit, place):
    """A Run of two is resumed with two."""
    half = place / "half"
    half.mkdir()
    run, _ = trained
    for name in ("recipe.yaml", "provenance.json", "history.jsonl"):
        (half / name).write_bytes((run.path / name).read_bytes())
    for count, command in ((1, ("train",)), (3, ("launch", "-n", 3, "train"))):
        done = labkit.run(*command, "cifar10", "--resume", "--out", "half")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"Error: half: number of processes: began with 2, cannot be resumed with {count}\n"
    assert not (half / "logs").exists()
    assert json.loads((half / "provenance.json").read_text())["processes"] == 2


def test_a_process_that_raises(job, labkit, place):
    done = job("raised", 1, 2, "raise")
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first.startswith("Error: worker_1 ended with exit status 1; the end of ") and "worker_1.log" in first
    assert rest[-1].strip() == "ArithmeticError: planted"
    assert "worker_0" not in done.stderr
    assert labkit.left() == []
    assert len(runs.open_run(place / "raised").steps()) in (1, 2)


# -- The same as one process -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(labkit, here, place, together):
    """What together.py writes: of one process, and of each of two."""
    two, folder = together
    one = labkit.run("launch", "-n", 1, here / "together.py", folder, place / "data")
    _, stderr = two.communicate(timeout=300)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + stderr
    return {
        name: dict(np.load(folder / f"{name}.npz")) for name in ("1-0", "2-0", "2-1")
    } | {
        (ranks, fusion): [json.loads(line)["loss"] for line in (folder / f"{ranks}-{fusion}.jsonl").open()]
        for ranks in (1, 2) for fusion in ("None", "[1, 3]")
    }  # fmt: skip


def test_a_killed_process_and_a_launch_that_resumes(job, results, labkit, place):
    """In the evaluation of the first epoch, then after step 8; in the end nothing of it is to be seen."""
    killed = job("again", "evaluation")
    assert killed.returncode == 137 and killed.stderr.startswith("Error: worker_0 was killed (SIGKILL); the end of ")
    again = runs.open_run(place / "again")
    assert len(again.steps()) == STEPS // 2 and again.evaluations() == []
    killed = job("again", 1, 8, "die")
    assert killed.returncode == 137  # as a shell has it: 128 and SIGKILL
    assert killed.stderr.startswith("Error: worker_1 was killed (SIGKILL); the end of ")
    assert "    job of rank 1" in killed.stderr.splitlines()
    assert "Traceback" not in killed.stderr
    assert labkit.left() == []
    run = runs.open_run(place / "together/whole")
    assert [record["epoch"] for record in again.evaluations()] == [1]
    assert not again.complete and len(again.steps()) in (7, 8)  # rank 0 may not have written its last line yet
    resumed = job("again")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.startswith("job of rank 0\n") and "job of rank 1" not in resumed.stdout
    assert again.evaluations() == run.evaluations()
    assert [r["step"] for r in again.steps()] == [r["step"] for r in run.steps()] == list(range(1, STEPS + 1))
    assert [r["loss"] for r in again.steps()] == [r["loss"] for r in run.steps()]
    expected, found = (ms.load_checkpoint(str(one.checkpoint)) for one in (run, again))
    assert expected.keys() == found.keys()
    for name in expected.keys() - {"history_bytes"}:  # the history tells the seconds of each step too
        np.testing.assert_array_equal(found[name].asnumpy(), expected[name].asnumpy(), err_msg=name)


def test_two_with_batch_4_are_one_with_batch_8(results):
    """The mean of the losses at each step, and the weights after the last."""
    one, two = results["1-0"]["plain"], results["2-0"]["plain"]
    assert len(results[1, "None"]) == 6
    np.testing.assert_allclose(results[2, "None"], results[1, "None"], rtol=1e-5)
    np.testing.assert_allclose(two, one, atol=1e-5)
    assert results[1, "None"][-1] < 0.99 * results[1, "None"][0]  # it learns, so the weights did change


def test_ranks_stay_equal(results):
    for name in ("plain", "fused"):
        np.testing.assert_array_equal(results["2-0"][name], results["2-1"][name])


def test_fusion_changes_no_result(results):
    np.testing.assert_array_equal(results[2, "[1, 3]"], results[2, "None"])
    np.testing.assert_array_equal(results["2-0"]["fused"], results["2-0"]["plain"])


def test_shards_are_disjoint_and_complete(results):
    """In both epochs, in another order in the second; 200 images, 2 x 10 at a time."""
    first, second = (
        np.concatenate([results[f"2-{rank}"]["number"].reshape(2, 100)[epoch] for rank in (0, 1)]) for epoch in (0, 1)
    )
    assert sorted(first) == sorted(second) == list(range(200))
    assert not np.array_equal(first, second)
    assert sorted(results["1-0"]["number"][:200]) == list(range(200))


def test_ranks_augment_each_in_its_own_way(results):
    crops = [np.stack([results[f"2-{rank}"][name] for name in ("row", "column")]) for rank in (0, 1)]
    assert (crops[0] != crops[1]).mean() > 0.2
    assert all(len(np.unique(crop)) > 1 for crop in crops)
