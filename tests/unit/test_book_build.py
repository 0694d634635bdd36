"""The book is executed again when something changed that its chapters read, and only then; a small book is built."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import jupytext
import pytest
from bs4 import BeautifulSoup

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book"))

import build  # noqa: E402

CHAPTER = "book/4-cloud/jobs.md"  # one of those with inputs of its own
TEXT = '''\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
# Chapter
A first text.

```{code-cell} ipython3
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, "../../labkit")
from shown import VALUE

with open(os.environ["EXECUTIONS"], "a") as file:
    file.write("x")
summary = json.loads(Path("../../labs/digits/runs/first/summary.json").read_text())
pins = Path("../../requirements.txt").read_text().split()
lab = len(Path("../../labs/cifar10/lab.md").read_text())
print(f"value {VALUE}, accuracy {summary['accuracy']}, pins {pins}, a lab of {lab} characters")
```

```{literalinclude} ../../listing.py
```
'''
CONFIG = """\
title: Small
only_build_toc_files: true
execute: {execute_notebooks: cache, timeout: 60}
"""


class Book:
    """A project with a book of one chapter, and build.py as it is here."""

    def __init__(self, folder):
        self.folder, self.counter = folder, folder.with_name("executions")
        shutil.copytree(REPO / "book" / "_ext", folder / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPO / "book" / "build.py", folder / "book")
        self.write("_config.yml", CONFIG)
        self.write("_toc.yml", "format: jb-book\nroot: book/index\nchapters:\n- file: book/4-cloud/jobs\n")
        self.write("book/index.md", "# Small\n")
        self.write(CHAPTER, TEXT)
        self.write("labkit/shown.py", "VALUE = 1\n")
        self.write("labs/digits/runs/first/summary.json", json.dumps({"accuracy": 0.5}))
        self.write("requirements.txt", "numpy==1.26.4\n")
        self.write("listing.py", "first = 1\n")
        self.write("labs/cifar10/lab.md", "short")

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def build(self):
        """The chapter's page as text, what the build said, and how often the chapter was executed until now."""
        done = subprocess.run(
            [sys.executable, "book/build.py"], cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "EXECUTIONS": str(self.counter), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        page = BeautifulSoup((self.folder / "_build/html/book/4-cloud/jobs.html").read_text(), "html.parser")
        return page.find("article").get_text(), done.stdout, len(self.counter.read_text())

    def inputs(self):
        """What the next build will compare with the last one, to know whether all chapters run again."""
        code = "import sys; sys.path.insert(0, 'book'); import build; print(build.digest(build.EXECUTION_INPUTS))"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout


@pytest.mark.slow
def test_what_a_chapter_reads_is_what_its_page_shows(tmp_path):
    book = Book(tmp_path / "project")
    page, said, executions = book.build()
    assert "value 1, accuracy 0.5, pins ['numpy==1.26.4']" in page and "first = 1" in page
    once = rf"(executed {CHAPTER}, \d+ s|FAILED {CHAPTER}: Kernel died before .*) \(1 of 1\)"  # by Sphinx then
    assert executions == 1 and re.search(once, said)

    book.write("listing.py", "second = 2\n")  # shown, not run
    book.write(CHAPTER, TEXT.replace("A first text", "Another text"))
    page, said, executions = book.build()
    assert "second = 2" in page and "first = 1" not in page and "Another text" in page and "value 1" in page
    assert executions == 1 and "executed" not in said

    seen = {book.inputs()}  # of all chapters: each of the three is one of them, and one build shows all three
    book.write("labkit/shown.py", "VALUE = 2\n")
    seen.add(book.inputs())
    book.write("labs/digits/runs/first/summary.json", json.dumps({"accuracy": 0.75}))
    seen.add(book.inputs())
    book.write("requirements.txt", "numpy==1.26.4\nPillow\n")
    seen.add(book.inputs())
    assert len(seen) == 4
    page, said, executions = book.build()
    assert "value 2, accuracy 0.75, pins ['numpy==1.26.4', 'Pillow']" in page
    assert executions == 2 and "executing all again" in said

    book.write("labs/cifar10/lab.md", "longer")
    page, said, executions = book.build()
    assert "a lab of 6 characters" in page and executions == 3 and "executing all again" not in said

    book.write(CHAPTER, TEXT.replace("value {VALUE}", "new cell {VALUE}"))
    page, said, executions = book.build()
    assert "new cell 2" in page and executions == 4 and "executing all again" not in said


def test_other_packages_are_another_book(tmp_path, monkeypatch):
    """The key is what is installed, whatever the pins say."""
    assert build.version_of("numpy") in build.installed()
    before = build.digest([])
    (tmp_path / "mindspore-9.9.9.dist-info").mkdir()
    (tmp_path / "mindspore-9.9.9.dist-info" / "METADATA").write_text("Name: mindspore\nVersion: 9.9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "mindspore 9.9.9" in build.installed() and build.digest([]) != before


# -- Every file that a chapter reads is one of the inputs ----------------------------------------------

# Folders of which a chapter takes what it names elsewhere: it imports from them, or has `labkit train` find a recipe
# by a link to labs/.
TAKEN_FROM = {"labs", "book/4-cloud", "book/_ext", "tests/cloud", "tests/benchmarks"}


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def path_of(node) -> str | None:
    """Of REPO / "a" / "b" or "a/b" the path a/b; of what is computed, a * in its place."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = path_of(node.left), path_of(node.right)
        return None if right is None else "/".join(filter(None, [left, right]))
    return None


def read_by(chapter: Path, files: list[str]) -> set[str]:
    """Files of the project that a chapter's code names or imports."""
    notebook = jupytext.reads(build.learners_version.text_of(chapter), fmt="md:myst")
    found = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        lines = ["pass" if line.startswith(("%", "!")) else line for line in cell.source.splitlines()]
        for node in ast.walk(ast.parse("\n".join(lines))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) else []
            found |= {file for file in files for name in modules if file.endswith(f"/{name}.py")}
            name = path_of(node)
            if name and "/" in name and name not in TAKEN_FROM:
                found |= {file for file in files if fnmatchcase(file, name) or file.startswith(f"{name}/")}
    return found


def test_every_file_that_a_chapter_reads_is_an_input():
    files = tracked()
    shared = build.contents(build.EXECUTION_INPUTS).keys()
    read = {chapter.relative_to(REPO).as_posix(): read_by(chapter, files) for chapter in build.notebooks()}
    assert {"tests/cloud/modelarts_stub.py", "labs/imagenet/parity/fusion.json"} <= set().union(*read.values())
    own = {chapter: build.contents(build.CHAPTER_INPUTS.get(chapter, [])).keys() for chapter in read}
    missing = {chapter: sorted(found - shared - own[chapter]) for chapter, found in read.items()}
    assert {chapter: files for chapter, files in missing.items() if files} == {}
    assert build.CHAPTER_INPUTS.keys() <= read.keys() and all(map(own.get, build.CHAPTER_INPUTS))
