"""Weights from PyTorch to MindSpore and back: every name, every value; what does not fit is refused whole."""

import os

import mindspore as ms
import numpy as np
import pytest
from selection import torch_or_none

from labkit.networks import create_resnet
from labkit.parity import pytorch, weights
from labkit.parity.layers import WeightsError
from labkit.parity.weights import from_mindspore, read_state, to_mindspore, torch_state, write_state

pytestmark = pytest.mark.usefixtures("pytorch")
torch = torch_or_none()
models = torch and pytorch.torchvision().models


def random_state(name):
    """A PyTorch network's state, batch norm's statistics not at their first values."""
    state = torch_state(models.get_model(name, num_classes=7))
    random = np.random.default_rng(0)
    for key, value in state.items():
        if value.ndim:
            state[key] = random.uniform(0.5, 1.5, value.shape).astype(np.float32)
    return state


def kept(net):
    return {parameter.name: parameter.asnumpy().copy() for parameter in net.get_parameters()}


def test_statistics_and_scales_go_where_they_belong():
    """Asked of the layers themselves, not of the names."""
    state, net = random_state("resnet18"), create_resnet("resnet18", 7, "imagenet")
    to_mindspore(state, net)
    norm = net.layer3[0].downsample[1]
    for own, theirs in [("gamma", "weight"), ("beta", "bias"), ("moving_mean", "running_mean"),
                        ("moving_variance", "running_var")]:  # fmt: skip
        np.testing.assert_array_equal(getattr(norm, own).asnumpy(), state[f"layer3.0.downsample.1.{theirs}"])
    np.testing.assert_array_equal(net.fc.weight.asnumpy(), state["fc.weight"])


@pytest.mark.parametrize("change, says", [
    (lambda s: s.update(extra=np.zeros(3)), "missing in MindSpore: extra"),
    (lambda s: s.update({f"module.{k}": s.pop(k) for k in list(s)}), "all names begin with 'module.'"),
], ids=["left over", "prefix"])  # fmt: skip
def test_what_does_not_fit_is_listed_and_nothing_is_loaded(change, says):
    state, net = random_state("resnet18"), create_resnet("resnet18", 7, "imagenet")
    before = kept(net)
    change(state)
    with pytest.raises(WeightsError, match=says):
        to_mindspore(state, net)
    for name, value in kept(net).items():
        np.testing.assert_array_equal(value, before[name])


# -- Files ----------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-unpickled",)


@pytest.mark.parametrize("content, says", [
    ({"weight": Evil()}, "contains more than tensors"),
    (torch and torch.nn.Linear(2, 2), "contains more than tensors"),
    ({"state_dict": {"w": torch and torch.zeros(2)}, "epoch": 3}, "not plain tensors: state_dict, epoch"),
    ({"weight": torch and torch.eye(3).to_sparse()}, "not plain tensors: weight"),
    ([torch and torch.zeros(2)], "not a state dict, but a list"),
], ids=["code", "module", "training checkpoint", "sparse", "list"])  # fmt: skip
def test_a_file_that_is_no_state_dict(tmp_path, monkeypatch, content, says):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=says) as error:
        read_state(tmp_path / "w.pth")
    assert str(tmp_path / "w.pth") in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "was-unpickled").exists()


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"plain text\n" * 9])
def test_a_damaged_file(tmp_path, damage):
    write_state(tmp_path / "w.pth", {"w": np.ones(1000, np.float32)})
    (tmp_path / "w.pth").write_bytes(damage((tmp_path / "w.pth").read_bytes()))
    with pytest.raises(WeightsError, match="w.pth: "):
        read_state(tmp_path / "w.pth")


def test_half_precision_becomes_float32(tmp_path):
    torch.save({"w": torch.full((3,), 0.5, dtype=torch.bfloat16), "n": torch.tensor(4)}, tmp_path / "w.pth")
    read = read_state(tmp_path / "w.pth")
    assert read["w"].dtype == np.float32 and read["w"].tolist() == [0.5] * 3 and read["n"] == 4


def test_convert_both_ways(invoke, tmp_path):
    state = random_state("resnet18")
    write_state(tmp_path / "a.pth", state)
    done = invoke("convert", "resnet18", tmp_path / "a.pth", tmp_path / "b.ckpt", "--num-classes", 7)
    assert done.exit_code == 0, done.output
    names = create_resnet("resnet18", 7, "imagenet").parameters_dict().keys()
    assert ms.load_checkpoint(str(tmp_path / "b.ckpt")).keys() == names
    done = invoke("convert", "resnet18", tmp_path / "b.ckpt", tmp_path / "c.pth", "--num-classes", 7)
    assert done.exit_code == 0, done.output
    back = read_state(tmp_path / "c.pth")
    assert set(back) == set(state)
    for key, value in state.items():
        np.testing.assert_array_equal(back[key], value, err_msg=key, strict=True)
    assert sorted(os.listdir(tmp_path)) == ["a.pth", "b.ckpt", "c.pth"]
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("arguments, says", [
    (("resnet18", "a.pth", "b.ckpt"), "other shapes: fc.weight"),
    (("resnet34", "a.pth", "b.ckpt", "--num-classes", 7), "missing in PyTorch: layer1.2.conv1.weight"),
    (("resnet19", "a.pth", "b.ckpt"), "unknown network 'resnet19'"),
    (("resnet18", "a.pth", "b.pth"), "need a PyTorch file"),
    (("resnet18", "none.pth", "b.ckpt"), "none.pth: no such file"),
    (("resnet18", "a.pth", "nowhere/b.ckpt"), "nowhere: no such folder"),
    (("resnet18", "a.ckpt", "b.pth"), "a.ckpt: damaged"),
])  # fmt: skip
def test_convert_says_what_is_wrong(invoke, tmp_path, arguments, says):
    write_state(tmp_path / "a.pth", random_state("resnet18"))
    (tmp_path / "a.ckpt").write_bytes(b"nothing")
    paths = [tmp_path / a if "." in str(a) else a for a in arguments]
    done = invoke("convert", *paths)
    assert done.exit_code == 1 and len(done.stderr.strip().splitlines()) == 1, done.output
    assert says in done.stderr
    assert not (tmp_path / "b.ckpt").exists() and not (tmp_path / "b.pth").exists()


def test_a_runs_checkpoint_is_converted_without_its_optimizer(tmp_path):
    net = create_resnet("resnet20", 10, "cifar")
    own = [{"name": parameter.name, "data": parameter} for parameter in net.get_parameters()]
    moments = [{"name": f"moments.{row['name']}", "data": row["data"]} for row in own]
    ms.save_checkpoint([*own, *moments], str(tmp_path / "run.ckpt"), append_dict={"step": 7})
    weights.convert(tmp_path / "run.ckpt", tmp_path / "run.pth", net)
    assert set(read_state(tmp_path / "run.pth")) == set(from_mindspore(net))
