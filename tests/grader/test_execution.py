"""What an execution tells of each cell, and whose values count."""

import os

import pytest
from waiting import wait_until

from grader import execution, grade, sandbox
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


@in_both
def test_the_master_passes_and_is_the_same_again(tiny, executed):
    found = executed(tiny)
    assert set(map(str, found["cells"].values())) == {str(PASSED)}
    assert list(found["cells"]) == [cell["id"] for cell in tiny.graded_notebook({}, 7)["cells"]]
    assert (found["attempts"], found["stopped"]) == (1, "")
    assert found["values"]["steps"] == {"steps": 44}
    assert found == executed(tiny)


def test_errors_are_told_in_a_line(tiny, executed):
    found = executed(
        tiny, steps="steps = batch_size", triangle="raise ValueError('first\\nsecond')", total="total = 1 +"
    )
    errors = {cell: found["cells"][f"answer-{cell}"]["error"] for cell in tiny.solutions}
    assert errors["steps"] == "NameError, line 1: name 'batch_size' is not defined"
    assert errors["triangle"] == "ValueError, line 1: first"
    assert errors["total"].startswith("SyntaxError, line 1: invalid syntax")
    assert found["cells"]["cell-002"] == PASSED
    assert found["values"] == {}


def test_names_of_python_that_a_learner_binds_are_not_those_of_the_probes(tiny, executed):
    """`int`, `float` and `str` are asked for by the probe of `triangle`, and `globals` by none of the learner's."""
    own = "int = float = str = globals = None\nsteps = 44"
    found = executed(tiny, steps=own)
    assert found["values"]["steps"] == {"steps": 44}
    assert found["values"]["triangle"] == executed(tiny)["values"]["triangle"]


def test_an_error_is_kept_in_full_for_the_instructor_and_is_the_same_again(tiny, sandboxed):
    answers = tiny.solutions | {
        "steps": "def half(x):\n    return x.lower\n\nhalf(object())",
        "triangle": "def triangle(steps, lr_max):\n    raise ValueError('first\\nsecond')",
    }
    reference = execution.execute(tiny, tiny.solutions, 7)["values"]
    first, second = (grade.grade_one(tiny, "ann", answers, (), reference, 7) for _ in range(2))
    assert first == second
    [[cell, own], _], [[probe, text]] = first["errors"]["steps"], first["errors"]["triangle"]
    assert (cell, probe[:14]) == ("answer-steps", "probe-triangle")
    assert "----> 2     return x.lower" in own and "line 4" in own and own.endswith("has no attribute 'lower'")
    assert "rates = triangle(" in text and text.endswith("ValueError: first\nsecond") and "\x1b" not in text
    assert "labkit" not in text and "LABKIT" not in text
    assert "first" not in str(first["tasks"]) and "lower" not in str(first["tasks"])


def test_an_answer_that_failed_after_its_value_was_there_counts_for_nothing(tiny, executed):
    found = executed(tiny, steps="steps = 44\nassert False")
    assert found["cells"]["probe-steps-5"] == PASSED
    assert "steps" not in found["values"] and found["values"]["total"]


@in_both
def test_a_kernel_that_dies_costs_its_task(tiny, executed):
    found = executed(tiny, triangle="import os\nos._exit(1)")
    assert found["attempts"] == 2
    assert found["cells"]["answer-triangle"]["outcome"] == "crashed"
    assert found["cells"]["probe-triangle-9"]["outcome"] == "not run"
    assert found["cells"]["answer-steps"] == PASSED
    assert found["values"] == {"steps": {"steps": 44}}


def test_a_probe_that_never_ends_costs_its_task(edited, executed):
    lab = edited("grading.yaml", "title: A schedule", "title: A schedule\n    time_limit: 4")
    found = executed(lab, triangle="import time\ntriangle = lambda *given: time.sleep(1000)", total="total = 50.0")
    assert found["attempts"] == 2
    assert found["cells"]["answer-triangle"] == PASSED
    assert found["cells"]["probe-triangle-9"]["outcome"] == "timed out"
    assert found["values"] == {"steps": {"steps": 44}, "total": {"total": 50.0}}


def test_a_cell_of_the_masters_that_dies_is_the_fault_of_the_answer_before_it(edited, executed):
    shared = "```{code-cell} python3\nimport os\nif steps == 45:\n    os._exit(1)\n```\n\n"
    lab = edited("lab.md", "**Task 2.**", shared + "**Task 2.**")
    found = executed(lab, steps="steps = 45")
    assert found["attempts"] == 2
    assert found["cells"]["cell-007"] == PASSED  # in the second attempt
    assert set(found["values"]) == {"steps", "triangle", "total"}  # what it emitted before that was only wrong
    assert found["values"]["steps"] == {"steps": 45}


@in_both
def test_the_time_for_all_cells(edited, executed):
    lab = edited("grading.yaml", "total_time: 600", "total_time: 20")
    found = executed(lab, triangle="import time\ntime.sleep(1000)")
    assert found["stopped"] == "time"
    assert found["cells"]["answer-triangle"]["outcome"] == "timed out"
    assert found["cells"]["probe-total-12"]["outcome"] == "not run"
    assert found["values"] == {"steps": {"steps": 44}}


@in_both
def test_memory_is_freed_with_the_task(edited, executed):
    lab = edited("grading.yaml", "title: Steps\n    time_limit: 5", "title: Steps\n    time_limit: 60")  # not by time
    found = executed(lab, steps="kept = []\nwhile True:\n    kept.append(np.ones(2_000_000))")
    assert (found["stopped"], found["attempts"]) == ("memory", 2)
    assert found["cells"]["answer-steps"]["outcome"] == "crashed"
    assert set(found["values"]) == {"triangle", "total"}


