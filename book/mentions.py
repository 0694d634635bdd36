"""Check that names mentioned in texts exist.

In README.md, CONTRIBUTING.md, chapters and labs: paths in the project, targets and variables of `make`, commands and
options of `labkit` and of the scripts in data_scripts. Reports one line for each that does not exist.
"""

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import dropwhile, groupby
from pathlib import Path

import click
from markdown_it import MarkdownIt
from mdit_py_plugins.front_matter import front_matter_plugin

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # for data_scripts
TEXTS = ("README.md", "CONTRIBUTING.md", "book/**/*.md", "labs/*/lab.md")
FOLDERS = ("binder", "book", "data_scripts", "grader", "labkit", "labs", "tests", ".ci", ".github")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*<>-]*")
COMMAND = re.compile(r"(?:^|[;&|] *)(?:\$ )?(?:\w+=\S* )*(?:\S*\.venv/bin/)?(?:make|labkit|python[\d.]*)(?: |$)")
PLACEHOLDER = re.compile(r"<[^>]*>|\b[A-Z]{2,}\b|\.{3}|…")  # NAME, <part>, ...
SHELL = ("", "sh", "bash", "console")  # fences that may contain commands
NOT_READ = ("{code", "{math", "{literalinclude", "{figure", "{image")  # code cells are executed anyway


def spans(text: str) -> Iterator[tuple[str, bool]]:
    """All inline code and all shell lines in MyST, with True for a shell line."""
    for block in MarkdownIt("commonmark").enable("table").use(front_matter_plugin).parse(text):
        if block.type == "fence" and block.info.startswith("{"):
            if not block.info.startswith(NOT_READ):  # a directive, such as a dropdown, contains Markdown
                yield from spans(block.content)
        elif block.type == "fence" and block.info.strip() in SHELL:
            yield from ((line, True) for line in block.content.replace("\\\n", " ").splitlines())
        role = False
        for token in block.children or []:
            if token.type == "code_inline" and not role:
                yield token.content, False
            role = token.type == "text" and bool(re.search(r"\{[\w:-]+\}$", token.content))


def commands(line: str) -> list[list[str]]:
    """The commands in a shell line, as words, without assignments and redirections."""
    line = re.sub(r"\d?[<>]+ *\S+", "", line.strip().removeprefix("$ "))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    groups = groupby(lexer, lambda word: bool(re.fullmatch("[();|&]+", word)))
    commands = [list(dropwhile(re.compile(r"\w+=").match, words)) for operator, words in groups if not operator]
    return [words for words in commands if words]


def wrong_with_make(words: list[str]) -> str:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    variables = {*re.findall(r"^([A-Z_]+) *\?=", makefile, re.M), "LABKIT_DATA"}
    for word in words:
        name, assigned, _ = word.partition("=")
        exists = name in variables if assigned else name in targets or word.startswith("-") or PLACEHOLDER.search(word)
        if not exists:
            return f"make has no {name}"
    return ""


def wrong_with_click(command: click.Command, words: list[str]) -> str:
    """The error in a command line's commands and options, or an empty text."""
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        word, *words = words
        if PLACEHOLDER.search(word):
            return ""
        command = command.get_command(click.Context(command), word)
        if command is None:
            return f"there is no command {word}"
    try:
        command.make_parser(click.Context(command, **command.context_settings)).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return ""


def wrong_with_command(words: list[str]) -> str:
    """The error in a command of the project, or an empty text."""
    name, *rest = words
    if name == "make":
        return wrong_with_make(rest)
    if name.rpartition(".venv/bin/")[2] == "labkit":
        return wrong_with_click(importlib.import_module("labkit.cli").main, rest)
    if name.startswith("python") and rest and rest[0].startswith("data_scripts/") and (REPO / rest[0]).exists():
        return wrong_with_click(importlib.import_module(rest[0].removesuffix(".py").replace("/", ".")).main, rest[1:])
    return ""


def wrong_names(text: str) -> list[tuple[str, str]]:
    """(name, reason) for everything that a Markdown text mentions and that does not exist."""
    wrong = []
    for code, shell in spans(text):
        is_command = COMMAND.search(code.strip())
        if is_command:
            wrong += [(" ".join(words), error) for words in commands(code) if (error := wrong_with_command(words))]
        if is_command or not shell:
            paths = filter(PATH.fullmatch, re.split(r"[\s`'\"(),;=]+", code))
            patterns = {path: PLACEHOLDER.sub("*", path.rstrip("./")) for path in paths}
            wrong += [(path, "no such file") for path, pattern in patterns.items() if not any(REPO.glob(pattern))]
    return wrong


def check() -> list[str]:
    """A line for each name in the project's texts that does not exist."""
    files = sorted({file for pattern in TEXTS for file in REPO.glob(pattern)})
    wrong = {file.relative_to(REPO): wrong_names(file.read_text(encoding="utf-8")) for file in files}
    return [f"{file}: {name}: {reason}" for file, names in wrong.items() for name, reason in names]
