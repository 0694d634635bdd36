"""The directive execution-table: every page with code, in the book's order, with the time its last execution took.

MyST-NB has the figures. Its own table, nb-exec-table, lists file names alphabetically, without titles and a sum.
"""

from datetime import datetime

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.domain import get_docnames

COLUMNS = {"page": 50, "run time": 20, "executed on": 20, "result": 10}


class Table(nodes.General, nodes.Element):
    """The table's place: it is filled when the page is written, when all pages have been executed."""


class ExecutionTable(SphinxDirective):
    """Marks the page, so that MyST-NB has it written again after an execution."""

    def run(self):
        NbMetadataCollector.set_doc_data(self.env, self.env.docname, "has_exec_table", True)
        return [Table()]


def spoken(seconds: float) -> str:
    """12 s, or 2 min 5 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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
                nodes.Text(spoken(done["runtime"]) if done["runtime"] else "not known"),
                nodes.Text(f"{datetime.fromtimestamp(done['mtime']):%Y-%m-%d}"),
                nodes.Text("as meant" if done["succeeded"] else done["error"]),
            )
        body += _row(nodes.strong("", "together"), nodes.Text(spoken(total)), nodes.Text(""), nodes.Text(""))
        head = nodes.thead("", _row(*map(nodes.Text, COLUMNS)))
        widths = [nodes.colspec(colwidth=width) for width in COLUMNS.values()]
        place.replace_self(nodes.table("", nodes.tgroup("", *widths, head, body, cols=len(COLUMNS))))


def setup(app):
    app.add_node(Table)
    app.add_directive("execution-table", ExecutionTable)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
