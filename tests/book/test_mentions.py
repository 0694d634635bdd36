"""What texts name exists: paths of the project, targets and variables of `make`, commands and options.

In README.md, CONTRIBUTING.md, chapters and labs; the commands are those of `labkit` and of the scripts in data_scripts.
"""

import importlib
import re
import shlex
from itertools import dropwhile, groupby

import click
from chapters import REPO
from markdown_it import MarkdownIt
from mdit_py_plugins.front_matter import front_matter_plugin

TEXTS = ("README.md", "CONTRIBUTING.md", "book/**/*.md", "labs/*/lab.md")
PATH = re.compile(r"(?:binder|book|data_scripts|grader|labkit|labs|tests|\.ci|\.github)/[\w./*<>-]*")
COMMAND = re.compile(r"(?:^|[;&|] *)(?:\$ )?(?:\w+=\S* )*(?:\S*\.venv/bin/)?(?:make|labkit|python[\d.]*)(?: |$)")
PLACEHOLDER = re.compile(r"<[^>]*>|\b[A-Z]{2,}\b|\.{3}|…")  # NAME, <part>, ...
SHELL = ("", "sh", "bash", "console")  # fences that may contain commands
NOT_READ = ("{code", "{math", "{literalinclude", "{figure", "{image")  # code cells are executed anyway


def spans(text):
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


def commands(line):
    """The commands in a shell line, as words, without assignments and redirections."""
    line = re.sub(r"\d?[<>]+ *\S+", "", line.strip().removeprefix("$ "))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    groups = groupby(lexer, lambda word: bool(re.fullmatch("[();|&]+", word)))
    found = [list(dropwhile(re.compile(r"\w+=").match, words)) for operator, words in groups if not operator]
    return [words for words in found if words]


def require_make(words):
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    known = {*re.findall(r"^([a-z][\w-]*):", makefile, re.M), "LABKIT_DATA="}
    known |= {f"{name}=" for name in re.findall(r"^([A-Z_]+) *\?=", makefile, re.M)}
    for word in words:
        name = "".join(word.partition("=")[:2])
        if name not in known and not (word.startswith("-") or "=" not in word and PLACEHOLDER.search(word)):
            raise click.UsageError(f"make has no {name}")


def require_click(command, words):
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if PLACEHOLDER.search(words[0]):
            return
        _, command, words = command.resolve_command(click.Context(command), words)
    command.make_parser(click.Context(command, **command.context_settings)).parse_args(words)


def require(name, *words):
    """Raise click.UsageError for a command of the project with a word that it does not know."""
    if name == "make":
        require_make(words)
    elif name.rpartition(".venv/bin/")[2] == "labkit":
        require_click(importlib.import_module("labkit.cli").main, [*words])
    elif name.startswith("python") and re.fullmatch(r"data_scripts/\w+\.py", "".join(words[:1])):
        script = importlib.import_module(words[0].removesuffix(".py").replace("/", "."))
        require_click(script.main, [*words[1:]])


def wrong_names(text):
    """(name, reason) for everything that a Markdown text mentions and that does not exist."""
    for code, shell in spans(text):
        is_command = COMMAND.search(code.strip())
        for words in commands(code) if is_command else ():
            try:
                require(*words)
            except click.UsageError as error:
                yield " ".join(words), error.format_message()
        if is_command or not shell:
            for path in filter(PATH.fullmatch, re.split(r"[\s`'\"(),;=]+", code)):
                if not any(REPO.glob(PLACEHOLDER.sub("*", path.rstrip("./")))):
                    yield path, "no such file"


def test_all_that_texts_name_exists():
    files = sorted({file for pattern in TEXTS for file in REPO.glob(pattern)})
    wrong = {file: [*wrong_names(file.read_text(encoding="utf-8"))] for file in files}
    assert {file: names for file, names in wrong.items() if names} == {}
