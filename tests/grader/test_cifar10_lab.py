"""The CIFAR-10 lab's Run: its text says what `grading.yaml` asks for, and a decision is needed."""

import pytest

from grader import lab as labs
from labkit.training import recipes


@pytest.fixture(scope="module")
def lab():
    return labs.load("cifar10")


def test_the_text_says_what_the_run_must_reach(lab):
    asked = lab.manifest.run
    text = next(source for source in map(labs.source, lab.notebook["cells"]) if "A Run of your own" in source)
    assert f"at least {asked.accuracy:.0%}" in text and f"Set `epochs` to {asked.at_most['epochs']:g}" in text
    assert all(f"`{key}`" in text for key in asked.may_change)
    (check,) = (source for source in map(labs.source, lab.notebook["cells"]) if "task 8: ok" in source)
    assert f"accuracy >= {asked.accuracy}" in check


def test_the_recipe_does_not_fit_into_one_epoch(lab):
    """A decision is needed: with the recipe as it is, warm-up alone takes the epoch."""
    with pytest.raises(recipes.RecipeError, match="warm-up"):
        recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile, ("epochs=1",))
    solved = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile, tuple(lab.manifest.run.solution))
    assert solved.epochs == 1
