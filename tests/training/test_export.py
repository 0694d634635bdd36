"""Export: the file that comes out, run by MindSpore and by onnxruntime, gives the network's own logits."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from labkit.system.errors import LabkitError
from labkit.training import build, checkpoint, recipes, runs
from labkit.training.export import export
from labkit.training.runs import RunError

RECIPE = """
lab: mine
base:
  data: {format: image_folder, folder: nowhere, batch_size: 8, image_size: 64, resize: 72}
  schedule: {lr_init: 0.01, lr_max: 0.1}
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


@pytest.mark.parametrize("shape", [{}, {"batch_size": 3, "image_size": 48}])
def test_mindir_gives_the_same_logits(resnet18, tmp_path, shape):
    file = tmp_path / "net.mindir"
    export(resnet18.recipe, resnet18.checkpoint, file, **shape)
    x = images(shape.get("batch_size", 1), shape.get("image_size", 64))  # one image of the recipe's size
    logits = run_mindir(file, x)
    assert logits.shape == (len(x), 10) and logits.std() > 0.01
    np.testing.assert_allclose(logits, own_logits(resnet18, x), rtol=1e-6, atol=1e-7)
    assert [path.name for path in tmp_path.iterdir()] == ["net.mindir"]


def assert_onnx_is_equal(onnxruntime, run, file, x):
    export(run.recipe, run.checkpoint, file, "onnx", batch_size=len(x), image_size=x.shape[-1])
    expected = own_logits(run, x)
    assert expected.std() > 0.01
    error = np.abs(run_onnx(onnxruntime, file, x) - expected).max() / np.abs(expected).max()
    assert error < 1e-4


def test_onnx_gives_the_same_logits(onnxruntime, resnet18, tmp_path):
    """With batch norm in evaluation mode: an image's logits do not depend on the others, and statistics stay."""
    x = images(3, 48)
    assert_onnx_is_equal(onnxruntime, resnet18, tmp_path / "net.onnx", x)
    one = tmp_path / "one.onnx"
    export(resnet18.recipe, resnet18.checkpoint, one, "onnx", image_size=48)
    together = run_onnx(onnxruntime, tmp_path / "net.onnx", x)
    np.testing.assert_allclose(run_onnx(onnxruntime, one, x[:1]), together[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        ("network.name=resnet50", "network.stem=imagenet", "network.num_classes=1000"),
        ("network.name=resnet20", "network.fast_gradient=true", "data.image_size=32"),
        ("network.name=resnet8", "amp_level=O2", "data.image_size=32"),
    ],
)
def test_onnx_of_other_networks(onnxruntime, make, tmp_path, settings):
    """The labs' own; also with labkit's gradient and in mixed precision, of which the file has nothing."""
    run = make(*settings)
    assert_onnx_is_equal(onnxruntime, run, tmp_path / "net.onnx", images(2, run.recipe.data.image_size))


def test_air_needs_ascend(small, tmp_path):
    with pytest.raises(LabkitError, match=r"net\.air: only Ascend writes AIR") as caught:
        export(small.recipe, small.checkpoint, tmp_path / "net.air", "air")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_checkpoint(small, tmp_path):
    with pytest.raises(RunError, match=r"other\.ckpt: missing"):
        export(small.recipe, tmp_path / "other.ckpt", tmp_path / "net.mindir")
    assert list(tmp_path.iterdir()) == []


def test_shape_that_cannot_be(small, tmp_path):
    with pytest.raises(LabkitError, match=r"net\.onnx: ") as caught:
        export(small.recipe, small.checkpoint, tmp_path / "net.onnx", "onnx", batch_size=-1)
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file_format", ["mindir", "onnx"])
def test_place_that_cannot_be(small, tmp_path, file_format):
    """A folder where the file should be, and a file where its folder should be."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "folder", tmp_path / "file" / "net"):
        with pytest.raises((LabkitError, OSError), match=str(tmp_path)) as caught:
            export(small.recipe, small.checkpoint, place, file_format)
        assert len(str(caught.value).splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("file_format", ["mindir", "onnx"])
def test_file_and_folder_are_as_open_as_others(small, tmp_path, file_format):
    """MindSpore itself takes the others' rights away: of the file, and with ONNX of the folder that it is in."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "other").touch()
    file = folder / f"net.{file_format}"
    export(small.recipe, small.checkpoint, file, file_format)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert file.stat().st_mode == (folder / "other").stat().st_mode
    export(small.recipe, small.checkpoint, tmp_path / "new" / "net", file_format)  # in a folder that is not there
    assert (tmp_path / "new" / "net").stat().st_size == pytest.approx(file.stat().st_size, rel=0.01)  # names differ


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
