"""Pairs of networks from files: names found in the networks themselves, weights both ways, the command's verdict."""

import json
from pathlib import Path
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from selection import torch_or_none

from labkit.parity import pytorch
from labkit.parity.pair import compare_pair, create_networks, create_sides, read_pair
from labkit.parity.weights import convert, read_state, torch_state, write_state
from labkit.system import device
from labkit.system.errors import LabkitError

pytestmark = pytest.mark.usefixtures("pytorch")
torch = torch_or_none()
tnn = torch and torch.nn
random = np.random.default_rng(0)


def padded(channels, out_channels, size, stride=1, group=1, conv=nn.Conv2d, **options):
    return conv(channels, out_channels, size, stride, pad_mode="pad", padding=size // 2, group=group, **options)


class InvertedResidual(nn.Cell):
    def __init__(self, channels, out_channels, stride, factor):
        super().__init__()
        inner, self.is_residual = channels * factor, stride == 1 and channels == out_channels
        self.expand = mobile(channels, inner, 1) if factor > 1 else nn.SequentialCell()
        self.depthwise = mobile(inner, inner, 3, stride, inner)
        self.project = nn.SequentialCell(padded(inner, out_channels, 1), nn.BatchNorm2d(out_channels))

    def construct(self, x):
        out = self.project(self.depthwise(self.expand(x)))
        return x + out if self.is_residual else out


def mobile(channels, out_channels, size, stride=1, group=1):
    conv = padded(channels, out_channels, size, stride, group)
    return nn.SequentialCell(conv, nn.BatchNorm2d(out_channels), nn.ReLU6())


class MobileNetV2(nn.Cell):
    def __init__(self):
        super().__init__()
        self.head = nn.Dense(1280, 10)
        channels, blocks = 32, []
        for factor, wide, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                            (6, 160, 3, 2), (6, 320, 1, 1)]:  # fmt: skip
            for number in range(count):
                blocks.append(InvertedResidual(channels, wide, 1 if number else stride, factor))
                channels = wide
        self.stem, self.blocks, self.last = mobile(3, 32, 3, 2), nn.SequentialCell(blocks), mobile(320, 1280, 1)

    def construct(self, x):
        return self.head(self.last(self.blocks(self.stem(x))).mean((2, 3)))


class UNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter, self.norm = padded(1, 4, 3, conv=nn.Conv3d), nn.BatchNorm3d(4, momentum=0.9)
        self.down = nn.Conv3d(4, 8, 2, 2, pad_mode="valid", has_bias=True)
        self.middle, self.slope = nn.GroupNorm(2, 8), nn.PReLU(8)
        self.up = nn.Conv3dTranspose(8, 4, 2, 2, pad_mode="valid", has_bias=True)
        self.out, self.relu = nn.Conv3d(8, 3, 1, has_bias=True), nn.ReLU()

    def construct(self, x):
        left = self.relu(self.norm(self.enter(x)))
        low = self.slope(self.middle(self.down(left).reshape(2, 8, -1, 4)).reshape(2, 8, 4, 4, 4))
        return self.out(ops.concat((left, self.up(low)), 1))


