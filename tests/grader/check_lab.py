"""Check a lab's grading: its master gets everything, its blank nothing, each mutant what it declares.

python -m tests.grader.check_lab LAB_OR_FOLDER [--mutants FILE] [--only NAME]
"""

import argparse
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from grader import execution
from grader.grade import score
from grader.lab import Lab, load
from labkit.system.errors import LabkitError
from tests.grader.mutants import Mutant

ENDS = ("crashed", "timed out")


@dataclass(frozen=True)
class Row:
    """One wrong answer: its task's verdict and points as declared, and as found."""

    name: str
    task: str
    expected: tuple[str, float]
    found: tuple[str, float]
    seconds: float  # of the execution, which it may share with others
    others: str  # tasks that lost points by it, though they do not need its task

    @property
    def right(self) -> bool:
        return self.found == self.expected and not self.others


def mutants_of(lab: Lab, file: Path | None = None) -> list:
    """Those of a file, or of tests/grader/mutants/LAB.py; raises LabkitError where there is none."""
    file = file or Path(__file__).parent / f"mutants/{lab.name}.py"
    if not file.is_file():
        raise LabkitError(f"{file}: missing: the mutants of {lab.name}; --mutants gives another file")
    return runpy.run_path(str(file))["MUTANTS"]


def all_needs(lab: Lab, task: str) -> set[str]:
    """The tasks that a task needs, and those that these need."""
    needs = lab.manifest.tasks[task].needs
    return set(needs).union(*(all_needs(lab, other) for other in needs))


def packs(lab: Lab, mutants: list) -> list[list]:
    """Mutants that one submission can hold: of different tasks, none of which needs another; one that ends the kernel.

    What ends the kernel has the others executed again without it, so those come to the same.
    """
    packed = []
    for mutant in mutants:
        near = {mutant.task} | all_needs(lab, mutant.task)
        near |= {task for task in lab.manifest.tasks if mutant.task in all_needs(lab, task)}
        for pack in packed:
            ended = any(other.verdict in ENDS for other in pack)
            if not (ended and mutant.verdict in ENDS) and all(other.task not in near for other in pack):
                pack.append(mutant)
                break
        else:
            packed.append([mutant])
    return packed


def check(lab: Lab, mutants: list, tell=lambda row: None) -> list[Row]:
    """Execute master, blank and mutants; `tell` is called with each row as it is found."""
    full = {task: its.points for task, its in lab.manifest.tasks.items()}
    rows, references = [], {}

    def submit(answers, expected):
        nonlocal references
        start = time.monotonic()
        executed = execution.execute(lab, answers, lab.manifest.seed)
        references = references or executed["values"]  # the master is the first
        tasks = score(lab, answers, executed, references)
        seconds = time.monotonic() - start
        changed = {mutant.task for mutant in expected if mutant.name not in ("master", "blank")}
        free = [task for task in full if task not in changed and not changed & all_needs(lab, task)]
        others = [task for task in free if changed and tasks[task]["points"] != full[task]]
        for mutant in expected:
            found = (tasks[mutant.task]["verdict"], tasks[mutant.task]["points"])
            declared = (mutant.verdict, mutant.points)
            rows.append(Row(mutant.name, mutant.task, declared, found, seconds, ", ".join(others)))
            tell(rows[-1])

    submit(lab.solutions, [Mutant("master", task, "", "right", full[task]) for task in full])
    submit(lab.stubs, [Mutant("blank", task, "", "not done", 0) for task in full])
    for pack in packs(lab, mutants):
        submit(lab.solutions | {mutant.task: mutant.source for mutant in pack}, pack)
    return rows


def main() -> None:
    """Print a table; the exit status is 1 where a row is not as declared, or nothing can be checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", help="a name of labs/, or a lab's folder")
    parser.add_argument("--mutants", type=Path, help="the file with them; default: tests/grader/mutants/LAB.py")
    parser.add_argument("--only", help="mutants with this in their name")
    given = parser.parse_args()
    try:
        lab = load(given.lab)
        mutants = [mutant for mutant in mutants_of(lab, given.mutants) if (given.only or "") in mutant.name]
    except LabkitError as error:
        sys.exit(f"Error: {error}")
    if given.only and not mutants:
        sys.exit(f"Error: --only {given.only}: no mutant of {lab.name} has that in its name")
    for mutant in mutants:
        if mutant.task not in lab.manifest.tasks:
            sys.exit(f"{mutant.name}: {mutant.task} is no task of {lab.name}")

    def tell(row):
        mark = "  " if row.right else "X "
        lost = f"   others lost points: {row.others}" if row.others else ""
        expected, found = (f"{verdict}, {points:g}" for verdict, points in (row.expected, row.found))
        line = f"{mark}{row.name[:32]:32} {row.task[:20]:20} {expected:20} {found:20} {row.seconds:5.1f} s{lost}"
        print(line, flush=True)

    print(f"  {'answer':32} {'task':20} {'expected':20} {'found':20} seconds")
    wrong = [row for row in check(lab, mutants, tell) if not row.right]
    print(f"{lab.name}: {len(wrong)} not as declared" if wrong else f"{lab.name}: all as declared")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
