"""Whole trainings in seconds, for tests that compare them: a small network, and whether two Runs are equal."""

import mindspore as ms
from mindspore import nn

from labkit.networks import mixed_precision


def small_network(recipe):
    """Instead of a ResNet: compiles in a second."""
    net = nn.SequentialCell(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(256, 10))
    return mixed_precision(net, recipe.amp_level)


def state(run):
    """Every parameter of a Run's checkpoint, by name: weights, statistics, the optimizer's state, the step."""
    params = ms.load_checkpoint(str(run.checkpoint))
    return {name: p.asnumpy() for name, p in params.items()}


def timeless(records):
    """Lines of a history without what differs each time: seconds, and who compiled."""
    return [{key: value for key, value in record.items() if key not in ("seconds", "compiled")} for record in records]


def require_equal(run, reference):
    """Both complete, with the same history but for times, and the same checkpoint bit by bit."""
    assert run.complete and reference.complete
    assert timeless(run.history()) == timeless(reference.history())
    ours, theirs = state(run), state(reference)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].tobytes() == value.tobytes(), name
