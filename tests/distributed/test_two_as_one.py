"""Several processes train one network: by msrun and MindSpore's AllReduce they do what one process does."""

import json

import numpy as np
import pytest

from labkit import runtime
from labkit.recipe import RecipeError, find, load
from labkit.runtime import LabkitError

STEPS = 6


@pytest.fixture(scope="module")
def results(labkit, here, place, together):
    """What together.py writes: of one process, and of each of two."""
    two, folder = together
    one = labkit.run("launch", "-n", 1, here / "together.py", folder, place / "data")
    _, stderr = two.communicate(timeout=300)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + stderr
    return {
        name: dict(np.load(folder / f"{name}.npz")) for name in ("1-0", "2-0", "2-1")
    } | {
        (ranks, fusion): [json.loads(line)["loss"] for line in (folder / f"{ranks}-{fusion}.jsonl").open()]
        for ranks in (1, 2) for fusion in ("None", "[1, 3]")
    }  # fmt: skip


@pytest.mark.slow
def test_two_with_batch_4_are_one_with_batch_8(results):
    """The mean of the losses at each step, and the weights after the last."""
    one, two = results["1-0"]["plain"], results["2-0"]["plain"]
    assert len(results[1, "None"]) == STEPS
    np.testing.assert_allclose(results[2, "None"], results[1, "None"], rtol=1e-5)
    np.testing.assert_allclose(two, one, atol=1e-5)
    assert results[1, "None"][-1] < 0.99 * results[1, "None"][0]  # it learns, so the weights did change


@pytest.mark.slow
def test_ranks_stay_equal(results):
    for name in ("plain", "fused"):
        np.testing.assert_array_equal(results["2-0"][name], results["2-1"][name])


@pytest.mark.slow
def test_fusion_changes_no_result(results):
    np.testing.assert_array_equal(results[2, "[1, 3]"], results[2, "None"])
    np.testing.assert_array_equal(results["2-0"]["fused"], results["2-0"]["plain"])


@pytest.mark.slow
def test_shards_are_disjoint_and_complete(results):
    """In both epochs, in another order in the second; 200 images, 2 x 10 at a time."""
    first, second = (
        np.concatenate([results[f"2-{rank}"]["number"].reshape(2, 100)[epoch] for rank in (0, 1)]) for epoch in (0, 1)
    )
    assert sorted(first) == sorted(second) == list(range(200))
    assert not np.array_equal(first, second)
    assert sorted(results["1-0"]["number"][:200]) == list(range(200))


@pytest.mark.slow
def test_ranks_augment_each_in_its_own_way(results):
    crops = [np.stack([results[f"2-{rank}"][name] for name in ("row", "column")]) for rank in (0, 1)]
    assert (crops[0] != crops[1]).mean() > 0.2
    assert all(len(np.unique(crop)) > 1 for crop in crops)


# -- Recipe and environment -------------------------------------------------------------------------


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
    from labkit import training

    training.create_network(load(find("cifar10"), "full", ("all_reduce_fusion=[85,160]",)))
    too_many = load(find("cifar10"), "full", ("all_reduce_fusion=[85,161]",))
    with pytest.raises(RecipeError, match="^all_reduce_fusion: 161, but resnet50 has 161 parameters"):
        training.create_network(too_many)


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
    assert runtime.ranks() == expected


@pytest.mark.parametrize(
    "values", [(None, "2"), ("2", "2"), ("-1", "2"), ("0", "two"), ("", "2"), (None, None, "5", "2")]
)
def test_ranks_that_cannot_be(environment, values):
    environment(*values)
    with pytest.raises(LabkitError, match="(RANK_SIZE|OMPI_COMM_WORLD_SIZE) is .*, but .*RANK.* is "):
        runtime.ranks()
