"""Wrong answers to the CIFAR-10 lab: slips that learners make, answers to another question, and cheats."""

import functools

from grader.lab import load
from tests.grader import mutants
from tests.grader.mutants import Mutant

SOLUTIONS = load("cifar10").solutions
slip = functools.partial(mutants.slip, SOLUTIONS)

SLIPS = [
    slip("fraction of a batch", "steps", "share // recipe.data", "share / recipe.data", "wrong", 0),
    slip("short batch counted", "steps", "share // recipe", "1 + share // recipe", "wrong", 0),
    slip("share rounded down", "steps", "-(-images // ranks)", "images // ranks", "partly right", 2),
    slip("share rounded", "steps", "-(-images // ranks)", "round(images / ranks)", "partly right", 2),
    slip("one image more", "steps", "-(-images // ranks)", "images // ranks + 1", "partly right", 1),
    slip("one process", "steps", "-(-images // ranks)", "images", "partly right", 2),
    slip("warm-up of one epoch", "steps", "round(recipe.schedule.warmup_epochs * per_epoch)", "per_epoch", "wrong", 0),
    slip("two processes by default", "steps", "ranks=1", "ranks=2", "partly right", 1),
    slip("a typed 64", "steps", "share // recipe.data.batch_size", "share // 64", "wrong", 0),
    slip("warm-up forgotten", "staircase", "position < warm_until", "position < 0", "partly right", 3),
    slip("warm-up a step ahead", "staircase", "lr_max * position /", "lr_max * (position + 1) /", "partly right", 3),
    slip("integer division", "staircase", "position / max", "position // max", "partly right", 3),
    slip("drop a step late", "staircase", "position >= moment", "position > moment", "partly right", 1),
    slip("drops in steps", "staircase", "moment * steps_per_epoch", "moment", "wrong", 0),
    slip("drop rounded down", "staircase", "moment * steps_per_epoch", "int(moment * steps_per_epoch)",
         "partly right", 3),
    slip("projection without a stride", "block", "channels, 1, stride)", "channels, 1, 1)", "partly right", 4),
    slip("two drops at most", "staircase", "drops.items()", "list(drops.items())[:2]", "partly right", 3),
    slip("the last drop alone", "staircase", "] *= factor", "] = factor", "partly right", 2),
    slip("warm-up rounded down", "staircase", "warmup_epochs * steps", "int(warmup_epochs) * steps", "partly right", 3),
    slip("float64", "staircase", "astype(np.float32)", "astype(np.float64)", "partly right", 4),
    slip("halved", "staircase", "*= factor", "*= 0.5", "wrong", 0),
    slip("state made once", "stop_below", "def on_train_begin(self, run_context):\n        self.in_a_row",
         "    self.in_a_row", "partly right", 3),
    slip("not in a row", "stop_below", "if low else 0", "if low else self.in_a_row", "partly right", 1),
    slip("a step late", "stop_below", ">= self.patience", "> self.patience", "wrong", 0),
    slip("the mean of the last", "stop_below", "self.in_a_row + 1 if low else 0\n        if self.in_a_row",
         "0\n        loss = float(run_context.original_args().net_outputs.asnumpy())\n"
         "        self.seen = [loss, *getattr(self, 'seen', [])]\n"
         "        if np.mean(self.seen[: self.patience]) < self.threshold and len(self.seen)", "wrong", 0),
    slip("equal is below", "stop_below", "< self.threshold", "<= self.threshold", "partly right", 3),
    slip("count reset each epoch", "stop_below", "def on_train_begin", "def on_train_epoch_begin", "partly right", 3),
    slip("patience for threshold", "stop_below", "self.patience = threshold, patience",
         "self.patience = patience, patience", "wrong", 0),
    slip("patience forgotten", "stop_below", ">= self.patience", ">= 1", "wrong", 0),
    slip("a method's name", "stop_below", "self.threshold, self.patience =",
         "self.end = 0\n        self.threshold, self.patience =", "error", 0),
    slip("an exception", "stop_below", "run_context.request_stop()", "raise StopIteration", "error", 0),
    slip("ReLU after the sum", "block", "+ shortcut", "+ shortcut\n        out = self.relu(out)", "wrong", 0),
    slip("input projected", "block", "self.projection(ready)", "self.projection(x)", "partly right", 2),
    slip("shortcut through the ReLU", "block", "x if self.projection", "ready if self.projection", "partly right", 4),
    slip("second ReLU forgotten", "block", "self.relu(self.bn2", "(self.bn2", "wrong", 0),
    slip("stride not projected", "block", "stride != 1 or in_channels", "in_channels", "partly right", 4),
    slip("only more channels projected", "block", "in_channels != channels", "in_channels < channels",
         "partly right", 4),
    slip("first convolution for the projection", "block", "self.projection(ready)", "self.conv1(ready)",
         "partly right", 2),
    slip("last convolution forgotten", "block", "self.conv2(self.relu(self.bn2(self.conv1(ready))))",
         "self.relu(self.bn2(self.conv1(ready)))", "wrong", 0),
    slip("shortcut alone", "block", "self.conv2(self.relu(self.bn2(self.conv1(ready)))) + shortcut", "shortcut",
         "wrong", 0),
    slip("batch norm after the ReLU", "block", "self.relu(self.bn1(x))", "self.bn1(self.relu(x))", "wrong", 0),
    slip("projection of 3x3", "block", "conv(in_channels, channels, 1, stride)",
         "conv(in_channels, channels, 3, stride)", "partly right", 2),
    slip("batch norm in the projection", "block", "conv(in_channels, channels, 1, stride)",
         "nn.SequentialCell([conv(in_channels, channels, 1, stride), batch_norm(channels)])", "partly right", 2),
    slip("one mean for all", "normalise", "np.asarray(mean)", "np.mean(mean)", "partly right", 2),
    slip("reshaped", "normalise", "own.transpose(0, 3, 1, 2)", "own.reshape(x.shape)", "partly right", 2),
    slip("width before height", "normalise", "(0, 3, 1, 2)", "(0, 3, 2, 1)", "partly right", 2),
    slip("deviation of 0 to 255", "normalise", "np.asarray(deviation)", "np.asarray(deviation) / 255", "wrong", 0),
    slip("compilation counted", "throughput", 'if not record.get("compiled")', "", "partly right", 1),
    slip("median for mean", "throughput", "seconds = sum(record[\"seconds\"] for record in counted)",
         "seconds = len(counted) * float(np.median([record[\"seconds\"] for record in counted]))", "wrong", 0),
    slip("devices forgotten", "throughput", "device_num * batch_size", "batch_size", "partly right", 3),
    slip("nothing left", "throughput", "] or records", "] or [{'seconds': 1.0}]", "partly right", 3),
    slip("one direction", "confused", "confusion + confusion.T", "confusion", "wrong", 0),
    slip("counts, not shares", "confused", " / np.maximum(total + total[:, None], 1)", "", "wrong", 0),
    slip("share of one class", "confused", "total + total[:, None]", "total[:, None]", "wrong", 0),
    slip("images by prediction", "confused", "sum(axis=1)", "sum(axis=0)", "wrong", 0),
    slip("diagonal left", "confused", ", 1), 1)", ", 1), 0)", "wrong", 0),
    slip("the first class in each pair", "confused", "int(i), int(j)", "0, int(j)", "partly right", 1),
    slip("neighbours forgotten", "confused", ", 1), 1)", ", 1), 2)", "partly right", 1),
    slip("no pair with an empty class", "confused", ", 1), 1)", ", 1) * (total * total[:, None] > 0), 1)",
         "partly right", 2),
    slip("nothing by nothing", "confused", "np.maximum(total + total[:, None], 1)", "(total + total[:, None])",
         "partly right", 2),
    slip("counted from 1", "confused", "int(i), int(j)", "int(i) + 1, int(j) + 1", "partly right", 1),
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
""", "partly right", 2),
    Mutant("mean of speeds", "throughput", """\
def images_per_second(records, batch_size, device_num):
    counted = [record for record in records if "compiled" not in record] or records
    return sum(device_num * batch_size / record["seconds"] for record in counted) / len(counted)
""", "wrong", 0),
    Mutant("the known case only", "staircase", """\
def staircase(epochs, steps_per_epoch, lr_max, warmup_epochs, drops):
    return np.float32([0.8, 0.8, 0.4, 0.4, 0.1, 0.1, 0.05, 0.05])
""", "wrong", 0),
    Mutant("not written as a function", "confused", "most_confused = (1, 8)", "error", 0),
]  # fmt: skip

# Not the master's, and right all the same.
RIGHT = [
    Mutant("a block of sequences", "block", """\
class PreActivation(nn.Cell):
    def __init__(self, in_channels, channels, stride=1):
        super().__init__()
        self.bn1 = batch_norm(in_channels)
        self.conv1 = conv(in_channels, channels, 3, stride)
        self.bn2 = batch_norm(channels)
        self.conv2 = conv(channels, channels, 3)
        self.relu = nn.ReLU()
        self.begin = nn.SequentialCell([self.bn1, self.relu])
        self.rest = nn.SequentialCell([self.conv1, self.bn2, self.relu, self.conv2])
        self.projection = None
        if stride != 1 or in_channels != channels:
            self.projection = nn.SequentialCell([conv(in_channels, channels, 1, stride)])

    def construct(self, x):
        ready = self.begin(x)
        return self.rest(ready) + (x if self.projection is None else self.projection(ready))
""", "right", 6),
    Mutant("defined from the end", "block", """\
class PreActivation(nn.Cell):
    def __init__(self, in_channels, channels, stride=1):
        super().__init__()
        self.projection = None
        if stride != 1 or in_channels != channels:
            self.projection = conv(in_channels, channels, 1, stride)
        self.a = nn.SequentialCell([batch_norm(channels), nn.ReLU(), conv(channels, channels, 3)])
        self.b = conv(in_channels, channels, 3, stride)
        self.c = nn.SequentialCell([batch_norm(in_channels), nn.ReLU()])
        self.bn1, self.conv1, self.bn2, self.conv2 = self.c[0], self.b, self.a[0], self.a[2]

    def construct(self, x):
        ready = self.c(x)
        return self.a(self.b(ready)) + (x if self.projection is None else self.projection(ready))
""", "right", 6),
    Mutant("by a loop", "confused", """\
def most_confused(confusion):
    found = []
    for i in range(len(confusion)):
        for j in range(i):
            if images := sum(confusion[i]) + sum(confusion[j]):
                found.append(((confusion[i][j] + confusion[j][i]) / images, i, j))
    share, i, j = max(found)
    return i, j, share
""", "right", 3),
    # Helpers and leftovers with names that the master uses too.
    Mutant("names of probes: schedule", "staircase", """\
rates = lambda count: np.arange(count)
first = second = third = last = factors = arguments = 0


def staircase(epochs, steps_per_epoch, lr_max, warmup_epochs, drops):
    position, warm = rates(epochs * steps_per_epoch), warmup_epochs * steps_per_epoch
    result = np.full(len(position), lr_max, float)
    for drop in sorted(drops):
        result[position >= drop * steps_per_epoch] *= drops[drop]
    result[position < warm] = position[position < warm] * lr_max / max(warm, 1)
    return np.float32(result)
""", "right", 5),
    Mutant("names of probes: callback", "stop_below", """\
def low(loss, threshold):
    return loss < threshold


history = start = stops = patience = high = None


class StopBelow(Callback):
    def __init__(self, threshold, patience):
        super().__init__()
        self.threshold, self.patience = threshold, patience

    def on_train_begin(self, run_context):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))
        last = self.losses[-self.patience :]
        if len(last) == self.patience and all(low(loss, self.threshold) for loss in last):
            run_context.request_stop()
""", "right", 4),
    Mutant("names of probes: throughput", "throughput", """\
def history(records):
    return [record for record in records if "compiled" not in record] or records


def images_per_second(records, batch_size, device_num):
    kept = history(records)
    return len(kept) * batch_size * device_num / sum(record["seconds"] for record in kept)
""", "right", 4),
]  # fmt: skip

# Here a check says ok: it knows the notebook's variables. The lab's last check, which does not, refuses it.
LEFT = [Mutant("a test call left", "steps", SOLUTIONS["steps"] + "\nprint(count_steps(chosen, 1437))", "error", 0)]

CHEATS = [
    Mutant("truth looked up", "confused", mutants.LOOKED_UP + """
def most_confused(confusion):
    seen = looked_up()
    pair = seen.get("pair", (seen.get("a", 0), seen.get("b", 1)))
    share = np.ravel(seen.get("share", seen.get("shares", 0.5)))[-1:]
    return *pair, float(share[0]) if len(share) else 0.5
""", "wrong", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *RIGHT, *LEFT, *CHEATS]
