"""One step and a short training in both frameworks; each planted defect is found by the report alone."""

import json

import mindspore as ms
import numpy as np
import pytest
from click.testing import CliRunner
from mindspore import nn
from selection import torch_or_none

from labkit.cli import main
from labkit.losses import CrossEntropySmooth
from labkit.networks import resnet
from labkit.optimizers import momentum
from labkit.parity import Report, Side, compare_step, compare_trajectory, pytorch, resnets, to_mindspore
from labkit.parity.clinic import DEFECTS, examine
from labkit.parity.measures import difference
from labkit.parity.resnets import NETWORKS
from labkit.parity.step import torch_state
from labkit.parity.weights import Names
from labkit.system.errors import LabkitError

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
    assert min(tensor.cosine for tensor in stages["gradients"].tensors) > 0.9999
    assert report.first_divergence == {"forward": None, "backward": None}
    # Compared were all parameters, and all layers but PyTorch's own pooling before the dense layer.
    net = pytorch.torchvision().models.get_model(network, num_classes=10)
    assert {tensor.name for tensor in stages["gradients"].tensors} == {name for name, _ in net.named_parameters()}
    assert report.unmatched == {"pytorch": ["avgpool"], "mindspore": []}
    return stages


def test_a_step_and_twenty_are_equal(compare):
    """The network of bottlenecks; that of two-layer blocks is test_command_and_report."""
    report = compare("resnet50", image_size=SIZE, steps=20)
    stages = require_equal(report, "resnet50")
    assert stages["losses of 20 steps"].max_rel <= 1e-3
    assert len(report.losses["pytorch"]) == 20 and len(set(report.losses["pytorch"])) == 20


@pytest.mark.parametrize("network", sorted({*NETWORKS} - {"resnet18", "resnet50"}))
def test_every_other_depth_is_equal(compare, network):
    """The same blocks, in other numbers: one step. (`make bench ARGS=parity` trains them all, at 224 pixels.)"""
    require_equal(compare(network, image_size=64), network)


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


# -- A pair of one's own --------------------------------------------------------------------------


class Own(nn.Cell):
    """Names of its own; a layer that is called twice."""

    def __init__(self, momentum=0.9):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.BatchNorm2d(4, momentum=momentum)
        self.mix = nn.Conv2d(4, 4, 1)
        self.act = nn.ReLU()
        self.end_point = nn.Dense(4, 5)

    def construct(self, x):
        x = self.act(self.norm(self.stem(x)))
        x = self.act(self.mix(self.mix(x)))
        return self.end_point(x.mean((2, 3)))


class Theirs(torch.nn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4))
        self.mix = torch.nn.Conv2d(4, 4, 1, bias=False)
        self.relu = torch.nn.ReLU(inplace=True)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = self.relu(self.features(x))
        x = self.relu(self.mix(self.mix(x)))
        return self.head(x.mean((2, 3)))


NAMES = Names([(r"^stem", "features.0"), (r"^norm", "features.1"), (r"^act", "relu"), (r"^end_point", "head")])


def own_pair(seed=0, **options):
    torch.manual_seed(seed)
    theirs, ours = Theirs(), Own(**options)
    to_mindspore(torch_state(theirs), ours, NAMES)
    theirs.train()
    ours.set_train()
    random = np.random.default_rng(seed)
    batch = random.normal(size=(6, 3, 8, 8)).astype(np.float32), random.integers(0, 5, 6)
    rates = np.full(100, 0.1, np.float32)
    return (
        Side(theirs, torch.nn.CrossEntropyLoss(), torch.optim.SGD(theirs.parameters(), 0.1, 0.9), *batch),
        Side(ours, CrossEntropySmooth(5), momentum(ours, rates, 0.9, 0.0), *batch),
    )


def test_an_own_pair_with_a_map_of_names():
    report = compare_step(*own_pair(), names=NAMES)
    assert report.ok, report.table()
    layers = ["features.0", "features.1", "relu", "mix", "mix#2", "relu#2", "head"]
    assert [layer.name for layer in report.forward] == layers
    assert [layer.name for layer in report.backward] == layers[::-1]
    assert report.unmatched == {"pytorch": [], "mindspore": []}


def test_an_own_pair_that_differs():
    report = compare_step(*own_pair(momentum=0.1), names=NAMES)
    assert [stage.name for stage in report.stages if not stage.ok] == ["buffers after the step"]
    assert report.stages[-1].worst.startswith("features.1.running")


