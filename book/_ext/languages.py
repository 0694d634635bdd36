"""Link pages to their translations, translate what Sphinx does not, and split Chinese text into words for the search.

Each language's pages are in a folder of their own: _build/html-zh_CN next to _build/html. book/build.py writes the list
of languages to _static/languages.js in each, and course.js shows the link if its page exists. Online, another
language's pages are in a subfolder of book_url with the language's name.
"""

import functools
import json
import logging
import re
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path

from docutils import nodes
from pages import translations
from sphinx import addnodes
from sphinx.jinja2glue import BuiltinTemplateLoader
from sphinx.search.zh import SearchChinese
from sphinx.transforms import SphinxTransform
from sphinx.transforms.i18n import Locale
from sphinx.util.nodes import extract_messages
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle, PersonStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

NAMES = {"en": "English", "zh_CN": "中文"}
LABEL = re.compile(r"(<(?:text|tspan|title|desc)\b[^>]*>)([^<]*[^<\s][^<]*)</")
TEXT = re.compile(r'(?<=>)[^<>]*[A-Za-z]{2}[^<>]*(?=<)|(?<=alt=")[^"]+')  # in HTML
COMMENT = re.compile(r"(?<!\S)(# (?:\d\. )?)(.+)")  # in a shell's commands
SAY = re.compile(r'(?<=\bsay\(")[^"]+')  # in a script of an interactive figure


class Search(SearchChinese):
    """Sphinx's search, which splits pages by jieba; this also splits the query, into the longest words in the index."""

    @functools.cache  # noqa: B019, the only instance lives as long as the build
    def stem(self, word: str) -> str:
        """The same as Sphinx's method, which looks up each word in a list of all Latin words so far."""
        stemmed = self.stemmer.stemWord(word.lower())
        return word.lower() if len(stemmed) < 3 <= len(word) and self.latin1_letters.fullmatch(word) else stemmed

    js_splitter_code = r"""
function splitQuery(query) {
  const words = [], {terms, titleterms} = Search._index;
  for (const piece of query.match(/[\u4e00-\u9fff]+|[^\s\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]+/g) ?? []) {
    for (let at = 0, end; at < piece.length; at = end) {
      end = piece.length;
      if (!/[\u4e00-\u9fff]/.test(piece)) words.push(piece);
      else {
        const known = (word) => Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word);
        while (end > at + 1 && !known(piece.slice(at, end))) end--;
        if (end > at + 1) words.push(piece.slice(at, end));
      }
    }
  }
  return words;
}
"""


class Templates(BuiltinTemplateLoader):
    """Sphinx's templates; `rendered` in a language's _config.yml replaces what the theme says in English."""

    def init(self, builder, *arguments):
        super().init(builder, *arguments)
        self.rendered = builder.config.rendered

    def render(self, template, context):
        return _replaced(self.rendered, super().render(template, context))


def _replaced(patterns: dict[str, str], text: str) -> str:
    for pattern, replacement in patterns.items():
        text = re.sub(pattern, replacement, text)
    return text


@dataclass
class ChineseCitations(AuthorYearReferenceStyle):
    """Authors and years, as in English, with what Chinese puts between them."""

    person: PersonStyle = field(default_factory=lambda: PersonStyle(sep="、", sep2=" 和 ", other=" 等"))
    bracket_parenthetical: BracketStyle = field(default_factory=lambda: BracketStyle(sep="；"))


def _add_link(app, pagename, templatename, context, doctree):
    links = []
    for code, name in NAMES.items():
        if app.config.book_url:
            folder = app.config.book_url + ("" if code == "en" else f"/{code}")
        else:
            folder = f"{context['pathto']('', 1)}../html" + ("" if code == "en" else f"-{code}")
        if code != (app.config.language or "en"):
            links.append((code, name, f"{folder}/{pagename}.html", f"{folder}/_static/languages.js"))
    context["other_languages"] = links


