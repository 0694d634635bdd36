"""What no learner may see: the lines of solutions and probes, and where something that is handed out tells them."""

import json
import re
from pathlib import Path

from labkit.grading import handout
from labkit.grading import lab as labs
from labkit.grading.lab import BEGIN, END, Lab, LabError

SHORT = 12  # characters, without spaces: a shorter line says too little to be one's own
# Lines that tell nothing: comments, docstrings, headers, a name or a call without arguments.
GIVEN = re.compile(r"#|@|\"\"\"|(def|class|import|from) |super\(\)\.__init__\(|(return |raise )?[\w.]+(\(\))?$")


def require_none(lab: Lab, found: dict[str, bytes]) -> None:
    """LabError where a file that is handed out tells a solution or a probe; it names the cell, line or file.

    In the lab's text one line of a solution is too much. Other files are code that learners have anyway: there, all
    of a solution's lines together are. What a task's stub has itself, and short lines, are no secret.
    """
    hidden = secrets(lab)
    for name, data in found.items():
        if name.endswith(".zip"):
            require_none(lab, {f"{name}, {member}": inside for member, inside in handout.unzipped(data).items()})
        elif name.endswith(".ipynb"):
            for cell in json.loads(data)["cells"]:
                place = f"{name}, cell {cell['id']}"
                metadata = json.dumps(cell["metadata"], ensure_ascii=False)
                _require_silent(hidden, place, [*labs.source(cell).splitlines(), metadata])
                if "probe" in cell["metadata"] or cell.get("outputs"):
                    raise LabError(f"{place}: a probe or an output, which no learner may see")
        elif Path(name).name == f"lab-{lab.name}.md":
            for number, line in enumerate(data.decode().splitlines(), start=1):
                _require_silent(hidden, f"{name}, line {number}", [line])
        elif what := told_whole(hidden, data.decode(errors="replace")):
            raise LabError(f"{name}: tells {what}")


def secrets(lab: Lab) -> list[tuple[str, dict[str, str]]]:
    """[("the solution of TASK", {line without spaces: line})], and the same of the probes' lines that emit."""
    found = []
    for task, text in lab.solutions.items():
        stub = {_squeezed(_code(line)) for line in lab.stubs[task].splitlines()}
        lines = {_squeezed(_code(line)): line for line in labs.solution_lines(text) if not GIVEN.match(_code(line))}
        own = {short: line for short, line in lines.items() if short not in stub and len(short) >= SHORT}
        found.append((f"the solution of {task}", own))
    for cell in lab.notebook["cells"]:
        if labs.probe_of(cell):
            emits = [line.strip() for line in labs.source(cell).splitlines() if "emit(" in line]
            found.append((f"a probe of {labs.probe_of(cell)}", {_squeezed(line): line for line in emits}))
    return found


def told(hidden: list, line: str) -> str:
    """Which of `secrets` stands in this line, and how it reads; "" where none does."""
    squeezed = _squeezed(line)
    for what, wanted in hidden:
        for short, secret in wanted.items():
            if short in squeezed:
                return f"{what}: {secret}"
    return ""


def told_whole(hidden: list, text: str) -> str:
    """Which of `secrets` stands in this text with all of its lines, and how the first reads; "" where none does."""
    lines = {_squeezed(_code(line)) for line in text.splitlines()}
    whole = (f"{what}: {next(iter(wanted.values()))}" for what, wanted in hidden if wanted and lines >= wanted.keys())
    return next(whole, "")


def _require_silent(hidden, place, lines):
    for line in lines:
        if line.strip() in (BEGIN, END):
            raise LabError(f"{place}: `{line.strip()}` in a cell without `answer:`")
        if what := told(hidden, line):
            raise LabError(f"{place}: tells {what}")


def _squeezed(line):
    """A line without spaces, which may differ."""
    return "".join(line.split())


def _code(line):
    """A line of Python without the comment behind it."""
    return re.sub(r"(?<=\S)\s+#.*", "", line.strip())
