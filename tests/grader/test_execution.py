"""What an execution tells of each cell, and whose values count."""

import os
import tempfile

import pytest
from waiting import wait_until

from grader import execution, grade
from grader.lab import PART
from labkit.system.errors import LabkitError
from tests.grader.check_lab import check, mutants_of

PASSED = {"outcome": "passed", "error": "", "traceback": ""}


@pytest.fixture
def executed(request):
    """Function that executes a lab with these answers, the others the master's: in a sandbox unless told otherwise."""
    inside = getattr(request, "param", True)
    if inside:
        request.getfixturevalue("sandboxed")

    def executed(lab, **answers):
        return execution.execute(lab, lab.solutions | answers, seed=7, sandboxed=inside)

    return executed


# What the sandbox has a part in: processes that end, limits, files.
in_both = pytest.mark.parametrize("executed", [True, False], ids=["sandbox", "no sandbox"], indirect=True)


@pytest.fixture(scope="module")
def of_master(tiny, sandboxed):
    """What an execution of the master's own answers gives."""
    return execution.execute(tiny, tiny.solutions, 7)


@in_both
def test_the_master_passes_and_is_the_same_again(tiny, executed, of_master):
    found = executed(tiny)
    assert set(map(str, found["cells"].values())) == {str(PASSED)}
    assert list(found["cells"]) == [cell["id"] for cell in tiny.graded_notebook({}, 7)["cells"]]
    assert (found["attempts"], found["stopped"]) == (1, "")
    assert found["values"]["steps"] == {"steps": 44}
    assert found == of_master


def test_errors_are_told_in_a_line(tiny, executed):
    """What failed after its value was there counts for nothing."""
    found = executed(tiny, steps="steps = batch_size", triangle="triangle = 1 +", total="total = 50.0\nassert False")
    errors = {cell: found["cells"][f"answer-{cell}"]["error"] for cell in tiny.solutions}
    assert errors["steps"] == "NameError, line 1: name 'batch_size' is not defined"
    assert errors["triangle"].startswith("SyntaxError, line 1: invalid syntax")
    assert errors["total"] == "AssertionError, line 2"
    assert found["cells"]["cell-002"] == found["cells"]["probe-total-12"] == PASSED
    assert found["values"] == {}


def test_an_error_is_kept_in_full_for_the_instructor(tiny, of_master):
    answers = tiny.solutions | {
        "steps": "def half(x):\n    return x.lower\n\nhalf(object())",
        "triangle": "def triangle(steps, lr_max):\n    raise ValueError('first\\nsecond')",
    }
    result = grade.grade_one(tiny, "ann", answers, (), of_master["values"], 7)
    [[cell, own], _], [[probe, text]] = result["errors"]["steps"], result["errors"]["triangle"]
    assert (cell, probe[:14]) == ("answer-steps", "probe-triangle")
    assert "----> 2     return x.lower" in own and "line 4" in own and own.endswith("has no attribute 'lower'")
    assert "rates = triangle(" in text and text.endswith("ValueError: first\nsecond") and "\x1b" not in text
    assert "first" not in str(result["tasks"]) and "lower" not in str(result["tasks"])


