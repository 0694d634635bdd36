"""Callbacks: driven by MindSpore's own training loop, and by its protocol where the CPU has no sink mode.

The callbacks read a clock that only the tests move, in powers of two, so that every number is exact.
"""

import json
import re
import time
from types import SimpleNamespace

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback, Model, RunContext
from mindspore.train.callback import _InternalCallbackParam
from scipy.special import log_softmax
from small_runs import small_network

from labkit.training import build, callbacks, loop, runs
from labkit.training.callbacks import DivergedError, HistoryCallback, PerformanceCallback

# The seed's fields, in its words and order.
LINE = re.compile(
    r"epoch (?P<epoch>\d+) cost time = (?P<seconds>[\d.]+) s, train step num: (?P<steps>\d+), "
    r"one step time: (?P<ms>[\d.]+) ms, train samples per second of cluster: (?P<rate>[\d.]+)(?P<note>.*)"
)
STEPS, BATCH = 5, 4
COMPILE, STEP, WAIT, BETWEEN = 8.0, 0.25, 0.0625, 100.0  # seconds: first step, others, data, end of an epoch


def fields(line):
    found = LINE.fullmatch(line)
    assert found, line
    return {name: value if name == "note" else float(value) for name, value in found.groupdict().items()}


class Clock(Callback):
    """What the callbacks take for `time`: moves by steps, by the wait for data between them, and between epochs."""

    def __init__(self):
        super().__init__()
        self.now = 1000.0

    def perf_counter(self):
        return self.now

    def on_train_step_begin(self, run_context):
        self.now += COMPILE if run_context.original_args().cur_step_num == 1 else STEP

    def on_train_epoch_end(self, run_context):
        self.now += BETWEEN


class Waiting(Callback):
    """Last in the list: time that passes before the next step begins."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_step_end(self, run_context):
        self.clock.now += WAIT


@pytest.fixture
def clock(monkeypatch):
    """A clock, which the callbacks read in place of the machine's."""
    clock = Clock()
    monkeypatch.setattr(callbacks, "time", clock)
    return clock


def images(steps=STEPS):
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(steps * BATCH, 6)).astype(np.float32), rng.integers(0, 3, steps * BATCH).astype(np.int32)
    return ds.NumpySlicesDataset(columns, ["image", "label"], shuffle=False).batch(BATCH)


