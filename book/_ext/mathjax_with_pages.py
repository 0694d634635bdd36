"""Formulas are drawn without a network: MathJax is copied beside the pages, in the parts that _config.yml loads.

The package sphinx-mathjax-offline carries its files; its own extension would copy all of them, 24 MB.
"""

import shutil
from importlib.metadata import distribution
from pathlib import Path

FILES = "sphinx-mathjax-offline/static/mathjax"
PARTS = [
    "startup.js", "core.js", "input/tex.js", "input/tex/extensions", "output/chtml.js", "output/chtml/fonts",
    "a11y/assistive-mml.js",
]  # fmt: skip


def _copy(app, exception):
    if exception or app.builder.format != "html":
        return
    source = Path(distribution("sphinx-mathjax-offline").locate_file(FILES))
    target = Path(app.outdir, "_static", "mathjax")
    for part in PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / part, target / part)


def _only_where_needed(app, page, template, context, doctree):
    """Sphinx loads MathJax, 0.8 MB, even where only chapters below a page have formulas."""
    if not app.env.get_domain("math").data["has_equations"].get(page):
        context["script_files"][:] = [file for file in context["script_files"] if "mathjax" not in str(file).lower()]


def setup(app):
    app.connect("html-page-context", _only_where_needed, priority=900)  # after Sphinx's own
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
