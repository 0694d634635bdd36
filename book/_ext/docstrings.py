"""Docstrings and helps, which are plain text with code in backticks, as reStructuredText for the pages of the API.

A line that tells of arguments, such as `name, other: what`, becomes a paragraph; lists get the empty lines they need.
"""

import re

from pydantic import BaseModel
from sphinx.util import inspect

ARGUMENTS = re.compile(r"([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")


def paragraphs(lines: list[str]) -> list[str]:
    """The lines with an empty one before each that tells of arguments, their names in bold, and round a list."""
    told = []
    for line in lines:
        match = ARGUMENTS.match(line)
        listed = line.startswith(("- ", "  "))
        if match or (told and listed != told[-1].startswith(("- ", "  "))):
            told.append("")
        told.append(f"**{match[1]}**: {line[match.end() :]}" if match else line)
    return told


def _docstring(app, what, name, obj, options, lines):
    lines[:] = paragraphs([re.sub(r"[*|]", r"\\\g<0>", line) for line in lines])  # which would be marks


def _help(app, context, lines):
    """Lines that click is to keep as they are, behind a bar each, become a block of text."""
    told, within = [], False
    for line in lines:
        kept = line.startswith("| ")
        if kept != within:
            told += ["", ".. code-block:: text", ""] if kept else [""]
        told.append(f"    {line[2:]}" if kept else line)
        within = kept
    lines[:] = told


def _signature(app, what, name, obj, options, signature, annotation):
    """Of a cell that of its __init__, which MindSpore hides; of a part of a recipe its keys without their types."""
    if what == "class" and issubclass(obj, BaseModel):
        return inspect.stringify_signature(inspect.signature(obj), show_annotation=False), annotation
    if what == "class" and signature == "(*args, **kwargs)":
        return inspect.stringify_signature(inspect.signature(obj.__init__, bound_method=True)), annotation
    return None


def setup(app):
    app.setup_extension("sphinx_click")
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("sphinx-click-process-description", _help)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
