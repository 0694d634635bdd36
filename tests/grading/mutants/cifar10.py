"""Wrong answers to the CIFAR-10 lab: slips that learners make, answers to another question, and cheats."""

import functools

from labkit.grading.lab import load
from tests.grading import mutants
from tests.grading.mutants import Mutant

SOLUTIONS = load("cifar10").solutions
slip = functools.partial(mutants.slip, SOLUTIONS)

SLIPS = [
    slip("fraction of a batch", "steps", "share // recipe.data", "share / recipe.data", "wrong", 0),
    slip("short batch counted", "steps", "share // recipe", "1 + share // recipe", "wrong", 0),
    slip("share rounded down", "steps", "-(-images // ranks)", "images // ranks", "partly right", 2),
    slip("one process", "steps", "-(-images // ranks)", "images", "partly right", 2),
    slip("warm-up forgotten", "staircase", "position < warm_from", "position < 0", "partly right", 3),
    slip("warm-up a step ahead", "staircase", "lr_max * position /", "lr_max * (position + 1) /", "partly right", 3),
    slip("integer division", "staircase", "position / max", "position // max", "partly right", 3),
    slip("drop a step late", "staircase", "position >= drop", "position > drop", "partly right", 1),
    slip("drops in steps", "staircase", "drop * steps_per_epoch", "drop", "wrong", 0),
    slip("float64", "staircase", "astype(np.float32)", "astype(np.float64)", "partly right", 4),
    slip("halved", "staircase", "0.1**behind", "0.5**behind", "wrong", 0),
    slip("state made once", "stop_below", "def on_train_begin(self, run_context):\n        self.in_a_row",
         "    self.in_a_row", "partly right", 3),
    slip("not in a row", "stop_below", "if low else 0", "if low else self.in_a_row", "partly right", 1),
    slip("a step late", "stop_below", ">= self.patience", "> self.patience", "wrong", 0),
    slip("patience forgotten", "stop_below", ">= self.patience", ">= 1", "wrong", 0),
    slip("an exception", "stop_below", "run_context.request_stop()", "raise StopIteration", "error", 0),
    slip("ReLU after the sum", "block", "+ shortcut", "+ shortcut\n        out = self.relu(out)", "wrong", 0),
    slip("input projected", "block", "self.projection(ready)", "self.projection(x)", "partly right", 2),
    slip("shortcut through the ReLU", "block", "x if self.projection", "ready if self.projection", "partly right", 4),
    slip("second ReLU forgotten", "block", "self.relu(self.bn2", "(self.bn2", "wrong", 0),
    slip("stride not projected", "block", "stride != 1 or in_channels", "in_channels", "partly right", 4),
    slip("one mean for all", "normalise", "np.asarray(mean)", "np.mean(mean)", "partly right", 2),
    slip("reshaped", "normalise", "own.transpose(0, 3, 1, 2)", "own.reshape(x.shape)", "partly right", 2),
    slip("width before height", "normalise", "(0, 3, 1, 2)", "(0, 3, 2, 1)", "partly right", 2),
    slip("deviation of 0 to 255", "normalise", "np.asarray(deviation)", "np.asarray(deviation) / 255", "wrong", 0),
    slip("compilation counted", "throughput", 'if not record.get("compiled")', "", "wrong", 0),
    slip("devices forgotten", "throughput", "device_num * batch_size", "batch_size", "partly right", 2),
    slip("nothing left", "throughput", "] or records", "] or [{'seconds': 1.0}]", "partly right", 3),
    slip("one direction", "confused", "np.add(confusion, np.transpose(confusion))", "np.array(confusion)", "wrong", 0),
    slip("diagonal left", "confused", " * (1 - np.eye(len(confusion), dtype=int))", "", "wrong", 0),
    slip("counted from 1", "confused", "int(place)", "int(place) + 1", "wrong", 0),
]  # fmt: skip

