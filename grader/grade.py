"""What an answer is worth: values that its execution emitted, compared with the master's in the grader's own process.

Points are those of the manifest, for values alone; nothing that a cell prints, raises or leaves out earns any.
"""

import ast
import builtins
import re
from functools import lru_cache
from pathlib import Path

from grader import execution as executions
from grader import handed_in
from grader.answers import normalised
from grader.lab import Lab, LabError, answer_of, probe_of, source
from grader.values import difference
from grader.verdicts import CHECK_FAILED, CHECK_LATE, MISSING, NOT_COUNTED

OUTCOMES = {  # verdict and detail
    "passed": ("", ""),
    "timed out": ("timed out", "took longer than allowed"),
    "crashed": ("crashed", "ended the kernel"),
}
NOT_RUN = "was not run, as what came before it used up all that is allowed"
LONGEST_MESSAGE = 200  # characters
NO_NETWORK = ("gaierror", "URLError")  # errors of Python's library without a network; they are OSErrors


def score(lab: Lab, answers: dict[str, str], execution: dict, references: dict) -> dict:
    """Verdict, points and details of every task of the notebook, in the manifest's order; shows no hidden value.

    answers: source by task, without those that were not handed in; execution: of `execution.execute`; references: the
    encoded values of the master, executed with the same seed, by task and name.
    """
    tasks = {task: _score_task(lab, task, answers, execution, references) for task in lab.manifest.tasks}
    for task in lab.manifest.tasks:
        _find_what_blocks(lab, task, tasks)
    return tasks


def _score_task(lab, task, answers, execution, references):
    described = lab.manifest.tasks[task]
    emitted = execution["values"].get(task, {})
    verdict, detail = _without_values(lab, task, answers, execution)
    lost = {} if verdict else _lost_probes(lab, task, execution)
    values = {}
    for name, value in described.values.items():
        if verdict:
            reason = NOT_COUNTED
        elif gone := lost.keys() & _emitting(lab, task, name):
            late = any(lost[cell][0] == "timed out" for cell in gone)
            reason = CHECK_LATE if late else CHECK_FAILED
        elif name not in emitted:
            reason = MISSING
        else:
            reason = difference(emitted[name], references[task][name], value.rtol, value.atol)
        values[name] = {"points": 0.0 if reason else value.points, "max_points": value.points, "detail": reason}
    right = sum(not value["detail"] for value in values.values())
    if not verdict and right == len(values):
        verdict = "right"
    elif not verdict:
        verdict, detail = next(iter(lost.values()), ("wrong", ""))
        if right:
            verdict = "partly right" if verdict in ("wrong", "error") else verdict
            detail = _joined(f"{right} of {len(values)} values are right", detail)
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
        return "missing", f"the notebook has no cell answer-{task}"
    if normalised(answers[task]) == normalised(lab.stubs[task]):
        return "not done", ""
    return _failure(execution, _cells_of(lab, task)[0], answers[task])


def _lost_probes(lab, task, execution):
    """Verdict and detail of each of a task's probes that did not pass, by cell; the gravest first."""
    found = {cell: _failure(execution, cell) for cell in _cells_of(lab, task)[1:]}
    lost = {cell: (verdict, f"a hidden check of it {detail}") for cell, (verdict, detail) in found.items() if verdict}
    return dict(sorted(lost.items(), key=lambda item: item[1][0] == "error"))


def _failure(execution, cell, answer=""):
    """Why a cell did not pass plainly, as verdict and detail, both empty where it did. No outcome at all is none.

    answer: its source, where that is the learner's.
    """
    found = execution["cells"].get(cell, {"outcome": "not run", "error": ""})
    if found["outcome"] == "error":
        return "error", f"raised {_told(found['error'], answer)}"
    return OUTCOMES.get(found["outcome"]) or ("timed out" if execution["stopped"] == "time" else "crashed", NOT_RUN)


