"""The grading of every lab: its master gets everything, its blank nothing, each wrong answer what it declares."""

import re

import pytest

from grader.lab import load, names, source
from tests.grader import check_lab


@pytest.mark.slow  # some forty executions
@pytest.mark.parametrize("name", names())
def test_master_blank_and_wrong_answers(name, sandboxed):
    lab = load(name)
    mutants = check_lab.mutants_of(lab)
    assert len(mutants) >= 10
    rows = check_lab.check(lab, mutants)
    assert [row for row in rows if not row.right] == []
    assert {row.name for row in rows} >= {"master", "blank"}


@pytest.mark.parametrize("name", names())
def test_the_lab_says_what_its_run_must_reach(name):
    lab = load(name)
    asked, code = lab.manifest.run, [source(cell) for cell in lab.notebook["cells"] if cell["cell_type"] == "code"]
    text = "\n".join(source(cell) for cell in lab.notebook["cells"] if cell["cell_type"] == "markdown")
    assert f"{asked.accuracy:.0%}" in text
    assert any(f"{asked.accuracy:g}" in one and f"expected at least {asked.accuracy:.0%}" in one for one in code)
    for key, most in asked.at_most.items():
        assert f"{key}={most:g} " in text  # in the command that trains it
        assert any(re.search(rf'used\["{key}"\] [=<]= {most:g}\b', one) for one in code), key
