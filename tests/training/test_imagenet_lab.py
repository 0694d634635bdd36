"""labs/imagenet: recipe, start files, training from an image folder; with a small network where that is enough."""

import importlib.util

import mindspore as ms
import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from labkit.data import imagenet_files
from labkit.networks import create_resnet
from labkit.system.errors import LabkitError
from labkit.training import build, evaluation, loop, recipes, runs

SMALL = (
    "network.name=resnet8", "network.stem=cifar", "data.image_size=32", "data.resize=32",
    "data.batch_size=100", "epochs=3", "schedule.warmup_epochs=1",
)  # fmt: skip
STEPS, EPOCHS = 4, 3


@pytest.fixture(scope="module")
def lab(repo_root):
    return repo_root / "labs" / "imagenet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The sample image folder."""
    folder = tmp_path_factory.mktemp("data") / "images"
    imagenet_files.write_sample(folder)
    return folder


@pytest.fixture(scope="module")
def recipe(lab, folder):
    """The sample's recipe with a small network."""
    return recipes.load(lab / "recipe.yaml", "sample", (f"data.folder={folder}", *SMALL))


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    """A complete Run of it."""
    run = runs.create(tmp_path_factory.mktemp("runs") / "trained", recipe)
    loop.train(run, progress=False)
    return run


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


def test_bad_images_as_the_recipe_says(recipe, tmp_path):
    imagenet_files.write_sample(tmp_path / "images")
    (tmp_path / "images/train/3/broken.JPEG").write_bytes(b"\xff\xd8 no image")
    data = recipe.data.model_copy(update={"folder": str(tmp_path / "images")})
    with pytest.raises(LabkitError, match="broken.JPEG"):
        build.prepare_data(recipe.model_copy(update={"data": data}))
    skipping = recipe.model_copy(update={"data": data.model_copy(update={"bad_images": "skip"})})
    assert build.prepare_data(skipping).train_images == 400
    assert build.train_dataset(skipping).get_dataset_size() == STEPS


# -- Top-5 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [6, 10, 1000])
def test_top_5_against_scikit_learn(classes):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(3000, classes)).astype(np.float32), rng.integers(0, classes, 3000)
    logits[np.arange(3000), labels] += 1
    result = evaluation.score(logits, labels, [str(name) for name in range(classes)])
    for k, key in ((1, "accuracy"), (5, "top_5_accuracy")):
        assert result[key] == pytest.approx(top_k_accuracy_score(labels, logits, k=k, labels=range(classes)))


@pytest.mark.parametrize("classes", [2, 5])
def test_no_top_5_of_five_classes(classes):
    """It would be 1."""
    result = evaluation.score(np.eye(classes, dtype=np.float32), np.arange(classes), list("abcde")[:classes])
    assert "top_5_accuracy" not in result and result["accuracy"] == 1.0


@pytest.mark.slow
def test_top_5_in_history_summary_and_evaluation(trained):
    result, evaluations = evaluation.evaluate(trained), trained.evaluations()
    assert [list(record) for record in evaluations] == [["epoch", "accuracy", "top_5_accuracy"]] * EPOCHS
    for name in ("accuracy", "top_5_accuracy"):
        assert evaluations[-1][name] == trained.summary[name] == result[name] == trained.evaluation[name]


def test_the_worst_mistakes_against_an_exhaustive_search():
    rng = np.random.default_rng(1)
    logits, labels = 3 * rng.normal(size=(500, 10)), rng.integers(0, 10, 500)
    logits[7] = np.where(np.arange(10) == (labels[7] + 1) % 10, 800.0, 0.0)  # too large for a plain exp
    found = evaluation.score(logits, labels, list("abcdefghij"))["worst"]
    expected = []
    for i, (row, label) in enumerate(zip(logits, labels, strict=True)):
        gaps = [other - row[label] for other in row]
        if max(gaps) > 0:  # the true class's probability is 1 / sum(exp(gaps)): the larger the sum, the worse
            total = np.logaddexp.reduce(gaps)
            expected.append((total, {"image": i, "class": "abcdefghij"[label], "answer": "abcdefghij"[row.argmax()],
                                     "class_probability": pytest.approx(np.exp(-total), rel=1e-3),
                                     "answer_probability": pytest.approx(np.exp(max(gaps) - total), abs=1e-4),
                                     }))  # fmt: skip
    assert found == [one for _, one in sorted(expected, key=lambda pair: -pair[0])[: evaluation.WORST]]
    assert found[0]["image"] == 7 and found[0]["answer_probability"] == 1.0
    right = evaluation.score(np.eye(3), np.arange(3), list("abc"))
    assert right["worst"] == []


# -- Training -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_guide_clipping_and_mixed_precision_at_once(recipe, lab, folder, tmp_path):
    settings = (*SMALL, f"data.folder={folder}", "network.init=guide", "optimizer.clip_norm=1", "amp_level=O2")
    chosen = recipes.load(lab / "recipe.yaml", "sample", (*settings, "loss_scale=1024", "max_steps=3"))
    run = runs.create(tmp_path / "run", chosen)
    loop.train(run, progress=False)
    losses = [record["loss"] for record in run.steps()]
    assert len(losses) == 3 and np.isfinite(losses).all()
    assert losses[0] == pytest.approx(np.log(10), abs=0.05)  # the guide's dense layer begins near zero
    # Evaluated again in the same precision, from the checkpoint.
    assert evaluation.evaluate(run)["accuracy"] == pytest.approx(run.summary["accuracy"])


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
