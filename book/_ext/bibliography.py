"""The references as the chapters name them, author and year, and with the chapters that cite each."""

from dataclasses import dataclass, field

from docutils import nodes
from pybtex.plugin import find_plugin, register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from sphinxcontrib.bibtex.domain import get_docnames
from sphinxcontrib.bibtex.plugin import register_plugin as register_reference_style
from sphinxcontrib.bibtex.style.referencing import GroupReferenceStyle, PersonStyle
from sphinxcontrib.bibtex.style.referencing import basic_author_year as author_year
from sphinxcontrib.bibtex.style.template import entry_label, join, node, reference


class AuthorYear(BaseLabelStyle):
    """Goyal et al., 2017; with a letter behind it where two entries would have the same label."""

    def format_labels(self, entries):
        wanted = [f"{_authors(entry)}, {entry.fields.get('year', 'n.d.')}" for entry in entries]
        for number, label in enumerate(wanted):
            earlier = wanted[:number].count(label)
            letter = f"{'' if label[-4:].isdigit() else '-'}{chr(ord('a') + earlier)}"  # 2016a, n.d.-a
            yield label if wanted.count(label) == 1 else label + letter


class References(Style):
    """Pybtex's plain style under these labels, sorted by author."""

    default_sorting_style = "author_year_title"
    default_label_style = AuthorYear


class Parenthetical(author_year.BasicAuthorYearParentheticalReferenceStyle):
    """[He et al., 2016b]: the label of the entry, with its letter."""

    def inner(self, role_name):
        return reference[entry_label]


class Textual(author_year.BasicAuthorYearTextualReferenceStyle):
    """He et al. [2016b]."""

    def inner(self, role_name):
        authors = self.person.author_or_editor_or_title(full=False)
        return join(sep=" ")[authors, join["[", reference[_year], "]"]]


@dataclass
class InText(GroupReferenceStyle):
    """Citations with the letters that the page of references has."""

    person: PersonStyle = field(default_factory=PersonStyle)

    def __post_init__(self):
        self.styles += [Parenthetical(), Textual()]
        super().__post_init__()


@node
def _year(children, data):
    return entry_label.format_data(data).split(", ")[-1]


def _authors(entry):
    names = [" ".join([*person.prelast_names, *person.last_names]).strip("{}") for person in entry.persons["author"]]
    return f"{names[0]} et al." if len(names) > 2 else " and ".join(names)


def _add_chapters(app, doctree, docname):
    """Behind each entry, links to the chapters that cite it, in the book's order."""
    domain = app.env.get_domain("cite")
    keys = {citation.citation_id: citation.key for citation in domain.citations}
    for citation in doctree.findall(nodes.citation):
        key = next(keys[name] for name in citation["ids"] if name in keys)
        cited = {
            reference.docname
            for reference in domain.citation_refs
            if key in {target.key for target in reference.targets}
        }
        line = nodes.paragraph("", "Cited in ", classes=["cited-in"])
        for number, chapter in enumerate(name for name in get_docnames(app.env) if name in cited):
            line += [nodes.Text(", ")] if number else []
            address = app.builder.get_relative_uri(docname, chapter)
            line += nodes.reference("", app.env.titles[chapter].astext(), refuri=address, internal=True)
        citation += line


def _note(app, env, names):
    app.reads_chapters = bool(names)


def _write_again(app, env):
    """The references tell of all chapters, so they are written again with any of them."""
    return {place.docname for place in env.get_domain("cite").bibliographies} if app.reads_chapters else set()


def setup(app):
    register_plugin("pybtex.style.formatting", "references", References)
    for name in ("plaintext", "docutils"):  # else all that is installed is searched for them, citation by citation
        register_plugin("pybtex.backends", name, find_plugin("pybtex.backends", name), force=True)
    register_reference_style("sphinxcontrib.bibtex.style.referencing", "in_text", InText)
    app.connect("env-before-read-docs", _note)
    app.connect("env-updated", _write_again)
    app.connect("doctree-resolved", _add_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
