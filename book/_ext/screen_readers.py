"""Add what screen readers need and Sphinx or the theme omits."""

from languages import said


def _complete(app, pagename, templatename, context, doctree):
    generate = context["generate_toctree_html"]

    def generate_with_names(*arguments, **options):
        """The sidebar, with names for the arrows that fold a part's chapters."""
        tree = generate(*arguments, **options)
        for fold in tree.select("li > details"):
            fold.summary["aria-label"] = f"{said(app, 'Chapters of:')} {fold.parent.a.get_text()}"
        return tree

    context["generate_toctree_html"] = generate_with_names
    # The bibliography is a list, so its entries need the role of list items; their own role is deprecated.
    if "body" in context:
        context["body"] = context["body"].replace(' role="doc-biblioentry"', ' role="listitem"')


def setup(app):
    app.connect("html-page-context", _complete, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
