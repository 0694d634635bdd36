"""Wrong answers whose grade is known: `MUTANTS` in mutants/LAB.py, executed by tests/grader/check_lab.py."""

from dataclasses import dataclass

# A cheat's way to what its probe knows: all variables of all functions that have called it.
LOOKED_UP = """\
import sys


def looked_up():
    seen, frame = {}, sys._getframe()
    while frame:
        seen = dict(frame.f_locals) | seen
        frame = frame.f_back
    return seen

"""


@dataclass(frozen=True)
class Mutant:
    """One wrong answer to one task, all other answers being the master's, and what the grader must say to it."""

    name: str
    task: str
    source: str  # of the whole answer cell
    verdict: str
    points: float


def slip(solutions: dict[str, str], name: str, task: str, old: str, new: str, verdict: str, points: float) -> Mutant:
    """The master's answer to a task with one piece of it replaced."""
    solution = solutions[task]
    assert solution.count(old) == 1, f"{name}: {old!r} is not in the master's answer to {task}, or twice"
    return Mutant(name, task, solution.replace(old, new), verdict, points)
