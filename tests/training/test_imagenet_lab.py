"""labs/imagenet: recipe, data, evaluation, start files."""

import importlib.util

import mindspore as ms
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import top_k_accuracy_score

from labkit.data import imagenet_files
from labkit.networks import create_resnet
from labkit.system.errors import LabkitError
from labkit.training import build, evaluation, loop, recipes


@pytest.fixture(scope="module")
def lab(repo_root):
    return repo_root / "labs" / "imagenet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The sample image folder."""
    folder = tmp_path_factory.mktemp("data") / "images"
    imagenet_files.write_sample(folder)
    return folder


def refusal(done):
    """The one line that an error is."""
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("Error: "), done.stderr
    return lines[0]


# -- The recipe -----------------------------------------------------------------------------------


def test_full_is_the_guides_setting(lab):
    full = recipes.load(lab / "recipe.yaml", "full")
    network, data, optimizer, schedule = full.network, full.data, full.optimizer, full.schedule
    assert (network.name, network.stem, network.num_classes, network.init) == ("resnet50", "imagenet", 1000, "guide")
    assert (data.format, data.batch_size, data.image_size, data.resize) == ("image_folder", 256, 224, 256)
    assert (data.crop_scale, data.flip) == ([0.08, 1.0], 0.5)  # NVIDIA's, and the THOR seed's
    assert (optimizer.name, optimizer.momentum, optimizer.weight_decay) == ("momentum", 0.875, 1 / 32768)
    assert (schedule.name, schedule.lr_max, schedule.lr_end, schedule.warmup_epochs) == ("cosine", 0.256, 0.0, 5)
    assert (full.loss.smoothing, full.epochs, full.dataset_sink_mode, full.amp_level) == (0.1, 90, True, "O0")
    assert full.all_reduce_fusion == [85, 160]


def test_task_has_fulls_settings_on_the_digits(lab):
    """What the lab's task asks to move; all the rest is the sample's."""
    task, full, sample = (recipes.load(lab / "recipe.yaml", name) for name in ("task", "full", "sample"))
    assert (task.schedule, task.loss, task.optimizer) == (full.schedule, full.loss, full.optimizer)
    for key in ("batch_size", "crop_scale", "flip"):
        assert getattr(task.data, key) == getattr(full.data, key)
    assert (task.data.folder, task.network.num_classes) == (sample.data.folder, sample.network.num_classes)


# -- Data -----------------------------------------------------------------------------------------


def test_the_sample_is_made_where_it_is_missing(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    info = build.prepare_data(recipes.load(lab / "recipe.yaml", "sample"))
    assert info.folder == tmp_path / "sample" / "imagenet"
    assert (len(info.classes), info.train_images, info.test_images) == (10, 400, 100)
    assert [path.name for path in (tmp_path / "sample").iterdir()] == ["imagenet"]


@pytest.mark.parametrize("setting, says", [
    ("network.num_classes=1000", "network.num_classes: 1000, but .* has 10"),
    ("data.batch_size=401", "data.batch_size: 401, but .* has 400 images"),
    ("data.folder=nowhere", "nowhere"),
])  # fmt: skip
def test_recipe_that_does_not_fit_the_data(lab, folder, setting, says):
    chosen = recipes.load(lab / "recipe.yaml", "sample", (f"data.folder={folder}", setting))
    with pytest.raises(LabkitError, match=says):
        build.prepare_data(chosen)


def test_bad_images_as_the_recipe_says(lab, tmp_path):
    imagenet_files.write_sample(tmp_path / "images")
    (tmp_path / "images/train/3/broken.JPEG").write_bytes(b"\xff\xd8 no image")
    settings = (f"data.folder={tmp_path / 'images'}", "data.batch_size=100")
    with pytest.raises(LabkitError, match="broken.JPEG"):
        build.prepare_data(recipes.load(lab / "recipe.yaml", "sample", settings))
    skipping = recipes.load(lab / "recipe.yaml", "sample", (*settings, "data.bad_images=skip"))
    assert build.prepare_data(skipping).train_images == 400
    assert build.train_dataset(skipping).get_dataset_size() == 4


# -- Top-5 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [6, 1000])
def test_top_5_against_scikit_learn(classes):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(3000, classes)).astype(np.float32), rng.integers(0, classes, 3000)
    logits[np.arange(3000), labels] += 1
    result = evaluation.score(logits, labels, [str(name) for name in range(classes)])
    for k, key in ((1, "accuracy"), (5, "top_5_accuracy")):
        assert result[key] == pytest.approx(top_k_accuracy_score(labels, logits, k=k, labels=range(classes)))


