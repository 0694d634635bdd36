"""A lab as its instructor has it: the master notebook, and `grading.yaml`, which says what is worth how many points.

Keys in the metadata of a code cell of the master:
- answer: TASK   the learner's cell; what stands between `# BEGIN SOLUTION` and `# END SOLUTION` is the instructor's
- probe: TASK    hidden: emits values that depend on the answer; a task may have several
Cells tagged `ungraded` (self-checks, figures, long trainings) are for the learner; grading leaves them out.
"""

import copy
import dis
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from grader.values import NAME
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.training.schema import Count, NotNegative, Part, Positive, Share

VALUES = "__import__('grader.values', fromlist=['values'])"
BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
MARKER = re.compile(r"#+\s*(begin|end)\s+solution\s*$", re.IGNORECASE)  # and what was meant to be one
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class LabError(LabkitError):
    """A lab that cannot be used: one line that names the file, and the key or the cell."""


class Value(Part):
    """One emitted value: what it is, its points, and how far it may be from the master's."""

    title: str = ""  # as the learner reads it; its name, where none is given
    points: NotNegative
    rtol: NotNegative = 1e-5
    atol: NotNegative = 1e-8
    next: str = ""  # what to try when the learner's differs; a sentence without its capital


class Task(Part):
    """One question. Its points are those of its values."""

    title: str
    values: Annotated[dict[Name, Value], Field(min_length=1)]
    needs: list[Name] = []  # tasks without which this one cannot work
    time_limit: Positive | None = None  # seconds for each of its cells; the lab's, where none is given

    @property
    def points(self) -> float:
        """What the task is worth with all values right."""
        return sum(value.points for value in self.values.values())


class HandedInRun(Part):
    """The task that is handed in as a Run: what it was to be trained on, and what its checkpoint must reach."""

    name: Name = "run"
    title: str
    profile: str  # of the lab's recipe
    may_change: list[str]  # keys of the recipe, dotted: "epochs", "schedule", "schedule.lr_max"
    at_most: dict[str, float] = {}  # largest value of a key, such as epochs: 6
    accuracy: Share  # on the test images, by the grader's own evaluation
    points: Annotated[dict[Literal["complete", "recipe", "accuracy"], NotNegative], Field(min_length=3)]
    solution: list[str]  # settings of the instructor's own Run, as for `labkit train --set`
    time_limit: Positive = 120.0


class Manifest(Part):
    """`grading.yaml`."""

    title: str
    seed: int  # of the probes' random numbers; `labkit grade --seed` gives another
    time_limit: Positive = 30.0  # seconds a cell
    total_time: Positive = 300.0  # seconds a submission, all attempts together
    memory: Count = 6000  # MB for all processes of a submission
    processes: Count = 256  # processes and threads
    tasks: Annotated[dict[Name, Task], Field(min_length=1)]
    run: HandedInRun | None = None

    @model_validator(mode="after")
    def _fits_together(self):
        for name, task in self.tasks.items():
            if strange := set(task.needs) - self.tasks.keys():
                raise ValueError(f"tasks.{name}.needs: {min(strange)} is no task")
        if self.run and self.run.name in self.tasks:
            raise ValueError(f"run.name: {self.run.name} is a task's name too")
        return self

    @property
    def questions(self) -> dict[str, tuple[str, float]]:
        """Title and points of each task, the Run's last."""
        found = {name: (task.title, task.points) for name, task in self.tasks.items()}
        return found | ({self.run.name: (self.run.title, sum(self.run.points.values()))} if self.run else {})

    @property
    def max_score(self) -> float:
        """What notebook and Run are worth together."""
        return sum(points for _, points in self.questions.values())


@dataclass(frozen=True)
class Lab:
    """Master and manifest of labs/NAME, read and checked by `load`."""

    name: str
    folder: Path
    manifest: Manifest
    notebook: dict  # nbformat 4, as JSON; cells have stable ids

    @cached_property
    def digest(self) -> str:
        """SHA-256 of master and manifest."""
        files = [self.folder / name for name in ("lab.md", "grading.yaml")]
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

    @cached_property
    def solutions(self) -> dict[str, str]:
        """The master's own source of each answer cell, by task."""
        return {answer_of(cell): source(cell) for cell in self.notebook["cells"] if answer_of(cell)}

    @cached_property
    def stubs(self) -> dict[str, str]:
        """What the learner finds in each answer cell, by task."""
        return {task: without_solution(text) for task, text in self.solutions.items()}

    @cached_property
    def graded_cells(self) -> list[dict]:
        """The code cells of the master that are executed: answers, probes, and what both need."""
        code = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        return [c for c in code if answer_of(c) or probe_of(c) or "ungraded" not in c["metadata"].get("tags", [])]

    def graded_notebook(self, answers: dict[str, str], seed: int) -> dict:
        """The notebook to execute: the master's cells with these answers, stubs where there is none, and the probes.

        A probe finds `emit(name, value)` and `seed`, an int, and binds no name of the learner's. Cells keep `answer`
        and `probe` in their metadata and nothing else, so that no tag reaches nbval.
        """
        notebook = self.notebook | {"cells": copy.deepcopy(self.graded_cells)}
        asked = set().union(*map(bound, self.solutions.values()))
        for cell in notebook["cells"]:
            answer, probe, text = answer_of(cell), probe_of(cell), source(cell)
            cell["metadata"] = {key: cell["metadata"][key] for key in ("answer", "probe") if key in cell["metadata"]}
            if answer:
                cell["source"] = answers.get(answer, self.stubs[answer])
            elif probe:
                cell["source"] = f"{VALUES}.probe({probe!r}, {seed}, {text!r})"
            elif names := sorted(bound(text) - asked):
                cell["source"] = f"{text}\n{VALUES}.given({names})"
        return notebook


