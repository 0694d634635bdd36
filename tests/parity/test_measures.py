"""Differences against numbers worked out by hand."""

import json
import math

import numpy as np
import pytest

from labkit.parity.measures import difference, differences


def test_by_hand():
    found = difference("x", [3.0, -4.0], [3.0, -3.0], 0.3)
    assert (found.max_abs, found.max_rel, found.ok) == (1.0, 0.25, True)
    assert found.cosine == pytest.approx(21 / (5 * math.sqrt(18)))
    assert not difference("x", [3.0, -4.0], [3.0, -3.0], 0.2).ok
    assert not difference("x", [3.0, -4.0], [3.0, -3.0], 0.995, by="cosine").ok
    assert difference("x", [3.0, -4.0], [3.0, -3.0], 0.98, by="cosine").ok


@pytest.mark.parametrize(
    "first, second, by, ok",
    [
        ([1.0, np.nan], [1.0, np.nan], "max_rel", False),
        ([1.0], [np.inf], "max_rel", False),
        ([[1.0, 1.0]], [1.0, 1.0], "max_rel", False),
        ([0.0, 0.0], [0.0, 0.0], "cosine", True),
        ([0.0, 0.0], [0.0, 0.0], "max_rel", True),
        ([0.0, 0.0], [1e-9, 0.0], "cosine", False),
        ([0.0, 0.0], [1e-9, 0.0], "max_rel", False),
        (1.0, 1.0, "max_rel", True),
        ([], [], "max_rel", True),
    ],
)
def test_at_the_edges(first, second, by, ok):
    assert difference("x", first, second, 0.5, by).ok is ok


def test_the_worst_of_several_speaks_for_all():
    found = differences("x", {"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [2.2]}, 0.05)
    assert (found.worst, found.ok, found.max_rel) == ("b", False, pytest.approx(0.1))
    assert [tensor.ok for tensor in found.tensors] == [True, False]


@pytest.mark.parametrize("first, second", [({"a": [1.0]}, {}), ({}, {"a": [1.0]})])
def test_a_name_on_one_side_only_differs(first, second):
    found = differences("x", {"b": [1.0], **first}, {"b": [1.0], **second}, 0.5)
    assert (found.worst, found.ok) == ("a", False)


@pytest.mark.parametrize("first, second, by, ok", [
    ([2e-5, 0.0], [1.5e-5, 1e-5], "cosine", False),
    ([1e-6], [-1e-6], "rounding", True),
    ([1e-6], [1e-4], "cosine", True),
    ([1e-6], [-1e-4], "cosine", False),
    ([1e-6], [np.nan], "cosine", False),
    ([np.nan], [1e-6], "cosine", False),
    ([1e-6, 1e-6], [1e-6], "cosine", False),
])  # fmt: skip
def test_only_what_is_small_on_both_sides_is_not_judged(first, second, by, ok):
    found = differences("x", {"a": [1.0], "b": first}, {"a": [1.0], "b": second}, 0.9999, "cosine", 1e-5)
    assert (found.tensors[1].by, found.ok, found.cosine == pytest.approx(1)) == (by, ok, ok)
    assert not differences("x", {"b": [1e-6]}, {}, 0.9999, "cosine", 1e-5).ok


def test_as_json_without_infinity():
    text = json.dumps(differences("x", {"a": [1.0]}, {}, 0.5).as_dict(), allow_nan=False)
    assert json.loads(text)["max_abs"] is None
