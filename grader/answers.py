"""The answers in a learner's notebooks: only the source of the answer cells counts."""

import io
import json
import tokenize
from pathlib import Path

from grader.lab import PART, Lab, bound, source
from grader.submissions import Unreadable

LARGEST = {".ipynb": 50_000_000, ".md": 2_000_000}  # bytes; outputs with pictures are large
_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)


def read(lab: Lab, notebooks: list[Path]) -> tuple[dict[str, str], list[str]]:
    """Source of a learner's answer cells by task, and a line for each notebook left out; raises Unreadable.

    Markdown counts only if no .ipynb has answers: the lab's own text may lie beside the notebook.
    """
    stubs, problems, blank = {task: normalised(stub) for task, stub in lab.stubs.items()}, [], None
    for suffix in LARGEST:
        versions = {}  # {normalised answers: (file, answers)}
        for file in (file for file in notebooks if file.suffix.lower() == suffix):
            try:
                answers = _answers_of(lab, file)
            except Unreadable as error:
                problems.append(f"{file.name}: {error}")
                continue
            key = tuple((task, normalised(text)) for task, text in answers.items())
            if any(text != stubs[task] for task, text in key):
                versions.setdefault(key, (file, answers))
            blank = blank or answers
        if len(versions) > 1:
            names = ", ".join(file.name for file, _ in list(versions.values())[:5])
            raise Unreadable(f"several notebooks with different answers: {names}; hand in one")
        for _, answers in versions.values():
            return answers, problems
    if blank is None:
        raise Unreadable("; ".join(problems[:3]))
    return blank, problems


def normalised(text: str) -> str:
    """A source with uniform spacing and without comments; if it is not valid Python, only its words."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):
        return " ".join(text.split())
    return " ".join(_LAYOUT.get(token.type, token.string) for token in tokens if token.type not in _IGNORED).strip()


def _answers_of(lab, file):
    """Sources of a notebook's answer cells by task, in the lab's order; raises Unreadable."""
    import jupytext

    suffix, size = file.suffix.lower(), file.stat().st_size
    if size > LARGEST[suffix]:
        raise Unreadable(f"{size / 1e6:.0f} MB are too large for a notebook; clear its outputs")
    try:
        text = file.read_bytes().decode("utf-8-sig")
        notebook = jupytext.reads(text, fmt="md:myst") if suffix == ".md" else json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        by_task = {task: [cell for cell in cells if _task(lab, cell) == task] for task in lab.manifest.tasks}
        sources = {task: _answer(lab, task, parts) for task, parts in by_task.items() if parts}
    except UnicodeDecodeError:
        raise Unreadable("not text") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"damaged, not valid JSON, line {error.lineno}") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise Unreadable("damaged, not a notebook of format 4") from None
    if not sources:
        raise Unreadable(f"no answer cells of the lab {lab.name}: another lab's notebook, or all were deleted")
    return sources


def _task(lab, cell):
    """The task that a cell, or a part of a split cell, answers: from its id, or else from its metadata.

    Old versions of Jupyter drop ids; when a cell is split, JupyterLab keeps the id for the last part, VS Code for the
    first.
    """
    task = str(cell.get("id")).removeprefix("answer-")
    return task if task in lab.manifest.tasks else cell.get("metadata", {}).get("answer")


def _answer(lab, task, cells):
    """The parts of an answer, joined by PART: down to the cell with the answer's id, and on until its names are bound.

    What is below these is a copy. A name that is only bound as in the stub counts if no part below binds it otherwise.
    """
    stub, sources = lab.stubs[task], [source(cell).replace("\f", "") for cell in cells]
    untouched = ("", normalised(stub))
    touched = [number for number, text in enumerate(sources) if normalised(text) not in untouched]
    ends = [number for number in touched if cells[number].get("id") == f"answer-{task}"]
    end = (ends or touched or [0])[-1]
    parts = [sources[number] for number in touched if number <= end]
    below = [sources[number] for number in touched if number > end]
    missing = bound(stub) - bound(*parts, stub=stub) - (bound(*parts) - bound(*below, stub=stub))
    while missing and below:
        part = below.pop(0)
        if not bound(part, stub=stub) & bound(*parts, stub=stub):  # else it is a copy
            parts.append(part)
            missing -= bound(part, stub=stub)
    return PART.join(parts or sources[:1])
