"""Checkpoints: they bring everything back, and a damaged or foreign one is refused in a line."""

import json

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet
from labkit.optimizers import OPTIMIZERS
from labkit.training import checkpoint, runs
from labkit.training.runs import RunError


def make_train_network(name, optimizer="momentum"):
    """Network with loss and optimizer; nothing is compiled."""
    net = create_resnet(name)
    cell = nn.WithLossCell(net, CrossEntropySmooth(10))
    return nn.TrainOneStepCell(cell, OPTIMIZERS[optimizer](net, np.full(8, 0.1, np.float32)))


@pytest.fixture(scope="module")
def train_network():
    return make_train_network("resnet20")


@pytest.fixture
def run(tmp_path, sample_recipe):
    return runs.create(tmp_path / "run", sample_recipe())


@pytest.fixture
def checkpointed(run, train_network):
    run.history_file.write_text("".join(json.dumps({"step": step, "epoch": 1}) + "\n" for step in (1, 2)))
    checkpoint.save_checkpoint(run, train_network, 2)
    return run


def values(network):
    return {p.name: p.asnumpy().copy() for p in network.get_parameters()}


def test_checkpoint_brings_everything_back(checkpointed, train_network):
    kept = values(train_network)
    for parameter in train_network.get_parameters():
        parameter.set_data(ms.Tensor(np.ones(parameter.shape), parameter.dtype))
    assert checkpoint.load_weights(checkpointed.checkpoint, train_network) == 2
    loaded = values(train_network)
    assert any(name.startswith("moments.") for name in loaded)
    assert any("moving_variance" in name for name in loaded)
    for name, value in kept.items():
        np.testing.assert_array_equal(loaded[name], value, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_checkpoint_of_a_training_fills_a_network(run, optimizer):
    train_network, net = make_train_network("resnet20", optimizer), create_resnet("resnet20")
    run.history_file.touch()
    checkpoint.save_checkpoint(run, train_network, 0)
    checkpoint.load_weights(run.checkpoint, net)
    trained = values(train_network)
    for name, value in values(net).items():
        np.testing.assert_array_equal(trained[name], value, err_msg=name)


def test_a_new_checkpoint_replaces_the_old_one(checkpointed, train_network):
    checkpoint.save_checkpoint(checkpointed, train_network, 3)
    assert checkpoint.load_weights(checkpointed.checkpoint, train_network) == 3
    assert [path.name for path in checkpointed.checkpoint.parent.iterdir()] == ["latest.ckpt"]
    assert checkpointed.checkpoint.stat().st_mode == checkpointed.history_file.stat().st_mode  # as the umask says


EVALUATION, STEP = json.dumps({"epoch": 1, "accuracy": 0.25}) + "\n", json.dumps({"step": 3, "epoch": 2}) + "\n"


@pytest.mark.parametrize("after, kept", [
    ("", ""), (EVALUATION, EVALUATION), (EVALUATION + STEP, EVALUATION), (EVALUATION + STEP + EVALUATION, EVALUATION),
    (STEP, ""), (STEP + EVALUATION, ""), (EVALUATION[:-1], ""), (EVALUATION[:-9] + "\n", ""),
])  # fmt: skip
def test_restore_cuts_the_history_off(checkpointed, train_network, after, kept):
    """Behind the checkpoint, and behind the evaluation that follows it, where its line is whole."""
    seen = checkpointed.history_file.read_text()
    checkpointed.history_file.write_text(seen + after)
    assert checkpoint.restore(checkpointed, train_network) == 2
    assert checkpointed.history_file.read_text() == seen + kept
    assert [record["epoch"] for record in checkpointed.evaluations()] == ([1] if kept else [])


def test_a_history_that_lost_lines_is_refused(checkpointed, train_network):
    """At once, and not when the training has ended."""
    lines = checkpointed.history_file.read_text().splitlines(keepends=True)
    for text, says in [(lines[0], "ends at step 1"), (lines[0] + lines[1][:-10], "line 2: not valid JSON"),
                       (lines[0] + "null\n" + lines[1], "line 2: not valid JSON"),
                       (lines[0] + '{"step": null}\n' + lines[1], "line 2: not valid JSON")]:  # fmt: skip
        checkpointed.history_file.write_text(text)
        with pytest.raises(RunError, match=rf"history\.jsonl.*{says}"):
            checkpoint.restore(checkpointed, train_network)


def test_a_history_that_an_editor_saved_is_cut_at_the_same_step(checkpointed, train_network):
    lines = checkpointed.history_file.read_text().splitlines()
    evaluation = json.dumps({"epoch": 0.5, "accuracy": 0.1})  # a line more
    text = "\r\n".join([lines[0], evaluation, lines[1], EVALUATION.strip(), STEP.strip(), ""])
    checkpointed.history_file.write_bytes(text.encode())
    assert checkpoint.restore(checkpointed, train_network) == 2
    assert [record["step"] for record in checkpointed.steps()] == [1, 2] and len(checkpointed.evaluations()) == 2


def test_missing_checkpoint(run, train_network, tmp_path):
    with pytest.raises(RunError, match=r"latest\.ckpt: missing"):
        checkpoint.load_weights(run.checkpoint, train_network)
    (tmp_path / "weights.pth").touch()
    with pytest.raises(RunError, match=r"weights\.pth: .* only if its name ends with \.ckpt"):
        checkpoint.load_weights(tmp_path / "weights.pth", train_network)


@pytest.mark.parametrize("share, rest", [(0, 0), (0.5, 0), (0.5, 10_000)])
def test_damaged_checkpoint(checkpointed, train_network, share, rest):
    """Empty, or cut in the middle, with nothing behind or with other bytes."""
    file = checkpointed.checkpoint
    data = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(data[: int(share * len(data))] + np.random.default_rng(0).bytes(rest))
    with pytest.raises(RunError, match=r"latest\.ckpt: (damaged|not of this recipe)") as caught:
        checkpoint.load_weights(checkpointed.checkpoint, train_network)
    assert len(str(caught.value).splitlines()) == 1


def test_checkpoint_of_another_recipe(checkpointed):
    with pytest.raises(RunError, match=r"latest\.ckpt: .*not of this recipe") as caught:
        checkpoint.load_weights(checkpointed.checkpoint, create_resnet("resnet20", 100))
    assert len(str(caught.value).splitlines()) == 1


def test_checkpoint_of_a_larger_network(checkpointed):
    """ResNet-32's checkpoint holds every name of ResNet-20, so nothing is missing: another network all the same."""
    checkpoint.save_checkpoint(checkpointed, make_train_network("resnet32"), 2)
    with pytest.raises(RunError, match="not of this recipe"):
        checkpoint.load_weights(checkpointed.checkpoint, create_resnet("resnet20"))


def test_checkpoint_without_a_place(checkpointed, train_network):
    """A checkpoint that labkit did not write."""
    checkpointed.checkpoint.unlink()
    ms.save_checkpoint(train_network, str(checkpointed.checkpoint))
    with pytest.raises(RunError, match=r"latest\.ckpt: damaged, or not of this recipe"):
        checkpoint.restore(checkpointed, train_network)