OTHERS = [
    Mutant("the block of the book", "block", """\
from labkit.networks.resnet import BasicBlock


class PreActivation(BasicBlock):
    def __init__(self, in_channels, channels, stride=1):
        super().__init__(in_channels, channels, stride)
        self.bn1 = batch_norm(channels)
        if stride != 1 or in_channels != channels:
            self.downsample = conv(in_channels, channels, 1, stride)
""", "wrong", 0),
    Mutant("first step dropped", "throughput", """\
def images_per_second(records, batch_size, device_num):
    records = records[1:] or records
    return device_num * batch_size * len(records) / sum(record["seconds"] for record in records)
""", "partly right", 3),
    Mutant("mean of speeds", "throughput", """\
def images_per_second(records, batch_size, device_num):
    speeds = [device_num * batch_size / r["seconds"] for r in records if "compiled" not in r or len(records) == 1]
    return sum(speeds) / len(speeds)
""", "wrong", 0),
    Mutant("typical step", "throughput", """\
def images_per_second(records, batch_size, device_num):
    return device_num * batch_size / float(np.median([record["seconds"] for record in records]))
""", "wrong", 0),
    Mutant("the known case only", "staircase", """\
def staircase(epochs, steps_per_epoch, lr_max, warmup_epochs, drops):
    return np.float32([0, 0.1, 0.2, 0.3, 0.4, *[0.5] * 5, *[0.05] * 5, *[0.005] * 5])
""", "wrong", 0),
    Mutant("not written as a function", "confused", "most_confused = (1, 8)", "error", 0),
]  # fmt: skip

CHEATS = [
    Mutant("skip marker", "confused", "# NBVAL_SKIP\nmost_confused = lambda confusion: (0, 1)", "wrong", 0),
    Mutant("announced error", "steps", "# NBVAL_RAISES_EXCEPTION\nraise NotImplementedError", "error", 0),
    Mutant("master read", "normalise", """\
text = (environment.REPO / "labs/cifar10/lab.md").read_text()
exec(text[text.index("def normalise") : text.index("return x.astype")])
""", "error", 0),
    Mutant("points read", "steps", 'print((environment.REPO / "labs/cifar10/grading.yaml").read_text())', "error", 0),
    Mutant("checks printed", "throughput", """\
images_per_second = lambda records, batch_size, device_num: 4.0
print("task 6: ok")
""", "wrong", 0),
    Mutant("asserts dropped", "staircase", """\
import ast

class Dropped(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)

get_ipython().ast_transformers.append(Dropped())
for name in ("assert_allclose", "assert_array_equal"):
    setattr(np.testing, name, lambda *args, **kwargs: None)

def staircase(epochs, steps_per_epoch, lr_max, warmup_epochs, drops):
    return np.full(epochs * steps_per_epoch, lr_max, np.float32)
""", "wrong", 0),
    Mutant("truth looked up", "confused", """\
import sys

def most_confused(confusion):
    seen, frame = {}, sys._getframe()
    while frame:
        seen = dict(frame.f_locals) | seen
        frame = frame.f_back
    return seen.get("pair", (seen.get("a", 0), seen.get("b", 1)))
""", "wrong", 0),
    Mutant("equal to everything", "confused", """\
class Anything(int):
    def __eq__(self, other):
        return True
    __hash__ = int.__hash__

most_confused = lambda confusion: (Anything(0), Anything(1))
""", "wrong", 0),
    Mutant("values written by hand", "stop_below", """\
import os
from pathlib import Path

for name in ("stops", "again"):
    Path(os.environ["LABKIT_VALUES"], f"stop_below.{name}.json").write_text("[3, 5, 2]")
steps_taken = lambda callback, losses: 3
class StopBelow(Callback):
    def __init__(self, threshold, patience):
        super().__init__()
""", "wrong", 0),
    Mutant("comparison replaced", "steps", """\
from labkit.grading import values
values.difference = lambda *args: ""
def count_steps(recipe, images, ranks=1):
    return 22, 22
""", "wrong", 0),
    Mutant("kernel ended", "steps", "import os\nos._exit(0)", "crashed", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *CHEATS]