@in_both
def test_a_kernel_that_dies_costs_its_task_and_leaves_nothing(tiny, executed, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/dev/shm"))
    found = executed(tiny, triangle="import os\nos._exit(1)")
    assert found["attempts"] == 2
    assert found["cells"]["answer-triangle"]["outcome"] == "crashed"
    assert found["cells"]["probe-triangle-9"]["outcome"] == "not run"
    assert found["cells"]["answer-steps"] == PASSED
    assert found["values"] == {"steps": {"steps": 44}}
    assert not list(tmp_path.iterdir())
    wait_until(lambda: set(os.listdir("/dev/shm")) <= before)  # other tests' files may be there for a moment


@pytest.mark.slow  # a time limit
def test_a_probe_that_never_ends_costs_its_task(edited, executed):
    lab = edited("grading.yaml", "title: A schedule", "title: A schedule\n    time_limit: 4")
    found = executed(lab, triangle="import time\ntriangle = lambda *given: time.sleep(1000)", total="total = 50.0")
    assert found["attempts"] == 2
    assert found["cells"]["answer-triangle"] == PASSED
    assert found["cells"]["probe-triangle-9"]["outcome"] == "timed out"
    assert found["values"] == {"steps": {"steps": 44}, "total": {"total": 50.0}}


@pytest.mark.slow  # two executions
def test_a_cell_of_the_masters_that_dies_is_the_fault_of_the_answer_before_it(edited, executed):
    shared = "```{code-cell} python3\nimport os\nif steps == 45:\n    os._exit(1)\n```\n\n"
    found = executed(edited("lab.md", "**Task 2.**", shared + "**Task 2.**"), steps="steps = 45")
    assert found["attempts"] == 2
    assert found["cells"]["cell-007"] == PASSED  # in the second attempt
    assert found["values"]["steps"] == {"steps": 45}  # what it emitted before that was only wrong


@pytest.mark.slow  # a time limit
def test_the_time_for_all_cells(edited, executed):
    lab = edited("grading.yaml", "total_time: 600", "total_time: 20")
    found = executed(lab, triangle="import time\ntime.sleep(1000)")
    assert found["stopped"] == "time"
    assert found["cells"]["answer-triangle"]["outcome"] == "timed out"
    assert found["cells"]["probe-total-12"]["outcome"] == "not run"
    assert found["values"] == {"steps": {"steps": 44}}


@pytest.mark.parametrize("fails", ["import os; os._exit(1)", "1 / 0"])
def test_what_fails_before_any_answer_is_not_the_learners_fault(edited, executed, fails):
    edited("grading.yaml", "time_limit: 60", "time_limit: 2")
    lab = edited("lab.md", "batch = 32", f"batch = 32\n{fails}")
    with pytest.raises(LabkitError, match="^tiny: could not be executed: cell cell-002: "):
        executed(lab)


def test_what_a_probe_binds_is_the_next_probes_of_its_task_and_nobody_elses(edited, sandboxed):
    probe = "```{code-cell} python3\n---\nprobe: steps\n---\n"
    lab = edited("lab.md", 'emit("steps", steps)', f'drawn = [seed]\n%time emit("steps", steps)\n```\n\n{probe}'
                 'assert drawn == [7] and batch == 32\nbatch = 7\ndrawn.append(1)')  # fmt: skip
    answers = lab.solutions | {
        "steps": lab.solutions["steps"] + "\nbatch = drawn = seed = emit = 5",
        "total": lab.solutions["total"] + "\nassert (batch, drawn, seed, emit) == (5, 5, 5, 5)",
    }
    found = execution.execute(lab, answers, 7)
    assert {cell["outcome"] for cell in found["cells"].values()} == {"passed"}, found["cells"]
    assert found["values"]["steps"] == {"steps": 44}


@pytest.mark.slow  # ten executions
def test_wrong_answers_get_what_they_declare(tiny, sandboxed):
    rows = check(tiny, mutants_of(tiny))
    assert [row for row in rows if not row.right] == []
    assert len(rows) == 6 + len(mutants_of(tiny))


def test_the_last_part_of_an_answer_decides(tiny, executed, of_master):
    """An error in a copy above it, or a name in its text, changes nothing."""
    steps = PART.join(["steps = = 3", "raise KeyError('earlier')", "half = 22", "steps = 2 * half"])
    found = executed(tiny, steps=steps)
    assert [found["cells"][f"answer-steps-{number}"]["outcome"] for number in (1, 2, 3)] == ["error", "error", "passed"]
    assert found["values"] == of_master["values"]
    wrong = executed(tiny, steps=PART.join(["steps = 44", "x = 1\nsteps = oops"]))
    tasks = grade.score(
        tiny, tiny.solutions | {"steps": "a\n" + PART + "x = 1\nsteps = oops"}, wrong, of_master["values"]
    )
    assert (tasks["steps"]["verdict"], tasks["steps"]["detail"]) == ("error", "raised NameError, line 2")
