"""README.md and the book's first page name commands and files that exist, and the versions that are supported."""

import re
from pathlib import Path

import pytest

from labkit import cli
from labkit.system import versions

REPO = Path(__file__).resolve().parents[2]
READMES = ["README.md", "README.zh-CN.md"]
MADE = (".venv/", "_build/", "runs/", "work/", "data/", "handout", "handed-in", "grades", "feedback")


@pytest.mark.parametrize("name", READMES)
def test_commands_and_files_exist(name):
    text = (REPO / name).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    commands = set(
        re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(re.findall(r"^```.*?^```|`[^`]+`", text, flags=re.M | re.S)))
    )
    assert commands and commands <= targets
    named = set(re.findall(r"labkit ([a-z-]+)", text))
    assert named and named <= set(cli.COMMANDS) | {"--help"}
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not link.startswith(MADE) and not (REPO / link).exists()] == []


def test_supported_versions():
    """In the row "tested" of the table of what one needs, and on the book's first page."""
    text = (REPO / "README.md").read_text(encoding="utf-8")
    tested = re.search(r"^\| tested.*$", text, flags=re.M)[0]
    assert ", ".join(versions.PYTHONS) in tested
    named = [versions.series_of(number) for number in re.findall(r"\d+\.\d+\.\d+", tested)]
    assert named == list(versions.MINDSPORES) and f"{versions.MINDSPORE} (the default)" in tested
    page = (REPO / "book/index.md").read_text(encoding="utf-8")
    *others, last = versions.PYTHONS
    assert f"Python {', '.join(others)} or {last}" in page
