"""A Run and its data: what is trained on, evaluated and compared is what the Run began with, down to the byte."""

from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from labkit.cli import main
from labkit.data import cifar10_files, imagenet_files, scan
from labkit.data.files import DataError
from labkit.system import environment
from labkit.training import build, callbacks, checkpoint, evaluation, loop, recipes, runs
from labkit.training.callbacks import DivergedError
from labkit.training.runs import RunError

SMALL = (
    "network.name=resnet8", "network.stem=cifar", "data.image_size=32", "data.resize=32", "data.batch_size=100",
    "data.flip=0.5", "epochs=2", "schedule.warmup_epochs=0", "data.workers=2",
)  # fmt: skip


@pytest.fixture
def recipe(repo_root, tmp_path):
    """A small network on a copy of the sample that a test may change."""
    imagenet_files.write_sample(tmp_path / "images")
    settings = (f"data.folder={tmp_path / 'images'}", *SMALL)
    return recipes.load(repo_root / "labs" / "imagenet" / "recipe.yaml", "sample", settings)


def interrupted(path, recipe, monkeypatch):
    """A Run that was stopped in its second epoch."""
    write = callbacks.append_line

    def interrupt(file, record):
        if record.get("step") == 6:
            raise KeyboardInterrupt
        write(file, record)

    run = runs.create(path, recipe)
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "append_line", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.train(run, progress=False)
    return run


def test_one_changed_byte_of_a_validation_image_is_other_data(recipe, tmp_path, monkeypatch):
    """It keeps the image's size, and the image is read without an error."""
    run = interrupted(tmp_path / "run", recipe, monkeypatch)
    evaluation.evaluate(run)
    file = min((recipe.data_folder() / "val" / "3").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for refused in (evaluation.evaluate, evaluation.test_logits, loop.train):
        with pytest.raises(RunError, match="other data, .*: in .*images an image has changed"):
            refused(run)


def test_a_resumed_run_keeps_its_number_of_workers(recipe, tmp_path, monkeypatch):
    """On the fast route each worker draws its own crops; a machine with fewer cores would draw others."""
    monkeypatch.setattr(environment, "cores", lambda: 2)
    run = interrupted(tmp_path / "run", recipe, monkeypatch)
    assert run.provenance["workers"] == 2
    monkeypatch.setattr(environment, "cores", lambda: 1)
    with pytest.raises(RunError, match="began with 2 data workers.*there are 1"):
        loop.train(run, progress=False)


@pytest.mark.slow
def test_resumed_on_the_fast_route_is_as_never_stopped(recipe, tmp_path, monkeypatch):
    """The stream of random crops goes on where it was."""
    run, whole = interrupted(tmp_path / "run", recipe, monkeypatch), runs.create(tmp_path / "whole", recipe)
    loop.train(run, progress=False)
    loop.train(whole, progress=False)
    assert [record["loss"] for record in run.steps()] == [record["loss"] for record in whole.steps()]
    assert run.evaluations() == whole.evaluations()


def test_an_image_that_cannot_be_decoded_is_named(recipe):
    """It passes the check, of beginnings and ends; MindSpore's own lines name no file."""
    file = min((recipe.data_folder() / "val" / "3").iterdir())
    Image.open(file).resize((200, 200)).save(file, "PNG")
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    file.write_bytes(content)
    for info in (build.prepare_data(recipe), None):  # None: in a process other than the first
        with pytest.raises(DataError, match=f"{file}: .*; fix or remove it"), build.naming_damage(recipe, info):
            for _ in build.test_dataset(recipe, info):
                pass


def test_a_training_that_diverges_keeps_what_it_had(tmp_path, sample_recipe, write_noise):
    """A real one, by a learning rate of 1e30: the checkpoint before it loads, and there is no summary."""
    write_noise(tmp_path / "data")
    settings = (
        f"data.folder={tmp_path / 'data'}", "data.batch_size=8", "network.name=resnet8", "epochs=2",
        "checkpoint_steps=1", "schedule.lr_init=1e-3", "schedule.lr_max=1e30", "schedule.warmup_epochs=1",
    )  # fmt: skip
    recipe = sample_recipe(*settings)
    run = runs.create(tmp_path / "run", recipe)
    with pytest.raises(DivergedError, match="step"):
        loop.train(run, progress=False)
    assert not run.complete
    steps = run.steps()
    assert 1 <= len(steps) < 10 and np.isfinite([record["loss"] for record in steps]).all()
    net = build.create_network(recipe)
    assert checkpoint.load_weights(run.checkpoint, net) == len(steps) == steps[-1]["step"]
    assert [path.name for path in run.checkpoint.parent.iterdir()] == ["latest.ckpt"]


@pytest.mark.parametrize("lab, module, reader", [("cifar10", cifar10_files, "_records"), ("imagenet", scan, "_read")])
def test_a_training_reads_its_data_once(lab, module, reader, sample_data, tmp_path, monkeypatch):
    """From the command to the summary, checks and evaluation included."""
    files, read = Counter(), getattr(module, reader)
    monkeypatch.setattr(scan, "_findings", {})
    monkeypatch.setattr(module, reader, lambda path, *options: (files.update([path]), read(path, *options))[1])
    settings = ("max_steps=1", "epochs=1", "schedule.warmup_epochs=0", "network.name=resnet8", "network.stem=cifar")
    out = tmp_path / "run"
    done = CliRunner().invoke(main, ["train", lab, *(f"--set={setting}" for setting in settings), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert set(files.values()) == {1} and len(files) == (6 if lab == "cifar10" else 500)
