"""The answers in a learner's notebooks: only the source of the answer cells counts."""

import io
import json
import tokenize
from pathlib import Path

from grader.lab import Lab, source
from grader.submissions import Unreadable

LARGEST = {".ipynb": 50_000_000, ".md": 2_000_000}  # bytes; outputs with pictures are large
_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)


def read(lab: Lab, notebooks: list[Path]) -> dict[str, str]:
    """Source of a learner's answer cells, by task; raises Unreadable. Ignores notebooks without changes."""
    versions, problems = {}, []  # {normalised answers: (file, answers)}
    for file in notebooks:
        try:
            answers = _answers_of(lab, file)
            versions.setdefault(tuple((task, normalised(text)) for task, text in answers.items()), (file, answers))
        except Unreadable as error:
            problems.append(f"{file.name}: {error}")
    stubs = {task: normalised(stub) for task, stub in lab.stubs.items()}
    changed = [versions[key] for key in versions if any(text != stubs[task] for task, text in key)]
    usable = changed or list(versions.values())[:1]
    if not usable:
        raise Unreadable("; ".join(problems[:3]))
    if len(usable) > 1:
        names = ", ".join(file.name for file, _ in usable[:5])
        raise Unreadable(f"several notebooks with different answers: {names}; hand in one")
    return usable[0][1]


def normalised(text: str) -> str:
    """A source with uniform spacing and without comments; if it is not valid Python, only its words."""
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline)
                  if token.type not in _IGNORED]  # fmt: skip
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):
        return " ".join(text.split())
    return " ".join(_LAYOUT.get(token.type, token.string) for token in tokens).strip()


def _answers_of(lab, file):
    """Sources of a notebook's answer cells by task, in the lab's order; raises Unreadable."""
    suffix, size = file.suffix.lower(), file.stat().st_size
    if size > LARGEST[suffix]:
        raise Unreadable(f"{size / 1e6:.0f} MB are too large for a notebook; clear its outputs")
    try:
        text = file.read_bytes().decode("utf-8-sig")
        notebook = _from_markdown(text) if suffix == ".md" else json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        by_task = {task: [cell for cell in cells if _task(lab, cell) == task] for task in lab.manifest.tasks}
        sources = {task: _answer(parts, f"answer-{task}", lab.stubs[task]) for task, parts in by_task.items() if parts}
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

    Old versions of Jupyter drop ids; JupyterLab gives a new one to all parts of a split cell but the last.
    """
    task = str(cell.get("id")).removeprefix("answer-")
    return task if task in lab.manifest.tasks else cell.get("metadata", {}).get("answer")


def _answer(cells, cell_id, stub):
    """The joined parts of a split cell, down to the one with the cell's id: what is below is a copy."""
    parts, untouched = [source(cell) for cell in cells], ("", normalised(stub))
    ends = [number for number, cell in enumerate(cells, start=1)
            if cell.get("id") == cell_id and normalised(parts[number - 1]) not in untouched]  # fmt: skip
    parts = parts[: ends[-1]] if ends else parts
    return "\n".join([part for part in parts if normalised(part) not in untouched] or parts[:1])


def _from_markdown(text):
    import jupytext

    return jupytext.reads(text, fmt="md:myst")