def test_no_top_5_of_five_classes():
    """It would be 1."""
    result = evaluation.score(np.eye(5, dtype=np.float32), np.arange(5), list("abcde"))
    assert "top_5_accuracy" not in result and result["accuracy"] == 1.0


def test_the_worst_mistakes_come_first():
    rng = np.random.default_rng(1)
    logits, labels, names = 3 * rng.normal(size=(500, 10)), rng.integers(0, 10, 500), "abcdefghij"
    logits[7] = np.where(np.arange(10) == (labels[7] + 1) % 10, 800.0, 0.0)  # too large for a plain exp
    found, share = evaluation.score(logits, labels, list(names))["worst"], softmax(logits, axis=1)
    answers = logits.argmax(axis=1)
    wrong = sorted(np.flatnonzero(answers != labels), key=lambda i: share[i, labels[i]])[: evaluation.WORST]
    assert found == [
        {"image": i, "class": names[labels[i]], "answer": names[answers[i]],
         "class_probability": pytest.approx(share[i, labels[i]], rel=1e-3),
         "answer_probability": pytest.approx(share[i, answers[i]], abs=1e-4)}
        for i in wrong
    ]  # fmt: skip
    assert found[0]["image"] == 7
    assert evaluation.score(np.eye(3), np.arange(3), list("abc"))["worst"] == []


# -- Start files ----------------------------------------------------------------------------------


def test_train_takes_the_seeds_arguments(start, folder, tmp_path, monkeypatch):
    """--dataset_path for --data_url; what is the job's own is ignored."""
    seen = []
    monkeypatch.setattr(loop, "train", lambda run, info, progress: seen.append((run, progress)))
    done = start(
        "train.py", "--dataset_path", folder, "--train_url", "out", "--num_epochs", 7, "--profile", "sample",
        "--run_distribute", "False", "--device_target", "CPU", "--device_num=1", "--init_method", "tcp://127.0.0.1:1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((run, progress),) = seen
    assert (run.path.resolve(), progress) == (tmp_path / "out", False)
    assert (run.recipe.epochs, run.recipe.data.folder, run.recipe.profile) == (7, str(folder), "sample")


@pytest.mark.slow  # ResNet-50
def test_any_checkpoint_of_the_labs_network(start, lab, folder, tmp_path):
    """Weights that labkit did not train, such as converted ones: the lab's recipe says what they belong to."""
    ms.set_seed(1)
    ms.save_checkpoint(create_resnet("resnet50", 10, "imagenet"), str(tmp_path / "mine.ckpt"))
    done = start("eval.py", "--checkpoint_path", "mine.ckpt", "--data_url", folder, "--profile", "sample")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("result: {'top_5_accuracy': 0.") and done.stdout.endswith("ckpt= mine.ckpt\n")
    done = start("export.py", "--checkpoint_path", "mine.ckpt", "--profile", "sample", "--file_name", "mine")
    assert done.stdout == "mine.mindir\n", done.stderr
    # and a checkpoint of another network is refused
    ms.save_checkpoint(create_resnet("resnet20"), str(tmp_path / "small.ckpt"))
    assert "small.ckpt: " in refusal(start("export.py", "--checkpoint_path", "small.ckpt", "--profile", "sample"))


# -- Hub ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(lab):
    """The file as MindSpore Hub takes it: by its path."""
    spec = importlib.util.spec_from_file_location("mindspore_hub_conf", lab / "mindspore_hub_conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hub_makes_networks_by_name(hub):
    net = hub.create_network("resnet50")
    assert net.fc.weight.shape == (1000, 2048) and net.conv1.kernel_size == (7, 7)
    assert hub.create_network("resnet18", 7).fc.weight.shape == (7, 512)
    assert hub.create_network("resnet18", num_classes=7, stem="cifar").conv1.kernel_size == (3, 3)
    with pytest.raises(NotImplementedError, match="not implemented in the repo"):
        hub.create_network("resnet20")
