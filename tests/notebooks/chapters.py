"""The chapters that _toc.yml lists, their sources and their executed notebooks."""

import sys
from pathlib import Path

import jupytext
import nbformat

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book"))

import execution  # noqa: E402
import learners_version  # noqa: E402
import pages  # noqa: E402


def documents() -> list[str]:
    """Every page of the book, as _toc.yml names it (no suffix), in reading order."""
    return [document for _, documents in pages.parts() for document in documents]


def is_notebook(document: str) -> bool:
    """True for a chapter with code."""
    return execution.is_notebook(REPO / f"{document}.md")


def notebooks() -> list[str]:
    return [document for document in documents() if is_notebook(document)]


def source(document: str):
    """The chapter as its author wrote it, a lab as learners see it: a notebook without outputs."""
    return jupytext.reads(learners_version.text_of(REPO / f"{document}.md"), fmt="md:myst")


def executed(document: str):
    """The chapter as the last book build executed it."""
    return nbformat.read(execution.executed(REPO / f"{document}.md"), as_version=4)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def not_run(notebook) -> list[str]:
    """Sources of code cells that were not executed, or that ended in an error that they do not announce."""
    bad = []
    for cell in code_cells(notebook):
        tags = cell.metadata.get("tags", [])
        failed = any(output.output_type == "error" for output in cell.outputs)
        if "skip-execution" in tags or not cell.source.strip():
            continue
        if cell.execution_count is None or (failed and "raises-exception" not in tags):
            bad.append(cell.source)
    return bad
