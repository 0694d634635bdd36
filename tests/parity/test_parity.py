"""Whole ResNets: one step and a short training in both frameworks, planted defects found by the report, commands."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from mindspore import nn
from selection import torch_or_none

from labkit.networks import resnet
from labkit.parity import pytorch, resnets, trajectory
from labkit.parity.clinic import DEFECTS, examine
from labkit.parity.measures import difference
from labkit.parity.report import Report
from labkit.parity.resnets import NETWORKS
from labkit.parity.step import Layer, _ties

pytestmark = pytest.mark.usefixtures("pytorch")
torch = torch_or_none()
SIZE = 40  # pixels: the last stage has 2 x 2 of them, as it has for 64
STAGES = ["batch", "weights", "logits", "loss", "gradients", "weights after the update", "buffers after the step"]


def require_equal(report, network):
    """A step within the bars of the course: logits 1e-4, gradients' cosine 0.9999. Its stages by name."""
    assert report.ok, report.table()
    stages = {stage.name: stage for stage in report.stages}
    assert list(stages)[: len(STAGES)] == STAGES
    assert stages["logits"].max_rel <= 1e-4
    assert min(part.cosine for part in stages["gradients"].tensors if part.by == "cosine") > 0.9999
    assert report.first_divergence == {"stage": None, "forward": None, "backward": None}
    # Compared were all parameters, and all layers but PyTorch's own pooling before the dense layer.
    net = pytorch.torchvision().models.get_model(network, num_classes=10)
    assert {tensor.name for tensor in stages["gradients"].tensors} == {name for name, _ in net.named_parameters()}
    assert report.unmatched == {"pytorch": ["avgpool"], "mindspore": []}
    return stages


@pytest.mark.slow
def test_a_step_and_twenty_are_equal(compare):
    """The network of bottlenecks; that of two-layer blocks is test_command_and_report."""
    report = compare("resnet50", image_size=SIZE, steps=20)
    stages = require_equal(report, "resnet50")
    assert stages["losses of 20 steps"].max_rel <= 1e-3
    assert len(report.losses["pytorch"]) == 20 and len(set(report.losses["pytorch"])) == 20


@pytest.mark.slow
@pytest.mark.parametrize("network", sorted({*NETWORKS} - {"resnet18", "resnet50"}))
def test_every_other_depth_is_equal(compare, network):
    """The same blocks, in other numbers: one step. (`make bench ARGS=parity` trains them all, at 224 pixels.)"""
    require_equal(compare(network, image_size=64), network)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DEFECTS if name != "epsilon"])  # test_clinic_command has that
def test_a_planted_defect_is_located(photographs, name):
    [(defect, report, found)] = examine([name], photographs)
    assert not report.ok
    assert found == {"stage": defect.stage, "layer": defect.layer, "located": True}, report.table()
    if name == "decay_everywhere":
        stage = next(stage for stage in report.stages if stage.name == defect.stage)
        wrong = {tensor.name for tensor in stage.tensors if not tensor.ok}
        assert {"bn1.weight", "layer4.1.bn2.weight", "fc.bias"} <= wrong and "conv1.weight" not in wrong
    if name == "passing_gradient":  # it does not show forwards
        assert report.first_divergence["forward"] is None
        assert [stage.ok for stage in report.stages[:4]] == [True] * 4


# -- The command ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_command_and_report(invoke, photographs, tmp_path):
    """A batch so large that there is only one: there are 48 photographs."""
    setting = ("--data", photographs, "--image-size", 32, "--batch", 25, "--steps", 20)
    done = invoke("parity", "resnet18", *setting, "--json")
    assert done.exit_code == 0, done.output
    (tmp_path / "report.json").write_text(done.stdout)
    report = Report.load(tmp_path / "report.json")
    assert "DIFFERS" not in report.table() and "losses of 20 steps" in report.table()
    stages = require_equal(report, "resnet18")
    assert stages["losses of 20 steps"].max_rel <= 1e-3