def test_own_trajectory_and_its_modes():
    before = ms.get_context("mode")
    reference, candidate = own_pair()
    batches = [(np.roll(reference.images, step, 0), np.roll(reference.labels, step)) for step in range(20)]
    steps = []
    stage, losses = compare_trajectory(reference, candidate, batches, progress=steps.append)
    assert steps == ["PyTorch"] * 20 + ["MindSpore"] * 20
    assert stage.ok and stage.max_rel < 1e-4 and len(losses["mindspore"]) == 20
    assert losses["mindspore"][-1] < losses["mindspore"][0]
    assert ms.get_context("mode") == before


def test_networks_are_as_before_after_a_recording():
    """No hook stays, in-place layers included: a second comparison gives the same."""
    reference, candidate = own_pair()
    first = compare_step(reference, candidate, names=NAMES)
    assert reference.net.relu.inplace and not reference.net.relu._forward_hooks
    second = compare_step(*own_pair(), names=NAMES)
    assert first.as_dict() == second.as_dict()


class TorchPair(torch.nn.Module if torch else object):
    def forward(self, x):
        return x, x


class Pair(nn.Cell):
    def construct(self, x):
        return x, x


def test_a_layer_with_several_outputs_is_named():
    reference, candidate = own_pair()
    reference.net.pair, candidate.net.pair = TorchPair(), Pair()
    forward, construct = reference.net.forward, candidate.net.construct
    reference.net.forward = lambda x: reference.net.pair(forward(x))[0]
    with pytest.raises(LabkitError, match="layer pair returns 2 values"):
        compare_step(reference, own_pair()[1], names=NAMES)
    candidate.net.construct = lambda x: candidate.net.pair(construct(x))[0]
    with pytest.raises(LabkitError, match="layer pair returns 2 values"):
        compare_step(own_pair()[0], candidate, names=NAMES)


def test_gradients_against_autograd_of_the_whole():
    """What hooks recorded at the first layer is PyTorch's own gradient."""
    from labkit.parity.step import torch_step

    reference, _ = own_pair()
    step = torch_step(reference)
    images = torch.from_numpy(reference.images)
    stem = reference.net.features[0](images).detach().requires_grad_()
    x = reference.net.relu(reference.net.features[1](stem))
    x = reference.net.relu(reference.net.mix(reference.net.mix(x)))
    loss = reference.loss(reference.net.head(x.mean((2, 3))), torch.from_numpy(reference.labels))
    loss.backward()
    np.testing.assert_allclose(step.layers["features.0"].gradient_in, stem.grad.numpy(), rtol=1e-5, atol=1e-9)


# -- The command ----------------------------------------------------------------------------------


def labkit(*arguments):
    """A command in this process, where MindSpore and PyTorch are imported once."""
    return CliRunner().invoke(main, [*map(str, arguments)])


def refused(*arguments):
    """The one line that labkit says."""
    done = labkit(*arguments)
    assert done.exit_code == 1 and len(done.stderr.strip().splitlines()) == 1, done.output
    return done.stderr


def test_command_and_report(photographs, tmp_path):
    """A batch so large that there is only one: there are 48 photographs."""
    setting = ("--data", photographs, "--image-size", 32, "--batch", 25, "--steps", 20)
    done = labkit("parity", "resnet18", *setting, "--report", tmp_path / "r")
    assert done.exit_code == 0, done.output
    assert "DIFFERS" not in done.stdout and "losses of 20 steps" in done.stdout
    assert done.stdout.startswith("resnet18, 25 images of 32 pixels, seed 1; PyTorch ")
    stages = require_equal(Report.load(tmp_path / "r" / "report.json"), "resnet18")
    assert stages["losses of 20 steps"].max_rel <= 1e-3
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["ok"] is True and report["first_divergence"] == {"forward": None, "backward": None}
    for stage in report["stages"]:
        assert {"name", "max_abs", "max_rel", "cosine", "tolerance", "ok"} <= set(stage)
    page = (tmp_path / "r" / "report.html").read_text()
    assert page.count("<img") == 2 and "equal" in page and "logits" in page


