"""The book in other languages: python book/translation.py LANGUAGE, which `make translate` calls.

Takes what the pages say, as they were last built, into the catalogues, book/locale/LANGUAGE/LC_MESSAGES, one for each
page. Lists, by page, what is to be translated and what is wrong in a translation.
"""

import argparse
import ast
import hashlib
import html
import itertools
import json
import re
import sys
from collections import Counter
from pathlib import Path

import jupytext
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from grader import batch, submissions, translation

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "_build"
LOCALE = REPO / "book" / "locale"
MESSAGES = BUILD / ".doctrees" / "messages"
HEAD = r'''msgid ""
msgstr ""
"Project-Id-Version: ResNets on MindSpore\n"
"Language: {}\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=utf-8\n"
"Content-Transfer-Encoding: 8bit\n"

'''
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LABEL = re.compile(r"<(?:text|tspan|title|desc)\b[^>]*>([^<]*[^<\s][^<]*)</")
WORDS = re.compile(r"\\text\{[^}]*[ (]")  # in a formula: more than a name
TERM_ROW = re.compile(r"^\| *(?P<english>[^|]+?) *\| *(?P<term>[^|]+?) *\| *(?P<wrong>[^|]*?) *\|", re.MULTILINE)


def catalogues(language: str) -> dict[str, Path]:
    """The catalogue of each page, by its document's name."""
    folder = LOCALE / language / "LC_MESSAGES"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.po"))}


def messages(path: Path) -> list:
    """A catalogue's messages without its head, in the page's order."""
    return [message for message in _read(path) if message.id]


# -- What is to be translated -------------------------------------------------------------------------


def extra(text: str) -> list[str]:
    """Messages of a page that Sphinx's gettext does not take: alternative texts, and summaries of HTML's details."""
    found = re.findall(r"<summary>(.*?)</summary>", text)
    found += [alt.strip('"') for alt in re.findall(r"^:alt: (.+)$", text, re.MULTILINE)]
    for header in re.findall(r"^```\{code-cell\}[^\n]*\n---\n(.*?)^---$", text, re.DOTALL | re.MULTILINE):
        shown = (yaml.safe_load(header) or {}).get("mystnb", {}).get("image", {})
        found += [shown["alt"]] if "alt" in shown else []
    return [" ".join(one.split()) for one in found]


def spoken(path: Path) -> list[str]:
    """What the self-checks of a lab print."""
    cells = jupytext.read(path).cells
    checks = [cell.source for cell in cells if cell.cell_type == "code" and cell.source.startswith("# Check")]
    return [text for source in checks for _, _, text in translation.spoken(source)]


def template(document: str) -> Catalog:
    """What there is to translate on a page as it was last built: a catalogue without translations.

    Of what Sphinx took from it (languages.py), only what the page's source has: docstrings, and what a directive
    makes, stay English. Formulas without words need no translation. Exits if the page has changed since the build.
    """
    source = REPO / f"{document}.md"
    text = source.read_text(encoding="utf-8")
    given = text + ((REPO / "_toc.yml").read_text(encoding="utf-8") if document == "book/index" else "")
    formulas = re.compile(r"^\$\$$.*?^\$\$", re.DOTALL | re.MULTILINE)
    squashed = " ".join(formulas.sub(lambda one: one[0] if WORDS.search(one[0]) else "", given).split())
    built = json.loads((MESSAGES / f"{document}.json").read_text(encoding="utf-8"))
    if built["source"] != hashlib.sha256(source.read_bytes()).hexdigest():
        sys.exit(f"{document}.md: changed since the book was built; run `make book` first")
    found = Catalog(project="ResNets on MindSpore", charset="utf-8")
    for message, line in built["messages"]:
        if " ".join(message.split()) in squashed:
            found.add(message, locations=[(f"{document}.md", line)])
    for message in extra(text) + (spoken(source) if source.name == "lab.md" else []):
        found.add(message, locations=[(f"{document}.md", 1)])
    return found


def drawings() -> Catalog:
    """The labels of all drawings that have words: a name, a shape or a formula needs no translation."""
    found = Catalog(project="ResNets on MindSpore", charset="utf-8")
    for path in sorted((REPO / "book" / "_static").glob("*.svg")):
        for label in LABEL.findall(path.read_text(encoding="utf-8")):
            if re.search(r"[A-Za-z]{3}", label) and not re.fullmatch(r"(--|\$|labkit )\S.*|[\w./]*[_./]\w+", label):
                found.add(html.unescape(label), locations=[(path.relative_to(REPO).as_posix(), 1)])
    return found


