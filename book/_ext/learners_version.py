"""Show the learners' version of labs in the book: no solutions or probes on their pages and in their downloads."""

import re
from pathlib import Path

from grader import lab as labs

LAB = re.compile(r"labs/([a-z0-9_-]+)/lab")


def learners_text(text: str) -> str:
    """A lab in MyST without probe cells and solutions, otherwise unchanged.

    Raises ValueError if the markers of a solution do not match.
    """
    import jupytext
    from markdown_it import MarkdownIt

    lines = text.split("\n")
    for token in reversed(MarkdownIt("commonmark").parse(text)):  # backwards, so that earlier line numbers stay valid
        if token.type == "fence" and token.level == 0 and token.info.startswith("{code-cell}"):
            start, end = token.map
            fence = "\n".join(lines[start:end])
            (cell,) = jupytext.reads(fence, fmt="md:myst").cells
            lines[start:end] = [] if labs.probe_of(cell) else labs.without_solution(fence).split("\n")
    return "\n".join(lines)


def text_of(file: Path) -> str:
    """A chapter's text as the book executes and shows it. Raises ValueError if markers of a solution do not match."""
    text = file.read_text(encoding="utf-8")
    if not LAB.fullmatch("/".join(file.with_suffix("").parts[-3:])):
        return text
    try:
        return learners_text(text)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _strip(app, docname, source):
    if LAB.fullmatch(docname):
        source[0] = text_of(Path(app.env.doc2path(docname)))


def _strip_downloads(app, exception):
    """Replace the page sources that Sphinx has copied from the files, for its download buttons."""
    if exception or app.builder.format != "html":
        return
    for docname in filter(LAB.fullmatch, app.env.found_docs):
        copy = Path(app.outdir, "_sources", f"{docname}.md")
        copy.write_text(text_of(Path(app.env.doc2path(docname))), encoding="utf-8")


def setup(app):
    app.connect("source-read", _strip)
    app.connect("build-finished", _strip_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
