"""The book in other languages: python book/translation.py LANGUAGE, which `make translate` calls.

Takes what the pages say now into the catalogues, book/locale/LANGUAGE/LC_MESSAGES, one for each page. Lists, by page,
what is to be translated and what is wrong in a translation. Needs a book that was built (`make book`).
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml
from babel.messages.pofile import read_po
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "_build"
LOCALE = REPO / "book" / "locale"
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
TERM_ROW = re.compile(r"^\| *(?P<english>[^|]+?) *\| *(?P<term>[^|]+?) *\| *(?P<wrong>[^|]*?) *\|", re.MULTILINE)


def catalogues(language: str) -> dict[str, Path]:
    """The catalogue of each page, by its document's name."""
    folder = LOCALE / language / "LC_MESSAGES"
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.po"))}


def messages(path: Path) -> list:
    """A catalogue's messages without its head, in the page's order."""
    with open(path, "rb") as file:
        return [message for message in read_po(file) if message.id]


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
            rest.append(shown if target else " ")
        elif token.type == "link_open":
            kept["link", token.attrs["href"]] += 1
        elif token.type == "image":
            kept["image", token.attrs["src"]] += 1
        elif token.type == "strong_open":
            kept["strong", ""] += 1
    return kept, "".join(rest)


def terms() -> list[tuple[str, re.Pattern, str, list[str]]]:
    """The rows of book/locale/terms.md, a form each, the longest first: the form, its pattern, its term, wrong ones.

    A form with a sense in parentheses requires no term: it is empty.
    """
    found = []
    for row in TERM_ROW.finditer((LOCALE / "terms.md").read_text(encoding="utf-8")):
        if set(row["english"]) <= set("- ") or row["english"] == "English":
            continue
        wrong = [word.strip() for word in row["wrong"].split("、") if word.strip()]
        for form in row["english"].split(" / "):
            plain = re.sub(r"\s*\([^)]*\)$", "", form)
            pattern = re.compile(rf"(?<![\w-]){re.escape(plain)}(?:s|es)?(?![\w-])", re.IGNORECASE)
            found.append((plain, pattern, row["term"] if plain == form else "", wrong))
    return sorted(found, key=lambda row: -len(row[0]))


def wrong_terms(english: str, translated: str, rows) -> list[str]:
    """Terms of a message that are missing in its translation, and words that it must not use for them."""
    left, matched = english, []
    for form, pattern, term, wrong in rows:
        if pattern.search(left):
            left = pattern.sub(" ", left)
            matched.append((form, term, wrong))
    found = []
    for form, term, wrong in matched:
        if term and term.lower() not in translated.lower():
            found.append(f"{form}: not {term}")
        for word in wrong:
            others = (other for _, other, _ in matched if word in other)
            rest = translated
            for other in others:
                rest = rest.replace(other, " ")
            if word in rest:
                found.append(f"{form}: {word}" + (f" instead of {term}" if term else ""))
    return found


def problems(english: str, translated: str, rows=(), parser=None) -> list[str]:
    """What is wrong in a translation of a message: what got lost or came in, numbers, spaces, punctuation, terms."""
    parser = parser or _parser()
    found = []
    (kept, plain), (ours, text) = pieces(english, parser), pieces(translated, parser)
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
    if re.search(rf"[{HAN}][A-Za-z0-9`$]|[A-Za-z0-9`$%][{HAN}]", re.sub(r"`[^`]*`|\$[^$]*\$", "`", translated)):
        found.append("no space between Chinese and Latin text")
    return found + wrong_terms(plain, text, rows)