@pytest.mark.slow
def test_command_on_networks_that_differ(invoke, photographs, monkeypatch):
    """Another epsilon in labkit."""
    monkeypatch.setattr(resnet, "batch_norm", lambda channels: nn.BatchNorm2d(channels, eps=1e-3, momentum=0.9))
    setting = ("--data", photographs, "--image-size", 32, "--steps", 0)
    done = invoke("parity", "resnet18", *setting)
    assert done.exit_code == 1 and "DIFFERS" in done.stdout, done.output
    assert done.stdout.startswith("resnet18, 8 x 3 x 32 x 32, seed 1; PyTorch ") and "forward:   bn1" in done.stdout


@pytest.mark.parametrize("arguments, says", [
    ("parity resnet20", "network must be one of"),
    ("parity resnet18 --data nowhere", "nowhere: there is no such"),
    ("parity resnet18 --data PHOTOGRAPHS --image-size 32 --batch 999 --steps 0", "images, fewer than a batch of 999"),
    ("clinic epsilon hiccups", "unknown defect 'hiccups'"),
])  # fmt: skip
def test_command_says_what_is_wrong(invoke, photographs, arguments, says):
    """In one line; parity's exit status 1 would mean that the networks differ."""
    words = arguments.split()
    done = invoke(*(photographs if word == "PHOTOGRAPHS" else word for word in words))
    assert done.exit_code == (2 if words[0] == "parity" else 1), done.output
    assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_clinic_command(invoke, tmp_path, monkeypatch):
    """It leaves the data folder alone: another file there, and the book would execute every chapter again."""
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "data"))
    done = invoke("clinic", "epsilon", "--report", tmp_path / "clinic.json")
    assert done.exit_code == 0, done.output
    assert "epsilon" in done.stdout and "bn1" in done.stdout
    assert "DIFFERS" in done.stdout and "not judged, since outputs differ" in done.stdout  # the report of a named one
    found = json.loads((tmp_path / "clinic.json").read_text())["epsilon"]
    assert (found["stage"], found["layer"], found["located"]) == ("logits", "bn1", True)
    assert not (tmp_path / "data").exists()


# -- What rounding decides -------------------------------------------------------------------------


def test_values_that_rounding_decided_are_counted():
    """A ReLU's input of +-1e-9: one side passes it on, the other does not."""
    theirs = {"relu": [0.0, 2.0, 1e-9], "relu#2": [0.0, 1.0, 0.0], "fc": [-1.0, 2.0, 0.0]}
    ours = {"relu": [0.0, 2.0, 0.0], "relu#2": [0.0, 1.0, 0.5], "fc": [-1.0, 2.0, 1e-9]}
    forward = [difference(name, theirs[name], ours[name], 1e-4) for name in theirs]  # relu#2 is a defect, not rounding
    layers = [{name: Layer(np.array(output)) for name, output in side.items()} for side in (theirs, ours)]
    assert _ties(*layers, forward) == {"relu": 1}


@pytest.mark.parametrize("wrong, ties, layer, batch", [
    (["gradients"], 1, [0.0], 2), (["gradients", "weights after the update"], 1, [0.0], 2),  # rounding, perhaps
    (["gradients"], 0, [0.0], 1), (["weights after the update"], 1, [0.0], 1), (["gradients"], 1, [1.0], 1),
    ([], 1, [0.0], 1),
])  # fmt: skip
def test_only_what_rounding_may_have_decided_is_asked_of_another_batch(compare, monkeypatch, wrong, ties, layer, batch):
    """Steps with what no batch gives for the asking; the second is sound."""

    def step(stages, found):
        return Report(
            [difference(name, [0.0], [float(name in stages)], 1e-4) for name in STAGES],
            [difference("relu", [0.0], found, 1e-4)], ties={"relu": ties} if ties else {},
        )  # fmt: skip

    steps = iter([step(wrong, layer), step([], [0.0])])
    monkeypatch.setattr(resnets, "create_sides", lambda *setting: (SimpleNamespace(images=np.zeros(1)), None))
    monkeypatch.setattr(trajectory, "compare_step", lambda theirs, ours: next(steps))
    assert compare("resnet18").about["batch of the stream"] == batch
