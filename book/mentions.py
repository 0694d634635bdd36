"""Names in texts that must exist: python book/mentions.py

In README.md, CONTRIBUTING.md, chapters and labs: paths of the project, targets and variables of `make`, commands,
options and choices of `labkit` and of the scripts in data_scripts. One line for each that does not exist.
"""

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
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
SHELL = ("", "sh", "bash", "console")  # fences that may hold commands
NOT_READ = ("{code", "{math", "{literalinclude", "{figure", "{image")  # a code cell is executed
OPERATORS = re.compile(r"[();<>|&]+")


def spans(text: str, first: int = 1) -> Iterator[tuple[int, str, bool]]:
    """Line, text and kind of all inline code and all lines of shell in MyST; True for a line of shell."""
    for block in MarkdownIt("commonmark").enable("table").use(front_matter_plugin).parse(text):
        if block.type == "fence" and block.info.startswith("{"):
            if not block.info.startswith(NOT_READ):  # a directive, such as a dropdown, holds Markdown again
                yield from spans(block.content, first + block.map[0] + 1)
        elif block.type == "fence" and block.info.strip() in SHELL:
            for line in block.content.replace("\\\n", " ").splitlines():
                yield first + block.map[0], line, True
        role = False
        for token in block.children or []:
            if token.type == "code_inline" and not role:
                yield first + block.map[0], token.content, False
            role = token.type == "text" and bool(re.search(r"\{[\w:-]+\}$", token.content))


def commands(line: str) -> list[list[str]]:
    """The commands of a line of shell, as words, without what is assigned or redirected."""
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    several, redirected = [[]], False
    for word in lexer:
        if OPERATORS.fullmatch(word):
            redirected = bool(set(word) & set("<>"))
            if not redirected:
                several.append([])
        elif redirected:
            redirected = False
        elif several[-1] or not re.match(r"\w+=", word):
            several[-1].append(word)
    return [words for words in several if words]


def wrong_with_make(words: list[str]) -> str:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    variables = {*re.findall(r"^([A-Z_]+) *\?=", makefile, re.M), "LABKIT_DATA"}
    for word in words:
        name, assigned, _ = word.partition("=")
        known = name in variables if assigned else name in targets or word.startswith("-") or PLACEHOLDER.search(word)
        if not known:
            return f"make knows no {name}"
    return ""


def wrong_with_click(group: click.Group, words: list[str]) -> str:
    """What does not exist of a command line's commands, options and choices."""
    command, context = group, click.Context(group)
    while isinstance(command, click.Group) and words:
        word, *words = words
        if PLACEHOLDER.search(word):
            return ""
        if not word.startswith("-"):
            command = command.get_command(context, word)
            if command is None:
                return f"there is no command {word}"
    if command.name == "launch":  # options behind a command are that command's
        known = group.list_commands(context)
        start = next((place for place, word in enumerate(words) if word in known or "/" in word), len(words))
        wrong = wrong_with_click(group, words[start:]) if words[start:] and words[start] in known else ""
        if wrong:
            return wrong
        words = words[:start]
    options = {name: param for param in command.get_params(click.Context(command)) for name in param.opts}
    for word, following in zip(words, [*words[1:], ""]):
        name, assigned, value = word.partition("=")
        if name.startswith("--") and name not in options:
            return f"{command.name} has no option {name}"
        kind, value = getattr(options.get(name), "type", None), value if assigned else following
        if isinstance(kind, click.Choice) and value and value not in kind.choices and not PLACEHOLDER.search(value):
            return f"{name} is one of {', '.join(kind.choices)}"
    return ""


def wrong_with_command(words: list[str]) -> str:
    """What is wrong with a command of the project, or an empty text."""
    name, *rest = words
    if name == "make":
        return wrong_with_make(rest)
    if name.rpartition(".venv/bin/")[2] == "labkit":
        return wrong_with_click(importlib.import_module("labkit.cli").main, rest)
    if name.startswith("python") and rest and rest[0].startswith("data_scripts/") and (REPO / rest[0]).exists():
        return wrong_with_click(importlib.import_module(rest[0].removesuffix(".py").replace("/", ".")).main, rest[1:])
    if name.startswith("python") and rest[:1] == ["-m"] and rest[1].split(".")[0] in FOLDERS:
        place = REPO / rest[1].replace(".", "/")
        return "" if place.with_suffix(".py").exists() or (place / "__main__.py").exists() else "no such module"
    return ""


def wrong_with_path(path: str) -> str:
    pattern = PLACEHOLDER.sub("*", path.rstrip("./"))
    return "" if any(REPO.glob(pattern)) else "no such file or folder"


def wrong_names(text: str) -> list[tuple[int, str, str]]:
    """Line, name and reason of all that a text in Markdown names and that does not exist."""
    wrong = []
    for line, code, shell in spans(text):
        is_command = COMMAND.search(code.strip())
        if is_command:
            wrong += [(line, " ".join(words), why) for words in commands(code) if (why := wrong_with_command(words))]
        if is_command or not shell:
            paths = filter(PATH.fullmatch, re.split(r"[\s`'\"(),;=]+", code))
            wrong += [(line, path, why) for path in paths if (why := wrong_with_path(path))]
    return wrong


def check() -> list[str]:
    """Of all texts of the project, a line for each name that does not exist."""
    found = []
    for file in sorted({file for pattern in TEXTS for file in REPO.glob(pattern)}):
        wrong = wrong_names(file.read_text(encoding="utf-8"))
        found += [f"{file.relative_to(REPO)}:{line}: {name}: {why}" for line, name, why in wrong]
    return found


if __name__ == "__main__":
    lines = check()
    print("\n".join(lines))
    sys.exit(min(len(lines), 1))
