"""Answers that do harm, the same for every lab: each costs its own task, and no other."""

import dataclasses

from grader.lab import Lab
from tests.grader.mutants import Mutant

SECONDS = 6  # of the cells of a task that is given the endless loop
HARM = {  # name: (the whole answer cell, its verdict, another that is possible by nature)
    "endless loop": ("while True:\n    pass", "timed out", ""),
    "memory bomb": ("kept = []\nwhile True:\n    kept.append(np.ones(2_000_000))", "crashed", ""),
    # It ends with the limit of processes, or, on a busy machine, with the cell's time.
    "fork bomb": ("import os\nimport time\n\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n"
                  "        time.sleep(0.2)", "crashed", "timed out"),
    "huge output": ("import os\n\nprint('x' * 20_000_000)\nfor _ in range(500):\n    os.write(1, b'x' * 100_000)\n"
                    "raise RuntimeError('y' * 5_000_000)", "error", ""),
}  # fmt: skip


def submissions(lab: Lab) -> list[list[Mutant]]:
    """All of `HARM`, as few submissions as leave one task unharmed; of tasks that do not need one another."""
    tasks = lab.manifest.tasks
    free = [name for name in tasks if not tasks[name].needs and not any(name in its.needs for its in tasks.values())]
    left, found = list(HARM.items()), []
    while left:
        harmed = list(zip(free, left[: max(len(free) - 1, 1)]))
        left = left[len(harmed) :]
        found.append([Mutant(name, task, text, verdict, 0, also) for task, (name, (text, verdict, also)) in harmed])
    return found


def hurried(lab: Lab, pack: list[Mutant]) -> Lab:
    """The lab with limits at which harm ends soon, and with time for an attempt after each."""
    tasks = dict(lab.manifest.tasks)
    for mutant in pack:
        if mutant.verdict == "timed out":
            tasks[mutant.task] = tasks[mutant.task].model_copy(update={"time_limit": SECONDS})
    limits = {"tasks": tasks, "total_time": 600, "memory": 2500, "time_limit": max(lab.manifest.time_limit, 30)}
    return dataclasses.replace(lab, manifest=lab.manifest.model_copy(update=limits))