def extensions() -> Catalog:
    """What the book's own extensions write on pages: texts that they give to `languages.said`."""
    found = Catalog(project="ResNets on MindSpore", charset="utf-8")
    for path in (*sorted((REPO / "book" / "_ext").glob("*.py")), REPO / "book" / "pdf.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            text = node.args[function == "said"] if function in ("said", "say") else None
            if isinstance(text, ast.Constant):
                found.add(text.value, locations=[(path.relative_to(REPO).as_posix(), 1)])
    return found


# A learner may read every text in these modules, except a lab's own errors. In the others, only what these calls get.
TOLD = ("verdicts", "grade", "handed_in", "run_history")
TELLING = ("Unreadable", "NotThis", "printable")
NAMES = ("right", "not right", "wrong", "error", "crashed", "blocked", "missing", "network", "epochs", "steps")


def feedback() -> Catalog:
    """What a learner's page says: the texts of its template, and of what grades."""
    found = Catalog(project="ResNets on MindSpore", charset="utf-8")
    folder = REPO / "labkit" / "grading"

    def add(path, texts):
        for text in texts:
            if translation.FIELD.sub("", text).strip(" :") and "\\" not in text and text == text.strip():
                found.add(text, locations=[(path.relative_to(REPO).as_posix(), 1)])

    for path in (folder / "templates" / "base.html", folder / "templates" / "feedback.html"):
        add(path, re.findall(r'say\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in _telling(tree, path.stem):
            add(path, [text for _, _, text in translation.spoken(ast.unparse(node))])
    add(folder / "verdicts.py", NAMES)
    add(folder / "batch.py", [batch.FAILED, submissions.NOT_TAKEN])
    return found


class _WithoutLabErrors(ast.NodeTransformer):
    def visit_Raise(self, node):
        return ast.Pass() if "LabError(" in ast.unparse(node) else node


def _telling(tree, module):
    """The nodes of a module that say something to a learner."""
    if module in TOLD:
        return [_WithoutLabErrors().visit(tree)]
    if module == "values":  # how a value differs
        return [node for node in tree.body if getattr(node, "name", "") in ("difference", "_difference")]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in calls if getattr(node.func, "id", "") in TELLING]


def titles(lab: Path) -> Catalog:
    """What a lab's grading.yaml says to learners: titles, and what to do next."""
    found = Catalog(project="ResNets on MindSpore", charset="utf-8")

    def visit(tree):
        for key, value in tree.items():
            if isinstance(value, dict):
                visit(value)
            elif key in ("title", "next"):
                found.add(value, locations=[((lab / "grading.yaml").relative_to(REPO).as_posix(), 1)])

    visit(yaml.safe_load((lab / "grading.yaml").read_text(encoding="utf-8")))
    return found


def documents() -> list[str]:
    """The pages that have anything to translate, as the book was last built."""
    found = sorted(path.relative_to(MESSAGES).with_suffix("").as_posix() for path in MESSAGES.rglob("*.json"))
    return [document for document in found if (REPO / f"{document}.md").exists() and len(template(document))]


def templates() -> dict[str, Catalog]:
    """All that there is to translate, by the name of its catalogue."""
    return {document: template(document) for document in documents()} | {
        "book/_static/drawings": drawings(),
        "book/_ext/extensions": extensions(),
        "grader/feedback": feedback(),
        **{f"labs/{lab.name}/grading": titles(lab) for lab in sorted((REPO / "labs").iterdir()) if lab.is_dir()},
    }


def update(language: str) -> None:
    """Take what the pages say now into the catalogues; a message that has changed keeps its translation, as fuzzy."""
    if not MESSAGES.exists():
        sys.exit("make translate: the book has not been built; run `make book` first")
    wanted, there = templates(), catalogues(language)
    for document in sorted(set(there) - set(wanted)):
        there[document].unlink()
    for document, said in wanted.items():
        path = LOCALE / language / "LC_MESSAGES" / f"{document}.po"
        catalogue = _read(path) if path.exists() else Catalog(locale=language)
        catalogue.update(said)
        catalogue.obsolete.clear()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(HEAD.format(language).encode())
            write_po(file, catalogue, width=0, omit_header=True, include_lineno=False)


def _read(path):
    with open(path, "rb") as file:
        return read_po(file)


# -- What is wrong in a translation -------------------------------------------------------------------


def _parser():
    config = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))
    extensions = set(config["parse"]["myst_enable_extensions"]) - {"linkify"}
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


