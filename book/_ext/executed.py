"""Give the pages' chapters the outputs of their executed copies, which book/execution.py stores."""

from pathlib import Path

import nbformat
from execution import executed
from myst_nb import sphinx_


def _with_outputs(create):
    """Wrap MyST-NB's function that creates a page's reader, so that its notebooks have outputs."""

    def create_nb_reader(path, *arguments):
        reader = create(path, *arguments)
        if reader and executed(Path(path)).exists():
            read = reader.read

            def read_with_outputs(text):
                notebook, copy = read(text), nbformat.read(executed(Path(path)), as_version=4)
                notebook.metadata |= {name: copy.metadata[name] for name in ("kernelspec", "language_info")}
                for cell, executed_cell in zip(notebook.cells, copy.cells, strict=True):
                    if cell.cell_type == "code":
                        cell.outputs, cell.execution_count = executed_cell.outputs, executed_cell.execution_count
                return notebook

            reader.read = read_with_outputs
        return reader

    return create_nb_reader


def _note(app, docname, source):
    app.env.note_dependency(str(executed(Path(app.env.doc2path(docname)))))


def setup(app):
    sphinx_.create_nb_reader = _with_outputs(sphinx_.create_nb_reader)
    app.connect("source-read", _note)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
