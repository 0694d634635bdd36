"""The executed notebooks are whole and current, and what they show is what is expected."""

import os
import subprocess
import sys
from pathlib import Path

import chapters
import pytest
from references import FOLDER, checked, reference, reference_of


@pytest.fixture(scope="module", autouse=True)
def book_is_built():
    if not chapters.execution.EXECUTED.is_dir():
        pytest.fail("no executed notebooks: run `make book` first, or `make test`, which does", pytrace=False)


@pytest.mark.parametrize("document", chapters.notebooks())
def test_every_cell_ran(document):
    notebook = chapters.executed(document)
    wanted = [cell.source for cell in chapters.code_cells(chapters.source(document))]
    assert [cell.source for cell in chapters.code_cells(notebook)] == wanted, "executed from another version"
    assert wanted, "a chapter with a kernel but without a code cell"
    assert chapters.not_run(notebook) == []


@pytest.mark.parametrize("document", [name for name in chapters.notebooks() if checked(chapters.source(name))])
def test_the_book_shows_what_is_expected(document):
    """Apart from pictures and durations."""
    for cell, recorded in zip(checked(chapters.executed(document)), reference_of(document), strict=True):
        assert reference(cell) == recorded, "if this was meant: `make references`"


def test_every_reference_has_its_chapter():
    there = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.json")}
    assert there == {name for name in chapters.notebooks() if checked(chapters.source(name))} != set()


def test_the_kernel_is_this_environment(tmp_path):
    """Another Jupyter's kernel of the same name, in the user's folder, must not run the chapters."""
    spec = tmp_path / ".local" / "share" / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "stranger", "language": "python"}')
    env = chapters.execution.kernel_environment() | {"HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "0"}
    env.pop("JUPYTER_DATA_DIR", None)
    code = "from jupyter_client.kernelspec import get_kernel_spec; print(get_kernel_spec('python3').resource_dir)"
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(os.path.abspath(sys.prefix))
