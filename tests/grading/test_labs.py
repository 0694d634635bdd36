"""The grading of every lab: its master gets everything, its blank nothing, each wrong answer what it declares."""

import sys

import pytest

from labkit.grading.lab import load, names
from labkit.system.environment import REPO

sys.path.insert(0, str(REPO))  # for the package tests.grading.mutants

from tests.grading import check_lab
from tests.grading.mutants.harm import HARM


@pytest.mark.parametrize("name", names())
def test_master_blank_and_wrong_answers(name, sandboxed):
    lab = load(name)
    mutants = check_lab.mutants_of(lab)
    assert len(mutants) >= 10
    rows = check_lab.check(lab, mutants, harm=True)
    assert [row for row in rows if not row.right] == []
    assert {row.name for row in rows} >= {"master", "blank", *HARM}
