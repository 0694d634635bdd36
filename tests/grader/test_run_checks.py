"""The labs' own check of a Run: it accepts what the grader accepts, and nothing else."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader import handed_in
from grader import lab as labs
from labkit.training import recipes, runs

TASKS = {"cifar10": 8, "imagenet": 8, "thor": 10}
OTHER_DATA = "data.folder=elsewhere"  # the same images in another place: the grader compares checksums
CASES = [
    ("cifar10", (), True), ("cifar10", ("schedule.name=cosine", "data.batch_size=8"), True),
    ("cifar10", (OTHER_DATA,), True), ("cifar10", ("network.name=resnet8",), False), ("cifar10", ("epochs=2",), False),
    ("imagenet", (), True), ("imagenet", ("schedule.name=linear", "data.flip=0"), True),
    ("imagenet", (OTHER_DATA,), True), ("imagenet", ("data.resize=100",), False), ("imagenet", ("epochs=9",), False),
    ("thor", (), True), ("thor", ("optimizer.factor_interval=1", "schedule.name=cosine"), True),
    ("thor", (OTHER_DATA,), True), ("thor", ("epochs=3",), False), ("thor", ("optimizer.factor_share=0.0625",), False),
    ("thor", ("max_steps=3",), False),
]  # fmt: skip


def recipe_of(lab, settings=()):
    """The recipe that the lab asks for, with some settings."""
    allowed = tuple(f"{key}={most:g}" for key, most in lab.manifest.run.at_most.items())
    allowed += ("schedule.warmup_epochs=0.25",) if lab.name == "cifar10" else ()  # a warm-up has to fit
    return recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile, (*allowed, *settings))


@pytest.fixture
def check(tmp_path):
    """A function: what a lab's check says about a Run with some settings and an accuracy; "" where it accepts it."""

    def check(lab, settings=(), accuracy=None, without=None):
        run = runs.create(tmp_path / "runs" / "one-epoch", recipe_of(lab, settings))
        accuracy = lab.manifest.run.accuracy if accuracy is None else accuracy
        (run.path / "summary.json").write_text(json.dumps({"accuracy": accuracy, "steps": 1}))
        run.checkpoint.touch()
        if without:
            (run.path / without).unlink()
        sources = [labs.source(cell) for cell in lab.notebook["cells"]]
        (cell,) = (source for source in sources if f"task {TASKS[lab.name]}: not done yet" in source)
        said = []
        names = {"Path": Path, "lab": lab.folder / "recipe.yaml", "my_run": run.path, "recipes": recipes, "runs": runs,
                 "environment": SimpleNamespace(REPO=tmp_path), "print": said.append}  # fmt: skip
        for source in sources:
            if "def say(" in source:
                exec(source, names)
        try:
            exec(cell, names)
        except AssertionError as error:
            return str(error)
        return "" if said[-1].startswith(f"task {TASKS[lab.name]}: ok") else said[-1]

    return check


@pytest.mark.parametrize("name, settings, allowed", CASES)
def test_the_check_allows_what_the_grader_allows(check, name, settings, allowed):
    lab = labs.load(name)
    required = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile)
    assert (handed_in.differences(recipe_of(lab, settings), required, lab.manifest.run) == "") is allowed
    said = check(lab, settings)
    assert said == "" if allowed else settings[0].split("=")[0] in said


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("wrong, says", [
    ({"accuracy": 0.7}, "accuracy: expected at least"), ({"without": "checkpoints/latest.ckpt"}, "no checkpoint"),
    ({"without": "summary.json"}, ""),
])  # fmt: skip
def test_the_check_refuses_a_run_that_loses_points(check, name, wrong, says):
    said = check(labs.load(name), **wrong)
    assert said and says in said
