"""Include figures with `:class: linked` in the page as SVG, so that readers can follow their links.

Links are relative to the page. The drawing's title and description serve as its alternative text.
"""

from pathlib import Path

from docutils import nodes
from languages import drawn


def _write_out(app, doctree, docname):
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        if "linked" in image["classes"] and image["uri"].endswith(".svg"):
            drawing = drawn(Path(app.srcdir, image["uri"]).read_text(encoding="utf-8"), app.config.language)
            image.replace_self(nodes.raw("", drawing, format="html"))


def setup(app):
    app.connect("doctree-resolved", _write_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
