"""Export: the file that comes out, run by MindSpore and by onnxruntime, gives the network's own logits."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.system.errors import LabkitError
from labkit.training import build, checkpoint, recipes, runs
from labkit.training.export import export

RECIPE = """
lab: mine
base:
  data: {format: image_folder, folder: nowhere, batch_size: 8, image_size: 64, resize: 72}
  schedule: {name: quadratic, lr_init: 0.01, lr_max: 0.1}
  epochs: 1
profiles: {sample: {}}
"""


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Function that makes a Run of a network with a checkpoint, whose statistics look trained."""

    def make(*settings):
        folder = tmp_path_factory.mktemp("export")
        (folder / "recipe.yaml").write_text(RECIPE)
        recipe = recipes.load(folder / "recipe.yaml", "sample", settings)
        run = runs.create(folder / "run", recipe)
        run.history_file.touch()
        ms.set_context(mode=ms.GRAPH_MODE)
        ms.set_seed(1)
        network = build.create_model(recipe, np.full(1, 0.1, np.float32)).train_network
        rng = np.random.default_rng(0)
        for parameter in network.get_parameters():
            if parameter.name.endswith("moving_mean"):
                parameter.set_data(ms.Tensor(rng.normal(0, 0.1, parameter.shape), ms.float32))
            elif parameter.name.endswith("moving_variance"):
                parameter.set_data(ms.Tensor(rng.uniform(0.5, 2, parameter.shape), ms.float32))
        checkpoint.save_checkpoint(run, network, 1)
        return run

    return make


@pytest.fixture(scope="module")
def resnet18(make):
    return make("network.name=resnet18", "network.stem=imagenet")


@pytest.fixture(scope="module")
def small(make):
    return make("network.name=resnet8", "data.image_size=32")


def images(batch_size, size):
    return np.random.default_rng(1).normal(size=(batch_size, 3, size, size)).astype(np.float32)


def own_logits(run, x):
    """As evaluation.predict takes them, in float32."""
    recipe = run.recipe.model_copy(update={"amp_level": "O0"})
    net = build.create_network(recipe).set_train(False)
    checkpoint.load_weights(run.checkpoint, net)
    return net(ms.Tensor(x)).asnumpy()


def run_mindir(file, x):
    return nn.GraphCell(ms.load(str(file)))(ms.Tensor(x)).asnumpy()


def run_onnx(onnxruntime, file, x):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.type, given.shape) == ("tensor(float)", list(x.shape))
    (logits,) = session.run(None, {given.name: x})
    return logits


@pytest.mark.parametrize("shape", [{}, pytest.param({"batch_size": 3, "image_size": 48}, marks=pytest.mark.slow)])
def test_mindir_gives_the_same_logits(resnet18, tmp_path, shape):
    file = tmp_path / "net.mindir"
    export(resnet18.recipe, resnet18.checkpoint, file, **shape)
    x = images(shape.get("batch_size", 1), shape.get("image_size", 64))  # one image of the recipe's size
    logits = run_mindir(file, x)
    assert logits.shape == (len(x), 10) and logits.std() > 0.01
    np.testing.assert_allclose(logits, own_logits(resnet18, x), rtol=1e-6, atol=1e-7)
    assert [path.name for path in tmp_path.iterdir()] == ["net.mindir"]


@pytest.mark.slow  # onnxruntime
@pytest.mark.parametrize("settings", [
    ("network.name=resnet18", "network.stem=imagenet"),
    ("network.name=resnet50", "network.stem=imagenet", "network.num_classes=1000"),
    ("network.name=resnet8", "network.fast_gradient=true", "amp_level=O2", "data.image_size=32"),
])  # fmt: skip
def test_onnx_gives_the_same_logits(onnxruntime, make, tmp_path, settings):
    """With batch norm in evaluation mode: an image's logits do not depend on the others.

    Also with labkit's gradient and in mixed precision, of which the file has nothing.
    """
    run = make(*settings)
    x, file = images(3, run.recipe.data.image_size), tmp_path / "net.onnx"
    export(run.recipe, run.checkpoint, file, "onnx", batch_size=len(x))
    expected, found = own_logits(run, x), run_onnx(onnxruntime, file, x)
    assert expected.std() > 0.01
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4
    export(run.recipe, run.checkpoint, file, "onnx")
    np.testing.assert_allclose(run_onnx(onnxruntime, file, x[:1]), found[:1], rtol=1e-4, atol=1e-5)


def test_air_needs_ascend(small, tmp_path):
    with pytest.raises(LabkitError, match=r"net\.air: only Ascend writes AIR") as caught:
        export(small.recipe, small.checkpoint, tmp_path / "net.air", "air")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["mindir", "onnx"])
def test_file_and_folder_are_as_open_as_others(small, tmp_path, file_format):
    """MindSpore itself takes the others' rights away: of the file, and with ONNX of the folder that it is in."""
    folder = tmp_path / "new"
    export(small.recipe, small.checkpoint, folder / f"net.{file_format}", file_format)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert folder.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert (folder / f"net.{file_format}").stat().st_mode == (tmp_path / "other" / "file").stat().st_mode


def test_an_export_that_breaks_off_leaves_the_old_file(small, tmp_path, monkeypatch):
    """Half of the new file is written when the disk is full."""
    file = tmp_path / "net.onnx"
    file.write_text("old")

    def half(net, images, file_name, file_format):
        with open(file_name, "w") as part:
            part.write("half")
        raise OSError(28, "No space left on device", file_name)

    monkeypatch.setattr(ms, "export", half)
    with pytest.raises(OSError, match="No space"):
        export(small.recipe, small.checkpoint, file, "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert file.read_text() == "old"
    monkeypatch.undo()
    export(small.recipe, small.checkpoint, file, "onnx")  # and a whole one takes its place
    assert file.stat().st_size > 3e5
