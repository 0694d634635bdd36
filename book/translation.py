"""The book in other languages: python book/translation.py, which `make translate` calls after a build.

Puts the pages' messages into the catalogues in book/locale/LANGUAGE/LC_MESSAGES, one for each page. Lists, by page,
what is still to be translated, and errors in translations.
"""

import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from execution import executed
from languages import COMMENT, LABEL, TEXT
from markdown_it import MarkdownIt
from pages import BUILD, LOCALE, REPO, languages

from grader import translation as lab_translation
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
FORMULA = re.compile(r"^\$\$$.*?^\$\$", re.DOTALL | re.MULTILINE)
WORDS = re.compile(r"\\text\{[^}]*[ (]")  # text in a formula that is more than a name
# A role with its target, or code, a formula, a link.
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
    """A catalogue's messages without its header, in the page's order."""
    with open(path, "rb") as file:
        return [message for message in read_po(file) if message.id]


# -- What is to be translated -------------------------------------------------------------------------


def on_page(document: str) -> list[str]:
    """The messages to translate on a page, as last built.

    From the messages that Sphinx extracted (languages.py), take those in the page's source: docstrings, the output of
    directives, and formulas without words stay English. Add what Sphinx does not extract: alternative texts, summaries
    of HTML's details, comments in shell commands, words in the HTML that cells make, and the texts that a lab's
    self-checks print.
    """
    path = REPO / f"{document}.md"
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"^```\{include\} (\S+)", text, re.MULTILINE):
        text += (path.parent / name).read_text(encoding="utf-8")
    source = text + ((REPO / "_toc.yml").read_text(encoding="utf-8") if document == "book/index" else "")
    squashed = " ".join(FORMULA.sub(lambda match: match[0] if WORDS.search(match[0]) else "", source).split())
    extracted = json.loads((MESSAGES / f"{document}.json").read_text(encoding="utf-8"))
    more = re.findall(r"<summary>(.*?)</summary>", text)
    commands = "".join(re.findall(r"^ *```(?:ba)?sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE))
    more += [comment for _, comment in COMMENT.findall(commands)]
    more += [alt.strip('"') for alt in re.findall(r"^:alt: (.+)$", text, re.MULTILINE)]
    for header in re.findall(r"^```\{code-cell\}[^\n]*\n---\n(.*?)^---$", text, re.DOTALL | re.MULTILINE):
        more.append(yaml.safe_load(header).get("mystnb", {}).get("image", {}).get("alt", ""))
    copy = executed(path)
    for cell in nbformat.read(copy, as_version=4).cells if copy.exists() else ():
        made = [output.data.get("text/html", "") for output in cell.get("outputs", ()) if "data" in output]
        tables = re.sub(r"<(style|code)\b.*?</\1>", "<>", "".join(made), flags=re.DOTALL)
        more += [html.unescape(said) for said in TEXT.findall(tables)] if "dataframe" not in tables else []
    to_translate = [message for message in extracted if message and " ".join(message.split()) in squashed]
    to_translate += [" ".join(message.split()) for message in more if message]
    if document.startswith("labs/"):
        sources = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
        checks = [source for source in sources if source.startswith("# Check")]
        to_translate += [message for check in checks for _, _, message in lab_translation.spoken(check)]
    return to_translate


def on_drawings() -> list[str]:
    """The labels in all drawings that contain words: names, shapes and formulas need no translation."""
    drawings = [path.read_text(encoding="utf-8") for path in sorted((REPO / "book" / "_static").glob("*.svg"))]
    labels = [html.unescape(label) for drawing in drawings for _, label in LABEL.findall(drawing)]
    name = re.compile(r"(--|\$|labkit )\S.*|[\w./]*[_./]\w+")
    return [label for label in labels if re.search(r"[A-Za-z]{2}", label) and not name.fullmatch(label)]


def said_by(*patterns: str) -> list[str]:
    """Texts that are passed to `said` or `say` in these files."""
    sources = [path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(REPO.glob(pattern))]
    return [text for source in sources for _, text in SAID.findall(source)]


def titles(tree: dict) -> Iterator[str]:
    """Texts for learners in a lab's grading.yaml: titles, and what to do next."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from titles(value)
        elif key in ("title", "next"):
            yield value


def templates() -> dict[str, list[str]]:
    """All messages to translate, by catalogue."""
    documents = sorted(path.relative_to(MESSAGES).with_suffix("").as_posix() for path in MESSAGES.rglob("*.json"))
    pages = {document: on_page(document) for document in documents if (REPO / f"{document}.md").exists()}
    labs = {path.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in REPO.glob("labs/*/grading.yaml")}
    return {document: said for document, said in pages.items() if said} | {
        "book/_static/drawings": on_drawings(),
        "book/_ext/extensions": said_by("book/_ext/*.py", "book/pdf.py", "book/_static/interactive/*.js"),
        "grader/feedback": [*said_by("grader/templates/*.html"), *verdicts.texts()],
        **{f"labs/{lab}/grading": list(titles(tree)) for lab, tree in labs.items()},
    }


def update(language: str) -> None:
    """Put the pages' current messages into the catalogues; a changed message keeps its translation, marked as fuzzy."""
    if not MESSAGES.exists():
        sys.exit("make translate: the book has not been built; run `make book` first")
    current, existing = templates(), catalogues(language)
    for document in sorted(set(existing) - set(current)):
        existing[document].unlink()
    for document, said in current.items():
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


# -- Errors in translations ---------------------------------------------------------------------------


def pieces(text: str) -> tuple[Counter, str]:
    """The pieces that a translation must keep (roles with targets, code, formulas and links), and the other text."""
    groups = [match.groups() for match in KEPT.finditer(text)]
    kept = Counter(f"{role} {target}" if role else other for role, target, other, _ in groups)
    return kept, KEPT.sub("&", text)


def problems(english: str, translated: str) -> list[str]:
    """Errors in the translation of a message: lost or new pieces and numbers, punctuation."""
    (required, plain), (kept, text) = pieces(english), pieces(translated)
    if not re.search(r"\d million", plain):  # Chinese uses tens of thousands instead
        required += Counter(f"number {number}" for number in NUMBER.findall(plain))
        kept += Counter(f"number {number}" for number in NUMBER.findall(text))
    errors = [f"lost: {piece}" for piece in (required - kept).elements()]
    errors += [f"new: {piece}" for piece in (kept - required).elements()]
    if "*" in MarkdownIt("commonmark").renderInline(text):
        errors.append("asterisks that are no emphasis")
    if re.search(rf"[{HAN}]\s*[,;:?!.](?=\s|$|[{HAN}])", text):
        errors.append("half-width punctuation")
    if re.match(r"(\d+\.|[-+*#>]) ", translated):  # Sphinx would drop it
        errors.append("begins a list or a heading: escape it")
    return errors


def wrong(language: str) -> list[tuple[str, str, str]]:
    """(page, English message, error) for all errors in a language's catalogues."""
    errors = []
    for page, path in catalogues(language).items():
        for message in messages(path):
            if not message.string or message.fuzzy:
                in_message = ["to be translated" if not message.string else "the English has changed since"]
            elif message.string == message.id:
                in_message = []
            else:
                texts = message.id, message.string
                if "{" in message.id and not re.search(r"[`$\\]", message.id):  # expressions in an f-string are code
                    texts = (FIELD.sub(lambda match: f"`{QUOTED.sub('', match[1])}`", text) for text in texts)
                in_message = problems(*texts)
            errors += [(page, message.id, error) for error in in_message]
    return errors


if __name__ == "__main__":
    todo = []
    for name in languages():
        update(name)
        todo += wrong(name)
    for page, message, error in todo:
        print(f"{page}: {error}: {message[:70]}")
    print(f"{len(todo)} messages to work on" if todo else "complete")
    sys.exit(min(len(todo), 1))
