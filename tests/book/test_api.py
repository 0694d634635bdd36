"""The API pages have every public name of the modules that they list, and every one has a docstring."""

import importlib
import inspect
import re

import pytest
from bs4 import BeautifulSoup
from chapters import REPO

from labkit.cli import main

PROTOCOL = ("construct", "bprop")  # what MindSpore asks of a cell
PAGES = sorted((REPO / "book/appendix/api").glob("*.md"))
MODULES = {page.stem: re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8")) for page in PAGES}


def ids(file) -> set[str]:
    return {tag["id"] for tag in BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser").find_all(id=True)}


def public(module: str) -> dict[str, object]:
    """Functions and classes that a module defines, by their full names, and what its classes add to their bases."""
    found = {}
    for name, member in vars(importlib.import_module(module)).items():
        of_module = getattr(member, "__module__", None) == module
        if name.startswith("_") or not of_module or not (inspect.isroutine(member) or inspect.isclass(member)):
            continue
        found[f"{module}.{name}"] = member
        if inspect.isclass(member):
            bases = [vars(base) for base in member.__mro__[1:]]
            for key, value in vars(member).items():
                own = isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)
                generated = inspect.isfunction(value) and value.__qualname__ != f"{member.__qualname__}.{key}"
                inherited = any(key in base for base in bases)
                if own and not (generated or inherited or key.startswith("_") or key in PROTOCOL):
                    found[f"{module}.{name}.{key}"] = value
    return found


@pytest.mark.parametrize("page", MODULES)
def test_every_public_name_is_there(page, html):
    there = ids(html / f"book/appendix/api/{page}.html")
    names = {name: member for module in MODULES[page] for name, member in public(module).items()}
    assert len(names) > 10
    assert [name for name, member in names.items() if not (member.__doc__ or "").strip()] == [], "no docstring"
    assert set(names) - there == set()


def test_every_command_is_there(html):
    page = BeautifulSoup((html / "book/appendix/cli.html").read_text(encoding="utf-8"), "html.parser")
    sections = {section["id"] for section in page.select("section[id]")}
    for name in main.list_commands(None):
        below = getattr(main.get_command(None, name), "commands", {})
        assert {f"labkit-{name}", *(f"labkit-{name}-{inner}" for inner in below)} <= sections
    assert "–" not in page.find("article").get_text(), "an option's -- became a dash"
