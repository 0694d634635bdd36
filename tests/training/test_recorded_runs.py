"""The recorded Runs under labs/, from which the book takes its figures: whole, small, true to themselves."""

import json
import math
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from labkit.system import versions
from labkit.training import recipes, runs

REPO = Path(__file__).resolve().parents[2]
NAMED = {  # what the chapters read: missing is a failure
    "cifar10/resnet20-laptop", "cifar10/resnet50-laptop",
    *(f"thor/{side}-seed{seed}" for side in ("momentum", "thor") for seed in range(1, 6)),
    *(f"thor/{side}-seed{seed}" for side in ("thor-nt", "thor-3percent") for seed in (1, 2)),
    *(f"thor/arena-{side}-seed{seed}" for side in ("momentum", "adamw", "muon", "thor") for seed in range(2, 7)),
}  # fmt: skip
FOUND = {f"{path.parts[-3]}/{path.name}" for path in REPO.glob("labs/*/runs/*") if path.is_dir()}


def folder(name):
    lab, _, run = name.partition("/")
    return REPO / "labs" / lab / "runs" / run


@pytest.fixture(params=sorted(NAMED | FOUND))
def recorded(request):
    return runs.open_run(folder(request.param))


def test_the_book_reads_what_is_named_here():
    chapters = [*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/*.md")]
    pages = [chapter for chapter in chapters if chapter.stem != "recorded"]  # which lists them all
    pattern = re.compile(r"labs/(\w+)/runs/([\w-]+\*?)")  # of several: labs/thor/runs/thor-seed*
    read = {f"{lab}/{name}" for page in pages for lab, name in pattern.findall(page.read_text("utf-8"))}
    assert {name for name in NAMED if any(fnmatchcase(name, one) for one in read)} == NAMED == NAMED | FOUND
    assert all(any(fnmatchcase(name, one) for name in NAMED) for one in read)


def test_provenance(recorded):
    found = recorded.summary["provenance"]
    assert re.fullmatch("[0-9a-f]{40}", found["commit"]) and found["dirty"] is False
    assert found["versions"]["mindspore"] == versions.MINDSPORE
    assert found["machine"] and found["cores"] >= 1
    assert found["dataset"]["name"] and re.fullmatch("[0-9a-f]{64}", found["dataset"]["sha256"])
    in_arena = recorded.recipe.data.folder.startswith("arena/")
    assert found["dataset"]["train_images"] == (45_000 if in_arena else 50_000)


def test_summary_follows_from_the_history(recorded, tmp_path):
    """Every number of it, as if the training had just ended."""
    steps, summary = recorded.steps(), recorded.summary
    assert (steps[-1]["step"], steps[-1]["epoch"]) == (summary["steps"], summary["epochs"])
    # Trained in one go on a machine that did nothing else.
    assert summary["train_seconds"] < 1.5 * summary["steps"] * summary["step_ms"] / 1000
    last = recorded.evaluations()[-1]
    assert (last["epoch"], last["accuracy"]) == (summary["epochs"], summary["accuracy"])
    for name in ("recipe.yaml", "history.jsonl"):
        (tmp_path / name).write_bytes((recorded.path / name).read_bytes())
    (tmp_path / "provenance.json").write_text(json.dumps(summary["provenance"]))
    assert runs.write_summary(runs.Run(tmp_path)) == summary


def test_history_is_whole(recorded):
    recipe, steps = recorded.recipe, recorded.steps()
    assert not recipe.dataset_sink_mode  # a line a step
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert all(math.isfinite(record["loss"]) and record["seconds"] > 0 for record in steps)
    an_epoch = sum(record["epoch"] == 1 for record in steps)
    every, evaluated = recipe.evaluation_steps or an_epoch, []
    for step in range(1, len(steps) + 1):
        if step % an_epoch == 0 or step == len(steps):
            evaluated.append(math.ceil(step / an_epoch))
        elif step % every == 0:
            evaluated.append(round(step / an_epoch, 4))
    assert [record["epoch"] for record in recorded.evaluations()] == evaluated
    assert len(steps) == recipe.max_steps or steps[-1]["epoch"] == math.ceil(recipe.epochs)


def test_evaluation_agrees(recorded):
    """Where there is one: counts of the confusion matrix, and the accuracy of the last epoch."""
    if not (recorded.path / "evaluation.json").exists():
        assert recorded.path.name != "resnet20-laptop", "the chapter on evaluation reads it"
        return
    result = recorded.evaluation
    confusion = result["confusion"]
    assert result["images"] == sum(map(sum, confusion))
    assert result["correct"] == sum(row[i] for i, row in enumerate(confusion))
    assert [row["correct"] for row in result["classes"]] == [row[i] for i, row in enumerate(confusion)]
    assert [row["images"] for row in result["classes"]] == [sum(row) for row in confusion]
    assert result["accuracy"] == pytest.approx(result["correct"] / result["images"], abs=1e-9)
    assert result["accuracy"] == pytest.approx(recorded.summary["accuracy"], abs=1e-9)


def test_no_path_of_a_machine(recorded):
    for file in (recorded.path / "recipe.yaml", *recorded.path.glob("*.json")):
        assert not re.search(r"(?<![\w.])[/~\\]\w", file.read_text()), file


def test_small_and_without_a_checkpoint(recorded):
    files = [path for path in recorded.path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2e6
    assert {path.name for path in files} <= {
        "recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "evaluation.json",
    }  # fmt: skip


def test_resnet20_on_a_laptop():
    """Long enough and good enough to be shown, and what `labkit train cifar10 --profile laptop` does."""
    run = runs.open_run(folder("cifar10/resnet20-laptop"))
    assert run.summary["accuracy"] >= 0.85 and run.summary["epochs"] >= 10
    assert run.recipe == recipes.load(REPO / "labs/cifar10/recipe.yaml", "laptop")
