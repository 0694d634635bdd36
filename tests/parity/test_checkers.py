"""The rules in tests/benchmarks/checkers.py do what their sources say, and its record is of this clinic."""

import json

import numpy as np

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
