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

from labkit.training import callbacks
from labkit.training.callbacks import DivergedError, EvaluateCallback, HistoryCallback, PerformanceCallback

# The seed's fields, in its words and order.
LINE = re.compile(
    r"epoch (?P<epoch>\d+) cost time = (?P<seconds>[\d.]+) s, train step num: (?P<steps>\d+), "
    r"one step time: (?P<ms>[\d.]+) ms, train samples per second of cluster: (?P<rate>[\d.]+)(?P<note>.*)"
)
STEPS, BATCH = 5, 4
COMPILE, STEP, WAIT, BETWEEN = 8.0, 0.25, 0.0625, 100.0  # seconds: first step, others, data, end of an epoch


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    yield
    ms.set_context(mode=ms.GRAPH_MODE)


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


def model():
    net = nn.Dense(6, 3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(net, loss, nn.SGD(net.trainable_params(), 0.1))


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
    """Of a softmax regression computed in numpy beside it, step by step."""
    file, work = tmp_path / "history.jsonl", model()
    weight, bias = (p.asnumpy().astype(np.float64).copy() for p in work.train_network.trainable_params()[:2])
    losses = []
    for x, labels in images().create_tuple_iterator(num_epochs=1, output_numpy=True):
        logits = x @ weight.T + bias
        share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses.append(-np.log(share[np.arange(BATCH), labels]).mean())
        error = (share - np.eye(3)[labels]) / BATCH
        weight, bias = weight - 0.1 * error.T @ x, bias - 0.1 * error.sum(axis=0)
    work.train(1, images(), [HistoryCallback(file, np.full(STEPS, 0.1))], dataset_sink_mode=False)
    written = [json.loads(line)["loss"] for line in file.read_text().splitlines()]
    np.testing.assert_allclose(written, losses, rtol=1e-4)


def test_evaluation_after_every_epoch(tmp_path):
    file, lines, work = tmp_path / "history.jsonl", [], model()
    evaluation = EvaluateCallback(work.predict_network, images(), file, lines.append)
    work.train(2, images(), [evaluation], dataset_sink_mode=False)
    columns = list(images().create_tuple_iterator(num_epochs=1, output_numpy=True))
    logits = work.predict(ms.Tensor(np.concatenate([x for x, _ in columns]))).asnumpy()
    right = (logits.argmax(axis=1) == np.concatenate([labels for _, labels in columns])).mean()
    history = [json.loads(line) for line in file.read_text().splitlines()]
    assert [list(line) for line in history] == [["epoch", "accuracy"]] * 2
    assert [line["epoch"] for line in history] == [1, 2]
    assert history[1]["accuracy"] == evaluation.accuracy == pytest.approx(right)
    assert lines[1] == f"epoch 2 accuracy = {right:.4f}"


def parts(tmp_path, work, seconds=0.0):
    """The five callbacks of a training, in their order, the history without a file's lines; checkpoints take time."""
    run = SimpleNamespace(history_file=tmp_path / "history.jsonl", checkpoint=tmp_path / "checkpoints" / "latest.ckpt")
    run.checkpoint.parent.mkdir()
    history = HistoryCallback(run.history_file, np.zeros(STEPS))
    evaluation = EvaluateCallback(work.predict_network, images(), run.history_file, lambda line: None, every_steps=2)
    progress = callbacks.ProgressCallback(BATCH, 1, STEPS, evaluation, bar=False)
    checkpoint = callbacks.CheckpointCallback(run, every_steps=2)
    return [history, progress, checkpoint, evaluation, callbacks.StopCallback(STEPS, [history, progress])]


def test_evaluations_and_checkpoints_within_an_epoch(tmp_path, monkeypatch, capsys):
    """Their time is left out of the steps' and of the epoch's; after an epoch each happens once."""
    work, saved = model(), []
    history, _, _, evaluation, _ = todo = parts(tmp_path, work)
    evaluate, save = evaluation.evaluate, callbacks.save_checkpoint
    monkeypatch.setattr(evaluation, "evaluate", lambda epoch: (time.sleep(1), evaluate(epoch)))
    monkeypatch.setattr(
        callbacks, "save_checkpoint", lambda run, net, step: (time.sleep(1), saved.append(step), save(run, net, step))
    )
    work.train(1, images(), todo, dataset_sink_mode=False)
    lines = [json.loads(line) for line in history.file.read_text().splitlines()]
    steps = [line["seconds"] for line in lines if "step" in line]
    assert [line["epoch"] for line in lines if "accuracy" in line] == [2 / STEPS, 4 / STEPS, 1]
    assert saved == [2, 4, STEPS]
    assert len(steps) == STEPS and max(steps[1:]) < 0.9
    assert fields(capsys.readouterr().out.splitlines()[-1])["seconds"] == pytest.approx(sum(steps), abs=0.5)


# -- Divergence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(tmp_path, clock, loss):
    file = tmp_path / "history.jsonl"
    file.write_text("before\n")
    with pytest.raises(DivergedError, match=r"step 10 \(epoch 1, learning rate 0\.5\).*schedule\.lr_max") as caught:
        sink_mode(clock, HistoryCallback(file, np.full(10, 0.5)), [0.5], steps=10, loss=loss)
    assert len(str(caught.value).splitlines()) == 1
    assert file.read_text() == "before\n"
