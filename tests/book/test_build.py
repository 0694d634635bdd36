"""A chapter is executed again when what decides its outputs has changed, and only then; one that fails is reported."""

import ast
import re

import execution
import pytest
from chapters import REPO, code_cells, notebooks, source

from labkit.cli import COMMANDS

CHAPTER = """\
---
kernelspec:
  name: python3
---

# A chapter

```{code-cell} ipython3
print(6 * 7)
```
"""


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """A chapter of part 3 in a small project; a function writes a file of it."""

    def write(name, text=""):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        execution.digest.cache_clear()
        return file

    for name, value in {"REPO": tmp_path, "EXECUTED": tmp_path / "executed"}.items():
        monkeypatch.setattr(execution, name, value)
    monkeypatch.setattr(execution, "installed", lambda: ["numpy 1"])
    write("labkit/thor/factors.py")
    return write("book/3-thor/one.md", CHAPTER), write


def test_a_chapter_is_executed_once(chapter):
    file, _ = chapter
    assert execution.is_stale(file)
    assert execution.execute([file]) == []
    assert '"42\\n"' in execution.executed(file).read_text()
    assert not execution.is_stale(file)


@pytest.mark.parametrize(("name", "text", "stale"), [
    ("book/3-thor/one.md", CHAPTER.replace("7", "8"), True),  # its code
    ("book/3-thor/one.md", CHAPTER.replace("A chapter", "A title"), False),  # its text
    ("book/3-thor/helper.py", "x = 1", True),  # next to it
    ("labkit/thor/factors.py", "x = 1", True),  # what its part uses
    ("labkit/training/loop.py", "x = 1", True),  # what all use
    ("labs/thor/runs/thor-seed1/summary.json", "{}", True),  # a record
    ("labkit/parity/step.py", "x = 1", False),  # of another part
    ("book/3-thor/two.md", CHAPTER, False),
])  # fmt: skip
def test_what_makes_a_chapter_stale(chapter, name, text, stale):
    file, write = chapter
    before = execution.key_of(file)
    write(name, text)
    assert (execution.key_of(file) != before) == stale


def test_packages_and_pytorch_make_chapters_stale(chapter, monkeypatch):
    file, write = chapter
    other = write("book/2-migration/other.md", CHAPTER)
    before = execution.key_of(file), execution.key_of(other)
    monkeypatch.setattr(execution, "optional", lambda: ["torch 9"])
    assert execution.key_of(file) == before[0] and execution.key_of(other) != before[1]
    monkeypatch.setattr(execution, "installed", lambda: ["numpy 9"])
    assert execution.key_of(file) != before[0]


@pytest.mark.parametrize(
    ("cell", "said"),
    [("1 / 0", "ZeroDivisionError"), ("import os; os._exit(1)", "died"), ("import time; time.sleep(60)", "timed out")],
)
def test_a_chapter_that_fails_is_reported_and_not_kept(chapter, capfd, monkeypatch, cell, said):
    monkeypatch.setattr(execution, "CELL_SECONDS", 4)
    _, write = chapter
    file = write("book/3-thor/fails.md", CHAPTER.replace("print(6 * 7)", cell))
    assert execution.execute([file]) == ["book/3-thor/fails"]
    out, error = capfd.readouterr()
    assert "FAILED book/3-thor/fails" in out and said.lower() in error.lower()
    assert execution.is_stale(file)


def test_chapters_use_what_their_part_is_said_to_use():
    """What a chapter or a helper next to it imports, and what the commands of labkit that it runs import."""
    missing, seen = [], set()
    for document in notebooks():
        helpers = [file.read_text() for file in (REPO / document).parent.glob("*.py") if document.startswith("book/")]
        allowed = set(execution.files(execution.used_by(document)))
        code = "\n".join(cell.source for cell in code_cells(source(document)))
        names = {COMMANDS[name].partition(":")[0] for name in re.findall(r"labkit (\w+)", code) if name in COMMANDS}
        for text in [re.sub(r"^\s*[%!].*", "", code, flags=re.M), *helpers]:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom):
                    names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        for name in names:
            file = REPO / f"{name.replace('.', '/')}.py"
            if name.split(".")[0] in ("labkit", "grader", "data_scripts") and file.exists():
                seen.add(name)
                missing += [] if file in allowed else [f"{document}: {name}"]
    assert missing == [] and len(seen) > 40
