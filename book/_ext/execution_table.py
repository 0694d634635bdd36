"""The directive execution-table: every page with code, in the book's order, with the time its last execution took.

MyST-NB has the figures. Its own table, nb-exec-table, lists file names alphabetically, without titles and a sum.
"""

from datetime import datetime

from docutils import nodes
from languages import said
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.domain import get_docnames

WIDTHS = (50, 20, 20, 10)


class Table(nodes.General, nodes.Element):
    """The table's place: it is filled when the page is written, when all pages have been executed."""


class ExecutionTable(SphinxDirective):
    """Marks the page, so that MyST-NB has it written again after an execution."""

    def run(self):
        NbMetadataCollector.set_doc_data(self.env, self.env.docname, "has_exec_table", True)
        return [Table()]


def spoken(app, seconds: float) -> str:
    """12 s, or 2 min 5 s."""
    minutes, rest = divmod(round(seconds), 60)
    short, long = said(app, "{rest} s"), said(app, "{minutes} min {rest} s")
    return (long if minutes else short).format(minutes=minutes, rest=rest)


def _row(*cells):
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


def _fill(app, doctree, docname):
    for place in list(doctree.findall(Table)):
        found = NbMetadataCollector.get_doc_data(app.env)
        body, total = nodes.tbody(), 0.0
        for page in get_docnames(app.env):
            done = found.get(page, {}).get("exec_data")
            if not done:
                continue
            total += done["runtime"] or 0.0
            address = app.builder.get_relative_uri(docname, page)
            body += _row(
                nodes.reference("", app.env.titles[page].astext(), refuri=address, internal=True),
                nodes.Text(spoken(app, done["runtime"]) if done["runtime"] else said(app, "not known")),
                nodes.Text(f"{datetime.fromtimestamp(done['mtime']):%Y-%m-%d}"),
                nodes.Text(said(app, "as meant") if done["succeeded"] else done["error"]),
            )
        together = nodes.strong("", said(app, "together"))
        body += _row(together, nodes.Text(spoken(app, total)), nodes.Text(""), nodes.Text(""))
        columns = said(app, "page"), said(app, "run time"), said(app, "executed on"), said(app, "result")
        head = nodes.thead("", _row(*map(nodes.Text, columns)))
        widths = [nodes.colspec(colwidth=width) for width in WIDTHS]
        place.replace_self(nodes.table("", nodes.tgroup("", *widths, head, body, cols=len(WIDTHS))))


def setup(app):
    app.add_node(Table)
    app.add_directive("execution-table", ExecutionTable)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
