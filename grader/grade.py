"""What an answer is worth: values that its execution emitted, compared with the master's in the grader's own process.

Points are those of the manifest, for values alone; nothing that a cell prints, raises or leaves out earns any.
"""

import builtins
import re
from pathlib import Path

from grader import execution as executions
from grader import handed_in
from grader.answers import normalised
from grader.lab import Lab, LabError, answer_of, probe_of
from grader.values import difference
from grader.verdicts import CHECK_FAILED, IN_CHECK, MISSING, NOT_COUNTED, NOT_RUN


def score(lab: Lab, answers: dict[str, str], execution: dict, references: dict) -> dict:
    """Verdict, points and details of every task of the notebook, in the manifest's order; shows no hidden value.

    answers: source by task; references: the encoded values of the master, by task and name.
    """
    tasks = {task: _score_task(lab, task, answers, execution, references) for task in lab.manifest.tasks}
    for task in lab.manifest.tasks:
        _find_what_blocks(lab, task, tasks)
    return tasks


def _score_task(lab, task, answers, execution, references):
    described = lab.manifest.tasks[task]
    emitted = execution["values"].get(task, {})
    verdict, detail = _without_values(lab, task, answers, execution)
    lost = [] if verdict else _lost_probes(lab, task, execution)
    values = {}
    for name, value in described.values.items():
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
        "title": described.title,
        "points": total(value["points"] for value in values.values()),
        "max_points": described.points,
        "verdict": verdict,
        "detail": detail,
        "values": values,
    }


def _without_values(lab, task, answers, execution):
    """Verdict and detail of a task that earns nothing whatever was emitted; empty where its values count."""
    if task not in answers:
        return "missing", ""
    if normalised(answers[task]) == normalised(lab.stubs[task]):
        return "not done", ""
    return _failure(execution, _cells_of(lab, task)[0], answers[task])


def _lost_probes(lab, task, execution):
    """Verdict and detail of each of a task's probes that did not pass, the gravest first."""
    failures = [_failure(execution, cell) for cell in _cells_of(lab, task)[1:]]
    lost = [(verdict, f"a hidden check {detail}" if verdict == "error" else IN_CHECK) for verdict, detail in failures
            if verdict]  # fmt: skip
    return sorted(lost, key=lambda pair: pair[0] == "error")


def _failure(execution, cell, answer=""):
    """Why a cell did not pass plainly, as verdict and detail, both empty where it did. No outcome at all is none.

    answer: its source, where that is the learner's.
    """
    found = execution["cells"].get(cell, {"outcome": "not run", "error": ""})
    outcome = found["outcome"]
    if outcome == "error":
        return "error", f"raised {_told(found['error'], answer)}"
    if outcome == "not run":
        return "timed out" if execution["stopped"] == "time" else "crashed", NOT_RUN
    return "" if outcome == "passed" else outcome, ""


def _find_what_blocks(lab, task, tasks):
    """A task that failed, and needs one that failed, is blocked by it; what it earned it keeps."""
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
    cells = lab.notebook["cells"]
    own = [cell["id"] for cell in cells if answer_of(cell) == task]
    return own + [cell["id"] for cell in cells if probe_of(cell) == task]


def _told(error, answer):
    """Name of an error's type, and in an answer of its line. No message, and no name but Python's own.

    An answer runs behind the probes of the tasks before it, and could put what these have left into its words, or
    into a number that is none of its lines.
    """
    name, line = re.match(r"(\w*)(?:, line (\d+))?", error).groups()
    known = name if isinstance(getattr(builtins, name, None), type) else "an error"
    return f"{known}, line {line}" if line and 1 <= int(line) <= len(answer.splitlines()) else known


def total(points) -> float:
    """Sum of points, without the last digits that decimal fractions leave."""
    return round(float(sum(points)), 6)


def references(lab: Lab, seed: int, sandboxed: bool = True) -> dict:
    """Values of the master, executed with this seed; raises LabError where it does not score 100%."""
    found = executions.execute(lab, lab.solutions, seed, sandboxed)
    for task, entry in score(lab, lab.solutions, found, found["values"]).items():
        if entry["verdict"] != "right":
            errors = [found["cells"][cell]["error"] for cell in _cells_of(lab, task)]
            values = [f"value {name}: {value['detail']}" for name, value in entry["values"].items() if value["detail"]]
            why = next(filter(None, [*errors, entry["detail"], *values]))[:200]
            raise LabError(f"{lab.folder / 'lab.md'}: the master itself fails: task {task}: {why}")
    return found["values"]


def nothing(lab: Lab, student: str, problem: str) -> dict:
    """Result of a submission that could not be graded: 0 points, and why."""
    tasks = score(lab, {}, {"cells": {}, "values": {}, "stopped": ""}, {})
    return _result(lab, student, tasks | _run_entry(lab, [], True), problem=problem)


def grade_one(lab: Lab, student: str, answers: dict[str, str], runs: list[Path], references: dict, seed: int,
              sandboxed: bool = True) -> dict:  # fmt: skip
    """Result of one submission: its answers executed and compared, and its Run, if the lab asks for one, examined."""
    execution = executions.execute(lab, answers, seed, sandboxed)
    tasks = score(lab, answers, execution, references) | _run_entry(lab, runs, sandboxed)
    errors = _errors(lab, answers, execution)
    return _result(lab, student, tasks, stopped=execution["stopped"], errors=errors)


def _errors(lab, answers, execution):
    """{task: [[cell, traceback], ...]} of what was handed in and its probes; it tells of probes: for the instructor."""
    found = {}
    for task in answers:
        ended = [[cell, execution["cells"][cell]] for cell in _cells_of(lab, task)]
        errors = [[cell, its["traceback"] or its["error"]] for cell, its in ended if its["outcome"] == "error"]
        found |= {task: errors} if errors else {}
    return found


def _run_entry(lab, runs, sandboxed):
    wanted = lab.manifest.run
    if wanted is None:
        return {}
    if len(runs) == 1:
        return {wanted.name: handed_in.examine(lab, runs[0], sandboxed)}
    return {wanted.name: handed_in.not_one(wanted, runs)}


def _result(lab, student, tasks, problem="", stopped="", errors=None):
    return {
        "student": student,
        "problem": problem,
        "stopped": stopped,
        "score": total(task["points"] for task in tasks.values()),
        "max_score": total([lab.manifest.max_score]),
        "tasks": tasks,
        "errors": errors or {},
    }
