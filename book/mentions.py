"""Names in texts that must exist: paths of the project, targets of `make`, commands of `labkit`. links.py uses it."""

import importlib
import re
import shlex
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import click
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # works before labkit is installed


@dataclass(frozen=True, order=True)
class Broken:
    """A link or a name that leads nowhere, and where it is."""

    file: str
    line: int
    target: str
    why: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.target}: {self.why}"


@dataclass
class Found:
    """What was checked: how much, what is broken, and addresses outside with the files that have them."""

    links: int = 0
    names: int = 0
    broken: list[Broken] = field(default_factory=list)
    external: dict[str, set[str]] = field(default_factory=dict)

    def __iadd__(self, other: "Found") -> "Found":
        self.links += other.links
        self.names += other.names
        self.broken += other.broken
        for address, files in other.external.items():
            self.external.setdefault(address, set()).update(files)
        return self


def parser() -> MarkdownIt:
    """Markdown as GitHub shows it, with the ids that headings have there."""
    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin).use(anchors_plugin, max_level=6)


def line_of(lines: list[str], span: tuple[int, int], text: str) -> int:
    """Number of the first line in a block that has `text`, or of the block's first."""
    return next((n + 1 for n in range(*span) if n < len(lines) and text in lines[n]), span[0] + 1)


# -- Names in text: paths, `make`, `labkit` ------------------------------------------------------------

FOLDERS = ("binder", "book", "data_scripts", "labkit", "labs", "tests", ".ci", ".github")  # what git tracks
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*<>-]*")
COMMAND = re.compile(r"(?:^|[;&|] *)(?:\$ )?(?:\w+=\S* )*(?:\S*\.venv/bin/)?(?:make|labkit|python[\d.]*)(?: |$)")
PLACEHOLDER = re.compile(r"<[^>]*>|\b[A-Z]{2,}\b|\.{3}|…")  # NAME, <part>, ...
SHELL = ("", "sh", "bash", "console")  # fences that may hold commands
OPERATORS = re.compile(r"[();<>|&]+")
SCRIPTS = ("data_scripts/cifar10.py", "data_scripts/imagenet.py")  # programs with commands of their own


def spans(text: str, first: int = 1) -> list[tuple[int, str, bool]]:
    """Line, text and kind of all inline code and all lines of shell in MyST; True for a line of shell.

    What is in a directive, such as a dropdown, is Markdown again; a code cell is executed and needs no reading.
    """
    found, lines = [], text.splitlines()
    for block in parser().parse(text):
        if block.type == "fence" and block.info.startswith("{"):
            if not block.info.startswith(("{code", "{math", "{literalinclude", "{figure", "{image")):
                found += spans(block.content, first + block.map[0] + 1)
        elif block.type == "fence" and block.info.strip() in SHELL:
            start = first + block.map[0] + 1
            found += [(start + n, line, True) for n, line in joined(block.content.splitlines())]
        role = False
        for token in block.children or []:
            if token.type == "code_inline" and not role:
                found.append((first - 1 + line_of(lines, block.map, token.content), token.content, False))
            role = token.type == "text" and bool(re.search(r"\{[\w:-]+\}$", token.content))
    return found


def joined(lines: list[str]) -> list[tuple[int, str]]:
    """Lines of a shell with their numbers, those that end in a backslash with what follows them."""
    found = []
    for n, line in enumerate(lines):
        if found and found[-1][1].endswith("\\"):
            found[-1] = (found[-1][0], found[-1][1][:-1] + line)
        else:
            found.append((n, line))
    return found


def commands(line: str) -> list[list[str]]:
    """The commands of a line of shell, as words, without what is assigned or redirected."""
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found, redirected = [[]], False
    for word in lexer:
        if OPERATORS.fullmatch(word):
            redirected = set(word) & set("<>")
            if not redirected:
                found.append([])
        elif redirected:
            redirected = False
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    return [words for words in found if words]


@cache
def targets(makefile: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][\w-]*):", makefile.read_text(encoding="utf-8"), re.M))