def _keep_messages(app, doctree):
    """Save the messages that Sphinx would translate on a page; book/translation.py puts them into the catalogues."""
    if app.config.language == "en":
        file = Path(app.doctreedir, "messages", f"{app.env.docname}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([text for _, text in extract_messages(doctree)]), encoding="utf-8")


def _translate_captions(app, doctree):
    """Translate captions in the table of contents, which _toc.yml adds after Sphinx's translation."""
    captions = translations(app.config.language, "book/index")
    for toctree in doctree.findall(addnodes.toctree):
        toctree["caption"] = captions.get(toctree["caption"], toctree["caption"])


class Formulas(SphinxTransform):
    """Translates displayed formulas before Sphinx, which would write reStructuredText's `::` into MyST."""

    default_priority = Locale.default_priority - 1

    def apply(self):
        catalogue = translations(self.config.language, self.env.docname)
        for formula in self.document.findall(nodes.math_block) if catalogue else ():
            text = catalogue.get(formula.rawsource or formula.astext())
            if text:
                formula.rawsource = text  # not a message in the catalogue, so Sphinx leaves it alone
                formula[:] = [nodes.Text(text)]


def _mark_titles(app, doctree):
    """Put titles of chapters and sections in Chinese sentences into 《》."""
    if not app.config.language.startswith("zh"):
        return
    for xref in list(doctree.findall(addnodes.pending_xref)):
        title = xref["refdomain"] == "std" and xref["reftype"] in ("doc", "ref") and not xref["refexplicit"]
        if title and xref.parent.astext().strip() != xref.astext().strip():
            at = xref.parent.index(xref)
            if at and isinstance(before := xref.parent[at - 1], nodes.Text):  # no space next to a bracket
                xref.parent.replace(before, nodes.Text(before.rstrip()))
            xref.replace_self([nodes.Text("《"), xref, nodes.Text("》")])


def _translate_rest(app, doctree, docname):
    """Translate what Sphinx does not: alternative texts, comments in shell commands, and words in HTML."""
    catalogue = translations(app.config.language, docname)
    if not catalogue:
        return
    for image in doctree.findall(nodes.image):
        image["alt"] = catalogue.get(" ".join(image.get("alt", "").split()), image.get("alt", ""))
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") in ("sh", "bash"):
            block.rawsource = COMMENT.sub(lambda match: match[1] + catalogue.get(match[2], match[2]), block.astext())
            block[:] = [nodes.Text(block.rawsource)]

    def translated(match):
        english = match[0].strip()
        return match[0].replace(english, escape(catalogue.get(unescape(english), ""), quote=False) or english)

    for raw in list(doctree.findall(nodes.raw)):
        html = TEXT.sub(translated, raw.astext())
        if html != raw.astext():
            raw.replace_self(nodes.raw("", html, format="html"))


def said(app, text: str) -> str:
    """Translate a text that an extension writes on a page."""
    return translations(app.config.language, "book/_ext/extensions").get(text, text)


def drawn(drawing: str, language: str) -> str:
    """An SVG with its labels translated."""
    catalogue = translations(language, "book/_static/drawings")

    def label(match):
        text = unescape(match[2])
        return match[1] + escape(catalogue.get(text, text), quote=False) + "</"

    return LABEL.sub(label, drawing)


def _translate_files(app, exception):
    if app.config.language == "en" or exception or app.builder.format != "html":
        return
    for path in Path(app.outdir, "_images").glob("*.svg"):
        if (Path(app.srcdir, "book", "_static") / path.name).exists():  # not a cell's plot
            path.write_text(drawn(path.read_text(encoding="utf-8"), app.config.language), encoding="utf-8")
    for path in Path(app.outdir, "_static").glob("**/*.js"):
        text = script = path.read_text(encoding="utf-8")
        if path.parent.name == "interactive":
            script = SAY.sub(lambda match: said(app, match[0]), text)
        elif path.name in ("togglebutton.js", "translations.js"):
            script = _replaced(app.config.rendered, text)
        if script != text:
            path.write_text(script, encoding="utf-8")


def _allow_processes(app):
    """Let Sphinx use several processes, although two of Jupyter Book's extensions do not declare that it may."""
    for name in ("sphinx_jupyterbook_latex", "sphinx_multitoc_numbering"):
        app.extensions[name].parallel_read_safe = True


def setup(app):
    logging.getLogger("jieba").setLevel(logging.WARNING)  # it logs that it reads its dictionary
    app.add_search_language(Search)
    app.add_transform(Formulas)
    app.add_config_value("rendered", {}, "html", dict)
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_zh", ChineseCitations)
    app.connect("build-finished", _translate_files)
    app.connect("doctree-read", _translate_captions, priority=400)  # before Sphinx collects them
    app.connect("doctree-read", _mark_titles)
    app.connect("doctree-read", _keep_messages, priority=900)  # after all other changes
    app.connect("doctree-resolved", _translate_rest)
    app.connect("builder-inited", _allow_processes)
    app.connect("html-page-context", _add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
