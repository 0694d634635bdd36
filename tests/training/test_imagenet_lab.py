"""labs/imagenet: recipe, start files, training from an image folder; with a small network where that is enough."""

import importlib.util
import json
import re

import mindspore as ms
import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from labkit.data import imagenet_files
from labkit.networks import create_resnet
from labkit.system.errors import LabkitError
from labkit.training import build, callbacks, evaluation, loop, recipes, runs

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


def test_fulls_schedule(lab):
    """Up to 0.256 after five epochs, then down a half cosine; nowhere zero but at the very first step."""
    full = recipes.load(lab / "recipe.yaml", "full")
    steps = 1_281_167 // 256
    rates = build.learning_rates(full, steps)
    assert rates.argmax() == 5 * steps and rates.max() == np.float32(0.256)
    middle = 5 * steps + 85 * steps // 2
    assert rates[middle] == pytest.approx(0.128, rel=1e-3)
    assert (rates[1:] > 0).all() and rates[-1] < 1e-6


# -- Data -----------------------------------------------------------------------------------------


def test_the_sample_is_made_where_it_is_missing(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    info = build.check_data(recipes.load(lab / "recipe.yaml", "sample"))
    assert info.folder == tmp_path / "sample" / "imagenet"
    assert (len(info.classes), info.train_images, info.test_images) == (10, 400, 100)
    assert [path.name for path in (tmp_path / "sample").iterdir()] == ["imagenet"]


@pytest.mark.parametrize("route", ["fast", "exact"])
def test_batches_by_the_recipe(recipe, route):
    data = recipe.data.model_copy(update={"image_size": 40, "resize": 48, "batch_size": 30, "route": route})
    chosen = recipe.model_copy(update={"data": data})
    batches = list(build.train_dataset(chosen).create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert [images.shape for images, _ in batches] == [(30, 3, 40, 40)] * 13  # 400 images, whole batches
    batches = build.test_dataset(chosen).create_tuple_iterator(num_epochs=1, output_numpy=True)
    labels = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(labels, np.repeat(np.arange(10), 10))  # 100 images, all of them, in order


@pytest.mark.parametrize("setting, says", [
    ("network.num_classes=1000", "network.num_classes: 1000, but .* has 10"),
    ("data.batch_size=401", "data.batch_size: 401, but .* has 400 images"),
    ("data.folder=nowhere", "nowhere"),
])  # fmt: skip
def test_recipe_that_does_not_fit_the_data(lab, folder, setting, says):
    chosen = recipes.load(lab / "recipe.yaml", "sample", (f"data.folder={folder}", setting))
    with pytest.raises(LabkitError, match=says):
        build.check_data(chosen)


def test_bad_images_as_the_recipe_says(recipe, tmp_path):
    imagenet_files.write_sample(tmp_path / "images")
    (tmp_path / "images/train/3/broken.JPEG").write_bytes(b"\xff\xd8 no image")
    data = recipe.data.model_copy(update={"folder": str(tmp_path / "images")})
    with pytest.raises(LabkitError, match="broken.JPEG"):
        build.check_data(recipe.model_copy(update={"data": data}))
    skipping = recipe.model_copy(update={"data": data.model_copy(update={"bad_images": "skip"})})
    assert build.check_data(skipping).train_images == 400
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
    logits, labels = evaluation.test_logits(trained)
    expected = {
        "accuracy": (logits.argmax(axis=1) == labels).mean(),
        "top_5_accuracy": top_k_accuracy_score(labels, logits, k=5),
    }
    assert 0 < expected["accuracy"] <= expected["top_5_accuracy"] <= 1
    evaluations = trained.evaluations()
    assert [list(record) for record in evaluations] == [["epoch", *expected]] * EPOCHS
    result = evaluation.evaluate(trained)
    for name, value in expected.items():
        assert evaluations[-1][name] == trained.summary[name] == pytest.approx(value)
        assert result[name] == json.loads((trained.path / "evaluation.json").read_text())[name] == pytest.approx(value)


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
def test_resumed_is_as_never_stopped(trained, recipe, tmp_path, monkeypatch):
    """Interrupted in the third epoch, behind its first step: the stream of images goes on where it was."""
    run = runs.create(tmp_path / "run", recipe)
    write = callbacks.append_line

    def interrupt(file, record):
        if record.get("step") == 2 * STEPS + 2:
            raise KeyboardInterrupt
        write(file, record)

    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "append_line", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.train(run, progress=False)
    assert not run.complete
    loop.train(run, progress=False)

    def without_times(run):
        timed = ("seconds", "compiled")
        return [{key: value for key, value in record.items() if key not in timed} for record in run.history()]

    assert without_times(run) == without_times(trained)


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


@pytest.mark.slow  # compiles ResNet-50
def test_the_real_network_steps(lab, folder, tmp_path):
    """ResNet-50 at 64x64 by the sample's recipe, two steps of it; evaluated, and the loss what guessing costs."""
    settings = (f"data.folder={folder}", "max_steps=2", "data.batch_size=16")
    chosen = recipes.load(lab / "recipe.yaml", "sample", settings)
    run = runs.create(tmp_path / "run", chosen)
    loop.train(run, progress=False)
    assert run.summary["steps"] == 2
    assert run.steps()[0]["loss"] == pytest.approx(np.log(10), abs=0.7)


# -- Start files ----------------------------------------------------------------------------------


def test_train_takes_the_seeds_arguments(start, folder, tmp_path, monkeypatch):
    """--dataset_path for --data_url; what is the job's own is ignored."""
    seen = []
    monkeypatch.setattr(loop, "train", lambda run, progress: seen.append((run, progress)))
    done = start(
        "train.py", "--dataset_path", folder, "--train_url", "out", "--num_epochs", 7, "--profile", "sample",
        "--run_distribute", "False", "--device_target", "CPU", "--device_num=1", "--init_method", "tcp://127.0.0.1:1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((run, progress),) = seen
    assert (run.path.resolve(), progress) == (tmp_path / "out", False)
    assert (run.recipe.epochs, run.recipe.data.folder, run.recipe.profile) == (7, str(folder), "sample")


@pytest.mark.parametrize("arguments, says", [
    (["--data_url", "nowhere"], "nowhere"),
    (["--data_url", "nowhere", "--run_distribute", "True"], "--run_distribute True, but this is the only process"),
    (["--data_url", "nowhere", "--num_epochs", "5"], "schedule.warmup_epochs"),
])  # fmt: skip
def test_train_with_bad_input_says_so_in_one_line(start, tmp_path, arguments, says):
    assert says in refusal(start("train.py", "--train_url", "out", *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(ms.get_context("device_target") != "CPU", reason="asks for a device that is not there")
@pytest.mark.parametrize("name", ["train.py", "eval.py", "export.py"])
def test_device_that_is_not_there(start, trained, folder, name):
    arguments = ["--data_url", folder, "--train_url", "out", "--checkpoint_path", trained.path]
    assert refusal(start(name, *arguments, "--device_target", "Ascend")).startswith("Error: device Ascend: ")


def test_eval_of_a_run(start, trained):
    """The seed's line: both accuracies and the file."""
    done = start("eval.py", "--checkpoint_path", trained.path)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"result: (\{.*\}) ckpt= (.*latest\.ckpt)\n", done.stdout)
    expected = {f"top_{k}_accuracy": trained.summary[key] for k, key in ((5, "top_5_accuracy"), (1, "accuracy"))}
    assert eval(found[1]) == pytest.approx(expected)


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


@pytest.mark.parametrize("file_format, file", [("ONNX", "resnet8.onnx"), ("MINDIR", "resnet8.mindir")])
def test_export_writes_a_file(start, trained, tmp_path, file_format, file):
    done = start("export.py", "--checkpoint_path", trained.path, "--file_format", file_format, "--batch_size", 2)
    assert done.stdout.strip() == file, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("name", ["eval.py", "export.py"])
def test_checkpoint_that_is_not_there(start, folder, name):
    done = start(name, "--checkpoint_path", "nowhere.ckpt", "--profile", "sample", "--data_url", folder)
    assert "nowhere.ckpt: missing" in refusal(done)


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


@pytest.mark.parametrize("name", ["resnet20", "ResNet50"])
def test_hub_refuses_other_names(hub, name):
    with pytest.raises(NotImplementedError, match="not implemented in the repo"):
        hub.create_network(name)
