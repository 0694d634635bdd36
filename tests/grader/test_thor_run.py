"""The THOR lab's Run: the lab's own check accepts what the grader accepts, and nothing else."""

import json
from pathlib import Path

import pytest

from grader import handed_in
from grader import lab as labs
from labkit.training import recipes, runs


@pytest.fixture(scope="module")
def lab():
    return labs.load("thor")


@pytest.fixture
def check(lab, tmp_path):
    """A function: what the check prints about a Run of the lab's profile with some settings and an accuracy."""
    (cell,) = (source for source in map(labs.source, lab.notebook["cells"]) if "task 10: ok" in source)
    file = lab.folder / "recipe.yaml"

    def check(*settings, accuracy=0.93, without=None):
        run = runs.create(tmp_path / "run", recipes.load(file, lab.manifest.run.profile, settings))
        (run.path / "summary.json").write_text(json.dumps({"accuracy": accuracy}))
        run.checkpoint.touch()
        if without:
            (run.path / without).unlink()
        said = []
        names = {"Path": Path, "lab": file, "my_run": run.path, "recipes": recipes, "runs": runs, "print": said.append}
        exec(cell, names)
        return said

    return check


@pytest.mark.parametrize("settings, allowed", [
    ((), True), (("optimizer.factor_interval=1", "schedule.name=cosine"), True), (("data.folder=elsewhere",), True),
    (("epochs=3",), False), (("optimizer.factor_share=0.0625",), False), (("max_steps=3",), False),
])  # fmt: skip
def test_the_check_allows_what_the_grader_allows(lab, check, settings, allowed):
    asked, file = lab.manifest.run, lab.folder / "recipe.yaml"
    theirs, required = (recipes.load(file, asked.profile, each) for each in (settings, ()))
    assert (handed_in.differences(theirs, required, asked) == "") is allowed
    if allowed:
        assert check(*settings) == ["task 10: ok, 93.0%"]
    else:
        with pytest.raises(AssertionError, match=settings[0].split("=")[0]):
            check(*settings)


@pytest.mark.parametrize("wrong, says", [
    ({"accuracy": 0.92}, "expected at least 93%, yours 92.0%"), ({"without": "summary.json"}, "no summary.json"),
    ({"without": "checkpoints/latest.ckpt"}, "no checkpoint"),
])  # fmt: skip
def test_the_check_refuses_a_run_that_loses_points(lab, check, wrong, says):
    with pytest.raises(AssertionError, match=says):
        check(**wrong)
