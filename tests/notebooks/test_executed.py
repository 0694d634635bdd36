"""The executed notebooks are whole and current, and the check that re-runs them can fail.

nbval executes some of them again, in `make test-all` all; an un-run notebook would pass it vacuously.
"""

import os
import subprocess
import sys
from pathlib import Path

import chapters
import nbformat
import pytest
from nbclient import NotebookClient
from references import (
    CHECKED,
    FOLDER,
    SANITIZE,
    Comparison,
    checked,
    expected,
    recorded_outputs,
    reference_of,
    title_of,
    updated,
)


@pytest.fixture(scope="module", autouse=True)
def book_is_built():
    if not chapters.EXECUTED.is_dir():
        pytest.fail("no executed notebooks: run `make book` first, or `make test`, which does", pytrace=False)


def test_executed_notebooks_are_the_chapters():
    paths = chapters.EXECUTED.rglob("*.ipynb")
    found = {path.relative_to(chapters.EXECUTED).with_suffix("").as_posix() for path in paths}
    assert found == set(chapters.notebooks())


@pytest.mark.parametrize("document", chapters.notebooks())
def test_every_cell_ran(document):
    notebook = chapters.executed(document)
    wanted = [cell.source for cell in chapters.code_cells(chapters.source(document))]
    assert [cell.source for cell in chapters.code_cells(notebook)] == wanted, "executed from another version"
    assert wanted, "a chapter with a kernel but without a code cell"
    assert chapters.not_run(notebook) == []


@pytest.mark.parametrize("document", [one for one in chapters.notebooks() if checked(chapters.source(one))])
def test_the_book_shows_what_is_expected(document, request):
    """What nbval would find by executing the chapter a second time; also finds what another machine shows."""
    cells, wanted = checked(chapters.executed(document)), reference_of(document)
    assert [title_of(cell) for cell in cells] == [one["cell"] for one in wanted], "other cells: `make references`"
    compare = Comparison(request, chapters.EXECUTED / f"{document}.ipynb")
    found = [compare.difference(cell.outputs, expected(one)) for cell, one in zip(cells, wanted)]
    assert "\n".join(filter(None, found)) == "", "if this was meant: `make references`"


def test_every_reference_has_its_chapter():
    there = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.json")}
    assert there == {one for one in chapters.notebooks() if checked(chapters.source(one))} != set()


def test_another_output_is_found(tmp_path, request):
    """Durations may differ, results may not; neither may an output that is missing."""
    cell = _notebook(tmp_path / "chapter.ipynb", "print('accuracy', 3 / 4, 'in 12.3 s')").cells[0]
    compare = Comparison(request, tmp_path / "chapter.ipynb")
    recorded = {"outputs": recorded_outputs(cell)}
    assert recorded["outputs"][0]["text"] == ["accuracy 0.75 in DURATION\n"]
    (wanted,) = expected(recorded)
    assert compare.difference(cell.outputs, [wanted]) == ""
    other = nbformat.from_dict(wanted | {"text": "accuracy 0.95 in 12.3 s\n"})
    assert "0.95" in compare.difference(cell.outputs, [other])
    assert compare.difference(cell.outputs, []) != "" and compare.difference([], [wanted]) != ""


def test_references_with_and_without_pytorch():
    """A cell keeps its own reference when others come before it; two kinds of output are kept where they differ."""

    def cell(source, text):
        output = nbformat.v4.new_output("stream", name="stdout", text=text)
        return nbformat.v4.new_code_cell(source, outputs=[output])

    def texts(references, key):
        return {one["cell"]: one[key][0]["text"] for one in references if key in one}

    bare = updated([], [cell("a", "1"), cell("b", "2")], live=False)
    both = updated(bare, [cell("new", "0"), cell("a", "1"), cell("b", "two")], live=True)
    assert texts(both, "outputs") == {"new": "0", "a": "1", "b": "2"}
    assert texts(both, "outputs with PyTorch") == {"b": "two"}
    again = updated(both, [cell("b", "3")], live=False)
    assert texts(again, "outputs") == {"b": "3"} and texts(again, "outputs with PyTorch") == {"b": "two"}
    assert updated(again, [cell("b", "4")], live=None) == [{"cell": "b", "outputs": [
        {"output_type": "stream", "name": "stdout", "text": "4"}]}]  # fmt: skip


def _notebook(path: Path, code: str, execute: bool = True):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code, metadata={"tags": [CHECKED]})])
    if execute:
        chapters.with_kernel(NotebookClient(notebook, kernel_name="python3").execute)
    nbformat.write(notebook, path)
    return notebook


def _nbval(path: Path) -> subprocess.CompletedProcess:
    options = ["--nbval-lax", "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", *options, "--rootdir", path.parent, path],
        capture_output=True, text=True, cwd=path.parent, check=False,
        env={**os.environ, "PYTHONPATH": str(SANITIZE.parent)},
    )  # fmt: skip


def test_tampered_output_is_reported(tmp_path):
    notebook = _notebook(tmp_path / "chapter.ipynb", "print('accuracy', 3 / 4, 'in 12.3 s')")
    notebook.cells[0].outputs[0].text = "accuracy 0.75 in 99.9 s\n"  # a duration may differ
    nbformat.write(notebook, tmp_path / "chapter.ipynb")
    same = _nbval(tmp_path / "chapter.ipynb")
    assert same.returncode == 0, same.stdout

    notebook.cells[0].outputs[0].text = "accuracy 0.95 in 12.3 s\n"  # a result may not
    nbformat.write(notebook, tmp_path / "chapter.ipynb")
    tampered = _nbval(tmp_path / "chapter.ipynb")
    assert tampered.returncode == 1, tampered.stdout
    assert "1 failed" in tampered.stdout and "0.95" in tampered.stdout


def test_notebook_that_did_not_run_is_reported(tmp_path):
    notebook = _notebook(tmp_path / "chapter.ipynb", "1 + 1", execute=False)
    assert chapters.not_run(notebook) == ["1 + 1"]
    ran = _notebook(tmp_path / "chapter.ipynb", "1 + 1")
    assert chapters.not_run(ran) == []


def test_kernel_is_this_environment(tmp_path):
    """Another Jupyter's kernel of the same name, in the user's folder, must not run the chapters."""
    spec = tmp_path / ".local" / "share" / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "stranger", "language": "python"}')
    env = chapters.kernel_environment() | {"HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "0"}
    env.pop("JUPYTER_DATA_DIR", None)
    code = "from jupyter_client.kernelspec import get_kernel_spec; print(get_kernel_spec('python3').resource_dir)"
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(os.path.abspath(sys.prefix))
