"""Names of MindSpore, PyTorch and labkit that the book uses exist in what is installed; a name called gone is gone.

Code cells are parsed: imports, and dotted names that start with an imported one. In prose, inline code such as
`nn.Momentum` is read with the customary short names. A cell of original-code.md lists the old names.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import jupytext
import pytest

import labkit  # noqa: F401 - settles the environment before MindSpore is imported

REPO = Path(__file__).resolve().parents[2]
CHAPTERS = sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/*.md")])
ORIGINAL_CODE = REPO / "book/appendix/original-code.md"
# What `nn.Momentum` and the like mean in prose.
CUSTOMARY = {
    "mindspore": "mindspore",
    "ms": "mindspore",
    "nn": "mindspore.nn",
    "ops": "mindspore.ops",
    "ds": "mindspore.dataset",
    "vision": "mindspore.dataset.vision",
    "transforms": "mindspore.dataset.transforms",
    "torch": "torch",
    "torchvision": "torchvision",
    "labkit": "labkit",
}
PACKAGES = {"mindspore", "torch", "torchvision"}  # in code; labkit itself is executed there
DOTTED = rf"(?:{'|'.join(CUSTOMARY)})(?:\.[A-Za-z_]\w*)+"


@cache
def exists(name: str) -> bool:
    """True if a dotted name can be imported or reached as an attribute."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def python(cell: str) -> str:
    """A cell without its shell and magic lines."""
    return "\n".join("pass" if line.startswith(("!", "%")) else line for line in cell.splitlines())


def cells(path: Path, kind: str) -> list[str]:
    """Of a page that is no notebook, everything is prose."""
    return [cell.source for cell in jupytext.read(path, fmt="md:myst").cells if cell.cell_type == kind]


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Name in the cell -> full name. Chapters get `torch` from a function, which raises where it is missing."""
    names = {"torch": "torch", "torchvision": "torchvision"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.split(".")[0]
                names[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {name: full for name, full in names.items() if full.split(".")[0] in PACKAGES}


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an attribute chain, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = dotted(node.value)
        return start and f"{start}.{node.attr}"
    return None


def names_in_code(sources: list[str]) -> set[str]:
    """Full names that cells import or reach through what a cell before them imported."""
    known, found = {}, set()
    for source in sources:
        tree = ast.parse(python(source))
        known |= imported_names(tree)
        found |= set(imported_names(tree).values()) - {"torch", "torchvision"}
        chains = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - {None}
        for chain in chains:
            first, _, rest = chain.partition(".")
            if first in known:
                found.add(f"{known[first]}.{rest}")
    return found


def names_in_prose(text: str) -> set[str]:
    """Full names in inline code; code blocks and file names are left out."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.M | re.S)
    found = set()
    for code in re.findall(r"`([^`\n]+)`", text):
        for match in re.finditer(r"(?<![\w./-])" + DOTTED + r"(?![\w/])", code):
            if match[0].endswith((".md", ".py", ".yaml")):
                continue
            first, _, rest = match[0].partition(".")
            found.add(f"{CUSTOMARY[first]}.{rest}")
    return found


def old_names(variable: str) -> dict[str, str]:
    """A dictionary {old: new} that original-code.md assigns to `variable`."""
    for source in cells(ORIGINAL_CODE, "code"):
        for node in ast.parse(python(source)).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == variable:
                return ast.literal_eval(node.value)
    raise AssertionError(f"{ORIGINAL_CODE}: no cell assigns {variable}")


@pytest.fixture(scope="module")
def named():
    """Names by chapter."""
    return {
        path.relative_to(REPO).as_posix(): names_in_code(cells(path, "code")).union(
            *map(names_in_prose, cells(path, "markdown"))
        )
        for path in CHAPTERS
    }


def missing(named, torch):
    """Names that do not exist, with their chapters: those of PyTorch, or the others."""
    return {(page, name) for page, names in named.items() for name in names
            if name.startswith("torch") == torch and not exists(name)}  # fmt: skip


def test_names_exist(named):
    """An empty list would pass as well, so the book has to name many."""
    gone = old_names("GONE")
    assert {(page, name) for page, name in missing(named, torch=False) if name not in gone} == set()
    assert len(set().union(*named.values())) > 40


def test_pytorchs_names_exist(named, pytorch):
    assert missing(named, torch=True) == set()


def test_what_is_called_gone_is_gone_and_what_is_recommended_exists():
    gone, moved = old_names("GONE"), old_names("MOVED")
    assert [name for name in gone if exists(name)] == []
    assert [name for name in (*moved, *moved.values(), *gone.values()) if not exists(name)] == []
