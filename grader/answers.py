"""The answers in a learner's notebooks: the source of the answer cells, and nothing else of what was handed in.

Nothing here is trusted. A notebook that cannot be read is its learner's problem, in a line.
"""

import json
from dataclasses import dataclass, field

from grader.duplicates import normalised
from grader.lab import Lab
from grader.submissions import Submission, printable, require_own
from grader.untrusted import Unreadable, require_plain_yaml

LONGEST_NOTEBOOK = {".ipynb": 50_000_000, ".md": 2_000_000}  # bytes; outputs with pictures are large
LONGEST_ANSWER = 200_000  # characters
LONGEST_METADATA = 20_000  # characters of YAML that belong to one cell


@dataclass(frozen=True)
class Answers:
    """Source of the answer cells by task, of those that are there; or why there are none at all."""

    sources: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def read_answers(lab: Lab, submission: Submission) -> Answers:
    """Source of a submission's answer cells, and nothing else of its notebook; never raises for what is in it."""
    if submission.problem:
        return Answers(problem=submission.problem)
    found, problems = {}, []
    for file in submission.notebooks:
        try:
            sources = _answers_of(lab, file)
            found.setdefault(tuple((task, normalised(text)) for task, text in sources.items()), (file, sources))
        except Unreadable as error:
            problems.append(printable(f"{file.name}: {error}"))
    untouched = {task: normalised(stub) for task, stub in lab.stubs.items()}
    begun = [found[key] for key in found if any(text != untouched[task] for task, text in key)]
    usable = begun or list(found.values())[:1]
    if not usable:
        return Answers(problem="; ".join(problems[:3]))
    if len(usable) > 1:
        names = printable(", ".join(file.name for file, _ in usable[:5]))
        return Answers(problem=f"several notebooks with different answers: {names}; hand in one")
    return Answers(usable[0][1])


def _answers_of(lab, file):
    """Sources of a notebook's answer cells by task, in the lab's order; raises Unreadable."""
    try:
        size = file.stat().st_size
        if size > LONGEST_NOTEBOOK[file.suffix.lower()]:
            raise Unreadable(f"{size / 1e6:.0f} MB are too large for a notebook; clear its outputs")
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("not text") from None
    except OSError as error:
        require_own(error, file)
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    notebook = _from_markdown(text) if file.suffix.lower() == ".md" else _from_json(text)
    _require_python(notebook)
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    sources = {}
    for task in lab.manifest.tasks:
        its = [(cell.get("id"), _source(cell, task)) for cell in cells if _task(lab, cell) == task]
        stub = normalised(lab.stubs[task])
        original = [place for place, (own, text) in enumerate(its)
                    if own == f"answer-{task}" and normalised(text) not in ("", stub)]  # fmt: skip
        if original:  # what is below it is a copy, what is above it may be a part of a cell that was split
            its = its[: original[-1] + 1]
        parts = [text for _, text in its]
        if parts:  # a copy of what was handed out is no part
            sources[task] = "\n".join([part for part in parts if normalised(part) != stub] or parts[:1])
            if len(sources[task]) > LONGEST_ANSWER:
                raise Unreadable(f"the answer to {task} has more than {LONGEST_ANSWER:,} characters")
    if not sources:
        raise Unreadable(f"no answer cell of the lab {lab.name}: another lab's notebook, or all of them deleted")
    return sources


def _task(lab, cell):
    """The task that a cell, or a part of a cell that was split, answers: by its id, or else by metadata.

    Old Jupyter drops ids; JupyterLab gives a new one to all parts but the last.
    """
    said = cell.get("id")
    if isinstance(said, str) and said.startswith("answer-") and said.removeprefix("answer-") in lab.manifest.tasks:
        return said.removeprefix("answer-")
    return _metadata(cell).get("answer")


def _metadata(cell):
    return cell["metadata"] if isinstance(cell.get("metadata"), dict) else {}


def _source(cell, task):
    text = cell.get("source")
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "".join(text)
    if not isinstance(text, str):
        raise Unreadable(f"the cell of {task} holds no text")
    return text


def _from_json(text):
    try:
        notebook = json.loads(text)
    except MemoryError:
        raise Unreadable("takes too much memory; clear its outputs") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"damaged, not valid JSON, line {error.lineno}") from None
    except (ValueError, RecursionError):
        raise Unreadable("damaged, not valid JSON") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise Unreadable("not a notebook of format 4")
    return notebook


def _from_markdown(text):
    import jupytext

    try:
        for block in _metadata_blocks(text):
            if len(block) > LONGEST_METADATA:
                raise Unreadable(f"metadata of more than {LONGEST_METADATA:,} characters")
            require_plain_yaml(block)
        return jupytext.reads(text, fmt="md:myst")
    except Unreadable:
        raise
    except Exception as error:  # what strangers wrote may upset a parser in any way
        reason = " ".join(str(error).split())[:100]
        raise Unreadable(f"damaged, not a notebook in Markdown ({reason})") from None


def _metadata_blocks(text):
    """The YAML at the head of a text in MyST and of its cells, line by line: a pattern may go over them for hours."""
    block, end = None, ""
    before = "{code-cell}"
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if block is None and "{code-cell}" in before and mark[:1] in ("-", ":"):
            end = "---" if mark == "---" else ""
            block = [] if end else [line.lstrip()[1:]]
        elif block is not None and (mark == end if end else mark[:1] != ":"):
            yield "\n".join(block)
            block = None
        elif block is not None:
            block.append(line if end else line.lstrip()[1:])
        before = line
    if block:
        yield "\n".join(block)


def _require_python(notebook):
    """A kernel of another name does not matter, as the grader takes its own; another language does."""
    metadata = _metadata(notebook)
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        said = metadata.get(key)
        language = said.get(name) if isinstance(said, dict) else None
        if isinstance(language, str) and not language.lower().startswith(("python", "ipython")):
            raise Unreadable(f"a notebook in {language[:40]}, not in Python")
