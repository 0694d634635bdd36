"""The page of execution has every page with code, with its time, in the order of the book."""

import ast
import json
import re
import subprocess
from fnmatch import fnmatchcase

import execution
import pytest
from bs4 import BeautifulSoup
from chapters import code_cells, notebooks, source

TIME = re.compile(r"(?:(\d+) min )?(\d+) s")


def seconds(text: str) -> int:
    minutes, rest = TIME.fullmatch(text).groups()
    return 60 * int(minutes or 0) + int(rest)


@pytest.fixture(scope="module")
def rows(html):
    page = BeautifulSoup((html / "book/appendix/execution.html").read_text(encoding="utf-8"), "html.parser")
    return [row.find_all("td") for row in page.select("article tbody tr")]


def test_every_page_with_code_is_there_in_order(rows):
    links = [row[0].a["href"].removesuffix(".html") for row in rows[:-1]]
    assert [link.split("/")[-1] for link in links] == [name.split("/")[-1] for name in notebooks()]


def test_each_has_its_time_and_ended_as_meant(rows):
    taken = [seconds(row[1].get_text()) for row in rows]
    assert sum(taken[:-1]) == pytest.approx(taken[-1], abs=len(taken))  # each is rounded
    assert sum(taken[:-1]) > 30
    assert {row[3].get_text() for row in rows[:-1]} == {"as meant"}
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", row[2].get_text()) for row in rows[:-1])


# -- What a chapter names was recorded while it ran ----------------------------------------------------

# Folders that a chapter names to find something in them, and the lab that a page's command is about.
RECORDS = "labs/imagenet/parity/"
TAKEN_FROM = {"labs", "book/4-cloud", "book/_ext", "tests/modelarts", "tests/obs", "tests/benchmarks"}


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


def named_by(document: str, files: list[str]) -> list[set[str]]:
    """Files of the project that a chapter's code names or imports; of a name with a *, those that it may stand for."""
    found = []
    for cell in code_cells(source(document)):
        lines = ["pass" if line.startswith(("%", "!")) else line for line in cell.source.splitlines()]
        for node in ast.walk(ast.parse("\n".join(lines))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) else []
            found += [{file} for file in files for name in modules if file.endswith(f"/{name}.py")]
            name = path_of(node)
            if name and "/" in name and name not in TAKEN_FROM:
                found.append({file for file in files if fnmatchcase(file, name)})
    return list(filter(None, found))


def test_files_that_chapters_name_are_among_what_they_read():
    done = subprocess.run(["git", "ls-files"], cwd=execution.REPO, capture_output=True, text=True, check=True)
    files, missing, all_named = done.stdout.splitlines(), {}, set()
    records = {document: execution.inputs_of(execution.REPO / f"{document}.md") for document in notebooks()}
    there = [document for document, record in records.items() if record.exists()]
    assert len(there) > len(records) / 2  # a chapter that failed at first was executed by Sphinx, without a record
    for document in there:
        recorded = json.loads(records[document].read_text())
        for named in named_by(document, files):
            all_named |= named
            # With PyTorch a chapter computes what it reads from a record without; PyTorch is in its key then.
            instead = "pytorch" in recorded["installed"] and all(name.startswith(RECORDS) for name in named)
            if not named & recorded["files"].keys() and not instead:
                missing.setdefault(document, []).append(sorted(named))
    assert missing == {}
    assert {"tests/modelarts/modelarts_stub.py", "labs/imagenet/parity/fusion.json"} <= all_named
