"""Which processes of one training there are, by the environment; which gradients they sum together, by the recipe."""

import pytest

from labkit.system import device
from labkit.system.errors import LabkitError
from labkit.training.recipes import RecipeError, find, load


@pytest.mark.parametrize("value", ["[]", "[160,85]", "[85,85]", "[0,85]", "[-1]", "[1.5]", "85", "true", '["85"]'])
def test_fusion_that_is_none(value):
    with pytest.raises(RecipeError, match="all_reduce_fusion.*: must ") as caught:
        load(find("cifar10"), "full", (f"all_reduce_fusion={value}",))
    assert len(str(caught.value).splitlines()) == 1


def test_fusion_of_the_guide():
    recipe = load(find("cifar10"), "full", ("all_reduce_fusion=[85,160]",))
    assert recipe.all_reduce_fusion == [85, 160]
    assert "all_reduce_fusion:\n- 85\n- 160\n" in recipe.dump()


def test_fusion_beyond_the_network():
    """The guide's numbers fit ResNet-50, whose 161 parameters count from 0; the next one would be too much."""
    from labkit.training import build

    build.create_network(load(find("cifar10"), "full", ("all_reduce_fusion=[85,160]",)))
    too_many = load(find("cifar10"), "full", ("all_reduce_fusion=[85,161]",))
    with pytest.raises(RecipeError, match="^all_reduce_fusion: 161, but resnet50 has 161 parameters"):
        build.create_network(too_many)


RANK_VARIABLES = ("RANK_ID", "RANK_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture
def environment(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return lambda *values: [monkeypatch.setenv(*pair) for pair in zip(RANK_VARIABLES, values) if pair[1] is not None]


@pytest.mark.parametrize(
    "values, expected",
    [
        ((), (0, 1)),
        (("0", "1"), (0, 1)),
        ((None, "1"), (0, 1)),
        (("3", "8"), (3, 8)),
        ((None, None, "1", "2"), (1, 2)),
        (("3", "8", "1", "2"), (3, 8)),
    ],
)
def test_ranks(environment, values, expected):
    environment(*values)
    assert device.ranks() == expected


@pytest.mark.parametrize(
    "values", [(None, "2"), ("2", "2"), ("-1", "2"), ("0", "two"), ("", "2"), (None, None, "5", "2")]
)
def test_ranks_that_cannot_be(environment, values):
    environment(*values)
    with pytest.raises(LabkitError, match="(RANK_SIZE|OMPI_COMM_WORLD_SIZE) is .*, but .*RANK.* is "):
        device.ranks()
