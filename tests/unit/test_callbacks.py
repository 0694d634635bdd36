"""labkit.callbacks: driven by MindSpore's own training loop, and by its protocol where the CPU has no sink mode."""

import json
import re
import time

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Accuracy, Callback, Model, RunContext
from mindspore.train.callback import _InternalCallbackParam

from labkit import callbacks, training
from labkit import recipe as recipes
from labkit import run as runs
from labkit.callbacks import DivergedError, EvaluateCallback, HistoryCallback, PerformanceCallback, StartAt
from labkit.runtime import LabkitError

# The seed's fields, in its words and order.
LINE = re.compile(
    r"epoch (?P<epoch>\d+) cost time = (?P<seconds>[\d.]+) s, train step num: (?P<steps>\d+), "
    r"one step time: (?P<ms>[\d.]+) ms, train samples per second of cluster: (?P<rate>[\d.]+)(?P<note>.*)"
)
STEPS, BATCH, PAUSE = 5, 4, 0.04


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


class SlowSteps(Callback):
    """Makes each step last PAUSE longer, and the end of an epoch much longer."""

    def on_train_step_begin(self, run_context):
        time.sleep(PAUSE)

    def on_train_epoch_end(self, run_context):
        time.sleep(0.5)


class Clock(Callback):
    """Independent times: begin of each epoch and end of each step."""

    def __init__(self):
        super().__init__()
        self.begins, self.ends = [], []

    def on_train_epoch_begin(self, run_context):
        self.begins.append(time.monotonic())
        self.ends.append([])

    def on_train_step_end(self, run_context):
        self.ends[-1].append(time.monotonic())


def images(steps=STEPS):
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(steps * BATCH, 6)).astype(np.float32), rng.integers(0, 3, steps * BATCH).astype(np.int32)
    return ds.NumpySlicesDataset(columns, ["image", "label"], shuffle=False).batch(BATCH)


