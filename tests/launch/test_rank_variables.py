"""Which processes of one training there are, by the environment."""

import pytest

from labkit.system import device
from labkit.system.errors import LabkitError

RANK_VARIABLES = ("RANK_ID", "RANK_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture
def environment(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return lambda *values: [monkeypatch.setenv(*pair) for pair in zip(RANK_VARIABLES, values) if pair[1] is not None]


@pytest.mark.parametrize("values, expected", [
    ((), (0, 1)), ((None, "1"), (0, 1)), (("3", "8"), (3, 8)), ((None, None, "1", "2"), (1, 2)),
    (("3", "8", "1", "2"), (3, 8)),
])  # fmt: skip
def test_ranks(environment, values, expected):
    environment(*values)
    assert device.ranks() == expected


@pytest.mark.parametrize("values", [(None, "2"), ("2", "2"), ("0", "two"), (None, None, "5", "2")])
def test_ranks_that_cannot_be(environment, values):
    environment(*values)
    with pytest.raises(LabkitError, match="(RANK_SIZE|OMPI_COMM_WORLD_SIZE) is .*, but .*RANK.* is "):
        device.ranks()
