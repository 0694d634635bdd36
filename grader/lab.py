"""The instructor's version of a lab: the master notebook, and `grading.yaml`, which assigns the points.

Keys in the metadata of the master's code cells:
- answer: TASK   the learner's cell; the solution is between `# BEGIN SOLUTION` and `# END SOLUTION`
- probe: TASK    hidden: emits values that depend on the answer; a task may have several
Cells tagged `ungraded` (self-checks, figures, long trainings) are for the learner; grading skips them.
"""

import ast
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
from labkit.system import yaml_files
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.training.schema import Count, NotNegative, Part, Positive, Share

VALUES = "__import__('grader.values', fromlist=['values'])"
PART = "\n\f\n"  # between the parts of an answer whose cell was split or copied
BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
MARKER = re.compile(r"#+\s*(begin|end)\s+solution\s*$", re.IGNORECASE)  # also matches misspelled markers
FILES = ("lab.md", "grading.yaml")
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class LabError(LabkitError):
    """The lab cannot be used: one line that names the file, and the key or the cell."""


class Value(Part):
    """An emitted value: title, points, and allowed difference from the master's value."""

    title: str = ""  # for the learner; default: its name
    points: NotNegative
    rtol: NotNegative = 1e-5
    atol: NotNegative = 1e-8
    next: str = ""  # what to try if the learner's value differs; a sentence that begins in lower case


class Task(Part):
    """A question. Its points are those of its values."""

    title: str
    values: Annotated[dict[Name, Value], Field(min_length=1)]
    needs: list[Name] = []  # tasks that this one depends on
    time_limit: Positive | None = None  # seconds for each of its cells; default: the lab's

    @property
    def points(self) -> float:
        """Points of the task if all values are right."""
        return sum(value.points for value in self.values.values())


class HandedInRun(Part):
    """The task of handing in a Run: the rules for its recipe, and the accuracy that its checkpoint must reach."""

    title: str
    profile: str  # of the lab's recipe
    may_change: list[str]  # keys of the recipe, dotted: "epochs", "schedule", "schedule.lr_max"
    at_most: dict[str, float] = {}  # maximum of a key, such as epochs: 6
    accuracy: Share  # on the test images, by the grader's own evaluation
    points: Annotated[dict[Literal["complete", "recipe", "accuracy"], NotNegative], Field(min_length=3)]
    solution: list[str]  # settings of the instructor's own Run, as for `labkit train --set`
    time_limit: Positive = 120.0


class Manifest(Part):
    """`grading.yaml`."""

    title: str
    seed: int  # of the probes' random numbers; `labkit grade --seed` overrides it
    time_limit: Positive = 30.0  # seconds per cell
    total_time: Positive = 300.0  # seconds per submission, all attempts together
    memory: Count = 6000  # MB for all processes of a submission
    processes: Count = 256  # processes and threads
    tasks: Annotated[dict[Name, Task], Field(min_length=1)]
    run: HandedInRun | None = None

    @model_validator(mode="after")
    def _consistent(self):
        for name, task in self.tasks.items():
            if unknown := set(task.needs) - self.tasks.keys():
                raise ValueError(f"tasks.{name}.needs: {min(unknown)} is not a task")
        if self.run and "run" in self.tasks:
            raise ValueError("tasks.run: this name is the Run's; choose another")
        return self

    @property
    def questions(self) -> dict[str, tuple[str, float]]:
        """Title and points of each task, the Run last."""
        questions = {name: (task.title, task.points) for name, task in self.tasks.items()}
        return questions | ({"run": (self.run.title, sum(self.run.points.values()))} if self.run else {})

    @property
    def max_score(self) -> float:
        """Points for notebook and Run together."""
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
        return hashlib.sha256(b"\0".join((self.folder / name).read_bytes() for name in FILES)).hexdigest()

    @cached_property
    def solutions(self) -> dict[str, str]:
        """The master's source of each answer cell, by task."""
        return {answer_of(cell): source(cell) for cell in self.notebook["cells"] if answer_of(cell)}

    @cached_property
    def stubs(self) -> dict[str, str]:
        """The initial source of the learner's answer cells, by task."""
        return {task: without_solution(text) for task, text in self.solutions.items()}

    def graded_notebook(self, answers: dict[str, str], seed: int) -> dict:
        """The notebook to execute: the master's cells with these answers (or else stubs) and the probes.

        Each part of an answer becomes a cell; the last one keeps the id of the master's cell.

        A probe can use `emit(name, value)` and `seed`, an int, and does not rebind the learner's names. In their
        metadata, cells keep only `answer` and `probe`, so that no tag reaches nbval.
        """
        cells = []
        names_in_answers = bound(*self.solutions.values())
        for cell in copy.deepcopy(self.notebook["cells"]):
            answer, probe, text = answer_of(cell), probe_of(cell), source(cell)
            is_ungraded = not (answer or probe) and "ungraded" in cell["metadata"].get("tags", [])
            if is_ungraded or cell["cell_type"] != "code":
                continue
            cell["metadata"] = {key: cell["metadata"][key] for key in ("answer", "probe") if key in cell["metadata"]}
            if answer:
                *parts, cell["source"] = answers.get(answer, self.stubs[answer]).split(PART)
                cells += [cell | {"id": f"{cell['id']}-{n}", "source": part} for n, part in enumerate(parts, start=1)]
            elif probe:
                cell["source"] = f"{VALUES}.probe({probe!r}, {seed}, {text!r})"
            elif names := sorted(bound(text) - names_in_answers):
                cell["source"] = f"{text}\n{VALUES}.given({names})"
            cells.append(cell)
        return self.notebook | {"cells": cells}