def bound(text: str) -> set[str]:
    """Names that a cell binds at its top level; empty if it is not just Python and lines of magic."""
    try:
        code = compile(re.sub(r"(?m)^[%!].*", "", text), "cell", "exec")  # 3.12's symtable adds comprehensions' names
    except SyntaxError:
        return set()
    return {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_NAME", "STORE_GLOBAL")}


def learners(notebook: dict) -> dict:
    """A master notebook as learners may see it: stubs for solutions, no probes."""
    notebook = copy.deepcopy(notebook)
    notebook["cells"] = [cell for cell in notebook["cells"] if not probe_of(cell)]
    for cell in notebook["cells"]:
        if answer_of(cell):
            cell["source"] = without_solution(source(cell))
    return notebook


def source(cell: dict) -> str:
    """A cell's source as one text; nbformat allows a list of lines."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def answer_of(cell: dict) -> str | None:
    """The task that a cell answers; None for any other cell."""
    return cell["metadata"].get("answer") if cell["cell_type"] == "code" else None


def probe_of(cell: dict) -> str | None:
    """The task that a hidden cell asks about; None for any other cell."""
    return cell["metadata"].get("probe") if cell["cell_type"] == "code" else None


def parted(text: str) -> tuple[list[str], list[str]]:
    """The lines outside the two markers, and those between them; raises ValueError where the markers do not pair."""
    parts, inside = ([], []), False
    for line in text.splitlines():
        mark = line.strip()
        if mark not in (BEGIN, END) and MARKER.match(mark):
            raise ValueError(f"`{mark}` is none of `{BEGIN}` and `{END}`, so a solution would be handed out")
        if mark not in (BEGIN, END):
            parts[inside].append(line)
        elif inside != (mark == END):
            raise ValueError(f"`{mark}` where the other marker belongs")
        else:
            inside = not inside
    if inside:
        raise ValueError(f"no `{END}`")
    return parts


def without_solution(text: str) -> str:
    """The source without what is between the two markers; raises ValueError where they do not pair."""
    return "\n".join(parted(text)[0]).strip("\n")


def solution_lines(text: str) -> list[str]:
    """The lines between the markers, stripped, without empty ones."""
    return [line.strip() for line in parted(text)[1] if line.strip()]


def load(name: str, folder: Path | None = None) -> Lab:
    """Read labs/NAME, or the lab in `folder`, and check that master and manifest fit; raises LabError."""
    folder = Path(folder or REPO / "labs" / name)
    for file in ("lab.md", "grading.yaml"):
        if not (folder / file).is_file():
            raise LabError(f"{folder / file}: missing; labs: {', '.join(names())}, or a folder with both files")
    lab = Lab(name, folder, _manifest(folder / "grading.yaml"), read(folder / "lab.md"))
    _require_fit(lab)
    return lab


def names() -> list[str]:
    """Labs of this project that can be released and graded."""
    return sorted(file.parent.name for file in (REPO / "labs").glob("*/grading.yaml"))


def _manifest(file):
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        return Manifest.model_validate(tree)
    except yaml.YAMLError as error:
        raise LabError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "the file"
        raise LabError(f"{file}: {key}: {problem['msg']}") from None


def read(file: Path) -> dict:
    """The master notebook in a file, its cells with stable ids; raises LabError. What `load` checks is not checked."""
    import jupytext
    import nbformat

    try:
        notebook = jupytext.reads(file.read_text(encoding="utf-8"), fmt="md:myst")
    except (ValueError, yaml.YAMLError) as error:  # metadata of a cell that are no YAML
        raise LabError(f"{file}: {' '.join(str(error).split())}") from None
    notebook = json.loads(nbformat.writes(notebook, version=4))
    notebook["nbformat_minor"] = 5
    for number, cell in enumerate(notebook["cells"], start=1):
        cell["source"] = source(cell)
        task, probe = answer_of(cell), probe_of(cell)
        cell["id"] = f"answer-{task}" if task else f"probe-{probe}-{number}" if probe else f"cell-{number:03}"
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return notebook


def _require_fit(lab):
    file, tasks = lab.folder / "lab.md", lab.manifest.tasks
    answers = [answer_of(cell) for cell in lab.notebook["cells"] if answer_of(cell)]
    probes = [probe_of(cell) for cell in lab.notebook["cells"] if probe_of(cell)]
    for where, there in (("answer", answers), ("probe", probes)):
        if strange := set(there) - tasks.keys():
            raise LabError(f"{file}, cell {where}: {min(strange)}: not in grading.yaml")
        if lacking := tasks.keys() - set(there):
            raise LabError(f"{file}: task {min(lacking)} of grading.yaml has no {where} cell")
    if len(answers) > len(tasks):
        raise LabError(f"{file}, cell answer: {max(answers, key=answers.count)}: there are two")
    for task, text in lab.solutions.items():
        try:
            if without_solution(text) == text.strip("\n"):
                raise ValueError(f"no `{BEGIN}`")
        except ValueError as error:
            raise LabError(f"{file}, cell answer: {task}: {error}") from None
