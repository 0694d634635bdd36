"""The book is executed again when something changed that its chapters read, and only then; a small book is built."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book"))

import execution  # noqa: E402

CHAPTER, OTHER = "book/4-cloud/jobs.md", "book/4-cloud/cards.md"
HEAD = '''\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
'''
TEXT = HEAD + '''\
# Chapter
A first text.

```{code-cell} ipython3
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "../..")
from tools.shown import VALUE

with open(os.environ["EXECUTIONS"], "a") as file:
    file.write("x")
summary = json.loads(Path("../../labs/digits/runs/first/summary.json").read_text())
runs = sorted(os.listdir("../../labs/digits/runs"))
program = subprocess.run([sys.executable, "../../data_scripts/count.py"], capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": ""}).stdout.strip()
print(f"value {VALUE}, accuracy {summary['accuracy']}, runs {runs}, program {program}")
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
    """A project with a book of two chapters and the code that builds ours; the second chapter reads no file."""

    def __init__(self, folder):
        self.folder, self.counter = folder, folder.with_name("executions")
        shutil.copytree(REPO / "book" / "_ext", folder / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("build.py", "execution.py", "pages.py", "recorder.py"):
            shutil.copy(REPO / "book" / name, folder / "book")
        self.write("_config.yml", CONFIG)
        self.write("_toc.yml", "format: jb-book\nroot: book/index\nchapters:\n" + "".join(
            f"- file: {name.removesuffix('.md')}\n" for name in (CHAPTER, OTHER)))  # fmt: skip
        self.write("book/index.md", "# Small\n")
        self.write(CHAPTER, TEXT)
        self.write(OTHER, HEAD + "# Other\n```{code-cell} ipython3\nprint(6 * 7)\n```\n")
        self.write("tools/__init__.py", "from .base import BASE\n")
        self.write("tools/base.py", "BASE = 0\n")
        self.write("tools/shown.py", "from tools.base import BASE\n\nVALUE = BASE + 1\n")
        self.write("labs/digits/runs/first/summary.json", json.dumps({"accuracy": 0.5}))
        self.write("labs/digits/runs/first/notes.txt", "which nobody reads")
        self.write("data_scripts/count.py", "print(3)\n")
        self.write("requirements.txt", "numpy==1.26.4\n")
        self.write("listing.py", "first = 1\n")

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def start(self, *arguments):
        """A build that is under way, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "book/build.py", *arguments], cwd=self.folder, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**os.environ, "EXECUTIONS": str(self.counter)},
            start_new_session=True,
        )  # fmt: skip

    def build(self, building=None):
        """The chapter's page as text, what the build said, and how often the chapter was executed until now."""
        building = building or self.start()
        said = building.communicate()[0]
        assert building.returncode == 0, said
        page = BeautifulSoup((self.folder / "_build/html/book/4-cloud/jobs.html").read_text(), "html.parser")
        return page.find("article").get_text(), said, len(self.counter.read_text())


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The small book, built once."""
    book = Book(tmp_path_factory.mktemp("book") / "project")
    page, said, executions = book.build()
    assert "value 1, accuracy 0.5, runs ['first'], program 3" in page and "first = 1" in page
    assert executions == 1 and f"executed {CHAPTER}" in said and f"executed {OTHER}" in said
    return book


def test_text_and_what_no_chapter_reads_execute_nothing(book):
    book.write("listing.py", "second = 2\n")  # shown, not run
    book.write("labs/digits/runs/first/notes.txt", "still nobody")
    book.write("tools/unused.py", "")
    book.write(CHAPTER, (book.folder / CHAPTER).read_text().replace("A first text", "Another text"))
    before = len(book.counter.read_text())
    page, said, executions = book.build()
    assert "second = 2" in page and "first = 1" not in page and "Another text" in page
    assert executions == before and "executed" not in said


@pytest.mark.parametrize("name, text, shown", [
    ("tools/base.py", "BASE = 4\n", "value 5"),  # imported by what the chapter imports
    ("labs/digits/runs/first/summary.json", '{"accuracy": 0.75}', "accuracy 0.75"),  # opened
    ("labs/digits/runs/second/summary.json", "{}", "['first', 'second']"),  # in a directory that is listed
    ("data_scripts/count.py", "print(4)\n", "program 4"),  # run by a program that the chapter starts
])  # fmt: skip
def test_only_the_chapter_that_reads_a_file_is_executed(book, name, text, shown):
    before = len(book.counter.read_text())
    book.write(name, text)
    page, said, executions = book.build()
    assert shown in page and executions == before + 1
    assert f"1 of 2 chapters to execute; changed: {name.removesuffix('second/summary.json')}" in said
    assert f"executed {CHAPTER}" in said and f"executed {OTHER}" not in said


def test_other_code_cells_execute_one_chapter_other_packages_all(book):
    book.write(CHAPTER, (book.folder / CHAPTER).read_text().replace("value {VALUE}", "new cell {VALUE}"))
    page, said, _ = book.build()
    assert "new cell" in page and "1 of 2 chapters to execute; changed: code cells" in said
    book.write("requirements.txt", "numpy==1.26.4\nPillow\n")
    _, said, _ = book.build()
    assert "2 of 2 chapters to execute; changed: installed" in said


def test_of_two_builds_at_once_one_waits(book):
    book.write("tools/base.py", "BASE = 40\n")
    before = len(book.counter.read_text())
    told = [book.build(building) for building in (book.start(), book.start())]
    assert [executions for _, _, executions in told] == [before + 1, before + 1]
    assert sorted("another build is running" in said for _, said, _ in told) == [False, True]
    record = json.loads((book.folder / "_build/.inputs" / CHAPTER).with_suffix(".json").read_text())
    assert {"tools/base.py", "labs/digits/runs/first/summary.json"} <= record["files"].keys()


def test_after_a_killed_build_in_another_language_the_next_one_writes_all_pages(book):
    """What the killed one left half written is no reason for the next to fail."""
    book.write("book/locale/zh_CN/_config.yml", "{}\n")
    html = book.folder / "_build" / "html-zh_CN"
    building = book.start("--language", "zh_CN")
    while building.poll() is None and not any((html / "book").rglob("*.html")):
        time.sleep(0.001)
    os.killpg(building.pid, signal.SIGKILL)
    building.communicate()
    assert building.returncode == -signal.SIGKILL and not (html / "searchindex.js").exists()
    book.build(book.start("--language", "zh_CN"))
    assert (html / "index.html").exists() and (html / "searchindex.js").exists()


def _store(number):
    code = nbformat.v4.new_code_cell(f"print({number})")
    execution.store(CacheBundleIn(nbformat.v4.new_notebook(cells=[code]), f"{number}.md", data={}))


def test_several_processes_store_what_they_executed_in_one_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "BUILD", tmp_path)
    cache = get_cache(tmp_path / ".jupyter_cache")
    assert cache.list_cache_records() == []  # makes it
    with ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as pool:
        list(pool.map(_store, range(100)))
    assert len(cache.list_cache_records()) == 100


def test_other_packages_are_another_book(tmp_path, monkeypatch):
    """The key is what is installed, whatever the pins say."""
    before = execution.installed()
    assert f"numpy {execution.version_of('numpy')}" in before
    (tmp_path / "mindspore-9.9.9.dist-info").mkdir()
    (tmp_path / "mindspore-9.9.9.dist-info" / "METADATA").write_text("Name: mindspore\nVersion: 9.9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "mindspore 9.9.9" in execution.installed() != before


def test_only_who_asks_for_pytorch_depends_on_it():
    assert set(execution.state_of(["labkit/figures.py"])["installed"]) == {"installed"}
    assert set(execution.state_of(["labkit/parity/pytorch.py"])["installed"]) == {"installed", "pytorch"}


def test_what_a_chapter_only_packs_does_not_execute_it(tmp_path):
    """The zip of a hand-out holds all of labkit; a job is submitted with it, and may run any of it."""
    packed, used = ["labkit/obs/", "labkit/obs/place.py", "labkit/losses.py"], ["grader/release.py"]
    log = tmp_path / "log"
    log.write_text("\n".join([*packed, *used]))
    graded, submitted = (execution.recorded(log, f"book/{name}.md") for name in ("appendix/grading", "4-cloud/jobs"))
    assert graded.issuperset(used) and graded.isdisjoint(packed)
    assert submitted.issuperset(packed + used)


# -- The same without Sphinx and kernels ---------------------------------------------------------------


def forget():
    """Digests are kept by names within the project: of another project they are others."""
    execution.digest.cache_clear()
    execution._sample.cache_clear()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A project with one chapter whose code has run, recorded, in a process of its own: its folder, and a function
    that says what the next build would execute it for."""
    folder = tmp_path / "project"
    files = {"book/recorder.py": execution.RECORDER.read_text(), "tools.py": "VALUE = 1\n", "unread.py": "",
             "run/summary.json": "{}", "requirements.txt": "numpy\n", "constraints.txt": "numpy==1\n"}  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    chapter = folder / "book" / "one.md"
    chapter.write_text(HEAD + "# One\n```{code-cell} python3\nimport tools\n```\n")
    monkeypatch.setenv("LABKIT_DATA", str(folder / "data"))
    for name, value in {"REPO": folder, "INPUTS": folder / "inputs", "RECORDER": folder / "book/recorder.py"}.items():
        monkeypatch.setattr(execution, name, value)
    monkeypatch.setattr(execution, "is_cached", lambda chapter: True)
    log = folder / "log"
    code = "import runpy, os; runpy.run_path('book/recorder.py'); import tools; os.listdir('run'); "
    code += "open('run/summary.json')"
    env = os.environ | {"BOOK_READS": str(log)}
    subprocess.run([sys.executable, "-B", "-c", code], cwd=folder, env=env, check=True)
    names = sorted(execution.recorded(log, "book/one.md"))
    assert names == ["book/recorder.py", "run/", "run/summary.json", "tools.py"]
    forget()
    record = execution.inputs_of(chapter)
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"cells": execution.cells_of(chapter)} | execution.state_of(names)))

    def why():
        forget()
        return execution.stale([chapter]).get(chapter, [])

    assert why() == []
    yield folder, why
    forget()


