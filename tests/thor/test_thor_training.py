"""`loop.train` with THOR: what a Run of it holds, interrupted and resumed, with evaluation and without."""

import gc
import signal
import subprocess
import sys
import weakref

import mindspore as ms
import numpy as np
import pytest
from small_runs import require_equal, small_network, state, timeless

from labkit.system.device import in_mode
from labkit.training import build, callbacks, evaluation, loop, recipes, runs

# Trains a Run, and dies right behind the line of a factor step that no checkpoint has seen.
DIE = """
import os, signal, sys
from pathlib import Path
from tests.small_runs import small_network
from labkit.training import callbacks, build, evaluation, loop
from labkit.training.runs import open_run
append = callbacks.append_line
def append_then_die(file, record):
    append(file, record)
    if record.get("factor_step") == 7:
        os.kill(os.getpid(), signal.SIGKILL)
callbacks.append_line = append_then_die
build.create_network = small_network
loop.train(open_run(Path(sys.argv[1])), progress=False)
"""
STEPS, EPOCHS = 10, 2  # 200 images in batches of 20
SETTINGS = (
    "data.batch_size=20", "data.flip=0.5", f"epochs={EPOCHS}", "checkpoint_steps=4", "loss.smoothing=0.1",
    "optimizer.factor_interval=3", "optimizer.final_interval=4", "optimizer.trace_rule=thor_stop",
    "optimizer.factor_share=0.3", "optimizer.clip_fisher_norm=0.8",
    "optimizer.factor_ema=0.5",
    "schedule.lr_max=0.1", "schedule.warmup_epochs=0.5",
)  # fmt: skip


@pytest.fixture(scope="module")
def create(tmp_path_factory, repo_root, write_noise):
    """Function that makes a Run on 200 + 50 images of noise: its name, further settings."""
    folder = tmp_path_factory.mktemp("training")
    write_noise(folder / "data")

    def create(name, *settings):
        chosen = (f"data.folder={folder / 'data'}", *SETTINGS, *settings)
        return runs.create(folder / name, recipes.load(repo_root / "labs/thor/recipe.yaml", "sample", chosen))

    with pytest.MonkeyPatch.context() as patch, in_mode(ms.GRAPH_MODE):
        patch.setattr(build, "create_network", small_network)
        yield create


@pytest.fixture(scope="module")
def reference(create):
    """A Run that nothing disturbed."""
    run = create("reference")
    loop.train(run, progress=False)
    return run


def test_an_earlier_network_is_freed_before_the_first_step(create, monkeypatch):
    """Freed during a later step, it would make MindSpore compile again in that step."""
    networks = []

    def network(recipe):
        net = small_network(recipe)
        networks.append(weakref.ref(net))
        return net

    monkeypatch.setattr(build, "create_network", network)
    gc.disable()
    try:
        loop.train(create("earlier", "max_steps=1"), progress=False)
        assert networks[0]() is not None  # a cycle holds it
        later = create("later", "max_steps=1")
        loop.train(later, progress=False)
        assert networks[0]() is None
    finally:
        gc.enable()


def test_history(reference):
    """Steps, evaluations and factor steps, each of these behind its step; the first inverts all."""
    history, records = reference.history(), reference.factor_steps()
    assert [record["step"] for record in reference.steps()] == list(range(1, STEPS * EPOCHS + 1))
    assert [record["epoch"] for record in reference.evaluations()] == [1, 2]
    expected = [1, 4, 7, 10, 13, 17]  # after 3 steps each, towards the end after 4
    assert [record["factor_step"] for record in records] == expected
    assert [history[history.index(record) - 1]["step"] for record in records] == expected
    for record in records:
        assert set(record["trace"]) == {"0", "4"} and min(record["trace"].values()) > 0
    assert records[0]["inverted"] == ["0", "4"]


def test_it_learns_and_keeps_its_state(reference):
    losses = [record["loss"] for record in reference.steps()]
    assert np.isfinite(losses).all() and np.mean(losses[-STEPS:]) < np.mean(losses[:STEPS])
    kept = state(reference)
    for name in ("thor.0.factor_a", "thor.4.inverse_g", "thor.4.trace", "moments.0.weight"):
        assert np.abs(kept[name]).max() > 0
    assert kept["step"] == STEPS * EPOCHS


def test_evaluation_of_the_plain_network(reference):
    """From the checkpoint's weights, without taps: the accuracy that the training saw."""
    result = evaluation.evaluate(reference)
    assert result["images"] == 50
    for name in ("accuracy", "top_5_accuracy"):
        assert reference.evaluations()[-1][name] == reference.summary[name] == result[name]


@pytest.mark.slow
def test_killed_interrupted_and_resumed(create, reference, monkeypatch):
    """Each time behind a factor step that no checkpoint has seen.

    By SIGKILL in a process of its own: what goes on has factors and inverses as of the checkpoint at step 4. Then in
    the second epoch.
    """
    run, append = create("stopped"), callbacks.append_line
    command = [sys.executable, "-c", DIE, str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert run.history()[-1]["factor_step"] == 7 and state(run)["step"] == 4

    def append_then_stop(file, record):
        append(file, record)
        if record.get("factor_step") == 17:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(callbacks, "append_line", append_then_stop)
        loop.train(run, progress=False)
    assert run.history()[-1]["factor_step"] == 17 and state(run)["step"] == 16 and not run.complete
    loop.train(run, progress=False)
    require_equal(run, reference)


@pytest.mark.parametrize("every, times", [(None, 0), (4, 6)])  # and after each epoch
def test_evaluation_changes_nothing(every, times, create, reference, monkeypatch):
    """Without any until the end, or within the epochs: the same losses, factor steps and weights."""
    run = create(f"evaluated-{every}", f"evaluation_steps={every or 'null'}")
    if every is None:
        monkeypatch.setattr(callbacks.EvaluateCallback, "on_train_epoch_end", lambda self, run_context: None)
        monkeypatch.setattr(runs, "write_summary", lambda run: None)  # which tells the last accuracy
    loop.train(run, progress=False)
    assert len(run.evaluations()) == times
    assert timeless(run.steps()) == timeless(reference.steps())
    assert run.factor_steps() == reference.factor_steps()
    ours, theirs = state(run), state(reference)
    assert all(ours[name].tobytes() == value.tobytes() for name, value in theirs.items())


@pytest.mark.slow
def test_ends_early_in_mixed_precision(create, reference):
    """amp_level O2 with loss scale: the first steps are near those in float32, the layers have the same names."""
    run = create("half", "amp_level=O2", "loss_scale=1024", "max_steps=4")
    loop.train(run, progress=False)
    losses, expected = ([record["loss"] for record in r.steps()[:4]] for r in (run, reference))
    np.testing.assert_allclose(losses, expected, rtol=0.01)
    assert losses != expected and [len(run.steps()), len(run.evaluations())] == [4, 1]
    assert [record["factor_step"] for record in run.factor_steps()] == [1, 4]
    assert set(run.factor_steps()[0]["trace"]) == {"0", "4"}
    assert evaluation.evaluate(run)["accuracy"] == run.summary["accuracy"]
