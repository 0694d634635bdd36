"""The rules in tests/benchmarks/checkers.py do what their sources say, and its record is of this clinic."""

import json

import numpy as np
import pytest

from labkit.parity.clinic import DEFECTS
from tests.benchmarks import checkers
from tests.benchmarks.__main__ import RESULTS


def test_thresholds():
    ones = np.ones(4, np.float32)
    assert checkers.close(ones, ones + 1e-3) and not checkers.close(ones, ones + 1.1e-3)
    assert checkers.close(ones, ones + 1.9e-4, 1e-4, 1e-4) and not checkers.close(ones, ones + 2.1e-4, 1e-4, 1e-4)
    assert not checkers.close(None, ones) and not checkers.close(ones, np.ones((2, 2)))
    # The mean, not the largest error, of the tensor: 3.9e-6 / 4 < 1e-6.
    assert checkers.mean_close(np.zeros(4), [3.9e-6, 0, 0, 0]) and not checkers.mean_close(0.0, 1.1e-6)


def test_measures_of_msprobe():
    zeros, ones = np.zeros(2), np.ones(2)
    assert checkers.cosine(zeros, zeros) == 1 and np.isnan(checkers.cosine(zeros, ones))
    assert checkers.cosine([3.0, 4.0], [4.0, 3.0]) == pytest.approx(24 / 25)
    theirs = np.array([0, 0, 1000, 1000], np.float32)
    assert checkers.thousandth(theirs, theirs + np.array([0, 1e-6, 0.9, 1.1], np.float32)) == 0.5


def test_accuracy_of_msprobe():
    """Both a cosine below 0.99 and an error above 0.001, or a cosine below 0.9, or an error above 1."""
    ones, small = np.ones(2), np.array([1e-3, 0])
    turned = np.array([1.0, 0.7])  # cosine 0.985
    assert not checkers.accurate(ones, turned) and checkers.accurate(ones * 1e-3, turned * 1e-3)
    assert not checkers.accurate(small, small[::-1]) and checkers.accurate(small, np.zeros(2))
    assert checkers.accurate(10 * ones, 11 * ones) and not checkers.accurate(10 * ones, 11.1 * ones)


def test_result_of_msprobe():
    right = (np.arange(1.0, 21), np.arange(1.0, 21))
    shifted, some = (right[0], right[0] * 1.01), (right[0], right[0] * np.where(right[0] < 3, 1, 1.01))
    turned = (right[0], right[0] * np.where(right[0] < 18, 1.0005, 0))  # a fifth of the values counts most
    assert checkers.result([right], [right]) is None
    assert checkers.result([right], [shifted]) == "error"
    assert checkers.result([shifted], [shifted]) is None  # the module is given what is wrong
    assert checkers.result([right], [some]) is None  # a tenth is within a thousandth, as the code wants it
    assert checkers.result([right], [turned]) == "warning"
    assert checkers.result([right, turned], [right]) == "accuracy"
    assert checkers.result([right], [(right[0], right[0] * np.nan)]) == "error"
    assert checkers.result([right], [(right[0], right[0][:-1])]) == "error"


def test_the_record_is_of_this_clinic():
    rows = json.loads((RESULTS / "checkers.json").read_text(encoding="utf-8"))["rows"]
    assert [*rows] == [*checkers.HEALTHY, *DEFECTS]
    assert {verdict for row in rows.values() for verdict, _ in row.values()} == {"seen", "missed", "cannot see"}
    assert all(rows[name]["ladder"][0] == "seen" for name in DEFECTS)