def bound(*texts: str, stub: str = "") -> set[str]:
    """Names that cells of Python and magic lines bind at their top level, other than by statements of the stub."""
    if len(texts) != 1 or len(texts[0]) > 10_000:  # compiling may take quadratic time, and this may be a learner's
        return set().union(*(bound(text, stub=stub) for text in texts if len(text) <= 10_000))
    try:
        tree, given = (ast.parse(re.sub(r"(?m)^[%!].*", "", text)) for text in (*texts, stub))
        tree.body = [step for step in tree.body if ast.dump(step) not in map(ast.dump, given.body)]
        code = compile(tree, "cell", "exec")  # in 3.12, symtable adds comprehension names
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ValueError: a NUL or a lone surrogate
        return set()
    return {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_NAME", "STORE_GLOBAL")}


def learners(notebook: dict) -> dict:
    """The learners' version of a master notebook: stubs instead of solutions, no probes."""
    notebook = copy.deepcopy(notebook)
    notebook["cells"] = [cell for cell in notebook["cells"] if not probe_of(cell)]
    for cell in notebook["cells"]:
        if answer_of(cell):
            cell["source"] = without_solution(source(cell))
    return notebook


def source(cell: dict) -> str:
    """A cell's source as one text; nbformat also allows a list of lines."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def answer_of(cell: dict) -> str | None:
    """The task that a cell answers; None for any other cell."""
    return cell["metadata"].get("answer") if cell["cell_type"] == "code" else None


def probe_of(cell: dict) -> str | None:
    """The task that a hidden cell checks; None for any other cell."""
    return cell["metadata"].get("probe") if cell["cell_type"] == "code" else None


def split_solution(text: str) -> tuple[list[str], list[str]]:
    """The lines outside the two markers, and those between them; raises ValueError if the markers do not match."""
    parts, inside = ([], []), False
    for line in text.splitlines():
        mark = line.strip()
        if mark not in (BEGIN, END) and MARKER.match(mark):
            raise ValueError(f"`{mark}` must be `{BEGIN}` or `{END}`, or a solution would be handed out")
        if mark not in (BEGIN, END):
            parts[inside].append(line)
        elif inside != (mark == END):
            raise ValueError(f"`{mark}` instead of the other marker")
        else:
            inside = not inside
    if inside:
        raise ValueError(f"no `{END}`")
    return parts


def without_solution(text: str) -> str:
    """The source without the lines between the two markers; raises ValueError if they do not match."""
    return "\n".join(split_solution(text)[0]).strip("\n")


def load(lab: str | Path) -> Lab:
    """Read the lab with this name, or in this folder, and check that master and manifest fit; raises LabError."""
    folder = Path(lab).resolve() if Path(lab, "lab.md").is_file() else REPO / "labs" / lab
    for file in FILES:
        if not (folder / file).is_file():
            raise LabError(f"{folder / file}: missing; labs: {', '.join(names())}, or a folder with both files")
    file = folder / "grading.yaml"
    try:
        manifest = Manifest.model_validate(yaml_files.read(file, LabError))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "the file"
        raise LabError(f"{file}: {key}: {problem['msg']}") from None
    found = Lab(folder.name, folder, manifest, read(folder / "lab.md"))
    _require_fit(found)
    return found


def names() -> list[str]:
    """Names of this project's labs that can be released and graded."""
    return sorted(file.parent.name for file in (REPO / "labs").glob("*/grading.yaml"))


def read(file: Path) -> dict:
    """The master notebook in a file, with stable cell ids, without the checks of `load`; raises LabError."""
    import jupytext

    try:
        notebook = jupytext.reads(file.read_text(encoding="utf-8-sig"), fmt="md:myst")
    except (ValueError, yaml.YAMLError) as error:  # metadata that is not valid YAML
        raise LabError(f"{file}: {' '.join(str(error).split())}") from None
    notebook = json.loads(json.dumps(notebook))
    notebook["nbformat_minor"] = 5
    for number, cell in enumerate(notebook["cells"], start=1):
        task, probe = answer_of(cell), probe_of(cell)
        cell["id"] = f"answer-{task}" if task else f"probe-{probe}-{number}" if probe else f"cell-{number:03}"
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return notebook


def _require_fit(lab):
    file, tasks = lab.folder / "lab.md", lab.manifest.tasks
    answers = [answer_of(cell) for cell in lab.notebook["cells"] if answer_of(cell)]
    probes = [probe_of(cell) for cell in lab.notebook["cells"] if probe_of(cell)]
    for key, in_cells in (("answer", answers), ("probe", probes)):
        if unknown := set(in_cells) - tasks.keys():
            raise LabError(f"{file}, cell {key}: {min(unknown)}: not in grading.yaml")
        if missing := tasks.keys() - set(in_cells):
            raise LabError(f"{file}: task {min(missing)} of grading.yaml has no {key} cell")
    if len(answers) > len(tasks):
        raise LabError(f"{file}, cell answer: {max(answers, key=answers.count)}: there are two")
    for task, text in lab.solutions.items():
        try:
            if without_solution(text) == text.strip("\n"):
                raise ValueError(f"no `{BEGIN}`")
        except ValueError as error:
            raise LabError(f"{file}, cell answer: {task}: {error}") from None
