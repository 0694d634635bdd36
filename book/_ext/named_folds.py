"""The sidebar's arrows, which fold a part's chapters, get a name that a screen reader can say."""


def _name_folds(app, pagename, templatename, context, doctree):
    generate = context["generate_toctree_html"]

    def generate_with_names(*arguments, **options):
        tree = generate(*arguments, **options)
        for fold in tree.select("li > details"):
            fold.summary["aria-label"] = f"Chapters of: {fold.parent.a.get_text()}"
        return tree

    context["generate_toctree_html"] = generate_with_names


def setup(app):
    app.connect("html-page-context", _name_folds, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