def model():
    net = nn.Dense(6, 3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(net, loss, nn.SGD(net.trainable_params(), 0.1), metrics={"accuracy": Accuracy()})


# -- Performance ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Three epochs of a real training with slow steps: lines, clock, history."""
    lines, clock, file = [], Clock(), tmp_path_factory.mktemp("run") / "history.jsonl"
    todo = [
        SlowSteps(),  # first, so that its pause at an epoch's end would be counted if anything there were
        PerformanceCallback(BATCH, report=lines.append),
        HistoryCallback(file, np.linspace(0.3, 0.1, 3 * STEPS, dtype=np.float32)),
        clock,
    ]
    model().train(3, images(), todo, dataset_sink_mode=False)
    return [fields(line) for line in lines], clock, [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_an_epoch_with_the_seeds_fields(timed):
    lines, _, _ = timed
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["steps"] for line in lines] == [STEPS] * 3


def test_epoch_time_against_an_independent_clock(timed):
    """From the epoch's begin to its last step's end: not less than the pauses, not the pause after the epoch."""
    lines, clock, _ = timed
    for line, begin, ends in zip(lines, clock.begins, clock.ends, strict=True):
        assert line["seconds"] >= STEPS * PAUSE
        assert line["seconds"] == pytest.approx(ends[-1] - begin, abs=0.06)


def test_step_time_and_rate_follow_from_it(timed):
    lines, _, _ = timed
    for line in lines[1:]:
        assert line["ms"] == pytest.approx(1000 * line["seconds"] / STEPS, rel=0.01)
        assert line["ms"] >= 1000 * PAUSE
        assert line["rate"] == pytest.approx(BATCH * 1000 / line["ms"], rel=0.01)
        assert line["note"] == ""


def test_compile_step_is_told_apart(timed):
    """The first line's step time is that of the steps after the first, whose own time is said."""
    lines, clock, _ = timed
    first, ends = lines[0], clock.ends[0]
    told = float(re.fullmatch(r", first step \(compile\): ([\d.]+) s", first["note"])[1])
    assert told == pytest.approx(ends[0] - clock.begins[0], abs=0.07)
    assert first["ms"] == pytest.approx(1000 * (ends[-1] - ends[0]) / (STEPS - 1), abs=20)
    assert first["ms"] >= 1000 * PAUSE  # divided by the steps that were counted
    assert first["rate"] == pytest.approx(BATCH * 1000 / first["ms"], rel=0.01)


def test_several_devices_count_in_the_rate():
    rates = []
    for devices in (1, 8):
        lines = []
        callback = PerformanceCallback(32, devices, lines.append)
        sink_mode(callback, [0.1, 0.1], steps=10)
        line = fields(lines[1])
        assert line["rate"] == pytest.approx(devices * 32 * 1000 / line["ms"], rel=0.01)
        rates.append(line["rate"])
    assert rates[1] > 4 * rates[0]


def test_epoch_of_one_step():
    """The compile step is all there is: it counts, rather than a division by zero."""
    lines = []
    model().train(2, images(1), [PerformanceCallback(BATCH, report=lines.append)], dataset_sink_mode=False)
    first, second = map(fields, lines)
    assert first["steps"] == second["steps"] == 1
    assert first["ms"] == pytest.approx(1000 * first["seconds"], abs=1)
    assert "compile" in first["note"] and second["note"] == ""


def sink_mode(callback, seconds, steps, loss=1.0):
    """Call as `Model._train_dataset_sink_process` does: one step end an epoch, cur_step_num ahead by batch_num.

    MindSpore feeds a CPU without sinking, so its own loop cannot show this here.
    """
    state = _InternalCallbackParam()
    state.update(cur_step_num=0, batch_num=steps, dataset_sink_mode=True)
    context = RunContext(state)
    callback.on_train_begin(context)
    for epoch, pause in enumerate(seconds, start=1):
        state.cur_epoch_num = epoch
        callback.on_train_epoch_begin(context)
        state.cur_step_num += steps
        callback.on_train_step_begin(context)
        time.sleep(pause)
        state.net_outputs = ms.Tensor(loss, ms.float32)
        callback.on_train_step_end(context)
        callback.on_train_epoch_end(context)
    callback.on_train_end(context)


def test_sink_mode_divides_by_the_epochs_steps():
    """10 steps in 0.2 s are 20 ms each; the first epoch says what it holds, the second what compiling took."""
    lines = []
    sink_mode(PerformanceCallback(32, report=lines.append), [0.5, 0.2, 0.2], steps=10)
    first, second, third = map(fields, lines)
    assert [line["steps"] for line in (first, second, third)] == [10] * 3
    assert first["note"] == ", compile time included"
    assert float(re.fullmatch(r", compile time was about ([\d.]+) s", second["note"])[1]) == pytest.approx(
        0.3, abs=0.15
    )
    assert third["note"] == ""
    assert 0.2 <= third["seconds"] < 0.35
    assert third["ms"] == pytest.approx(100 * third["seconds"], rel=0.01)
    assert third["rate"] == pytest.approx(32 * 10 / third["seconds"], rel=0.01)


def test_asking_for_sink_mode_on_a_cpu_gives_true_numbers_too():
    lines = []
    model().train(2, images(), [SlowSteps(), PerformanceCallback(BATCH, report=lines.append)], dataset_sink_mode=True)
    second = fields(lines[1])
    assert second["steps"] == STEPS
    assert second["seconds"] >= STEPS * PAUSE  # a pause a step, as MindSpore does not sink here
    assert second["ms"] == pytest.approx(1000 * second["seconds"] / STEPS, rel=0.01)


# -- History --------------------------------------------------------------------------------------


def test_history_has_a_line_a_step(timed):
    _, clock, history = timed
    assert [list(line) for line in history] == [["step", "epoch", "loss", "lr", "seconds"]] * (3 * STEPS)
    assert [line["step"] for line in history] == list(range(1, 3 * STEPS + 1))
    assert [line["epoch"] for line in history] == [1] * STEPS + [2] * STEPS + [3] * STEPS
    np.testing.assert_allclose([line["lr"] for line in history], np.linspace(0.3, 0.1, 3 * STEPS), rtol=1e-6)
    steady = np.diff(clock.ends[1])
    np.testing.assert_allclose([line["seconds"] for line in history][STEPS + 1 : 2 * STEPS], steady, atol=0.03)


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


def test_history_in_sink_mode_has_a_line_an_epoch(tmp_path):
    file = tmp_path / "history.jsonl"
    sink_mode(HistoryCallback(file, np.arange(20) / 100), [0.2, 0.1], steps=10, loss=0.25)
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert (first["step"], first["epoch"], first["loss"], first["lr"]) == (10, 1, 0.25, 0.09)
    assert (second["step"], second["epoch"], second["lr"]) == (20, 2, 0.19)
    assert 0.01 <= second["seconds"] < 0.03  # of one step


def test_started_at_a_step_counts_on_from_there(tmp_path):
    file, lines = tmp_path / "history.jsonl", []
    todo = [
        StartAt(STEPS),
        PerformanceCallback(BATCH, report=lines.append),
        HistoryCallback(file, np.arange(2 * STEPS)),
    ]
    model().train(2, images(), todo, dataset_sink_mode=False, initial_epoch=1)
    history = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["step"], line["epoch"], line["lr"]) for line in history] == [
        (step, 2, step - 1.0) for step in range(STEPS + 1, 2 * STEPS + 1)
    ]
    assert (fields(lines[0])["epoch"], fields(lines[0])["steps"]) == (2, STEPS)


