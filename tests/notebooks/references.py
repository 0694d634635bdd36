"""The text that cells tagged nbval-check-output must show: tests/notebooks/references, a file for each chapter.

`make references` writes them from the book as it was last built; read the difference before you commit it. Where a cell
shows something else with PyTorch installed, its reference has both. Pictures are not in them.
"""

import json
import re
import sys
from collections import defaultdict
from copy import deepcopy
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import chapters
import nbformat
from execution import inputs_of, pytorch
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams, get_sanitize_patterns

FOLDER = Path(__file__).with_name("references")
SANITIZE = Path(__file__).with_name("sanitize.cfg")
CHECKED = "nbval-check-output"
ALWAYS, LIVE = "outputs", "outputs with PyTorch"


def checked(notebook) -> list:
    """The cells of a notebook whose output is compared."""
    return [cell for cell in chapters.code_cells(notebook) if CHECKED in cell.metadata.get("tags", [])]


def reference_of(document: str) -> list[dict]:
    """What was recorded of a chapter's checked cells, in their order."""
    file = FOLDER / f"{document}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


def expected(recorded: dict) -> list[dict]:
    """The outputs of a recorded cell, for PyTorch as it is installed or not, as nbval wants them."""
    outputs = recorded[LIVE] if pytorch() and LIVE in recorded else recorded[ALWAYS]
    return [nbformat.from_dict(_from_lines(output)) for output in outputs]


class Comparison:
    """nbval's own comparison of two lists of outputs, with the project's sanitizer; `request` is pytest's."""

    def __init__(self, request, path: Path):
        self.parent = IPyNbFile.from_parent(request.session, path=path)
        self.parent.sanitize_patterns.update(get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")))

    def difference(self, shown: list, wanted: list) -> str:
        """What differs, as text; empty where nothing does."""
        cell = IPyNbCell.from_parent(self.parent, name="cell", cell_num=0, cell=None, options={})
        same = cell.compare_outputs(coalesce_streams(deepcopy(shown)), wanted)
        return "" if same else "\n".join(map(str, cell.comparison_traceback))


def recorded_outputs(cell) -> list[dict]:
    """What a reference keeps of a cell's outputs: no pictures and counters, text sanitized and as a list of lines."""
    patterns = get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8"))

    def lines(value):
        if isinstance(value, dict):
            return {key: lines(one) for key, one in value.items() if not key.startswith("image/")}
        for regex, replacement in patterns:
            value = re.sub(regex, replacement, value)
        return value.splitlines(keepends=True) if "\n" in value else value

    kept = ("output_type", "name", "text", "data", "ename", "evalue")
    outputs = coalesce_streams(deepcopy(cell.outputs))
    return [lines({key: output[key] for key in kept if key in output}) for output in outputs]


def _from_lines(value):
    if isinstance(value, dict):
        return {key: _from_lines(one) for key, one in value.items()}
    return "".join(value) if isinstance(value, list) else value


def updated(before: list[dict], cells: list, live: bool | None) -> list[dict]:
    """The reference of a chapter from what its cells show now.

    live: whether it ran with PyTorch; None for a chapter that does not ask for it, which has one kind of output.
    """
    earlier, after = defaultdict(list), []
    for one in before:
        earlier[one["cell"]].append(one)
    for cell in cells:
        shown, same = recorded_outputs(cell), earlier[title_of(cell)]
        then = same.pop(0) if same else {}
        one = {"cell": title_of(cell), ALWAYS: then.get(ALWAYS, shown) if live else shown}
        other = shown if live else then.get(LIVE)
        if live is not None and other not in (None, one[ALWAYS]):
            one[LIVE] = other
        after.append(one)
    return after


def title_of(cell) -> str:
    """A cell's first line, by which its reference is found."""
    return cell.source.splitlines()[0]


def write() -> None:
    """Take the executed book as the reference; a chapter that asks for PyTorch has one with and one without it."""
    for document in chapters.notebooks():
        if cells := checked(chapters.executed(document)):
            inputs = json.loads(inputs_of(chapters.REPO / f"{document}.md").read_text(encoding="utf-8"))
            live = bool(pytorch()) if "pytorch" in inputs["installed"] else None
            file = FOLDER / f"{document}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            after = updated(reference_of(document), cells, live)
            file.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
