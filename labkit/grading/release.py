"""Hand out a lab: write what learners get, once nothing of it tells a solution, and the lab grades as it should."""

import json
import os
import re
from pathlib import Path

import yaml

from labkit.grading import handout
from labkit.grading import lab as labs
from labkit.grading.lab import BEGIN, END, Lab, LabError
from labkit.runtime import REPO

SHORT = 12  # characters, without spaces: a shorter line says too little to be one's own
GIVEN = re.compile(r"#|@|(def|class|import|from) |super\(\)\.__init__\(|(return |raise )?[\w.]+$")


def release(lab: Lab, folder: Path, *, sandboxed: bool = True, train: bool = True, tell=print) -> list[Path]:
    """Write the three files of `handout.files` into `folder` and return them; raises LabError before it writes any.

    A release takes a lab whose output tells no solution, whose learner's notebook runs, whose master has full marks
    and whose blank has none. `train`: the instructor's Run is trained and examined as well. `tell` gets each stage.
    """
    found = handout.files(lab, book_url())
    tell("looking for solutions in what is handed out")
    require_no_leak(lab, found)
    verify(lab, found, sandboxed=sandboxed, train=train, tell=tell)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        _write_whole(folder / name, data)
    return [folder / name for name in found]


def write_notebook(lab: Lab, file: Path) -> bool:
    """Write the learner's notebook where there is none, not verified; True if it was written."""
    if file.exists():
        return False
    found = handout.files(lab, book_url())
    require_no_leak(lab, found)
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(file, found[f"lab-{lab.name}.ipynb"])
    return True


def book_url() -> str:
    """Where everybody can reach the book: `modelarts_book_url` in _config.yml, "" where it has no such place."""
    file = REPO / "_config.yml"
    tree = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return tree.get("sphinx", {}).get("config", {}).get("modelarts_book_url", "")


def _write_whole(file, data):
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(file)


# -- Leaks ---------------------------------------------------------------------------------------------


def require_no_leak(lab: Lab, found: dict[str, bytes]) -> None:
    """LabError where a file that is handed out tells a solution or a probe; it names the cell, line or file.

    In the lab's text one line of a solution is too much. Other files are code that learners have anyway: there, all
    of a solution's lines together are. What a task's stub has itself, and short lines, are no secret.
    """
    secrets = _secrets(lab)
    for name, data in found.items():
        if name.endswith(".zip"):
            require_no_leak(lab, {f"{name}, {member}": inside for member, inside in handout.unzipped(data).items()})
        elif name.endswith(".ipynb"):
            for cell in json.loads(data)["cells"]:
                text = f"{labs.source(cell)}\n{json.dumps(cell['metadata'], ensure_ascii=False)}"
                _require_silent(secrets, f"{name}, cell {cell['id']}", text.splitlines())
                if "probe" in cell["metadata"] or cell.get("outputs"):
                    raise LabError(f"{name}, cell {cell['id']}: a probe or an output, which no learner may see")
        elif name.endswith(".md") and Path(name).stem == f"lab-{lab.name}":
            for number, line in enumerate(data.decode().splitlines(), start=1):
                _require_silent(secrets, f"{name}, line {number}", [line])
        else:
            lines = {_squeezed(_code(line)) for line in data.decode(errors="replace").splitlines()}
            for what, wanted in secrets:
                if wanted and lines >= wanted.keys():
                    raise LabError(f"{name}: tells {what}: {next(iter(wanted.values()))}")


def _secrets(lab):
    """[("the solution of TASK", {squeezed line: line})], and the same of the probes: what no learner may see."""
    found = []
    for task, text in lab.solutions.items():
        stub = {_squeezed(_code(line)) for line in lab.stubs[task].splitlines()}
        lines = {_squeezed(_code(line)): line for line in labs.solution_lines(text)}
        secret = {short: line for short, line in lines.items() if short not in stub}
        secret = {short: line for short, line in secret.items() if len(short) >= SHORT and not GIVEN.match(_code(line))}
        found.append((f"the solution of {task}", secret))
    for cell in lab.notebook["cells"]:
        if labs.probe_of(cell):
            emits = [line.strip() for line in labs.source(cell).splitlines() if "emit(" in line]
            found.append((f"a probe of {labs.probe_of(cell)}", {_squeezed(line): line for line in emits}))
    return found


def _require_silent(secrets, place, lines):
    for line in lines:
        if line.strip() in (BEGIN, END):
            raise LabError(f"{place}: `{line.strip()}` in a cell without `answer:`")
        squeezed = _squeezed(line)
        for what, wanted in secrets:
            for short, told in wanted.items():
                if short in squeezed:
                    raise LabError(f"{place}: tells {what}: {told}")


def _squeezed(line):
    """A line without spaces, which may differ."""
    return "".join(line.split())


def _code(line):
    """A line of Python without the comment behind it."""
    return re.sub(r"(?<=\S)\s+#.*", "", line.strip())
