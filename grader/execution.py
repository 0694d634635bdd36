"""Execute a submission: the master with the learner's answers, in a sandbox, as often as it takes.

A cell that times out or kills its kernel ends the attempt. The next one has that task's stub in the place of its
answer, so that the other tasks are judged as if it had never been there.
"""

import json
import time

from grader import sandbox
from grader.lab import Lab, answer_of, probe_of
from labkit.system.errors import LabkitError

STOPS = ("timed out", "crashed")


class ExecutionError(LabkitError):
    """A notebook that could not be executed for reasons that are not the learner's."""


def execute(lab: Lab, answers: dict[str, str], seed: int, sandboxed: bool = True) -> dict:
    """Outcome of each cell and the values that counted probes emitted; raises ExecutionError, SandboxError.

    {"cells": {id: {"outcome": passed | error | timed out | crashed | not run, "error", "traceback"}},
    "values": {task: {name: …}}, "attempts": int, "stopped": "" | time | memory | processes | output}. Values are
    included only if the probe and its answer both passed.
    """
    deadline = time.monotonic() + lab.manifest.total_time
    tasks = {cell["id"]: answer_of(cell) or probe_of(cell) for cell in lab.graded_notebook({}, seed)["cells"]}
    lost = {}  # task: cells and values of the attempt that it ended
    attempts, stopped = 0, ""
    while True:
        attempts += 1
        given = {task: source for task, source in answers.items() if task not in lost}
        cells, values, why = _attempt(lab, given, seed, deadline - time.monotonic(), sandboxed)
        stopped = stopped or why
        last = next((cell for cell in cells if cells[cell]["outcome"] in STOPS), None)
        if fault := _fault(tasks, cells, given, why) if not (lost and why == "time") else "":
            raise ExecutionError(f"{lab.name}: could not be executed: {fault}")
        task = last and _to_blame(tasks, last, given)
        if not task:
            break
        lost[task] = {cell: found for cell, found in cells.items() if tasks[cell] == task}, values.get(task, {})
        if deadline - time.monotonic() < 1:
            stopped = "time"
            break
    for task, (its_cells, its_values) in lost.items():
        cells |= its_cells
        values[task] = its_values
    passed = {task for cell, task in tasks.items() if cell == f"answer-{task}" and cells[cell]["outcome"] == "passed"}
    values = {task: values[task] for task in lab.manifest.tasks if values.get(task) and task in passed}
    return {"cells": cells, "values": values, "attempts": attempts, "stopped": stopped}


def _to_blame(tasks, last, given):
    """The task whose answer ended an attempt at cell `last`: its own, or the nearest before it that has an answer."""
    if tasks[last] in given:
        return tasks[last]
    before = list(tasks)[: list(tasks).index(last)]
    return next((tasks[cell] for cell in reversed(before) if tasks[cell] in given), None)


def _fault(tasks, cells, given, stopped):
    """What went wrong before an answer was executed: the machine is too slow, or the lab itself fails. "" if nothing.

    What only raises behind a stub, in the place of an answer that is missing, may do so because of it.
    """
    behind = False
    for cell, task in tasks.items():
        outcome = cells[cell]["outcome"]
        if task in given:
            reason = f", stopped at the limit on {stopped}" if stopped else ""
            return f"cell {cell}: not reached{reason}" if outcome == "not run" else ""
        if outcome in STOPS or (outcome == "error" and not behind):
            return f"cell {cell}: {cells[cell]['error'] or outcome}"
        behind = behind or task is not None
    return ""


def _attempt(lab, answers, seed, seconds, sandboxed):
    """One execution: cells, values, and the limit that stopped it."""
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
    nothing = {"outcome": "not run", "error": "", "traceback": ""}
    cells = {cell["id"]: nothing for cell in notebook["cells"]}
    values, running, complete, stopped, failed = {}, None, False, ended.stopped, ""
    for line in map(json.loads, ended.output.split(b"\n")[:-1]):  # the last one, if there is any, is not whole
        if "cell" not in line:
            complete, failed = complete or "complete" in line, failed or line.get("failed", "")
            continue
        running = line["cell"] if line["outcome"] is None else None
        if running:
            continue
        cells[line["cell"]] = {key: line[key] for key in nothing}
        stopped = stopped or line["stopped"]
        if task := next(probe_of(cell) for cell in notebook["cells"] if cell["id"] == line["cell"]):
            values.setdefault(task, {}).update(line["values"])
    if running:
        cells[running] = nothing | {"outcome": "timed out" if ended.stopped == "time" else "crashed"}
    elif failed or not (complete or ended.stopped):
        reason = failed or ended.message or f"status {ended.status}"
        raise ExecutionError(f"{lab.name}: could not be executed: {reason}")
    return cells, values, stopped