@cache
def variables(makefile: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^([A-Z_]+) *\?=", makefile.read_text(encoding="utf-8"), re.M)) | {"LABKIT_DATA"}


def wrong_with_make(words: list[str], makefile: Path) -> str:
    for word in words:
        name, assigned, _ = word.partition("=")
        if assigned and name not in variables(makefile):
            return f"make knows no variable {name}"
        if not assigned and not word.startswith("-") and not PLACEHOLDER.search(word) and name not in targets(makefile):
            return f"make has no target {word}"
    return ""


def wrong_with_click(command: click.Command, words: list[str]) -> str:
    """Why a command line would be refused, as far as names of commands, options and choices go."""
    context = click.Context(command, info_name=command.name, **command.context_settings)
    while isinstance(command, click.Group) and words:
        word, *words = words
        if PLACEHOLDER.search(word):
            return ""
        if word.startswith("-"):
            if word not in {option for param in command.get_params(context) for option in param.opts}:
                return f"{command.name} has no option {word}"
            continue
        found = command.get_command(context, word)
        if found is None:
            return f"{context.command_path} has no command {word}"
        command, context = found, click.Context(found, info_name=word, parent=context, **found.context_settings)
    if isinstance(command, click.Group):
        return ""
    try:
        values, *_ = command.make_parser(context).parse_args(list(words))
        for param in command.params:
            value = values.get(param.name)
            if isinstance(param.type, click.Choice) and isinstance(value, str) and not PLACEHOLDER.search(value):
                param.type.convert(value, param, context)
        if command.name == "launch" and isinstance(values["command"], tuple):  # a command of labkit, or a program
            group, words = context.parent.command, list(values["command"])
            return wrong_with_click(group, words) if words[0] in group.list_commands(context) else ""
    except click.BadOptionUsage as error:
        return "" if words[-1] == error.option_name else error.format_message()  # an option may be named alone
    except click.UsageError as error:
        return error.format_message()
    return ""


def labkit_commands() -> click.Group:
    from labkit.cli import main

    return main


def program(script: str) -> click.Group:
    """The commands of a script of the project."""
    return importlib.import_module(script.removesuffix(".py").replace("/", ".")).main


def wrong_with_command(words: list[str], top: Path) -> str | None:
    """What is wrong with a command of the project, or an empty text; None where it is another program's."""
    name, *rest = words
    name = name.rpartition(".venv/bin/")[2]
    if name == "make":
        return wrong_with_make(rest, top / "Makefile")
    if name == "labkit":
        return wrong_with_click(labkit_commands(), rest)
    if re.fullmatch(r"python[\d.]*", name) and rest:
        if rest[0] in SCRIPTS:
            return wrong_with_click(program(rest[0]), rest[1:])
        if rest[0] == "-m" and rest[1:] and rest[1].split(".")[0] in FOLDERS:
            place = top / rest[1].replace(".", "/")
            return "" if place.with_suffix(".py").is_file() or (place / "__main__.py").is_file() else "no such module"
    return None


def wrong_with_path(path: str, top: Path) -> str:
    pattern = PLACEHOLDER.sub("*", path.rstrip("./"))
    there = any(top.glob(pattern)) if "*" in pattern else (top / pattern).exists()
    return "" if there else "no such file or folder"


def check_names(file: Path, top: Path = REPO) -> Found:
    """See that what a Markdown file names exists: paths of the project, its commands and their options."""
    found, name = Found(), file.relative_to(top).as_posix()

    def note(line, target, why):
        found.names += 1
        if why:
            found.broken.append(Broken(name, line, target, why))

    for line, code, shell in spans(file.read_text(encoding="utf-8")):
        is_command = COMMAND.search(code.strip())
        if is_command:
            try:
                every = commands(code)
            except ValueError as error:
                note(line, code, f"no line of shell: {error}")
                continue
            for words in every:
                why = wrong_with_command(words, top)
                if why is not None:
                    note(line, " ".join(words), why)
        if is_command or not shell:
            for word in re.split(r"[\s`'\"(),;=]+", code):
                if PATH.fullmatch(word):
                    note(line, word, wrong_with_path(word, top))
    return found
