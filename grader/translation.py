"""A lab's text in another language, from the book's catalogues: book/locale/LANGUAGE/LC_MESSAGES."""

import ast
import functools
import json
import re
from collections.abc import Callable

from grader.lab import LabError
from labkit.system.environment import REPO

LOCALE = REPO / "book" / "locale"
SUMMARY = re.compile(r"<summary>(.*?)</summary>")


@functools.cache
def translations(language: str, page: str) -> dict[str, str]:
    """{message: translation} of a page in the book, such as labs/thor/lab. Raises LabError if there is none."""
    from babel.messages.pofile import read_po

    file = LOCALE / language / "LC_MESSAGES" / f"{page}.po"
    if not file.exists():
        languages = ", ".join(sorted(path.parent.name for path in LOCALE.glob("*/LC_MESSAGES")))
        raise LabError(f"{page}: not translated into {language}; the book is in {languages}")
    with open(file, "rb") as opened:
        return {message.id: message.string for message in read_po(opened) if message.id and message.string}


def speaker(lab: str, language: str | None) -> Callable[[str], str]:
    """A function that translates the texts on a learner's page, if a language is given. Raises LabError."""
    if not language:
        return str
    catalogue = translations(language, "grader/feedback") | translations(language, f"labs/{lab}/grading")
    return lambda text: catalogue.get(text, text)


def translated(text: str, catalogue: dict[str, str]) -> str:
    """Translated Markdown: each paragraph, heading, list item and table cell in the catalogue is replaced."""
    from markdown_it import MarkdownIt

    lines = text.split("\n")
    for token in reversed(MarkdownIt("commonmark").enable("table").parse(text)):
        message = " ".join(token.content.split("\n"))
        if token.type == "inline" and token.map and message in catalogue:
            start, end = token.map
            pattern = r"\n[ \t>]*".join(map(re.escape, token.content.split("\n")))
            block = re.sub(pattern, lambda _, new=catalogue[message]: new, "\n".join(lines[start:end]), count=1)
            lines[start:end] = block.split("\n") + [""] * (end - start - block.count("\n") - 1)
    summaries = SUMMARY.sub(lambda match: f"<summary>{catalogue.get(match[1], match[1])}</summary>", "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", summaries)


# -- What a self-check prints ----------------------------------------------------------------------------

WORDS = re.compile(r"[A-Za-z]{2,} |[A-Za-z]{2,}$")


def spoken(source: str) -> list[tuple[int, int, str]]:
    """Texts in a cell that a person reads: first and last character of the literal, and the text.

    In an f-string, expressions appear as in the source, in braces. A text without two words is a name or a key.
    """
    texts, starts = [], [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def visit(node):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        text = "" if is_docstring else _text(node)
        if text is None:
            for child in ast.iter_child_nodes(node):
                visit(child)
        elif len(WORDS.findall(text)) > 1 or " " in text.strip():
            ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
            texts.append((*(starts[line - 1] + column for line, column in ends), text))

    visit(ast.parse(source))
    return texts


def translated_code(source: str, catalogue: dict[str, str]) -> str:
    """A cell with the texts in the catalogue translated; its code is unchanged."""
    data = source.encode()
    for start, end, text in reversed(spoken(source)):
        if text in catalogue:
            literal = json.dumps(catalogue[text], ensure_ascii=False)  # also one of Python's
            prefix = "f" if "{" in catalogue[text] else ""
            data = data[:start] + f"{prefix}{literal}".encode() + data[end:]
    return data.decode()


def _text(node):
    """The text of a string literal, or of an f-string with its expressions in braces; None for any other node."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(part.value.replace("{", "{{").replace("}", "}}"))
        else:
            parts.append(ast.unparse(ast.JoinedStr([part]))[2:-1])
    return "".join(parts)
