"""Values that probes emit: what comes back equal, what is told of a difference, and what is never believed."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from grader import values

ROUND = [
    True, False, None, 0, -3, 2**70, 0.5, 1e300, float("inf"), "text", "ümlaut\n", "", [], [1, [2.5, "a"]], {},
    {"a": [1, 2], "b": {"c": None}}, np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.array([True, False]),
    np.array([1 + 2j]), np.float16([0.5]), np.arange(12.0).reshape(3, 4)[:, ::2], np.arange(3, dtype=">i4"),
]  # fmt: skip


@pytest.mark.parametrize("value", ROUND, ids=repr)
def test_what_is_emitted_equals_itself_and_nothing_else(value):
    found = json.loads(json.dumps(values.encoded(value), allow_nan=False))
    assert values.difference(found, found, rtol=0, atol=0) == ""
    others = [other for other in ROUND if other is not value]
    assert all(values.difference(values.encoded(other), found, rtol=0, atol=0) for other in others)


@pytest.mark.parametrize(
    ("found", "wanted", "reason"),
    [
        (1.0, 1.0 + 1e-7, ""),
        (1.0, 1.001, "values differ"),
        (44.0, 44, ""),
        (Fraction(44), 44, ""),
        (Decimal("0.5"), 0.5, ""),
        (44.4, 44, "values differ"),
        (25_557_032, 25_557_031, "values differ"),  # whole numbers: no tolerance
        (10**400, 1.0, "values differ"),
        (True, 1, "another type"),
        (1, "1", "another type"),
        (float("nan"), float("nan"), "not a number"),
        (float("inf"), float("inf"), ""),
        (np.float32([1, 2]), np.float64([1, 2]), ""),
        (np.array([True]), np.array([1]), "another type"),
        (np.zeros(1), np.zeros(5), "another shape"),  # no broadcasting
        ([0.0], np.zeros(1), "another type"),
        (np.float64([1, np.nan]), np.float64([1, 2]), "not a number"),
        ([1, 2], [1, 2, 3], "another length"),
        ({"a": 1}, {"b": 1}, "other keys"),
        ({"a": 1}, {"a": 2}, "values differ"),
        (1 + 1e-7j, 1.0, "another type"),
    ],
)  # fmt: skip
def test_differences(found, wanted, reason):
    if isinstance(found, complex):
        found = np.array([found])
    assert values.difference(values.encoded(found), values.encoded(wanted), rtol=1e-5, atol=1e-8) == reason


def test_a_tensor_is_its_array():
    from mindspore import Parameter, Tensor

    array = np.float32([[1, 2], [3, 4]])
    for tensor in (Tensor(array), Parameter(Tensor(array), name="weight")):
        assert values.difference(values.encoded(tensor), values.encoded(array), 0, 0) == ""
    assert values.encoded(Tensor(2.5)) == 2.5


@pytest.mark.parametrize("value", [object(), print, np.array([object()]), np.array(["a"]), b"bytes", {1, 2}, 1j])
def test_what_cannot_be_emitted(value):
    with pytest.raises(TypeError, match="cannot be emitted"):
        values.emit("name", value)


def test_a_circle_cannot_be_emitted_and_nothing_deep_is_believed():
    circle = []
    circle.append(circle)
    with pytest.raises(RecursionError):
        values.emit("name", circle)
    deep = json.loads(200 * '{"dict": [[1, ' + "1" + 200 * "]]}")
    assert values.difference(deep, values.encoded(1), 1, 1) == "another type"
    assert values.difference(circle, values.encoded(1), 1, 1) == "not a value"


@pytest.mark.parametrize(
    "found",
    [
        {}, {"pickle": "gASVAA=="}, {"float": "1"}, {"float": [1]}, {"dict": 5}, {"dict": [[1]]}, {"dict": [[[1], 2]]},
        {"dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="}, {"dtype": "<f8", "shape": [2], "data": "AAAAAAAAAAA="},
        {"dtype": "<f8", "shape": [1], "data": "!"}, {"dtype": "<f3", "shape": [1], "data": "AAAA"},
        {"dtype": "<f8", "shape": "1", "data": 7}, {"dtype": 8, "shape": [1], "data": ""},
        {"dtype": "<f8", "shape": [10**30, 0], "data": ""},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_value_equals_nothing(found):
    wanted = values.encoded(np.zeros(1))
    assert values.difference(found, wanted, 1, 1) == "not a value"
    assert values.difference([found], [0], 1, 1) == "not a value"
