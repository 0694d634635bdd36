"""Score answers: the grader's own process compares the values that their execution emitted with the master's.

Points come from the manifest, for values only; nothing that a cell prints or raises earns any.
"""

import builtins
import re
from pathlib import Path

from grader import execution as executions
from grader import handed_in
from grader.answers import normalised
from grader.lab import PART, Lab, LabError, probe_of
from grader.values import difference
from grader.verdicts import CHECK_FAILED, IN_CHECK, MISSING, NOT_COUNTED, NOT_RUN


def score(lab: Lab, answers: dict[str, str], execution: dict, references: dict) -> dict:
    """Verdict, points and details of every task in the notebook, in the manifest's order; reveals no hidden value.

    answers: source by task; references: the encoded values of the master, by task and name.
    """
    tasks = {task: _score_task(lab, task, answers, execution, references) for task in lab.manifest.tasks}
    for task in lab.manifest.tasks:
        _mark_blocked(lab, task, tasks)
    return tasks


def _score_task(lab, task, answers, execution, references):
    description = lab.manifest.tasks[task]
    emitted = execution["values"].get(task, {})
    verdict, detail = _without_values(lab, task, answers, execution)
    lost = [] if verdict else _lost_probes(lab, task, execution)
    values = {}
    for name, value in description.values.items():
        if verdict:
            reason = NOT_COUNTED
        elif name not in emitted:
            reason = CHECK_FAILED if lost else MISSING
        else:
            reason = difference(emitted[name], references[task][name], value.rtol, value.atol)
        values[name] = {"points": 0.0 if reason else value.points, "max_points": value.points, "detail": reason}
    right = sum(not value["detail"] for value in values.values())
    if not verdict and right == len(values):
        verdict = "right"
    elif not verdict:
        verdict, detail = lost[0] if lost else ("wrong", "")
        verdict = "partly right" if right and verdict in ("wrong", "error") else verdict
    return {
        "title": description.title,
        "points": total(value["points"] for value in values.values()),
        "max_points": description.points,
        "verdict": verdict,
        "detail": detail,
        "values": values,
    }


def _without_values(lab, task, answers, execution):
    """Verdict and detail of a task whose values do not count; empty if they do."""
    if task not in answers:
        return "missing", ""
    if normalised(answers[task]) == normalised(lab.stubs[task]):
        return "not done", ""
    return _failure(execution, _cells_of(lab, task)[0], answers[task].rpartition(PART)[2])


def _lost_probes(lab, task, execution):
    """Verdict and detail of each of a task's probes that did not pass, the most serious first."""
    failures = [_failure(execution, cell) for cell in _cells_of(lab, task)[1:]]
    lost = [(verdict, f"a hidden check {detail}" if verdict == "error" else IN_CHECK) for verdict, detail in failures
            if verdict]  # fmt: skip
    return sorted(lost, key=lambda pair: pair[0] == "error")


def _failure(execution, cell, answer=""):
    """Why a cell did not pass, as verdict and detail, both empty if it did. A cell without an outcome was not run.

    answer: the cell's source, if it is the learner's.
    """
    result = execution["cells"].get(cell, {"outcome": "not run", "error": ""})
    outcome = result["outcome"]
    if outcome == "error":
        return "error", f"raised {_error_name(result['error'], answer)}"
    if outcome == "not run":
        return "timed out" if execution["stopped"] == "time" else "crashed", NOT_RUN
    return "" if outcome == "passed" else outcome, ""


def _mark_blocked(lab, task, tasks):
    """Change the verdict of a failed task to blocked if it needs another failed task; it keeps its points."""
    entry = tasks[task]
    if entry["verdict"] not in ("wrong", "error"):
        return
    for other in lab.manifest.tasks[task].needs:
        verdict = tasks[other]["verdict"]
        if verdict not in ("right", "partly right"):
            first = verdict.removeprefix("blocked by ") if verdict.startswith("blocked by ") else other
            entry["verdict"] = f"blocked by {first}"
            return


def _cells_of(lab, task):
    """Ids of a task's cells, the answer's first."""
    return [f"answer-{task}", *(cell["id"] for cell in lab.notebook["cells"] if probe_of(cell) == task)]


def _error_name(error, answer):
    """The type of an error, if it is one of Python's own, and its line in the answer, but never its message.

    An answer runs after the probes of earlier tasks, and could put what they left behind into the message, the type's
    name, or a line number outside of the answer.
    """
    name, line = re.match(r"(\w*)(?:, line (\d+))?", error).groups()
    name = name if isinstance(getattr(builtins, name, None), type) else "an error"
    return f"{name}, line {line}" if line and 1 <= int(line) <= len(answer.splitlines()) else name


def total(points) -> float:
    """Sum of points, without rounding errors of decimal fractions."""
    return round(float(sum(points)), 6)


def references(lab: Lab, seed: int, sandboxed: bool = True) -> dict:
    """Values of the master, executed with this seed; raises LabError if it does not get full marks."""
    execution = executions.execute(lab, lab.solutions, seed, sandboxed)
    for task, entry in score(lab, lab.solutions, execution, execution["values"]).items():
        if entry["verdict"] != "right":
            errors = [execution["cells"][cell]["error"] for cell in _cells_of(lab, task)]
            values = [f"value {name}: {value['detail']}" for name, value in entry["values"].items() if value["detail"]]
            reason = next(filter(None, [*errors, entry["detail"], *values]))[:200]
            raise LabError(f"{lab.folder / 'lab.md'}: the master itself fails: task {task}: {reason}")
    return execution["values"]


def nothing(lab: Lab, student: str, problem: str) -> dict:
    """Result of a submission that could not be graded: 0 points, and the reason."""
    tasks = score(lab, {}, {"cells": {}, "values": {}, "stopped": ""}, {})
    return _result(lab, student, tasks | handed_in.entries(lab, []), problem=problem)


def grade_one(lab: Lab, student: str, answers: dict[str, str], runs: list[Path], references: dict, seed: int,
              sandboxed: bool = True) -> dict:  # fmt: skip
    """Result of one submission: executes and compares its answers, and tests its Run if the lab asks for one."""
    execution = executions.execute(lab, answers, seed, sandboxed)
    tasks = score(lab, answers, execution, references) | handed_in.entries(lab, runs, sandboxed)
    errors = {}  # for the instructor only, since they reveal probes
    for task in answers:
        ends = [(cell, execution["cells"][cell]) for cell in _cells_of(lab, task)]
        if failed := [[cell, end["traceback"] or end["error"]] for cell, end in ends if end["outcome"] == "error"]:
            errors[task] = failed
    return _result(lab, student, tasks, stopped=execution["stopped"], errors=errors)


def _result(lab, student, tasks, problem="", stopped="", errors=None):
    return {
        "student": student,
        "problem": problem,
        "left_out": [],  # a line for each file that could not be used
        "stopped": stopped,
        "score": total(task["points"] for task in tasks.values()),
        "max_score": total([lab.manifest.max_score]),
        "tasks": tasks,
        "errors": errors or {},
    }