def model(rate=0.1):
    net = nn.Dense(6, 3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(net, loss, nn.SGD(net.trainable_params(), rate))


# -- Performance ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Three epochs of a real training under the clock: lines, history."""
    lines, clock, file = [], Clock(), tmp_path_factory.mktemp("run") / "history.jsonl"
    todo = [
        clock,  # first, so that its pause at an epoch's end would be counted if anything there were
        PerformanceCallback(BATCH, report=lines.append),
        HistoryCallback(file, np.linspace(0.3, 0.1, 3 * STEPS, dtype=np.float32)),
        Waiting(clock),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "time", clock)
        model().train(3, images(), todo, dataset_sink_mode=False)
    return [fields(line) for line in lines], [json.loads(line) for line in file.read_text().splitlines()]


def test_epoch_time_is_steps_and_waits(timed):
    """From the epoch's begin to its last step's end: waits between steps count, what follows the epoch does not."""
    lines, _ = timed
    waits = (STEPS - 1) * WAIT
    assert [(line["epoch"], line["steps"]) for line in lines] == [(1, STEPS), (2, STEPS), (3, STEPS)]
    assert [line["seconds"] for line in lines] == [COMPILE + 4 * STEP + waits, *2 * [STEPS * STEP + waits]]
    for line in lines[1:]:
        assert (line["seconds"], line["ms"], line["rate"], line["note"]) == (1.5, 300.0, round(BATCH / 0.3, 1), "")


def test_compile_step_is_told_apart(timed):
    """The first line's step time is that of the steps after the first, whose own time is said."""
    first = timed[0][0]
    assert first["note"] == f", compiled in 1 step: {COMPILE} s"
    assert (first["ms"], first["rate"]) == (1000 * (STEP + WAIT), round(BATCH / (STEP + WAIT), 1))


def test_epoch_of_one_step(clock):
    """The compile step is all there is: it counts, rather than a division by zero."""
    lines = []
    todo = [clock, PerformanceCallback(BATCH, report=lines.append)]
    model().train(2, images(1), todo, dataset_sink_mode=False)
    first, second = map(fields, lines)
    assert (first["steps"], first["seconds"], first["ms"]) == (1, COMPILE, 1000 * COMPILE)
    assert (second["steps"], second["seconds"], second["ms"]) == (1, STEP, 1000 * STEP)
    assert "compile" in first["note"] and second["note"] == ""


@pytest.mark.parametrize("factor_steps, compiling", [((1, 4, 7), (1, 2)), ((7,), (1, 7)), ((), (1,))])
def test_two_graphs_are_compiled(clock, tmp_path, factor_steps, compiling):
    """THOR's: one with factors, in the factor steps, and one without; recognised wherever they come first."""
    lines, file = [], tmp_path / "history.jsonl"
    performance = PerformanceCallback(BATCH, report=lines.append)
    todo = [performance, HistoryCallback(file, np.full(2 * STEPS, 0.1))]
    train_network = SimpleNamespace(refreshed=None, preconditioner=SimpleNamespace(names=["conv"]))
    state = _InternalCallbackParam()
    state.update(cur_step_num=0, batch_num=STEPS, train_network=train_network, net_outputs=ms.Tensor(1.0))
    context = RunContext(state)
    for callback in todo:
        callback.on_train_begin(context)
    for step in range(1, 2 * STEPS + 1):
        state.update(cur_step_num=step, cur_epoch_num=-(-step // STEPS))
        train_network.refreshed = {"trace": [1.0], "inverted": [step == 4]} if step in factor_steps else None
        if step % STEPS == 1:
            for callback in todo:
                callback.on_train_epoch_begin(context)
        clock.now += COMPILE if step in compiling else STEP
        for callback in todo:
            callback.on_train_step_end(context)
        if step % STEPS == 0:
            performance.on_train_epoch_end(context)
    history = [json.loads(line) for line in file.read_text().splitlines()]
    assert tuple(line["step"] for line in history if line.get("compiled")) == compiling
    assert [line for line in history if "factor_step" in line] == [
        {"factor_step": step, "trace": {"conv": 1.0}, "inverted": ["conv"] if step == 4 else []}
        for step in factor_steps
    ]
    for epoch, line in enumerate(map(fields, lines), start=1):
        count = sum(-(-step // STEPS) == epoch for step in compiling)
        told = {0: "", 1: f", compiled in 1 step: {COMPILE} s", 2: f", compiled in 2 steps: {2 * COMPILE} s"}
        assert (line["ms"], line["rate"], line["note"]) == (1000 * STEP, BATCH / STEP, told[count])
        assert line["seconds"] == count * COMPILE + (STEPS - count) * STEP


def sink_mode(clock, callback, seconds, steps, loss=1.0):
    """Call as `Model._train_dataset_sink_process` does, which a CPU does not use: one step end an epoch."""
    state = _InternalCallbackParam()
    state.update(cur_step_num=0, batch_num=steps, dataset_sink_mode=True)
    context = RunContext(state)
    callback.on_train_begin(context)
    for epoch, pause in enumerate(seconds, start=1):
        state.cur_epoch_num = epoch
        callback.on_train_epoch_begin(context)
        state.cur_step_num += steps
        callback.on_train_step_begin(context)
        clock.now += pause
        state.net_outputs = ms.Tensor(loss, ms.float32)
        callback.on_train_step_end(context)
        callback.on_train_epoch_end(context)
        clock.now += BETWEEN
    callback.on_train_end(context)


def test_sink_mode_divides_by_the_epochs_steps(clock):
    """10 steps in 0.5 s are 50 ms each; the first epoch says what it holds. Eight devices do eight times as much."""
    lines = []
    sink_mode(clock, PerformanceCallback(4, 8, report=lines.append), [2.0, 0.5, 0.25], steps=10)
    first, second, third = map(fields, lines)
    assert [line["steps"] for line in (first, second, third)] == [10] * 3
    assert [line["seconds"] for line in (first, second, third)] == [2.0, 0.5, 0.25]
    assert [line["ms"] for line in (first, second, third)] == [200.0, 50.0, 25.0]
    assert [line["rate"] for line in (first, second, third)] == [160.0, 640.0, 1280.0]
    assert [line["note"] for line in (first, second, third)] == [", compile time included", "", ""]


# -- History --------------------------------------------------------------------------------------


def test_history_has_a_line_a_step(timed):
    _, history = timed
    keys = ["step", "epoch", "loss", "lr", "seconds"]
    assert [list(line) for line in history] == [[*keys, "compiled"], *[keys] * (3 * STEPS - 1)]
    assert [line["step"] for line in history] == list(range(1, 3 * STEPS + 1))
    assert [line["epoch"] for line in history] == [1] * STEPS + [2] * STEPS + [3] * STEPS
    np.testing.assert_allclose([line["lr"] for line in history], np.linspace(0.3, 0.1, 3 * STEPS), rtol=1e-6)
    epoch = [STEP, *[STEP + WAIT] * (STEPS - 1)]
    assert [line["seconds"] for line in history] == [COMPILE, *epoch[1:], *epoch, *epoch]


def test_history_has_the_loss_of_the_step(tmp_path):
    """Of a softmax regression that does not learn, computed in numpy."""
    file, work = tmp_path / "history.jsonl", model(rate=0.0)
    weight, bias = (p.asnumpy() for p in work.train_network.trainable_params()[:2])
    work.train(1, images(), [HistoryCallback(file, np.full(STEPS, 0.1))], dataset_sink_mode=False)
    losses = [-log_softmax(x @ weight.T + bias, axis=1)[np.arange(BATCH), labels].mean()
              for x, labels in images().create_tuple_iterator(num_epochs=1, output_numpy=True)]  # fmt: skip
    written = [json.loads(line)["loss"] for line in file.read_text().splitlines()]
    np.testing.assert_allclose(written, losses, rtol=1e-4)


def test_evaluations_and_checkpoints_within_an_epoch(sample_recipe, write_noise, tmp_path, monkeypatch, capsys):
    """Saved first; their time is left out of the steps' and of the epoch's; after an epoch each happens once."""
    write_noise(tmp_path / "data")
    settings = ("epochs=1", "schedule.warmup_epochs=0", "checkpoint_steps=4", "evaluation_steps=4")
    recipe = sample_recipe(f"data.folder={tmp_path / 'data'}", "data.batch_size=20", *settings)
    run = runs.create(tmp_path / "run", recipe)
    monkeypatch.setattr(build, "create_network", small_network)
    done, clock = [], SimpleNamespace(perf_counter=lambda: time.perf_counter() + 1000 * len(done))
    monkeypatch.setattr(callbacks, "time", clock)
    for name in ("save_checkpoint", "predict"):
        work = getattr(callbacks, name)
        monkeypatch.setattr(callbacks, name, lambda *given, name=name, work=work: (done.append(name), work(*given))[1])
    loop.train(run, progress=False)
    assert done == ["save_checkpoint", "predict"] * 3
    assert [record["epoch"] for record in run.evaluations()] == [0.4, 0.8, 1]
    seconds = sum(record["seconds"] for record in run.steps())
    assert len(run.steps()) == 10 and seconds < 1000
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "cost time" in line)
    assert fields(line)["seconds"] == pytest.approx(seconds, abs=0.1)


# -- Divergence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(tmp_path, clock, loss):
    file = tmp_path / "history.jsonl"
    file.write_text("before\n")
    with pytest.raises(DivergedError, match=r"step 10 \(epoch 1, learning rate 0\.5\).*schedule\.lr_max") as caught:
        sink_mode(clock, HistoryCallback(file, np.full(10, 0.5)), [0.5], steps=10, loss=loss)
    assert len(str(caught.value).splitlines()) == 1
    assert file.read_text() == "before\n"