def _find_what_blocks(lab, task, tasks):
    """A task that failed, and needs one that failed, is blocked by it; what it earned it keeps."""
    entry = tasks[task]
    if entry["verdict"] not in ("wrong", "error"):
        return
    for other in lab.manifest.tasks[task].needs:
        verdict = tasks[other]["verdict"]
        if verdict == "partly right":
            entry["detail"] = _joined(entry["detail"], f"it needs {other}, which is partly right")
        elif verdict != "right":
            first = verdict.removeprefix("blocked by ") if verdict.startswith("blocked by ") else other
            entry["verdict"] = f"blocked by {first}"
            return


def _joined(*parts):
    return "; ".join(part for part in parts if part)


def _cells_of(lab, task):
    """Ids of a task's cells, the answer's first."""
    cells = lab.notebook["cells"]
    own = [cell["id"] for cell in cells if answer_of(cell) == task]
    return own + [cell["id"] for cell in cells if probe_of(cell) == task]


def _emitting(lab, task, name):
    """Ids of the task's probes that emit this value; of all of them, where their source does not tell."""
    probes = {cell["id"]: source(cell) for cell in lab.notebook["cells"] if probe_of(cell) == task}
    named = {cell: _names_emitted(text) for cell, text in probes.items()}
    return [cell for cell, names in named.items() if name in names] or list(probes)


@lru_cache(maxsize=256)
def _names_emitted(text):
    """Names that a probe of the master emits, as far as they stand there as text."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a magic of IPython
        return frozenset()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    calls = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "emit"]
    return frozenset(node.args[0].value for node in calls if isinstance(node.args[0], ast.Constant))


def _told(error, answer):
    """Name of an error's type, and in an answer of its line. No message, and no name but Python's own.

    An answer runs behind the probes of the tasks before it, and could put what these have left into its words, or
    into a number that is none of its lines.
    """
    name, line = re.match(r"(\w*)(?:, line (\d+))?", error).groups()
    name = "OSError" if name in NO_NETWORK else name
    known = name if isinstance(getattr(builtins, name, None), type) else "an error"
    return f"{known}, line {line}" if line and 1 <= int(line) <= len(answer.splitlines()) else known


def total(points) -> float:
    """Sum of points, without the last digits that decimal fractions leave."""
    return round(float(sum(points)), 6)


def references(lab: Lab, seed: int, sandboxed: bool = True) -> dict:
    """Values of the master, executed with this seed; raises LabError where it does not score 100%."""
    file = lab.folder / "lab.md"
    found = executions.execute(lab, lab.solutions, seed, sandboxed)
    for task, described in lab.manifest.tasks.items():
        for cell in _cells_of(lab, task):
            verdict, detail = _failure(found, cell)
            if verdict:
                error = found["cells"][cell]["error"] or detail
                raise LabError(f"{file}, cell {cell}: the master itself fails: {error[:LONGEST_MESSAGE]}")
        lacking = sorted(set(described.values) - set(found["values"].get(task, {})))
        if lacking:
            raise LabError(f"{file}: no probe of task {task} emits {lacking[0]}")
    for task, entry in score(lab, lab.solutions, found, found["values"]).items():
        wrong = [f"value {name}: {value['detail']}" for name, value in entry["values"].items() if value["detail"]]
        if wrong:
            raise LabError(f"{file}: the master itself fails: task {task}: {entry['detail'] or wrong[0]}")
    return found["values"]


def nothing(lab: Lab, student: str, problem: str) -> dict:
    """Result of a submission of which nothing could be graded: 0 points, and why."""
    tasks = score(lab, {}, {"cells": {}, "values": {}, "stopped": ""}, {})
    for task in tasks.values():
        task["detail"] = ""
    return _result(lab, student, tasks | _run_entry(lab, [], True), problem=problem)


def grade_one(lab: Lab, student: str, answers: dict[str, str], runs: list[Path], references: dict, seed: int,
              sandboxed: bool = True) -> dict:  # fmt: skip
    """Result of one submission: its answers executed and compared, and its Run, of which there is one, examined."""
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
