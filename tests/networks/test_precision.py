"""Mixed precision and loss scale: every level trains, keeps float32 parameters and leaves nothing behind."""

import gc
import sys

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.networks import create_resnet, mixed_precision
from labkit.training import build, recipes

NETWORK = "resnet8"
LEVELS = ["O0", "O1", "O2", "O3"]
LR = np.full(4, 0.01, np.float32)


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory of its own, in which MindSpore's rewriting would leave its files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(repo_root):
    """Function: the CIFAR sample's recipe with a small network and settings."""
    small = f"network.name={NETWORK}"
    return lambda *settings: recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample", (small, *settings))


def batch():
    rng = np.random.default_rng(0)
    return ms.Tensor(rng.normal(size=(8, 3, 32, 32)).astype(np.float32)), ms.Tensor(np.arange(8), ms.int32)


def steps(model, count):
    """Losses of some steps on one batch."""
    images, labels = batch()
    return [float(model.train_network(images, labels).asnumpy()) for _ in range(count)]


def values(net):
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_trains(recipe, here, level):
    """With all that goes with it: loss scale, clipping, smoothing. The same batch again and again: the loss falls."""
    ms.set_seed(1)
    chosen = recipe(f"amp_level={level}", "loss_scale=128", "optimizer.clip_norm=1", "loss.smoothing=0.1")
    model = build.create_model(chosen, LR)
    losses = steps(model, 3)
    assert np.isfinite(losses).all() and losses[2] < losses[0]
    parameters = list(model.train_network.get_parameters())
    assert all(p.dtype == ms.float32 for p in parameters if p.name != "global_step")
    assert all(np.isfinite(p.asnumpy()).all() for p in parameters)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("level", LEVELS)
def test_logits_are_float32_and_near(level):
    """Same parameters, by name and as objects; float16 keeps eleven binary digits of a number."""
    ms.set_seed(1)
    plain = create_resnet(NETWORK).set_train(False)
    expected, parameters = plain(batch()[0]).asnumpy(), list(plain.get_parameters())
    net = mixed_precision(plain, level).set_train(False)
    logits = net(batch()[0])
    assert logits.dtype == ms.float32
    error = np.abs(logits.asnumpy() - expected).max() / np.abs(expected).max()
    assert error == 0 if level == "O0" else 0 < error < 0.01
    assert all(mine is other for mine, other in zip(net.get_parameters(), parameters, strict=True))


def test_o1s_file_goes_with_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    net = mixed_precision(create_resnet(NETWORK), "O1")
    assert len(list(tmp_path.glob("*/rewritten_network/*.py"))) == 1
    del net
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_o1_of_several_networks():
    """The layers stay nn.Conv2d and nn.Dense, which THOR looks for, and sys.path stays what it was."""
    path = sys.path[:]
    for _ in range(2):
        net = mixed_precision(create_resnet(NETWORK), "O1")
        layers = [cell for _, cell in net.cells_and_names() if isinstance(cell, (nn.Conv2d, nn.Dense))]
        assert len(layers) == sum(p.ndim > 1 for p in net.get_parameters())
    assert sys.path == path


def test_a_loss_scale_changes_no_step_in_float32(recipe):
    """A power of two shifts exponents only: loss, decay and momentum are the same to the last bits."""
    found = []
    for scale in (1, 1024):
        ms.set_seed(1)
        model = build.create_model(recipe(f"loss_scale={scale}", "network.fast_gradient=false"), LR)
        found.append((steps(model, 2), values(model.train_network)))
    (losses, plain), (scaled_losses, scaled) = found
    assert losses == pytest.approx(scaled_losses, rel=1e-6)
    for name, value in plain.items():
        np.testing.assert_allclose(scaled[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
