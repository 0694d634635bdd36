"""Show formulas without a network: copy the parts of MathJax that _config.yml loads to the pages.

The files are in the package sphinx-mathjax-offline, whose own extension would copy all of them, 24 MB.
"""

import shutil
from importlib.metadata import distribution
from pathlib import Path

FILES = "sphinx-mathjax-offline/static/mathjax"
OTHERS = ("sre", "ui", "adaptors", "svg*", "mml*", "tex-*", "asciimath.js")


def _copy(app, exception):
    if not exception and app.builder.format == "html":
        source = distribution("sphinx-mathjax-offline").locate_file(FILES)
        target = Path(app.outdir, "_static", "mathjax")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*OTHERS), dirs_exist_ok=True)


def _only_where_needed(app, page, template, context, doctree):
    """Remove MathJax, 0.8 MB, from pages without formulas, if Sphinx loads it because of chapters below them."""
    if not app.env.get_domain("math").data["has_equations"].get(page):
        context["script_files"][:] = [file for file in context["script_files"] if "mathjax" not in str(file).lower()]


def setup(app):
    app.connect("html-page-context", _only_where_needed, priority=900)  # after Sphinx's own
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
