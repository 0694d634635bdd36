"""What decides a grade, as digests: a result holds for as long as they are the same.

In labkit, these are the grading modules and all that the lab's cells or a learner's answers can import. Imports are
followed from there, so that a change elsewhere causes no regrading.
"""

import ast
import functools
import hashlib
import importlib.metadata
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import labkit
from grader import handed_in, handout, report, work
from grader.lab import Lab, source

PACKAGE = Path(labkit.__file__).parent
# In a text: `from PACKAGE import NAMES`, and a module by its whole name, wherever it is.
NAMED = re.compile(r"\bfrom\s+(labkit[\w.]*)\s+import\b((?:[\w\s,(\\]|#.*)*)|\b(labkit(?:\.\w+)*)")
PROGRAM = re.compile(r"(labkit(?:\.\w+)+)(:\w+)?")  # a text by which a module is run or imported later


def about(lab: Lab) -> dict[str, str]:
    """What decides the results of a lab besides submission, seed, data and labkit: its files, versions, packages."""
    files = f"{lab.digest} {of_files(lab)}"
    return {"lab": lab.name, "lab's files": _short(files), **report.graded_by(), "packages": _packages()}


def of_files(lab: Lab) -> str:
    """Digest of a lab's files that grading reads, besides master and manifest."""
    return _of_files(handout.read_by_grading(lab.folder), lab.folder)


@functools.lru_cache
def _packages():
    """Digest of all that is installed, by name and version: an answer may use any of it."""
    found = {(one.metadata["Name"], one.version) for one in importlib.metadata.distributions()}
    return _short(repr(sorted(map(str, found))))


def all_of_labkit() -> str:
    """Version of labkit, and the digest of all its modules."""
    return f"{labkit.__version__} {_of_files(PACKAGE.rglob('*.py'), PACKAGE)}"


def of_labkit(lab: Lab, answers: Iterable[str] = ()) -> str:
    """Version of labkit, and the digest of those modules that decide what these answers are worth."""
    cells = [source(cell) for cell in lab.graded_cells]
    unused = () if lab.manifest.run else (handed_in.__name__,)
    found = modules([work.__name__], [*cells, *answers], unused)
    return f"{labkit.__version__} {_of_files(found, PACKAGE)}"


def modules(names: Iterable[str], texts: Iterable[str] = (), without: tuple[str, ...] = ()) -> set[Path]:
    """Files of labkit's modules with these names, of those that the texts name, and of all that these import.

    without: names of modules that are not followed.
    texts: untrusted, so whatever looks like a module's name counts as one.
    """
    parts = ((file, file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in PACKAGE.rglob("*.py"))
    known = {".".join(its).removesuffix(".__init__"): file for file, its in parts}
    found, left = set(), set(names).union(*map(_named, texts))
    while left:
        within = itertools.accumulate(left.pop().split("."), "{}.{}".format)  # a module's packages are imported first
        new = {name for name in itertools.takewhile(known.__contains__, within) if name not in (*found, *without)}
        found |= new
        left = left.union(*(_imported(known[name].read_text(encoding="utf-8")) for name in new))
    return {known[name] for name in found}


@functools.lru_cache(maxsize=1024)
def _imported(text):
    """Names that a module of labkit imports, wherever in it, and those that it has as a text, to be run by Python."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and (program := PROGRAM.fullmatch(str(node.value))):
            names |= {program[1], f"{program[1]}.__main__"}
    return names


def _named(text):
    """Names in a cell or an answer. It need not be Python's, and nobody's answer is given to Python's parser here."""
    names = set()
    for package, members, module in NAMED.findall(text):
        names |= {package, *(f"{package}.{member}" for member in re.findall(r"\w+", members))} if package else set()
        names |= {module, f"{module}.__main__"} if module else set()
    return names


def _of_files(files, folder):
    named = {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return _short(repr(sorted(named.items())))


def _short(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]