class TorchUNet(tnn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.enc = tnn.Sequential(tnn.Conv3d(1, 4, 3, padding=1, bias=False), tnn.BatchNorm3d(4), tnn.ReLU())
        self.pool, self.norm, self.act = tnn.Conv3d(4, 8, 2, 2), tnn.GroupNorm(2, 8), tnn.PReLU(8)
        self.dec, self.head = tnn.ConvTranspose3d(8, 4, 2, 2), tnn.Conv3d(8, 3, 1)

    def forward(self, x):
        left = self.enc(x)
        return self.head(torch.cat((left, self.dec(self.act(self.norm(self.pool(left))))), 1))


class Text(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table, self.scale = nn.Embedding(50, 8), nn.LayerNorm((8,), epsilon=1e-5)
        self.one, self.two = (padded(8, 8, 3, conv=nn.Conv1d, has_bias=True) for _ in range(2))
        self.norm, self.drop, self.answer = nn.BatchNorm1d(8), nn.Dropout(p=0.5), nn.Dense(8, 4)

    def construct(self, tokens):
        x = self.scale(self.table(tokens)).transpose((0, 2, 1))
        x = self.two(ops.relu(self.one(x))).mean(2)
        return self.answer(self.drop(self.norm(x)))


class TorchText(tnn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.embed, self.ln = tnn.Embedding(50, 8), tnn.LayerNorm(8)
        self.convs = tnn.ModuleList(tnn.Conv1d(8, 8, 3, padding=1) for _ in range(2))
        self.head = tnn.Sequential(tnn.BatchNorm1d(8), tnn.Dropout(0.5), tnn.Linear(8, 4))

    def forward(self, tokens):
        x = self.ln(self.embed(tokens)).transpose(1, 2)
        return self.head(self.convs[1](torch.relu(self.convs[0](x))).mean(2))


def mobilenet():
    """torchvision's, its residual branches small, as in `labkit.parity.resnets`: rounding stays small too."""
    net = pytorch.torchvision().models.mobilenet_v2(num_classes=10)
    for block in net.features:
        if getattr(block, "use_res_connect", False):
            tnn.init.constant_(block.conv[-1].weight, 0.1)
    return net


PAIRS = {
    "MobileNetV2": SimpleNamespace(reference=mobilenet, candidate=MobileNetV2, SHAPE=(8, 3, 64, 64)),
    "U-Net": SimpleNamespace(reference=TorchUNet, candidate=UNet, SHAPE=(2, 1, 8, 8, 8)),
    "text": SimpleNamespace(
        reference=TorchText, candidate=Text, batch=lambda: (random.integers(0, 50, (6, 7)), random.integers(0, 4, 6))
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_networks_agree_in_a_step(name):
    report = compare_pair(PAIRS[name])
    assert report.ok, report.table()
    names = {name.rpartition(".")[0] for name, _ in PAIRS[name].reference().named_parameters()}
    assert {layer.name for layer in report.forward} >= names


@pytest.mark.parametrize("name", PAIRS)
def test_weights_both_ways_and_evaluation(name, tmp_path):
    """Statistics and scales not at their first values; from PyTorch to MindSpore and back through files."""
    theirs, ours, _ = create_sides(PAIRS[name])
    state = torch_state(theirs.net)
    state |= {key: random.uniform(0.5, 1.5, v.shape).astype(v.dtype) for key, v in state.items() if v.ndim == 1}
    theirs.net.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    write_state(tmp_path / "a.pth", state)
    _, candidate, names, *_ = create_networks(PAIRS[name])
    convert(tmp_path / "a.pth", tmp_path / "b.ckpt", candidate, names)
    _, candidate, names, *_ = create_networks(PAIRS[name])
    convert(tmp_path / "b.ckpt", tmp_path / "c.pth", candidate, names)
    back = read_state(tmp_path / "c.pth")
    assert {*back} == {*state} and all((back[key] == value).all() for key, value in state.items())
    with torch.no_grad(), device.in_mode(ms.PYNATIVE_MODE):
        expected = theirs.net.eval()(torch.from_numpy(theirs.images)).numpy()
        found = candidate.set_train(False)(ms.Tensor(theirs.images)).asnumpy()
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def keep(net):
    """No change."""


class Small(nn.Cell):
    def __init__(self, change, order):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        for name in order:
            setattr(self, name, nn.Dense(8, 8))
        self.norm, self.last = nn.BatchNorm1d(8), nn.Dense(8, 9)
        change(self)

    def construct(self, x):
        return self.last(self.norm(self.second(self.first(self.table(x).mean(1)))))


class TorchSmall(tnn.Module if torch else object):
    def __init__(self, change):
        super().__init__()
        self.words, self.norm, self.head = tnn.Embedding(9, 8), tnn.BatchNorm1d(8), tnn.Linear(8, 9)
        self.a, self.b = tnn.Linear(8, 8), tnn.Linear(8, 8)
        change(self)

    def forward(self, x):
        return self.head(self.norm(self.b(self.a(self.words(x).mean(1)))))


def pair(theirs=keep, ours=keep, order=("first", "second"), word=1, **more):
    batch = np.full((8, 5), word), np.arange(8)
    networks = {"reference": lambda: TorchSmall(theirs), "candidate": lambda: Small(ours, order)}
    return SimpleNamespace(**networks, batch=lambda: batch, **more)


WRONG = {
    "a layer too many": ({"theirs": lambda net: net.add_module("c", tnn.Linear(8, 8))},
                         "second.weight (8, 8), second.bias (8,); missing in MindSpore: a.weight (8, 8), a.bias (8,)"),
    "transposed": ({"ours": lambda net: setattr(net, "last", nn.Dense(9, 8))},
                   "missing in PyTorch: last.weight (8, 9), last.bias (8,); missing in MindSpore: head.weight (9, 8)"),
    "tied in PyTorch": ({"theirs": lambda net: setattr(net.head, "weight", net.words.weight)},
                        "head.weight is the same as words.weight: shared weights are not"),
    "tied in MindSpore": ({"ours": lambda net: setattr(net.last, "weight", net.table.embedding_table)},
                          "last.weight is the same as table.embedding_table"),
    "lazy": ({"theirs": lambda net: setattr(net, "b", tnn.LazyLinear(8))}, "b.weight has no shape yet: call"),
    "frozen in PyTorch": ({"theirs": lambda net: net.a.requires_grad_(False)}, "frozen in PyTorch only: a.bias, a.we"),
    "frozen in MindSpore": ({"ours": lambda net: setattr(net.last.bias, "requires_grad", False)},
                            "frozen in MindSpore only: head.bias"),
    "a buffer": ({"theirs": lambda net: net.register_buffer("steps", torch.zeros(1))},
                 "the weights do not fit Small: missing in MindSpore: steps (1,)"),
    "no statistics": ({"theirs": lambda net: setattr(net, "norm", tnn.BatchNorm1d(8, track_running_stats=False))},
                      "the weights do not fit Small: missing in PyTorch: norm.running_mean (8,), norm.runni"),
    "order": ({"order": ("second", "first")}, "cannot tell which of a, b is which of second, first: define them in"),
    "impossible batch": ({"word": 9}, "TorchSmall stops in layer words: index out of range in self"),
    "error": ({"reference_loss": lambda: 1 / 0}, "ZeroDivisionError: division by zero"),
}  # fmt: skip


@pytest.mark.parametrize("wrong, says", WRONG.values(), ids=WRONG)
def test_what_cannot_be_compared_says_why(wrong, says):
    with pytest.raises(LabkitError) as error:
        compare_pair(pair(**wrong))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_what_neither_side_uses_is_named_and_not_judged():
    unused = pair(lambda net: net.add_module("c", tnn.Linear(8, 3)), lambda net: setattr(net, "c", nn.Dense(8, 3)))
    unused.batch = lambda: (random.integers(0, 9, (8, 5)), np.arange(8))
    report = compare_pair(unused)
    (gradients,) = (stage for stage in report.stages if stage.name == "gradients")
    assert report.ok and {"c.weight", "c.bias"} <= {part.name for part in gradients.tensors if part.by == "rounding"}
    assert "too small to be judged: " in report.table()


def file(folder, old="", new=""):
    """The chapter's pair in a file, with a change."""
    text = (Path(__file__).parents[2] / "book/2-migration/own_pair.py").read_text()
    (folder / "pair.py").write_text(text.replace(old, new))
    return folder / "pair.py"


@pytest.mark.parametrize("old, new, stage, layer", [
    ("", "", None, None),
    ("momentum=0.9", "momentum=0.1", "buffers after the step", None),
    ("self.norm(self.stem(x))", "2 * self.norm(self.stem(x))", "logits", "1"),
])  # fmt: skip
def test_verdict_as_json(invoke, tmp_path, old, new, stage, layer):
    """What a program reads, and nothing else on stdout, even if the file prints."""
    done = invoke("parity", "--pair", file(tmp_path, old, new), "--json", "--steps", 0 if stage else 2)
    report = json.loads(done.stdout)
    assert done.exit_code == (1 if stage else 0) and report["ok"] is (stage is None)
    first = report["first_divergence"]
    assert (first["stage"], first["forward"]) == (stage, layer) and first.keys() == {"stage", "forward", "backward"}
    assert list(report) == ["schema", "ok", "first_divergence", "stages", "forward", "backward", "unmatched", "ties",
                            "losses", "about", "provenance"]  # fmt: skip
    assert report["schema"] == 1 and report["about"]["pair"] == "pair.py"
    part = {"name", "max_abs", "max_rel", "cosine", "tolerance", "ok", "by", "worst", "tensors"}
    assert all({*difference} == part for difference in report["stages"] + report["forward"])


@pytest.mark.parametrize("old, new, says", [
    ("def reference", "def other", "pair.py: AttributeError: module 'pair' has no attribute 'reference'"),
    ("import torch", "import torch, nothing_such", "pair.py, line 3: ModuleNotFoundError: No module named 'nothing"),
    ("(4, 3, 8, 8)", "(4, 1, 8, 8)", "pair.py: RuntimeError: Given groups=1, weight of size"),
    ("Dense(8, 5)", "Dense(8, 6)", "pair.py: the weights do not fit Candidate: missing in PyTorch: end_point.weight ("),
])  # fmt: skip
def test_what_is_not_compared_has_status_2_and_one_line(invoke, tmp_path, old, new, says):
    done = invoke("parity", "--pair", file(tmp_path, old, new), "--json")
    assert done.exit_code == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_command_converts_both_ways(invoke, tmp_path):
    state = torch_state(read_pair(file(tmp_path)).reference())
    write_state(tmp_path / "a.pth", state)
    for source, target in (("a.pth", "b.ckpt"), ("b.ckpt", "c.pth")):
        assert invoke("convert", "--pair", tmp_path / "pair.py", tmp_path / source, tmp_path / target).exit_code == 0
    back = read_state(tmp_path / "c.pth")
    assert {*back} == {*state} and all((back[key] == value).all() for key, value in state.items())
