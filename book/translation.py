"""The book in other languages: python book/translation.py, which `make translate` calls after a build.

Takes what the pages say into the catalogues, book/locale/LANGUAGE/LC_MESSAGES, one for each page. Lists, by page, what
is to be translated and what is wrong in a translation.
"""

import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jupytext
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from markdown_it import MarkdownIt
from pages import BUILD, LOCALE, REPO, languages

from grader import translation as of_labs
from grader import verdicts

MESSAGES = BUILD / ".doctrees" / "messages"
HEAD = r"""msgid ""
msgstr ""
"Project-Id-Version: ResNets on MindSpore\n"
"Language: {}\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=utf-8\n"
"Content-Transfer-Encoding: 8bit\n"

"""
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LABEL = re.compile(r"<(?:text|tspan|title|desc)\b[^>]*>([^<]*[^<\s][^<]*)</")
FORMULA = re.compile(r"^\$\$$.*?^\$\$", re.DOTALL | re.MULTILINE)
WORDS = re.compile(r"\\text\{[^}]*[ (]")  # in a formula: more than a name
# A role with its target, or code, a formula, an address.
KEPT = re.compile(
    r"\{([\w:-]+)\}`(?:[^`]*<)?([^`<>]+)>?`|((?P<mark>`+|\$+).+?(?P=mark)|\]\([^)]+\)|<https?:[^>]+>)", re.DOTALL
)
FIELD, QUOTED = re.compile(r"\{([^{}]*)\}"), re.compile("'[^']*'")
SAID = re.compile(r"""\bsa(?:id|y)(?:\.get)?\((?:app, )?(["'])(.+?)\1[,)]""")


def catalogues(language: str) -> dict[str, Path]:
    """The catalogue of each page, by its document's name."""
    folder = LOCALE / language / "LC_MESSAGES"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.po"))}


def messages(path: Path) -> list:
    """A catalogue's messages without its head, in the page's order."""
    with open(path, "rb") as file:
        return [message for message in read_po(file) if message.id]


# -- What is to be translated -------------------------------------------------------------------------


def on_page(document: str) -> list[str]:
    """What there is to translate on a page as it was last built.

    Of what Sphinx took from it (languages.py), only what the page's source has: docstrings, and what a directive
    makes, stay English; so do formulas without words. And what Sphinx does not take: alternative texts, summaries of
    HTML's details, and what the self-checks of a lab print.
    """
    text = (REPO / f"{document}.md").read_text(encoding="utf-8")
    given = text + ((REPO / "_toc.yml").read_text(encoding="utf-8") if document == "book/index" else "")
    squashed = " ".join(FORMULA.sub(lambda match: match[0] if WORDS.search(match[0]) else "", given).split())
    taken = json.loads((MESSAGES / f"{document}.json").read_text(encoding="utf-8"))
    more = re.findall(r"<summary>(.*?)</summary>", text)
    more += [alt.strip('"') for alt in re.findall(r"^:alt: (.+)$", text, re.MULTILINE)]
    for header in re.findall(r"^```\{code-cell\}[^\n]*\n---\n(.*?)^---$", text, re.DOTALL | re.MULTILINE):
        more.append(yaml.safe_load(header).get("mystnb", {}).get("image", {}).get("alt", ""))
    found = [message for message in taken if message and " ".join(message.split()) in squashed]
    found += [" ".join(message.split()) for message in more if message]
    if document.startswith("labs/"):
        sources = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
        checks = [source for source in sources if source.startswith("# Check")]
        found += [said for source in checks for _, _, said in of_labs.spoken(source)]
    return found


def on_drawings() -> list[str]:
    """The labels of all drawings that have words: a name, a shape or a formula needs no translation."""
    drawings = [path.read_text(encoding="utf-8") for path in sorted((REPO / "book" / "_static").glob("*.svg"))]
    labels = [html.unescape(label) for drawing in drawings for label in LABEL.findall(drawing)]
    name = re.compile(r"(--|\$|labkit )\S.*|[\w./]*[_./]\w+")
    return [label for label in labels if re.search(r"[A-Za-z]{3}", label) and not name.fullmatch(label)]


def said_by(*patterns: str) -> list[str]:
    """Texts that files give to `said` or `say`."""
    sources = [path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(REPO.glob(pattern))]
    return [text for source in sources for _, text in SAID.findall(source)]


