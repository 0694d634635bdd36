"""The CIFAR-10 lab as a learner meets it: its checks know the slips, its text says what `grading.yaml` asks for."""

import contextlib
import io
import sys

import pytest

from labkit.grading import lab as labs
from labkit.system import device
from labkit.system.environment import REPO
from labkit.training import recipes

sys.path.insert(0, str(REPO))  # for the package tests.grading.mutants

from tests.grading.mutants.cifar10 import OTHERS, SLIPS

BEFORE = ("import tempfile", "chosen = recipes.load", "class Watch", "class Given", "set_context")  # for checks


@pytest.fixture(scope="module")
def lab():
    return labs.load("cifar10")


@pytest.fixture(scope="module")
def check(lab, sample_data):
    """Function that gives what the check below a task prints of an answer; it raises what the check raises."""
    given, checks, task = [], {}, None
    for cell in lab.notebook["cells"]:
        text = labs.source(cell).replace("%matplotlib inline", "")
        if cell["cell_type"] != "code" or labs.probe_of(cell):
            continue
        if labs.answer_of(cell):
            task = labs.answer_of(cell)
        elif task and text.startswith("# Check"):
            checks.setdefault(task, text)
        elif any(mark in text for mark in BEFORE):
            given.append(text)

    import mindspore as ms

    names = {"result": {"confusion": [[9] * 10] * 10}}
    with device.in_mode(ms.get_context("mode")):  # the notebook chooses one, and seeds
        _run("\n".join(given), names)
        yield lambda task, answer: _run(f"{answer}\n{checks[task]}", dict(names))


def _run(text, names):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "lab", "exec"), names)
    return said.getvalue()


def test_checks_tell_done_from_not_done(lab, check):
    for number, task in enumerate(lab.manifest.tasks, start=1):
        assert check(task, lab.stubs[task]) == f"task {number}: not done yet\n"
        assert check(task, lab.solutions[task]).startswith(f"task {number}: ok")


@pytest.mark.parametrize("slip", SLIPS + OTHERS, ids=lambda slip: slip.name)
def test_a_slip_is_told(check, slip):
    with pytest.raises((AssertionError, AttributeError, TypeError, StopIteration)) as told:
        check(slip.task, slip.source)
    assert told.type is not AssertionError or len(str(told.value)) > 20


def test_the_text_says_what_the_run_must_reach(lab):
    asked = lab.manifest.run
    text = next(source for source in map(labs.source, lab.notebook["cells"]) if "A Run of your own" in source)
    assert f"at least {asked.accuracy:.0%}" in text and f"`epochs` ({asked.at_most['epochs']:g} at most)" in text
    assert all(f"`{key}`" in text for key in asked.may_change)
    (check,) = (source for source in map(labs.source, lab.notebook["cells"]) if "task 8: ok" in source)
    assert f"accuracy >= {asked.accuracy}" in check


def test_the_recipe_does_not_fit_into_one_epoch(lab):
    """A decision is needed: with the recipe as it is, warm-up alone takes the epoch."""
    with pytest.raises(recipes.RecipeError, match="warm-up"):
        recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile, ("epochs=1",))
    solved = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile, tuple(lab.manifest.run.solution))
    assert solved.epochs == 1