@pytest.mark.parametrize("name, text, expected", [
    ("tools.py", "VALUE = 2\n", ["tools.py"]),
    ("unread.py", "VALUE = 2\n", []),
    ("run/summary.json", "[]", ["run/summary.json"]),
    ("run/history.jsonl", "", ["run/"]),
    ("run/.DS_Store", "", []),
    ("requirements.txt", "numpy\nPillow\n", ["installed"]),
    ("constraints.txt", "numpy==2\n", ["installed"]),
    ("data/sample/train.bin", "other images", ["installed"]),
    ("book/recorder.py", "", ["book/recorder.py"]),
    ("book/one.md", HEAD + "# One\n```{code-cell} python3\nimport tools, os\n```\n", None),
    ("book/one.md", HEAD + "# Another text\n```{code-cell} python3\nimport tools\n```\n", []),
])  # fmt: skip
def test_what_a_chapter_is_executed_again_for(small, name, text, expected):
    folder, why = small
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    assert why() == expected


def test_a_file_that_is_gone(small):
    folder, why = small
    (folder / "run" / "summary.json").unlink()
    assert why() == ["run/", "run/summary.json"]


def test_what_a_chapter_imports_leaves_its_folder_as_it_was(small):
    """Bytecode in a folder that another chapter lists would be a reason to execute that one twice."""
    folder, _ = small
    before = folder.stat().st_mtime_ns
    subprocess.run([sys.executable, "-c", "import tools"], cwd=folder, env=execution.kernel_environment(), check=True)
    assert folder.stat().st_mtime_ns == before and not (folder / "__pycache__").exists()


def test_a_folder_of_bytecode_is_no_input(small):
    folder, _ = small
    (folder / "run" / "__pycache__").mkdir()
    log = folder / "log"
    log.write_text("run/__pycache__\nrun/__pycache__/\nrun/\n")
    assert execution.recorded(log, "book/one.md") == {"run/", "book/recorder.py"}
