"""What the tests of trainings share."""

import mindspore as ms
import pytest

from labkit.training import recipes


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    """As a training has it, and the same first weights whatever was tested before."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)


@pytest.fixture(scope="session")
def sample_recipe(repo_root):
    """Function: the CIFAR-10 lab's recipe for the sample, with settings."""
    return lambda *settings: recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample", settings)
