"""Chapters on the pages have the outputs of their executed copies, which book/execution.py keeps."""

from pathlib import Path

import nbformat
from execution import executed
from myst_nb import sphinx_


def _with_outputs(create):
    """MyST-NB's function that makes a page's reader, whose notebooks then have outputs."""

    def create_nb_reader(path, *arguments):
        reader = create(path, *arguments)
        if reader and executed(Path(path)).exists():
            read = reader.read

            def read_with_outputs(text):
                notebook, copy = read(text), nbformat.read(executed(Path(path)), as_version=4)
                notebook.metadata |= {name: copy.metadata[name] for name in ("kernelspec", "language_info")}
                for cell, done in zip(notebook.cells, copy.cells, strict=True):
                    if cell.cell_type == "code":
                        cell.outputs, cell.execution_count = done.outputs, done.execution_count
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
