"""A Run and its data: what is trained on, evaluated and compared is what the Run began with, down to the byte."""

import json

import mindspore as ms
import pytest

from labkit.data import imagenet_files
from labkit.system import environment
from labkit.training import build, callbacks, compare, evaluation, loop, recipes, runs
from labkit.training.runs import RunError

SMALL = (
    "network.name=resnet8", "network.stem=cifar", "data.image_size=32", "data.resize=32", "data.batch_size=100",
    "data.flip=0.5", "epochs=2", "schedule.warmup_epochs=0", "data.workers=2",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture
def recipe(repo_root, tmp_path):
    """A small network on a copy of the sample that a test may change."""
    imagenet_files.write_sample(tmp_path / "images")
    settings = (f"data.folder={tmp_path / 'images'}", *SMALL)
    return recipes.load(repo_root / "labs" / "imagenet" / "recipe.yaml", "sample", settings)


def train(path, recipe):
    run = runs.create(path, recipe)
    loop.train(run, progress=False)
    return run


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


def change_an_image(recipe):
    """One byte in the middle of a validation image: it keeps its size, and is read without an error."""
    file = recipe.data_folder() / "val" / "3" / sorted(p.name for p in (recipe.data_folder() / "val" / "3").iterdir())[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def losses(run):
    return [record["loss"] for record in run.steps()]


def test_one_changed_byte_is_other_data(recipe, tmp_path, monkeypatch):
    done, begun = train(tmp_path / "done", recipe), interrupted(tmp_path / "begun", recipe, monkeypatch)
    compare.settings([done, train(tmp_path / "again", recipe)])
    change_an_image(recipe)
    for refused in (lambda: evaluation.evaluate(done), lambda: loop.train(begun, progress=False)):
        with pytest.raises(RunError, match="other data: an image in .*images has changed"):
            refused()
    with pytest.raises(RunError, match="not to be compared"):
        compare.settings([done, train(tmp_path / "other", recipe)])


def test_a_run_without_a_digest_of_contents_is_evaluated_and_compared_as_before(recipe, tmp_path):
    """As an older labkit recorded it; of two others, each on data that it might have been, it makes no pair."""
    older, now = train(tmp_path / "older", recipe), train(tmp_path / "now", recipe)
    summary = older.summary
    del summary["provenance"]["dataset"]["contents"]
    (older.path / "summary.json").write_text(json.dumps(summary))
    evaluation.evaluate(older)
    assert len(compare.settings([older, now])) == 2  # one seed twice
    change_an_image(recipe)
    evaluation.evaluate(older)
    other = train(tmp_path / "other", recipe)
    compare.settings([older, other])
    with pytest.raises(RunError, match="not to be compared"):
        compare.settings([older, now, other])


@pytest.mark.parametrize("began, resumed", [(1, 2), (2, 1)])
def test_a_resumed_run_keeps_its_number_of_workers(recipe, tmp_path, monkeypatch, began, resumed):
    """On the fast route each worker draws its own crops; a machine with fewer cores would go on with others."""
    monkeypatch.setattr(environment, "cores", lambda: began)
    whole, run = train(tmp_path / "whole", recipe), interrupted(tmp_path / "run", recipe, monkeypatch)
    assert run.provenance["workers"] == began
    monkeypatch.setattr(environment, "cores", lambda: resumed)
    if resumed < began:
        with pytest.raises(RunError, match="began with 2 data workers.* cores, 1: resume it where there are 2"):
            loop.train(run, progress=False)
    else:
        loop.train(run, progress=False)
        assert losses(run) == losses(whole)


def test_the_number_of_workers_is_nothing_to_the_other_pipelines(recipe, repo_root):
    exact = recipe.model_copy(update={"data": recipe.data.model_copy(update={"route": "exact"})})
    cifar10 = recipes.load(repo_root / "labs" / "cifar10" / "recipe.yaml", "sample", ("data.workers=2",))
    assert [build.format_of(one).random_workers() for one in (exact, cifar10)] == [None, None]