def titles(tree: dict) -> Iterator[str]:
    """What a lab's grading.yaml says to learners: titles, and what to do next."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from titles(value)
        elif key in ("title", "next"):
            yield value


def templates() -> dict[str, list[str]]:
    """All that there is to translate, by the name of its catalogue."""
    documents = sorted(path.relative_to(MESSAGES).with_suffix("").as_posix() for path in MESSAGES.rglob("*.json"))
    pages = {document: on_page(document) for document in documents if (REPO / f"{document}.md").exists()}
    labs = {path.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in REPO.glob("labs/*/grading.yaml")}
    return {document: said for document, said in pages.items() if said} | {
        "book/_static/drawings": on_drawings(),
        "book/_ext/extensions": said_by("book/_ext/*.py", "book/pdf.py"),
        "grader/feedback": [*said_by("grader/templates/*.html"), *verdicts.texts()],
        **{f"labs/{lab}/grading": list(titles(tree)) for lab, tree in labs.items()},
    }


def update(language: str) -> None:
    """Take what the pages say now into the catalogues; a message that has changed keeps its translation, as fuzzy."""
    if not MESSAGES.exists():
        sys.exit("make translate: the book has not been built; run `make book` first")
    wanted, there = templates(), catalogues(language)
    for document in sorted(set(there) - set(wanted)):
        there[document].unlink()
    for document, said in wanted.items():
        path, template = LOCALE / language / "LC_MESSAGES" / f"{document}.po", Catalog()
        place = f"{document}.md" if (REPO / f"{document}.md").exists() else document
        for message in said:
            template.add(message, locations=[(place, 1)])
        catalogue = Catalog(locale=language)
        if path.exists():
            with open(path, "rb") as file:
                catalogue = read_po(file)
        catalogue.update(template)
        catalogue.obsolete.clear()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(HEAD.format(language).encode())
            write_po(file, catalogue, width=0, omit_header=True, include_lineno=False)


# -- What is wrong in a translation -------------------------------------------------------------------


def pieces(text: str) -> tuple[Counter, str]:
    """What a translation must keep, roles with their targets, code, formulas and links, and the other text."""
    found = [match.groups() for match in KEPT.finditer(text)]
    kept = Counter(f"{role} {target}" if role else other for role, target, other, _ in found)
    return kept, KEPT.sub("&", text)


def problems(english: str, translated: str) -> list[str]:
    """What is wrong in a translation of a message: what got lost or came in, numbers, punctuation."""
    (wanted, plain), (kept, text) = pieces(english), pieces(translated)
    if not re.search(r"\d million", plain):  # of which Chinese counts in tens of thousands
        wanted += Counter(f"number {number}" for number in NUMBER.findall(plain))
        kept += Counter(f"number {number}" for number in NUMBER.findall(text))
    found = [f"lost: {piece}" for piece in (wanted - kept).elements()]
    found += [f"new: {piece}" for piece in (kept - wanted).elements()]
    if "*" in MarkdownIt("commonmark").renderInline(text):
        found.append("asterisks that are no emphasis")
    if re.search(rf"[{HAN}]\s*[,;:?!.](?=\s|$|[{HAN}])", text):
        found.append("half-width punctuation")
    if re.match(r"(\d+\.|[-+*#>]) ", translated):  # which Sphinx would leave out
        found.append("begins a list or a heading: escape it")
    return found


def wrong(language: str) -> list[tuple[str, str, str]]:
    """What is wrong in a language's catalogues: page, English message, what."""
    found = []
    for page, path in catalogues(language).items():
        for message in messages(path):
            if not message.string or message.fuzzy:
                problem = ["to be translated" if not message.string else "the English has changed since"]
            elif message.string == message.id:
                problem = []
            else:
                texts = message.id, message.string
                if "{" in message.id and not re.search(r"[`$\\]", message.id):  # what an f-string computes is code
                    texts = (FIELD.sub(lambda match: f"`{QUOTED.sub('', match[1])}`", text) for text in texts)
                problem = problems(*texts)
            found += [(page, message.id, what) for what in problem]
    return found


if __name__ == "__main__":
    todo = []
    for name in languages():
        update(name)
        todo += wrong(name)
    for page, message, what in todo:
        print(f"{page}: {what}: {message[:70]}")
    print(f"{len(todo)} messages to work on" if todo else "complete")
    sys.exit(min(len(todo), 1))
