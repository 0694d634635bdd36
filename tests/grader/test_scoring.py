"""What answers are worth, by outcomes and values as an execution tells them; nothing is executed here."""

import numpy as np
import pytest

from grader import grade, values
from grader.lab import answer_of, probe_of

RATES = np.linspace(0, 0.3, 20, dtype=np.float32)


def executed(lab, task_values, **outcomes):
    """An execution in which all cells passed but for `outcomes`: {"answer_TASK" or "probe_TASK": outcome or error}."""
    cells = {}
    for cell in lab.notebook["cells"]:
        task = answer_of(cell) or probe_of(cell)
        if task:
            found = outcomes.get(f"{'answer' if answer_of(cell) else 'probe'}_{task}", "passed")
            error = "" if found in ("passed", "timed out", "crashed", "not run") else found
            cells[cell["id"]] = {"outcome": "error" if error else found, "error": error}
    encoded = {task: {name: values.encoded(value) for name, value in its.items()} for task, its in task_values.items()
               if outcomes.get(f"probe_{task}", "passed") == "passed"}  # fmt: skip
    return {"cells": cells, "values": encoded, "attempts": 1, "stopped": ""}


@pytest.fixture(scope="module")
def right():
    return {"steps": {"steps": 44}, "triangle": {"rates": RATES, "dtype": "float32"}, "total": {"total": 50.0}}


@pytest.fixture
def scored(tiny, right):
    """Function that scores the master's answers with some of them, some values and some outcomes changed."""

    def scored(answers=None, found=None, stopped="", without=(), **outcomes):
        given = {task: text for task, text in (tiny.solutions | (answers or {})).items() if task not in without}
        execution = executed(tiny, right | (found or {}), **outcomes)
        execution["stopped"] = stopped
        return grade.score(tiny, given, execution, executed(tiny, right)["values"])

    return scored


def verdicts(tasks):
    return {task: (entry["verdict"], entry["points"]) for task, entry in tasks.items()}


ALL = {"steps": ("right", 2.0), "triangle": ("right", 4.0), "total": ("right", 2.0)}


def test_the_master_gets_everything(scored):
    tasks = scored()
    assert verdicts(tasks) == ALL
    assert [entry["max_points"] for entry in tasks.values()] == [2, 4, 2]
    assert not any(entry["detail"] for entry in tasks.values())


def test_a_blank_gets_nothing_even_where_its_values_are_right(scored, tiny):
    tasks = scored(answers=tiny.stubs)
    assert verdicts(tasks) == dict.fromkeys(ALL, ("not done", 0.0))
    commented = {"steps": "# my first answer\n\nsteps   =   None # not yet"}
    assert verdicts(scored(answers=commented))["steps"] == ("not done", 0.0)


def test_a_cell_that_was_not_handed_in_is_missing_whatever_was_emitted(scored):
    tasks = scored(without=["steps"])
    assert verdicts(tasks) == ALL | {"steps": ("missing", 0.0)}
    assert tasks["steps"]["values"] == {"steps": {"points": 0.0, "max_points": 2, "detail": "not counted"}}


def test_each_value_has_its_own_points(scored):
    tasks = scored(found={"triangle": {"rates": RATES, "dtype": "float64"}})
    assert verdicts(tasks) == ALL | {"triangle": ("partly right", 3.0)}
    assert tasks["triangle"]["values"]["dtype"] == {"points": 0.0, "max_points": 1, "detail": "values differ"}
    tasks = scored(found={"triangle": {"rates": RATES}})
    assert tasks["triangle"]["values"]["dtype"]["detail"] == "missing"
    assert verdicts(scored(found={"steps": {"steps": 45}}))["steps"] == ("wrong", 0.0)


@pytest.mark.parametrize(
    "outcome, verdict",
    [("timed out", "timed out"), ("crashed", "crashed"), ("not run", "crashed"), ("TypeError: 44", "error")],
)
def test_only_a_plain_pass_counts_and_verdicts_tell_why(scored, outcome, verdict):
    """The values are right, as if they had been emitted all the same."""
    entry = scored(answer_steps=outcome)["steps"]
    assert (entry["verdict"], entry["points"]) == (verdict, 0)
    assert verdicts(scored(probe_steps=outcome))["steps"] == (verdict, 0.0)


def test_a_task_is_blocked_by_the_first_that_failed(tiny, scored):
    tasks = scored(found={"total": {"total": 1.0}}, answer_triangle="SyntaxError: invalid syntax")
    assert verdicts(tasks) == ALL | {"triangle": ("error", 0.0), "total": ("blocked by triangle", 0.0)}
    right_all_the_same = scored(answer_triangle="SyntaxError: invalid syntax")
    assert right_all_the_same["total"]["verdict"] == "right"
    partly = scored(found={"total": {"total": 1.0}, "triangle": {"rates": RATES, "dtype": "x"}})
    assert partly["total"]["verdict"] == "wrong"


def test_details_tell_nothing_hidden(scored):
    """Of a probe the type of its error alone, and only where Python made that type."""
    assert "4711" not in str(scored(probe_steps="ValueError: 4711")["steps"])
    assert "ValueError" in scored(probe_steps="ValueError: 4711")["steps"]["detail"]
    assert "4711" not in str(scored(probe_steps="Seed4711: it is"))
    wrong = scored(found={"steps": {"steps": 45}, "triangle": {"rates": RATES * 2, "dtype": "int8"}})
    assert not any(text in str(wrong) for text in ("44", "0.3", "float32"))


def test_of_the_learners_own_error_type_and_line_are_told(scored):
    """Its message could hold what a probe of a task before it has left in the kernel."""
    three = {"steps": "a = 1\nb = 2\nc = bacth"}
    detail = scored(three, answer_steps="NameError, line 3: name 'bacth' is not defined\nand")["steps"]["detail"]
    assert detail == "raised NameError, line 3"
    assert scored(three, answer_steps="Seed4711, line 2: 4711")["steps"]["detail"] == "raised an error, line 2"
    assert scored(three, answer_steps="\x1b[31mx")["steps"]["detail"] == "raised an error"
    for forged in (0, 4, 4711):
        detail = scored(three, answer_steps=f"NameError, line {forged}: x")["steps"]["detail"]
        assert detail == "raised NameError"


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("a = 1", "a  =  1   # mine", True),
        ("def f(x):\n    return x", "def f(x):\n\n\treturn x  # x", True),
        ("if a:\n    b\nc", "if a:\n    b\n    c", False),
        ("a = 'x y'", "a = 'x  y'", False),
        ("a = '''", "a = '''\n", True),  # no Python
    ],
)
def test_the_same_answer_is_known(one, other, same):
    assert (grade.normalised(one) == grade.normalised(other)) is same
