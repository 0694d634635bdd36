"""labs/thor: recipe and start files, with the lab's small network for a few steps."""

import re
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest

from labkit.system.device import in_mode
from labkit.training import build, compare, evaluation, loop, recipes, runs


@pytest.fixture(scope="module")
def lab(repo_root):
    return repo_root / "labs" / "thor"


@pytest.fixture(scope="module")
def trained(lab, sample_data, tmp_path_factory):
    """A complete Run of ResNet-8: three steps with THOR, with factors in the first and the third."""
    settings = ("network.name=resnet8", "max_steps=3", "optimizer.factor_interval=2")
    run = runs.create(tmp_path_factory.mktemp("lab") / "run", recipes.load(lab / "recipe.yaml", "sample", settings))
    with in_mode(ms.GRAPH_MODE):
        loop.train(run, progress=False)
    return run


@pytest.mark.parametrize("name", ["train.py", "eval.py"])
def test_dataset_path_of_the_seed(start, tmp_path, name):
    """There it is the folder of one split; here of both."""
    place = tmp_path / "images" / "ilsvrc"
    (place / "n01440764").mkdir(parents=True)
    done = start(name, "--dataset_path", place, "--train_url", "out", "--checkpoint_path", "resnet50.ckpt")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f"{place}/train: there is no such folder; images are in train/CLASS/ and val/CLASS/" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_eval_without_thors_state(start, trained):
    done = start("eval.py", "--checkpoint_path", trained.path)
    assert done.returncode == 0, done.stderr
    result = eval(re.fullmatch(r"result: (\{.*\}) ckpt= .*latest\.ckpt\n", done.stdout)[1])
    expected = {f"top_{k}_accuracy": trained.summary[key] for k, key in ((5, "top_5_accuracy"), (1, "accuracy"))}
    assert result == pytest.approx(expected)


@pytest.mark.slow
def test_export_is_the_plain_network(start, trained, tmp_path, onnxruntime):
    """Its logits under ONNX Runtime are those of the checkpoint, and no factor is in the file."""
    done = start("export.py", "--checkpoint_path", trained.path, "--file_format", "ONNX", "--file_name", "net")
    assert done.returncode == 0, done.stderr
    logits, _ = evaluation.test_logits(trained)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (given,) = session.get_inputs()
    batches = build.test_dataset(trained.recipe).create_tuple_iterator(num_epochs=1, output_numpy=True)
    images = next(batches)[0][: given.shape[0]]
    (found,) = session.run(None, {given.name: images})
    np.testing.assert_allclose(found, logits[: len(images)], rtol=1e-3, atol=1e-4)
    kept = sum(p.size for name, p in ms.load_checkpoint(str(trained.checkpoint)).items() if ".factor_" in name)
    assert (tmp_path / "net.onnx").stat().st_size < 4 * kept < trained.checkpoint.stat().st_size


@pytest.mark.slow
def test_the_sample_shows_thor_ahead(tmp_path, sample_data):
    """The whole profile and its baseline: THOR ends higher, and reaches momentum's end in fewer steps."""
    for profile in ("sample", "sample-momentum"):
        command = [sys.executable, "-m", "labkit", "train", "thor", "--profile", profile, "--out", profile]
        command += ["--set", "evaluation_steps=11"]  # twice an epoch, to see who comes first
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    thor, baseline = (compare.curve(runs.open_run(tmp_path / name)) for name in ("sample", "sample-momentum"))
    assert thor.accuracies[-1] > baseline.accuracies[-1]
    assert thor.reaches(baseline.accuracies[-1])[0] < baseline.reaches(baseline.accuracies[-1])[0]
