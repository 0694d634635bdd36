"""The ports of the chapter *Would you merge this port?* and of lab 2's task: each gets its verdict from the command."""

import json

import mindspore as ms
import numpy as np
import pytest

from grader.lab import load, probe_of, source
from labkit.parity.report import Report
from labkit.system.device import in_mode
from labkit.system.environment import REPO

CHAPTER = {  # by port, the stage that refuses it
    "a": "buffers after the step", "b": None, "c": "weights after the update", "d": "logits", "d16": None, "e": None,
}  # fmt: skip
TASK = [  # in the order of the probe's `_ports`
    None, None, None, "logits", "loss", *["weights after the update"] * 3, "buffers after the step"
]  # fmt: skip
PAIR = """
import torch

seed, emit, review = {seed}, lambda *given: None, lambda *given: None
{task}
step, ports = _ports(np.random.default_rng(seed))
port, random = ports[{number}], np.random.default_rng(seed)
smoothing, weight_decay = random.uniform(0.1, 0.3), random.uniform(0.01, 0.03)
rate, momentum = random.uniform(0.05, 0.2), random.uniform(0.7, 0.95)
PARTS = ("gamma", "beta", "moving_mean", "moving_variance")
state = {{name: torch.from_numpy(np.array(value)) for name, value in step["weights"].items()}}


def batch():
    return step["images"], step["labels"]


def reference():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 1, bias=False), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 10),
    )
    keys = [key for key in net.state_dict() if not key.endswith("num_batches_tracked")]
    names = ["conv.weight", *(f"norm.{{part}}" for part in PARTS), "fc.weight", "fc.bias"]
    net.load_state_dict(dict(zip(keys, map(state.get, names))), strict=False)
    return net


def reference_loss():
    return torch.nn.CrossEntropyLoss(label_smoothing=smoothing)


def reference_optimizer(net):
    weights, others = ([p for p in net.parameters() if (p.ndim > 1) is decays] for decays in (True, False))
    return torch.optim.SGD([{{"params": weights, "weight_decay": weight_decay}}, {{"params": others}}], rate, momentum)


def candidate():
    return port.net


def candidate_loss():
    return port.loss


def candidate_optimizer(net):
    return port.optimizer
"""


def lab_code():
    """Lab 2's code of the task: what is given to it, its solution, and the probe that makes its ports."""
    lab = load("imagenet")
    cells = [cell for cell in lab.notebook["cells"] if cell["cell_type"] == "code"]
    imports = source(cells[0]).replace("%matplotlib inline", "from types import SimpleNamespace")
    given = next(source(cell) for cell in cells if "def create_port(" in source(cell))
    probe = next(source(cell) for cell in cells if probe_of(cell) == "review")
    return f"{imports}\n{given}\n", lab.solutions["review"], probe


@pytest.fixture
def verdict(invoke):
    """Function: what a program reads of a pair: exit status, whether all agrees, the first stage that differs."""

    def verdict(file):
        done = invoke("parity", "--pair", file, "--json")
        report = json.loads(done.stdout)
        return done.exit_code, report["ok"], report["first_divergence"]["stage"]

    return verdict


def expected(stage):
    return int(stage is not None), stage is None, stage


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("name", CHAPTER)
def test_a_port_of_the_chapter_gets_its_verdict(name, verdict):
    assert verdict(REPO / f"book/2-migration/ports/{name}.py") == expected(CHAPTER[name])


@pytest.mark.parametrize("name", CHAPTER)
def test_recorded_reports_say_the_same(name):
    report = Report.load(REPO / f"labs/imagenet/parity/ports/{name}.json")
    assert report.first_divergence["stage"] == CHAPTER[name] and report.about["pair"] == f"{name}.py"


@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("number, stage", list(enumerate(TASK)))
def test_a_port_of_the_task_gets_its_verdict(number, stage, verdict, tmp_path):
    given, _, probe = lab_code()
    (tmp_path / "pair.py").write_text(PAIR.format(seed=number, number=number, task=given + probe))
    assert verdict(tmp_path / "pair.py") == expected(stage)


def test_the_solution_gives_the_same_verdicts():
    """In PyNative mode: code without a file cannot be compiled."""
    names = {"emit": lambda *given: None, "seed": 1, "__name__": "__main__"}
    with in_mode(ms.PYNATIVE_MODE):
        exec("\n".join(lab_code()), names)
        for seed in range(20):
            step, ports = names["_ports"](np.random.default_rng(seed))
            assert [names["review"](port, step) for port in ports] == TASK, seed
