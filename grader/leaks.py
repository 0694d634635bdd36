"""Finds lines of solutions and probes in what is handed out, where no learner may see them."""

import json
import re
from pathlib import Path

from grader import handout
from grader import lab as labs
from grader.lab import BEGIN, END, Lab, LabError

SHORT = 12  # characters, without spaces: a shorter line says too little to be one's own
# Lines that tell nothing: comments, docstrings, headers, a name or a call without arguments.
GIVEN = re.compile(r"#|@|\"\"\"|(def|class|import|from) |super\(\)\.__init__\(|(return |raise )?[\w.]+(\(\))?$")


def require_none(lab: Lab, found: dict[str, bytes]) -> None:
    """LabError if a file that is handed out reveals a solution or a probe; it names the cell, line or file.

    In the lab's text, a single line of a solution or probe is an error. Other files are code that learners have anyway:
    there, only all of its lines together are an error. Short lines, and lines of the task's stub, are not secret; a
    solution made only of these is secret as a whole.
    """
    hidden, blocks = secrets(lab), short_solutions(lab)
    for name, data in found.items():
        if name.endswith(".zip"):
            require_none(lab, {f"{name}, {member}": inside for member, inside in handout.unzipped(data).items()})
        elif name.endswith(".ipynb"):
            for cell in json.loads(data)["cells"]:
                place = f"{name}, cell {cell['id']}"
                metadata = json.dumps(cell["metadata"], ensure_ascii=False)
                _require_silent(hidden, place, [*labs.source(cell).splitlines(), metadata])
                _require_no_block(blocks, place, f"{labs.source(cell)}\n{metadata}")
                if "probe" in cell["metadata"] or cell.get("outputs"):
                    raise LabError(f"{place}: a probe or an output, which no learner may see")
        elif Path(name).name == f"lab-{lab.name}.md":
            for number, line in enumerate(data.decode().splitlines(), start=1):
                _require_silent(hidden, f"{name}, line {number}", [line])
            _require_no_block(blocks, name, data.decode())
        else:
            text = data.decode(errors="replace")
            if what := told_whole(hidden, text):
                raise LabError(f"{name}: tells {what}")
            # Of a few letters, any code may be by chance.
            _require_no_block([block for block in blocks if len(_squeezed(block[2])) >= SHORT], name, text)


def secrets(lab: Lab) -> list[tuple[str, dict[str, str]]]:
    """[("the solution of TASK", {line without spaces: line})], and of the probes: lines that emit, and all of them."""
    found = []
    for task, text in lab.solutions.items():
        stub = {_squeezed(_code(line)) for line in lab.stubs[task].splitlines()}
        own = {short: line for short, line in _telling(labs.solution_lines(text)).items() if short not in stub}
        found.append((f"the solution of {task}", own))
    for cell in lab.notebook["cells"]:
        if labs.probe_of(cell):
            lines = [line.strip() for line in labs.source(cell).splitlines()]
            for wanted in ({_squeezed(line): line for line in lines if "emit(" in line}, _telling(lines)):
                found.append((f"a probe of {labs.probe_of(cell)}", wanted))
    return found


def short_solutions(lab: Lab) -> list[tuple[str, re.Pattern, str]]:
    """("the solution of TASK", its pattern, its text) for each whole solution that has no line in `secrets`."""
    found, own = [], {what: lines for what, lines in secrets(lab) if lines}
    for task, text in lab.solutions.items():
        what = f"the solution of {task}"
        whole = "\n".join(_code(line) for line in labs.solution_lines(text) if not line.startswith("#"))
        pattern = re.compile(r"(?<![\w.])" + r"\s*".join(map(re.escape, _squeezed(whole))) + r"(?![\w.]\w)(?!\w)")
        if what not in own and whole and not pattern.search(lab.stubs[task]):
            found.append((what, pattern, whole))
    return found


def _telling(lines):
    """{line without spaces: line} of the lines of code that are long enough to be somebody's own."""
    found = {_squeezed(_code(line)): line for line in lines if not GIVEN.match(_code(line))}
    return {short: line for short, line in found.items() if len(short) >= SHORT}


def told(hidden: list, line: str) -> str:
    """The first of `secrets` found in this line, with that secret's line; "" if there is none."""
    text = _squeezed(line)
    return next((f"{what}: {own}" for what, wanted in hidden for short, own in wanted.items() if short in text), "")


def told_whole(hidden: list, text: str) -> str:
    """The first of `secrets` whose lines are all in this text, with its first line; "" if there is none."""
    lines = {_squeezed(_code(line)) for line in text.splitlines()}
    whole = (f"{what}: {next(iter(wanted.values()))}" for what, wanted in hidden if wanted and lines >= wanted.keys())
    return next(whole, "")


def _require_silent(hidden, place, lines):
    for line in lines:
        if line.strip() in (BEGIN, END):
            raise LabError(f"{place}: `{line.strip()}` in a cell without `answer:`")
        if what := told(hidden, line):
            raise LabError(f"{place}: tells {what}")


def _require_no_block(blocks, place, text):
    for what, pattern, whole in blocks:
        if pattern.search(text):
            raise LabError(f"{place}: tells {what}: {whole.splitlines()[0]}")


def _squeezed(line):
    """A line without spaces, which may differ."""
    return "".join(line.split())


def _code(line):
    """A line of Python without the comment behind it."""
    return re.sub(r"(?<=\S)\s+#.*", "", line.strip())
