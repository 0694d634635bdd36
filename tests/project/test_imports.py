"""The contracts of pyproject.toml hold in labkit, and each notices the import that it forbids."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def labkit(tmp_path_factory):
    """A copy of labkit's Python files with its contracts."""
    folder = tmp_path_factory.mktemp("imports")
    shutil.copytree(REPO / "labkit", folder / "labkit", ignore=shutil.ignore_patterns("__pycache__", "templates"))
    shutil.copy(REPO / "pyproject.toml", folder)
    return folder / "labkit"


def linted(labkit):
    """Exit status and output of import-linter."""
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    wide = os.environ | {"COLUMNS": "200"}
    done = subprocess.run(program, cwd=labkit.parent, env=wide, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_contracts_are_kept(labkit):
    status, said = linted(labkit)
    assert status == 0 and "3 kept, 0 broken" in said, said


@pytest.mark.parametrize("file, line, broken", [
    ("system/files.py", "from labkit.training import runs", "imports go down"),  # up
    ("losses.py", "from labkit import cli", "imports go down"),
    ("thor/step.py", "def late():\n    from labkit.data import cifar10", "imports go down"),  # the same floor, when run
    ("fresh.py", "", "imports go down"),  # a room that nobody gave a floor
    ("training/figures.py", "import labkit.obs.place", "only jobs copy"),
    ("data/files.py", "from labkit.data import cifar10", "no circles"),
])  # fmt: skip
def test_a_contract_notices(labkit, file, line, broken):
    file = labkit / file
    before = file.read_text() if file.exists() else None
    try:
        file.write_text(f"{before or ''}\n{line}\n")
        status, said = linted(labkit)
    finally:
        file.unlink() if before is None else file.write_text(before)
    assert status == 1, said
    assert any(row.startswith(broken) and row.endswith("BROKEN") for row in said.splitlines()), said