def pieces(text: str, parser=None) -> tuple[Counter, str]:
    """What a translation must keep (code, formulas, roles with their targets, links, emphasis), and the other text."""
    kept, rest = Counter(), []
    for token in (parser or _parser()).parseInline(text)[0].children:
        if token.type == "text":
            rest.append(token.content)
        elif token.type in ("code_inline", "math_inline", "math_inline_double", "html_inline"):
            kept[token.type, token.content] += 1
            rest.append(" ")
        elif token.type == "myst_role":
            shown, _, target = re.fullmatch(r"(.*?)(\s*<([^<>]+)>)?", token.content, re.DOTALL).groups()
            kept[token.meta["name"], target or shown] += 1
            named = token.meta["name"].startswith("py:") or "/" in shown  # an object, a file: no words
            rest.append(shown if target and not named else " ")
        elif token.type == "link_open":
            kept["link", token.attrs["href"]] += 1
        elif token.type == "image":
            kept["image", token.attrs["src"]] += 1
        elif token.type in ("strong_open", "em_open"):  # Chinese has no italics: they become bold, or nothing
            kept[token.type.removesuffix("_open"), ""] += 1
    return kept, "".join(rest)


def spaced(text: str) -> str:
    """A space between Chinese and Latin text, code and formulas; none between Chinese, or next to its punctuation."""
    parts = re.split(r"(\{[\w:+.-]+\}`[^`]*`|`[^`]*`|\$[^$]+\$)", text)
    edges = {place: _edges(parts[place]) for place in range(1, len(parts), 2)}
    for place in range(0, len(parts), 2):
        part = re.sub(rf"(?<=[{HAN}])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[{HAN}])", " ", parts[place])
        part = re.sub(r" +(?=[，。；：？！）”’、])|(?<=[，。；：？！（“‘、]) +", "", part)
        bare = part.strip(" ")
        if bare and place + 1 in edges:
            part = part.rstrip(" ") + _gap(part, bare[-1], edges[place + 1][0], part.endswith(" "))
        if bare and place - 1 in edges:
            part = _gap(part, bare[0], edges[place - 1][1], part.startswith(" ")) + part.lstrip(" ")
        parts[place] = part
    return "".join(parts)


def _edges(span):
    """What a code span, formula or role shows first and last: True for Chinese."""
    role = re.fullmatch(r"\{([\w:+.-]+)\}`(.*?)(?:\s*<[^<>]*>)?`", span, re.DOTALL)
    if not role:
        return False, False
    name, shown = role.groups()
    if "<" not in span and name in ("doc", "ref", "numref"):  # a title, or a figure's number
        return True, name != "numref"
    return re.match(f"[{HAN}]", shown) is not None, re.search(f"[{HAN}]$", shown) is not None


def _gap(part, neighbour, chinese, there):
    """The space between a text's edge and what stands next to it."""
    if re.match(r"[，。；：？！（）“”‘’、《》]", neighbour):
        return ""
    if re.match(f"[{HAN}]", neighbour):
        return "" if chinese else " "
    if re.match(r"[A-Za-z0-9%]", neighbour) and chinese:
        return " "
    return " " if there else ""


def terms() -> list[tuple[str, re.Pattern, str, list[str], bool]]:
    """The rows of book/locale/terms.md, a form each, the longest first.

    The form, its pattern, its term, wrong terms, and whether the term is required: not by a form with a sense in
    parentheses.
    """
    found = []
    text = (LOCALE / "terms.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| English \|[^\n]*\n\|[-| ]*\n((?:\|[^\n]*\n)*)", text, re.MULTILINE)
    for row in TERM_ROW.finditer("".join(tables)):
        wrong = [word.strip() for word in row["wrong"].split("、") if word.strip()]
        for form in row["english"].split(" / "):
            plain = re.sub(r"\s*\([^)]*\)$", "", form)
            case = 0 if plain[0].isupper() else re.IGNORECASE  # "Part 1" is of the book, "part 1" of a file
            pattern = re.compile(rf"(?<![\w.-]){re.escape(plain)}(?:s|es)?(?![\w-]|\.\w)", case)
            found.append((plain, pattern, row["term"], wrong, plain == form))
    return sorted(found, key=lambda row: (-len(row[0]), row[0]))


