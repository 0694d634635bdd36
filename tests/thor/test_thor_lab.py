"""labs/thor: recipe and start files, with the lab's small network for a few steps."""

import re

import mindspore as ms
import numpy as np
import onnxruntime
import pytest

from labkit import recipe as recipes
from labkit import run as runs
from labkit import training
from labkit.runtime import in_mode


@pytest.fixture(scope="module")
def lab(repo_root):
    return repo_root / "labs" / "thor"


@pytest.fixture(scope="module")
def trained(lab, sample_data, tmp_path_factory):
    """A complete Run of ResNet-8: three steps with THOR, with factors in the first and the third."""
    settings = ("network.name=resnet8", "max_steps=3", "optimizer.update_interval=2", "rival=null")
    run = runs.create(tmp_path_factory.mktemp("lab") / "run", recipes.load(lab / "recipe.yaml", "sample", settings))
    with in_mode(ms.GRAPH_MODE):
        training.train(run, progress=False)
    return run


def test_full_is_the_seeds_setting(lab):
    full = recipes.load(lab / "recipe.yaml", "full")
    assert (full.network.name, full.network.num_classes, full.data.batch_size) == ("resnet50", 1000, 32)
    thor = full.optimizer
    assert (thor.damping, thor.damping_decay, thor.update_interval, thor.weight_decay) == (0.03, 0.87, 834, 5e-4)
    assert (thor.trace_rule, thor.final_interval, thor.factor_average) == ("thor_nt", None, 0.0)
    assert (full.loss.smoothing, full.loss_scale, full.epochs) == (0.1, 128, 45)
    steps = 5004
    rates = training.learning_rates(full, steps)
    for epoch, halved in ((1, 1), (38, 1), (39, 2), (40, 4), (44, 4)):  # get_model_lr of the seed
        expected = 0.045 * (1 - (epoch + 1 / steps) / 70) ** 6 / halved
        assert rates[epoch * steps] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("profile", ["sample", "laptop"])
def test_the_rival_differs_in_its_optimizer_only(lab, profile):
    """Same network, weights, images, batches and length: the comparison is one of optimizers."""
    ours = recipes.load(lab / "recipe.yaml", profile)
    rival = recipes.load(lab / "recipe.yaml", ours.rival)
    for part in ("network", "data", "loss", "seed", "amp_level"):
        assert getattr(ours, part) == getattr(rival, part), part
    assert (ours.optimizer.name, rival.optimizer.name) == ("thor", "momentum")
    assert ours.optimizer.weight_decay == rival.optimizer.weight_decay and ours.epochs <= rival.epochs


@pytest.mark.slow
def test_train_takes_the_seeds_arguments(start, sample_data, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(training, "train", lambda run, progress: seen.append(run))
    folder = sample_data / "cifar-10-batches-bin"
    done = start(
        "train.py", "--dataset_path", folder, "--train_url", "out", "--run_distribute", "False", "--device_num", 1,
        "--profile", "sample", "--device_target", "CPU",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert seen[0].path.resolve() == tmp_path / "out" and seen[0].recipe.optimizer.name == "thor"


@pytest.mark.slow
def test_eval_without_thors_state(start, trained):
    done = start("eval.py", "--checkpoint_path", trained.path)
    assert done.returncode == 0, done.stderr
    result = eval(re.fullmatch(r"result: (\{.*\}) ckpt= .*latest\.ckpt\n", done.stdout)[1])
    expected = {f"top_{k}_accuracy": trained.summary[key] for k, key in ((5, "top_5_accuracy"), (1, "accuracy"))}
    assert result == pytest.approx(expected)


@pytest.mark.slow
def test_export_is_the_plain_network(start, trained, tmp_path):
    """Its logits under ONNX Runtime are those of the checkpoint, and no factor is in the file."""
    done = start("export.py", "--checkpoint_path", trained.path, "--file_format", "ONNX", "--file_name", "net")
    assert done.returncode == 0, done.stderr
    logits, _ = training.test_logits(trained)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (given,) = session.get_inputs()
    batches = training.test_dataset(trained.recipe).create_tuple_iterator(num_epochs=1, output_numpy=True)
    images = next(batches)[0][: given.shape[0]]
    (found,) = session.run(None, {given.name: images})
    np.testing.assert_allclose(found, logits[: len(images)], rtol=1e-3, atol=1e-4)
    kept = sum(p.size for name, p in ms.load_checkpoint(str(trained.checkpoint)).items() if ".factor_" in name)
    assert (tmp_path / "net.onnx").stat().st_size < 4 * kept < trained.checkpoint.stat().st_size
