"""Find lines of solutions and probes in the files to hand out, which must not contain any."""

import json
import re

from grader import lab as labs
from grader.lab import BEGIN, END, Lab, LabError

SHORT = 12  # characters without spaces; a shorter line reveals nothing
# Lines that reveal nothing: comments, docstrings, headers, a name or a call without arguments.
GIVEN = re.compile(r"#|@|\"\"\"|(def|class|import|from) |super\(\)\.__init__\(|(return |raise )?[\w.]+(\(\))?$")


def require_none(lab: Lab, files: dict[str, bytes]) -> None:
    """LabError if a notebook or Markdown file to hand out contains a line of a solution or a probe.

    Short lines, and lines that are also in the task's stub, are not secret.
    """
    hidden = secrets(lab)
    for name, data in files.items():
        lines = []
        if name.endswith(".ipynb"):
            for cell in json.loads(data)["cells"]:
                place = f"{name}, cell {cell['id']}"
                lines += [(place, line) for line in (*labs.source(cell).splitlines(), json.dumps(cell["metadata"]))]
                if "probe" in cell["metadata"] or cell.get("outputs"):
                    raise LabError(f"{place}: a probe or an output, which learners must not see")
        elif name.endswith(".md"):
            lines = [(f"{name}, line {number}", line) for number, line in enumerate(data.decode().splitlines(), 1)]
        for place, line in lines:
            if line.strip() in (BEGIN, END):
                raise LabError(f"{place}: `{line.strip()}` in a cell without `answer:`")
            if short := next((short for short in hidden if short in "".join(line.split())), ""):
                raise LabError(f"{place}: reveals {hidden[short]}")


def secrets(lab: Lab) -> dict[str, str]:
    """{line without spaces: "the solution of TASK: line" or "a probe of TASK: line"} for lines that are long enough."""
    by_line = {}
    for task, text in lab.solutions.items():
        stub = {_squeezed(line) for line in lab.stubs[task].splitlines()}
        solution = map(str.strip, labs.split_solution(text)[1])
        lines = {_squeezed(line): line for line in solution if not GIVEN.match(line)}
        by_line |= {short: f"the solution of {task}: {line}" for short, line in lines.items() if short not in stub}
    for cell in lab.notebook["cells"]:
        if labs.probe_of(cell):
            lines = [line.strip() for line in labs.source(cell).splitlines() if not GIVEN.match(line.strip())]
            by_line |= {_squeezed(line): f"a probe of {labs.probe_of(cell)}: {line}" for line in lines}
    return {short: secret for short, secret in by_line.items() if len(short) >= SHORT}


def _squeezed(line):
    """A line without spaces and without a comment at its end."""
    return "".join(re.sub(r"(?<=\S)\s+#.*", "", line.strip()).split())
