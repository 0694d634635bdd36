"""The contracts of pyproject.toml hold, and each notices the import that it forbids."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of labkit's and the grader's Python files with their contracts."""
    folder = tmp_path_factory.mktemp("imports")
    for package in ("labkit", "grader"):
        shutil.copytree(REPO / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "templates"))
    shutil.copy(REPO / "pyproject.toml", folder)
    return folder


def linted(project):
    """Exit status and output of import-linter."""
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    done = subprocess.run(program, cwd=project, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_contracts_are_kept(project):
    status, output = linted(project)
    assert status == 0 and "4 kept, 0 broken" in output, output


@pytest.mark.parametrize("file, line, broken", [
    ("labkit/system/files.py", "from labkit.training import runs", "imports go down"),
    ("labkit/thor/step.py", "def late():\n    from labkit.data import cifar10", "imports go down"),  # of the same layer
    ("labkit/fresh.py", "", "imports go down"),  # a module that nobody gave a layer
    ("grader/lab.py", "import labkit.obs.place", "only jobs copy"),
    ("labkit/cli.py", "import grader.lab", "labkit never imports"),
    ("labkit/data/files.py", "from labkit.data import cifar10", "no circles"),
])  # fmt: skip
def test_a_contract_notices(project, file, line, broken):
    file = project / file
    before = file.read_text() if file.exists() else None
    try:
        file.write_text(f"{before or ''}\n{line}\n")
        status, output = linted(project)
    finally:
        file.unlink() if before is None else file.write_text(before)
    assert status == 1, output
    assert any(row.startswith(broken) and row.endswith("BROKEN") for row in output.splitlines()), output
