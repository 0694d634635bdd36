"""The text that cells tagged nbval-check-output must show: tests/notebooks/references, a file for each chapter.

`make references` writes them from the book as it was last built; read the difference before you commit it. They are
the same with and without PyTorch. Pictures are not in them.
"""

import json
import re
import sys
from copy import deepcopy
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import chapters
from nbval.plugin import coalesce_streams, get_sanitize_patterns

FOLDER = Path(__file__).with_name("references")
SANITIZE = Path(__file__).with_name("sanitize.cfg")
CHECKED = "nbval-check-output"


def checked(notebook) -> list:
    """The cells of a notebook whose output is compared."""
    return [cell for cell in chapters.code_cells(notebook) if CHECKED in cell.metadata.get("tags", [])]


def reference_of(document: str) -> list[dict]:
    """What was recorded of a chapter's checked cells, in their order."""
    return json.loads((FOLDER / f"{document}.json").read_text(encoding="utf-8"))


def reference(cell) -> dict:
    """What is kept of a cell: its first line; its outputs without pictures, sanitized, text as a list of lines."""
    patterns = get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8"))

    def lines(value):
        if isinstance(value, dict):
            return {key: lines(part) for key, part in value.items() if not key.startswith("image/")}
        for regex, replacement in patterns:
            value = re.sub(regex, replacement, value)
        return value.splitlines(keepends=True) if "\n" in value else value

    kept = ("output_type", "name", "text", "data", "ename", "evalue")
    outputs = coalesce_streams(deepcopy(cell.outputs))
    shown = [lines({key: output[key] for key in kept if key in output}) for output in outputs]
    return {"cell": cell.source.splitlines()[0], "outputs": shown}


def write() -> None:
    """Take the executed book as the reference."""
    for document in chapters.notebooks():
        if cells := checked(chapters.executed(document)):
            file = FOLDER / f"{document}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            after = [reference(cell) for cell in cells]
            file.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
