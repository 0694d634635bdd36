"""labs/cifar10/plain.py fits on a page, and is the same training as `labkit train cifar10 --profile sample`."""

import runpy

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest

from labkit.training import callbacks, loop, runs


@pytest.fixture
def plain(repo_root):
    return repo_root / "labs/cifar10/plain.py"


def test_it_fits_on_a_page(plain):
    """The width is that of code in the book, which shows the file."""
    lines = plain.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100 and max(map(len, lines)) <= 92


@pytest.mark.slow  # two trainings; `make test` has the chapter on training, which compares their weights
def test_it_is_the_same_training_to_the_last_bit(plain, sample_recipe, tmp_path, monkeypatch):
    losses = []

    class Recorder(callbacks.PerformanceCallback):
        def on_train_step_end(self, run_context):
            super().on_train_step_end(run_context)
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    monkeypatch.chdir(tmp_path)
    workers = ds.config.get_num_parallel_workers()
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "PerformanceCallback", Recorder)
        by_itself = runpy.run_path(str(plain))
    ds.config.set_num_parallel_workers(workers)

    run = runs.create(tmp_path / "run", sample_recipe())
    loop.train(run, progress=False)
    assert losses == [step["loss"] for step in run.steps()]
    assert by_itself["accuracy"] == run.summary["accuracy"] > 0.9
    weights, saved = (ms.load_checkpoint(str(file)) for file in (tmp_path / "plain.ckpt", run.checkpoint))
    assert [name for name in weights if not np.array_equal(weights[name].asnumpy(), saved[name].asnumpy())] == []
