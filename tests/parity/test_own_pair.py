"""A pair of networks of one's own, in both frameworks: one step, a short training, and the report of it."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from selection import torch_or_none

from labkit.losses import CrossEntropySmooth
from labkit.optimizers import momentum
from labkit.parity.report import Report
from labkit.parity.step import Side, compare_step
from labkit.parity.trajectory import compare_trajectory
from labkit.parity.weights import to_mindspore, torch_state
from labkit.system.errors import LabkitError

pytestmark = pytest.mark.usefixtures("pytorch")
torch = torch_or_none()


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


NAMES = {"stem": "features.0", "norm": "features.1", "act": "relu", "end_point": "head"}


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


def test_own_trajectory_and_its_modes():
    before = ms.get_context("mode")
    reference, candidate = own_pair()
    batches = [(np.roll(reference.images, step, 0), np.roll(reference.labels, step)) for step in range(20)]
    stage, losses = compare_trajectory(reference, candidate, batches)
    assert stage.ok and stage.max_rel < 1e-4 and len(losses["mindspore"]) == 20
    assert losses["mindspore"][-1] < losses["mindspore"][0]
    assert ms.get_context("mode") == before


def test_networks_are_as_before_after_a_recording():
    """No hook stays, in-place layers included: a second comparison gives the same."""
    reference, candidate = own_pair()
    first = compare_step(reference, candidate, names=NAMES)
    assert reference.net.relu.inplace and not reference.net.relu._forward_hooks
    second = compare_step(*own_pair(), names=NAMES)
    assert first.to_json() == second.to_json()


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


def test_a_report_comes_back_unchanged(tmp_path):
    report = compare_step(*own_pair(momentum=0.1), names=NAMES)
    (tmp_path / "report.json").write_text(report.to_json())
    again = Report.load(tmp_path / "report.json")
    assert again.to_json() == report.to_json() and again.table() == report.table()


def test_batch_counters_do_not_count():
    """PyTorch's num_batches_tracked of a trained network, which MindSpore does not keep."""
    reference, candidate = own_pair()
    reference.net.features[1].num_batches_tracked += 5000
    assert compare_step(reference, candidate, names=NAMES).ok