def test_evaluation_after_every_epoch(tmp_path):
    file, lines, work = tmp_path / "history.jsonl", [], model()
    evaluation = EvaluateCallback(work, images(), file, lines.append)
    work.train(2, images(), [evaluation], dataset_sink_mode=False)
    logits = work.predict(ms.Tensor(np.concatenate([x for x, _ in columns()]))).asnumpy()
    right = (logits.argmax(axis=1) == np.concatenate([labels for _, labels in columns()])).mean()
    history = [json.loads(line) for line in file.read_text().splitlines()]
    assert [list(line) for line in history] == [["epoch", "accuracy"]] * 2
    assert [line["epoch"] for line in history] == [1, 2]
    assert history[1]["accuracy"] == evaluation.accuracy == pytest.approx(right)
    assert lines[1] == f"epoch 2 accuracy = {right:.4f}"


def columns():
    return list(images().create_tuple_iterator(num_epochs=1, output_numpy=True))


# -- Divergence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_ends_the_training(tmp_path, loss):
    file = tmp_path / "history.jsonl"
    file.write_text("before\n")
    with pytest.raises(DivergedError, match=r"step 10 \(epoch 1, learning rate 0\.5\).*schedule\.lr_max") as caught:
        sink_mode(HistoryCallback(file, np.full(10, 0.5)), [0.0], steps=10, loss=loss)
    assert len(str(caught.value).splitlines()) == 1
    assert file.read_text() == "before\n"
    assert issubclass(DivergedError, LabkitError)


def test_a_training_that_diverges_keeps_what_it_had(tmp_path, repo_root):
    """A real one, by a learning rate of 1e30: the checkpoint before it loads, and there is no summary."""
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    for number, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        records = rng.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] = (np.arange(8) + number) % 10
        (data / f"{name}.bin").write_bytes(records.tobytes())
    settings = (
        f"data.folder={data}", "data.batch_size=8", "epochs=2", "checkpoint_steps=1",
        "schedule.lr_init=1e-3", "schedule.lr_max=1e30", "schedule.warmup_epochs=1",
    )  # fmt: skip
    recipe = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample", settings)
    run = runs.create(tmp_path / "run", recipe)
    with pytest.raises(DivergedError, match="step"):
        training.train(run, progress=False)
    assert not run.complete
    steps = run.steps()
    assert 1 <= len(steps) < 10 and np.isfinite([record["loss"] for record in steps]).all()
    net = training.create_network(recipe)
    assert callbacks.load_checkpoint(run, net)["step"] == len(steps) == steps[-1]["step"]
    assert [path.name for path in run.checkpoint.parent.iterdir()] == ["latest.ckpt"]