def test_command_on_networks_that_differ(photographs, tmp_path, monkeypatch):
    """Another epsilon in labkit."""
    monkeypatch.setattr(resnet, "batch_norm", lambda channels: nn.BatchNorm2d(channels, eps=1e-3, momentum=0.9))
    setting = ("--data", photographs, "--image-size", 32, "--steps", 0)
    done = labkit("parity", "resnet18", *setting, "--report", tmp_path / "r")
    assert done.exit_code == 1 and "DIFFERS" in done.stdout, done.output
    assert json.loads((tmp_path / "r" / "report.json").read_text())["first_divergence"]["forward"] == "bn1"


@pytest.mark.parametrize(
    "arguments, says",
    [(("resnet20",), "network must be one of"), (("resnet18", "--data", "nowhere"), "nowhere: there is no such folder"),
     (("resnet18", "--weights", "none.pth"), "none.pth: no such file")],
)  # fmt: skip
def test_command_says_what_is_wrong(arguments, says):
    assert says in refused("parity", *arguments)


def test_clinic_command(tmp_path):
    done = labkit("clinic", "epsilon", "--report", tmp_path / "clinic.json")
    assert done.exit_code == 0, done.output
    assert "epsilon" in done.stdout and "bn1" in done.stdout
    assert "DIFFERS" in done.stdout and "not judged, since outputs differ" in done.stdout  # the report of a named one
    found = json.loads((tmp_path / "clinic.json").read_text())["epsilon"]
    assert (found["stage"], found["layer"], found["located"]) == ("logits", "bn1", True)


def test_clinic_with_an_unknown_defect():
    assert "no defect 'hiccups'" in refused("clinic", "epsilon", "hiccups")


def test_an_unknown_defect_has_no_table():
    done = CliRunner().invoke(main, ["clinic", "hiccups"])
    assert (done.exit_code, done.stdout) == (1, "")


# -- A saved report -------------------------------------------------------------------------------


def test_a_report_comes_back_as_it_was(tmp_path):
    report = compare_step(*own_pair(momentum=0.1), names=NAMES)
    report.save(tmp_path)
    again = Report.load(tmp_path / "report.json")
    assert again.as_dict() == report.as_dict() and again.table() == report.table()
    again.layers_figure()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{}]}'])
def test_what_is_no_report(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(LabkitError, match="report.json: not a report"):
        Report.load(tmp_path / "report.json")
    with pytest.raises(LabkitError, match="none.json: no such file"):
        Report.load(tmp_path / "none.json")


def test_values_that_rounding_decided_are_counted():
    """A ReLU's input of +-1e-9: one side passes it on, the other does not."""
    from labkit.parity.step import Layer, _ties

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
    monkeypatch.setattr(resnets, "create_sides", lambda *setting: (None, None))
    monkeypatch.setattr(resnets, "compare_step", lambda theirs, ours: next(steps))
    assert compare("resnet18").about["batch of the stream"] == batch


def test_batch_counters_do_not_count():
    """PyTorch's num_batches_tracked of a trained network, which MindSpore does not keep."""
    reference, candidate = own_pair()
    reference.net.features[1].num_batches_tracked += 5000
    assert compare_step(reference, candidate, names=NAMES).ok


def test_nothing_in_common_is_said():
    report = compare_step(*own_pair())
    assert not report.ok and "layers on one side only" in report.table()


# -- What a user gives ----------------------------------------------------------------------------


def test_batches_that_the_photographs_allow(photographs):
    said = refused("parity", "resnet18", "--data", photographs, "--image-size", 32, "--batch", 999, "--steps", 0)
    assert "images, fewer than a batch of 999" in said


def test_a_trained_networks_file(compare, tmp_path):
    """A thousand classes, batch counters that have counted."""
    net = pytorch.torchvision().models.resnet18(num_classes=1000)
    for name, value in net.state_dict().items():
        if name.endswith("bn2.weight"):
            value.fill_(0.1)
        if name.endswith("num_batches_tracked"):
            value.fill_(5000)
    torch.save(net.state_dict(), tmp_path / "trained.pth")
    report = compare("resnet18", weights=tmp_path / "trained.pth", image_size=SIZE)
    assert report.ok, report.table()


def test_another_networks_file(compare, tmp_path):
    torch.save(pytorch.torchvision().models.resnet34(num_classes=10).state_dict(), tmp_path / "deeper.pth")
    with pytest.raises(LabkitError, match="left over: layer1.2"):
        compare("resnet18", weights=tmp_path / "deeper.pth")