def test_a_broken_environment_is_not_the_learners_fault(tiny, monkeypatch):
    monkeypatch.setattr(sandbox, "python", lambda: "/usr/bin/false")
    with pytest.raises(execution.ExecutionError, match="^tiny: could not be executed: "):
        execution.execute(tiny, tiny.solutions, 7, sandboxed=False)


@pytest.mark.parametrize("fails", ["import time; time.sleep(1000)", "import os; os._exit(1)", "1 / 0"])
def test_what_fails_before_any_answer_is_not_the_learners_fault(edited, executed, fails):
    edited("grading.yaml", "time_limit: 60", "time_limit: 2")
    lab = edited("lab.md", "batch = 32", f"batch = 32\n{fails}")
    with pytest.raises(execution.ExecutionError, match="^tiny: could not be executed: cell cell-002: "):
        executed(lab)


def test_too_little_time_to_reach_an_answer_is_not_the_learners_fault(edited, executed):
    edited("grading.yaml", "total_time: 600", "total_time: 0.1")
    lab = edited("lab.md", "batch = 32", "batch = 32\nimport time\ntime.sleep(100)")
    end = "(answer-steps: not reached, stopped at the limit on time|cell-002: timed out)$"
    with pytest.raises(execution.ExecutionError, match=f"^tiny: could not be executed: cell {end}"):
        executed(lab)


def test_a_notebook_that_cannot_be_read_is_not_the_learners_fault(tiny, monkeypatch):
    notebook = tiny.graded_notebook({}, 7)
    monkeypatch.setattr(type(tiny), "graded_notebook", lambda *_: notebook | {"nbformat": 99})
    with pytest.raises(execution.ExecutionError, match="^tiny: could not be executed: no notebook: .*99"):
        execution.execute(tiny, tiny.solutions, 7, sandboxed=False)


def test_a_kernel_that_does_not_start_is_not_the_learners_fault(tiny, tmp_path, monkeypatch):
    (tmp_path / "ipykernel_launcher.py").write_text("raise SystemExit(1)")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH={tmp_path}:$PYTHONPATH\nexec {sandbox.python()} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sandbox, "python", lambda: str(python))
    with pytest.raises(execution.ExecutionError, match="^tiny: could not be executed: no kernel: RuntimeError: "):
        execution.execute(tiny, tiny.solutions, 7, sandboxed=False)


def test_a_kernel_that_the_system_killed_for_memory_is_not_the_learners_fault(tiny, monkeypatch):
    """The system's count is all that is made up: memory cannot run out in a test."""
    answers = tiny.solutions | {"steps": "import os\nos.kill(os.getpid(), 9)"}
    counted = iter([3, 4])
    monkeypatch.setattr(execution, "_killed_for_memory", lambda: next(counted))
    with pytest.raises(execution.ExecutionError, match="this machine ran out of memory$"):
        execution.execute(tiny, answers, 7, sandboxed=False)
    counted = iter([4, 4, 4, 5])
    assert execution.execute(tiny, answers, 7, sandboxed=False)["cells"]["answer-steps"]["outcome"] == "crashed"


def test_output_that_comes_late_is_waited_for_as_long_as_the_cell_has(edited, executed):
    late = """
import time
session = get_ipython().kernel.session
send = session.send
def last(stream, kind, content=None, *more, **others):
    if kind == "status" and content["execution_state"] == "idle":
        time.sleep(6)
        session.send = send
    return send(stream, kind, content, *more, **others)
session.send = last
"""
    lab = edited("grading.yaml", "title: Steps\n    time_limit: 5", "title: Steps\n    time_limit: 60")
    found = executed(lab, steps=late + "steps = 44")
    assert found["cells"]["answer-steps"] == PASSED
    assert found["values"]["steps"] == {"steps": 44}


@in_both
@pytest.mark.parametrize("last", ["os.chmod(inner, 0)", "os.chmod(folder, 0)", "shutil.rmtree(folder)"])
def test_what_an_answer_does_to_the_folder_of_values_costs_its_task_at_most(tiny, executed, last):
    wreck = f"""
import os, pathlib, shutil, threading, time
folder = pathlib.Path(os.environ["LABKIT_VALUES"])
inner = folder / "x"
(inner / "y").mkdir(parents=True)
{last}
"""
    found = executed(tiny, triangle=tiny.solutions["triangle"] + wreck)
    assert found["attempts"] == 1
    assert set(found["values"]) == {"steps", "triangle", "total"}


def test_where_no_probe_can_emit_only_the_task_is_lost_that_did_it(tiny):
    """Without a sandbox, or in one of somebody who is not root, the home is the learner's own."""
    wreck = "import os, shutil\nhome = os.environ['HOME']\nshutil.rmtree(home)\nopen(home, 'w').close()"
    found = execution.execute(tiny, tiny.solutions | {"triangle": wreck}, 7, sandboxed=False)
    assert (found["attempts"], found["cells"]["probe-triangle-9"]["outcome"]) == (2, "crashed")
    assert found["values"] == {"steps": {"steps": 44}}


@in_both
def test_nothing_is_left_behind(tiny, executed, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/dev/shm"))
    executed(tiny)
    assert not list(tmp_path.iterdir())
    wait_until(lambda: set(os.listdir("/dev/shm")) <= before)  # other tests' files may be there for a moment


def test_wrong_answers_get_what_they_declare(tiny, sandboxed):
    rows = check(tiny, mutants_of(tiny))
    assert [row for row in rows if not row.right] == []
    assert len(rows) == 6 + len(mutants_of(tiny))
