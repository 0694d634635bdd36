"""Which chapters use which room of labkit: what a change in the room executes again."""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

from labkit.cli import COMMANDS

REPO = Path(__file__).resolve().parent.parent
PACKING = ["book/4-cloud/jobs", "book/4-cloud/rehearsal"]  # a job takes all of labkit along
# Rooms that not every chapter needs -> the documents that may use them, as patterns.
USERS = {
    "obs": ["book/4-cloud/*"],
    "modelarts": ["book/4-cloud/*"],
    # The doctor tries the sandbox, and the first lab begins with the doctor.
    "grading": ["book/4-cloud/*", "book/appendix/grading", "book/appendix/troubleshooting", "labs/cifar10/lab"],
    "parity": ["book/2-migration/*", "labs/imagenet/lab", *PACKING],
    "thor": ["book/3-thor/*", "labs/thor/lab", *PACKING],
    "launch": ["book/2-migration/scaling", "book/4-cloud/*"],
}


def strangers(users: dict[str, set[str]]) -> dict[str, list[str]]:
    """Of the documents that use each room, those that USERS does not expect; {} where all is well."""
    found = {
        room: sorted(name for name in users.get(room, ()) if not any(fnmatchcase(name, known) for known in patterns))
        for room, patterns in USERS.items()
    }
    return {room: names for room, names in found.items() if names}


def rooms_of(files) -> set[str]:
    """Rooms of labkit, by paths of their files from the project's folder."""
    return {path.split("/")[1].removesuffix(".py") for path in files if path.startswith("labkit/")}


def imported(code: str, folders: list[Path]) -> set[str]:
    """Files of the project that code reads when it is imported, or by the commands of labkit that it names.

    Modules are looked for in `folders`. What functions import waits until they are called, and is left out.
    """
    found = set()
    commands = [COMMANDS[name].partition(":")[0] for name in re.findall(r"labkit (\S+)", code) if name in COMMANDS]
    waiting = [re.sub(r"^[%!].*", "pass", code, flags=re.M)]
    waiting += [f"import labkit.__main__, {module}" for module in commands]
    while waiting:
        for name in _names(ast.parse(waiting.pop())):
            for file in _files(name, folders):
                if file not in found:
                    found.add(file)
                    waiting.append(file.read_text(encoding="utf-8"))
    return {file.relative_to(REPO).as_posix() for file in found}


def _names(tree):
    """Dotted names that a module imports; of `from a import b` also a.b, which may be a module."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)


def _files(name, folders):
    """Files that importing a dotted name runs: its packages' and its own."""
    parts = name.split(".")
    for folder in folders:
        for end in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:end])
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())