def wrong_terms(english: str, translated: str, rows) -> list[str]:
    """Terms of a message that are missing in its translation, and words that it must not use for them."""
    left, matched = re.sub(r"\blabkit \w+", " ", english), []  # a command is no word
    for _, senses in itertools.groupby(rows, key=lambda row: row[0]):
        senses = list(senses)
        pattern = senses[0][1]
        if pattern.search(left):
            left = pattern.sub(" ", left)
            matched += [(form, term, wrong, required) for form, _, term, wrong, required in senses]
    found = []
    for form, term, wrong, required in matched:
        if required and term.lower() not in translated.lower():
            found.append(f"{form}: not {term}")
        for word in wrong:
            others = (other for _, other, _, _ in matched if word in other)
            rest = translated
            for other in others:
                rest = rest.replace(other, " ")
            if word in rest:
                found.append(f"{form}: {word} instead of {term}")
    return found


def problems(english: str, translated: str, rows=(), parser=None) -> list[str]:
    """What is wrong in a translation of a message: what got lost or came in, numbers, spaces, punctuation, terms."""
    parser = parser or _parser()
    found = []
    (kept, plain), (ours, text) = pieces(english, parser), pieces(translated, parser)
    italics = kept.pop(("em", ""), 0)
    kept["strong", ""] += min(italics, max(0, ours["strong", ""] - kept["strong", ""]))
    for what, count in ((kept - ours), "lost"), ((ours - kept), "new"):
        found += [f"{count}: {' '.join(one).strip()}" for one in what.elements()]
    numbers = Counter(NUMBER.findall(plain)), Counter(NUMBER.findall(text))
    millions = re.search(r"\d million", plain) is not None
    if not millions and numbers[0] != numbers[1]:
        found += [f"number lost: {one}" for one in (numbers[0] - numbers[1]).elements()]
        found += [f"number new: {one}" for one in (numbers[1] - numbers[0]).elements()]
    if "*" in text:
        found.append("asterisks that are no emphasis")
    if re.search(rf"[{HAN}]\s*[,;:?!](?=\s|$|[{HAN}])", text) or re.search(rf"[{HAN}]\.(?=\s|$|[{HAN}])", text):
        found.append("half-width punctuation")
    if re.match(r"(\d+\.|[-+*#>]) ", translated):  # which Sphinx would leave out
        found.append("begins a list or a heading: escape it")
    if spaced(translated) != translated:
        found.append(f"spaces: {spaced(translated)}")
    return found + wrong_terms(plain, text, rows)


def wrong(language: str) -> list[tuple[str, str, str]]:
    """What is wrong in a language's catalogues: page, English message, what."""
    rows, parser, found = terms(), _parser(), []
    for page, path in catalogues(language).items():
        filled = set(spoken(REPO / f"{page}.md")) if page.endswith("/lab") else set()
        filled |= {message.id for message in messages(path)} if page.startswith(("labkit/", "book/_ext/")) else set()
        for message in messages(path):
            if not message.string or message.fuzzy:
                problem = ["to be translated" if not message.string else "the English has changed since"]
            elif message.string == message.id:
                problem = []
            elif message.id in filled:
                same = translation.computed(message.id) == translation.computed(message.string)
                plain = (re.sub(r"\{[^{}]*\}", "`x`", text) for text in (message.id, message.string))
                problem = [what for what in problems(*plain, rows, parser) if not what.startswith("spaces")]
                problem += [] if same else ["computes something else"]
            else:
                problem = problems(message.id, message.string, rows, parser)
            found += [(page, message.id, what) for what in problem]
    return found


def report(language: str) -> int:
    """Print what is to be done in a language's catalogues, by page; how much that is."""
    found = wrong(language)
    for page, message, what in found:
        print(f"{page}: {what}: {message[:70]}")
    todo = len(found)
    print(f"{language}: {todo} messages to work on" if todo else f"{language}: complete")
    return todo


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("language", nargs="?", default="zh_CN")
    arguments.add_argument("--check", action="store_true", help="only list what is to be done")
    chosen = arguments.parse_args()
    if not chosen.check:
        update(chosen.language)
    sys.exit(min(report(chosen.language), 1))
