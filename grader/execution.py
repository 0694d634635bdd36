"""Execute a submission: the master with the learner's answers, in a sandbox, as often as necessary.

A cell that times out or kills its kernel ends the attempt. In the next attempt, that task's stub replaces its answer,
so that the answer does not affect the other tasks.
"""

import json
import time

from grader import sandbox
from grader.lab import Lab, answer_of, probe_of
from labkit.system.errors import LabkitError

STOPS = ("timed out", "crashed")


def execute(lab: Lab, answers: dict[str, str], seed: int, sandboxed: bool = True) -> dict:
    """The outcome of each cell and the values that the probes emitted. LabkitError: through no fault of the learner.

    {"cells": {id: {"outcome": passed | error | timed out | crashed | not run, "error", "traceback"}},
    "values": {task: {name: …}}, "attempts": int, "stopped": "" | time | memory | processes | output}. Values are
    included only if both the probe and its answer passed.
    """
    deadline = time.monotonic() + lab.manifest.total_time
    lost = {}  # {task: cells and values of the attempt that it ended}
    attempts, stopped = 0, ""
    while True:
        attempts += 1
        given = {task: source for task, source in answers.items() if task not in lost}
        tasks = {cell["id"]: answer_of(cell) or probe_of(cell) for cell in lab.graded_notebook(given, seed)["cells"]}
        cells, values, limit = _attempt(lab, given, seed, deadline - time.monotonic(), sandboxed)
        stopped = stopped or limit
        last = next((cell for cell in cells if cells[cell]["outcome"] in STOPS), None)
        if fault := _fault(tasks, cells, given, limit) if not (lost and limit == "time") else "":
            raise LabkitError(f"{lab.name}: could not be executed: {fault}")
        task = last and _responsible_task(tasks, last, given)
        if not task:
            break
        lost[task] = {cell: result for cell, result in cells.items() if tasks[cell] == task}, values.get(task, {})
        if deadline - time.monotonic() < 1:
            stopped = "time"
            break
    for task, (lost_cells, lost_values) in lost.items():
        cells |= lost_cells
        values[task] = lost_values
    passed = {task for cell, task in tasks.items() if cell == f"answer-{task}" and cells[cell]["outcome"] == "passed"}
    values = {task: values[task] for task in lab.manifest.tasks if values.get(task) and task in passed}
    return {"cells": cells, "values": values, "attempts": attempts, "stopped": stopped}


def _responsible_task(tasks, last, given):
    """The task whose answer ended an attempt at cell `last`: this cell's, or the nearest earlier one with an answer."""
    until = list(tasks)[: list(tasks).index(last) + 1]
    return next((tasks[cell] for cell in reversed(until) if tasks[cell] in given), None)


def _fault(tasks, cells, given, stopped):
    """What went wrong before an answer was executed, because the machine is too slow or the lab itself fails; or "".

    An error in a cell after a stub does not count: the missing answer may have caused it.
    """
    after_stub = False
    for cell, task in tasks.items():
        outcome = cells[cell]["outcome"]
        if task in given:
            reason = f", stopped at the limit on {stopped}" if stopped else ""
            return f"cell {cell}: not reached{reason}" if outcome == "not run" else ""
        if outcome in STOPS or (outcome == "error" and not after_stub):
            return f"cell {cell}: {cells[cell]['error'] or outcome}"
        after_stub = after_stub or task is not None
    return ""


def _attempt(lab, answers, seed, seconds, sandboxed):
    """Execute once; return the outcomes of the cells, the values, and the limit that stopped the execution."""
    manifest, notebook = lab.manifest, lab.graded_notebook(answers, seed)
    limits = {}
    for cell in notebook["cells"]:
        task = manifest.tasks.get(answer_of(cell) or probe_of(cell))
        limits[cell["id"]] = (task and task.time_limit) or manifest.time_limit
    document = {"notebook": notebook, "seconds": limits, "memory": manifest.memory, "processes": manifest.processes}
    ended = sandbox.run(
        [sandbox.python(), "-m", "grader.inside"],
        stdin=json.dumps(document).encode(),
        limits=sandbox.Limits(max(seconds, 1), manifest.memory, manifest.processes),
        sandboxed=sandboxed,
    )
    not_run = {"outcome": "not run", "error": "", "traceback": ""}
    cells = {cell["id"]: not_run for cell in notebook["cells"]}
    values, running, complete, stopped, failed = {}, None, False, ended.stopped, ""
    for line in map(json.loads, ended.output.split(b"\n")[:-1]):  # the rest after the last line end is incomplete
        if "cell" not in line:
            complete, failed = complete or "complete" in line, failed or line.get("failed", "")
            continue
        running = line["cell"] if line["outcome"] is None else None
        if running:
            continue
        cells[line["cell"]] = {key: line[key] for key in not_run}
        stopped = stopped or line["stopped"]
        if task := next(probe_of(cell) for cell in notebook["cells"] if cell["id"] == line["cell"]):
            values.setdefault(task, {}).update(line["values"])
    if running:
        cells[running] = not_run | {"outcome": "timed out" if ended.stopped == "time" else "crashed"}
    elif failed or not (complete or ended.stopped):
        reason = failed or ended.message or f"status {ended.status}"
        raise LabkitError(f"{lab.name}: could not be executed: {reason}")
    return cells, values, stopped
