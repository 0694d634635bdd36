"""Turn docstrings and help texts, plain text with code in backticks, into reStructuredText for the API's pages.

A line that describes arguments, such as `name, other: description`, becomes a paragraph; lists get their empty lines.
"""

import re

from pydantic import BaseModel
from sphinx.util import inspect

ARGUMENTS = re.compile(r"([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")


def paragraphs(lines: list[str]) -> list[str]:
    """The lines with empty lines around lists and before descriptions of arguments, whose names become bold."""
    result = []
    for line in lines:
        match = ARGUMENTS.match(line)
        in_list = line.startswith(("- ", "  "))
        if match or (result and in_list != result[-1].startswith(("- ", "  "))):
            result.append("")
        result.append(f"**{match[1]}**: {line[match.end() :]}" if match else line)
    return result


def _docstring(app, objtype, name, obj, options, lines):
    lines[:] = paragraphs([re.sub(r"[*|]", r"\\\g<0>", line) for line in lines])  # otherwise these are markup


def _help(app, context, lines):
    """Turn lines that click must not wrap, each with a bar before it, into a block of text."""
    result, in_block = [], False
    for line in lines:
        unwrapped = line.startswith("| ")
        if unwrapped != in_block:
            result += ["", ".. code-block:: text", ""] if unwrapped else [""]
        result.append(f"    {line[2:]}" if unwrapped else line)
        in_block = unwrapped
    lines[:] = result


def _signature(app, objtype, name, obj, options, signature, annotation):
    """Show a cell with the signature of its __init__, which MindSpore hides, and parts of a recipe without types."""
    if objtype == "class" and issubclass(obj, BaseModel):
        return inspect.stringify_signature(inspect.signature(obj), show_annotation=False), annotation
    if objtype == "class" and signature == "(*args, **kwargs)":
        return inspect.stringify_signature(inspect.signature(obj.__init__, bound_method=True)), annotation
    return None


def setup(app):
    app.setup_extension("sphinx_click")
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("sphinx-click-process-description", _help)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
