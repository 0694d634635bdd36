"""What is handed out: a notebook without solutions that runs beside its zip; and what no release takes."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import zipfile

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient
from running import contents, labkit

from grader import handout, lab, leaks, release
from grader.lab import LabError
from labkit.system.environment import REPO
from tests.grader.conftest import TINY, write

sys.path.insert(0, str(REPO / "book/_ext"))

import learners_version

SOLVED = "lab-tiny.ipynb, with the solutions, cell cell-006"
FILES = ["lab-tiny-modelarts.zip", "lab-tiny.ipynb", "lab-tiny.md"]


@pytest.fixture(scope="module")
def released(tmp_path_factory, sandboxed):
    """The folder that `labkit release` wrote, into which somebody had put other things before."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "notes.txt").write_text("mine")
    (folder / "lab-tiny.ipynb").write_text("an older release")
    done = labkit("release", TINY, folder)
    assert done.exit_code == 0, done.output
    assert "executing the master" in done.stderr
    assert done.stdout.split() == [str(folder / name) for name in sorted(FILES, key=lambda name: name[-1:] == "p")]
    return folder


# -- What is written -----------------------------------------------------------------------------------


def test_only_its_three_files_are_written(released):
    assert sorted(contents(released)) == [*FILES, "notes.txt"]
    assert (released / "notes.txt").read_text() == "mine"


def test_the_notebook_has_stubs_and_stable_ids_and_nothing_of_its_instructor(released, tiny):
    notebook = nbformat.read(released / "lab-tiny.ipynb", as_version=4)
    nbformat.validate(notebook)
    answers = {cell.id: cell.source for cell in notebook.cells if "answer" in cell.metadata}
    assert answers == {f"answer-{task}": stub for task, stub in tiny.stubs.items()}
    assert answers["answer-triangle"] == "triangle = None  # def triangle(steps, lr_max): ..."
    text = (released / "lab-tiny.ipynb").read_text()
    assert not re.search(r"probe|emit|SOLUTION|1437 // batch|np\.minimum|\.sum\(\)", text)
    assert "assert steps * batch" in text  # the self-check stays
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    assert "jupytext" not in notebook.metadata  # which would refuse to save it


def test_releasing_twice_gives_the_same_bytes(released, tmp_path):
    """In another process, whose sets have another order."""
    code = "import sys; from pathlib import Path; from grader import handout, lab\n"
    code += "for name, data in handout.files(lab.load(sys.argv[1])).items():\n"
    code += "    Path(sys.argv[2], name).write_bytes(data)"
    shutil.copytree(TINY, tmp_path / "tiny")  # its files have other dates
    (tmp_path / "again").mkdir()
    command = [sys.executable, "-c", code, tmp_path / "tiny", tmp_path / "again"]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "7"}, check=True)
    assert contents(tmp_path / "again") == {name: contents(released)[name] for name in FILES}


def test_the_zip_is_all_that_its_notebook_needs(released, tmp_path):
    """Unpacked, its labkit is the one that is imported, and the notebook runs to its end."""
    with zipfile.ZipFile(released / "lab-tiny-modelarts.zip") as packed:
        packed.extractall(tmp_path)
        assert {entry.date_time for entry in packed.infolist()} == {handout.DATE}
    place = tmp_path / "lab-tiny"
    assert (place / "lab-tiny.ipynb").read_bytes() == (released / "lab-tiny.ipynb").read_bytes()
    notebook = nbformat.read(place / "lab-tiny.ipynb", as_version=4)
    where = "from labkit.training import recipes\nprint(recipes.__file__)"
    notebook.cells.append(nbformat.v4.new_code_cell(where))
    readme = (place / "README.md").read_text(encoding="utf-8")
    assert "stands for `make env`" in readme and "rename the notebook to your name or number" in readme
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    NotebookClient(notebook, resources={"metadata": {"path": str(place)}}).execute(env=variables)
    printed = [output.text.strip() for cell in notebook.cells for output in cell.get("outputs", [])]
    assert printed == ["steps: not done yet", str(place / "labkit/training/recipes.py")]


def test_only_what_git_tracks_is_handed_out(tiny, tmp_path, monkeypatch):
    tracked = ["book/a.md", "labkit/__init__.py", "labkit/obs/copying.py", "data_scripts/x.py", "labs/tiny/recipe.yaml"]
    others = ["labkit/obs/__pycache__/x.py", "labkit/notes.txt", "grader/lab.py", "tests/test_x.py", "labs/tiny/lab.md"]
    private = ["labkit/private.py", "data_scripts/mine.py", "labs/tiny/runs/mine/summary.json"]
    write(tmp_path, *handout.TOP, *tracked, *others, *private)
    monkeypatch.setattr(handout, "REPO", tmp_path)
    mine = dataclasses.replace(tiny, folder=tmp_path / "labs/tiny")
    assert set(handout._project(mine)) == {*handout.TOP, *tracked, *private}  # without git, all that learners may have
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", *handout.TOP, *tracked, *others], check=True)
    assert set(handout._project(mine)) == {*handout.TOP, *tracked}


def test_the_zip_has_no_master_no_grader_and_no_tests(released):
    with zipfile.ZipFile(released / "lab-tiny-modelarts.zip") as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith(("lab.md", "grading.yaml", ".pyc"))]
    assert {name.split("/")[1] for name in names} == {*handout.TOP, "README.md", "lab-tiny.ipynb", *handout.INCLUDED}


# -- What no release takes -----------------------------------------------------------------------------


def refused(lab, tmp_path):
    """The error of a release that is refused; it has written nothing."""
    with pytest.raises(LabError) as error:
        release.release(lab, tmp_path / "out", notify=lambda stage: None)
    assert not (tmp_path / "out").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("How many whole batches", "`steps = 1437 // batch`: how many", "cell cell-003: reveals the solution of steps"),
        ("import numpy as np\n", "# steps=1437//batch\nimport numpy as np\n", "cell cell-002: reveals the solution"),
        ("steps = None  # your answer", "steps = None  # steps = 1437 // batch", "cell answer-steps: reveals the"),
        ("# Check\n", "ramp = np.arange(steps) / (steps / 2)\n", "cell cell-006: reveals the solution of triangle"),
        ("# Check\n", 'emit("total", total)\n', "cell cell-006: reveals a probe of total"),
        ("# Check\n", "# BEGIN SOLUTION\n# END SOLUTION\n", "cell cell-006: `# BEGIN SOLUTION` in a cell without"),
        (":tags: [ungraded]", ":hint: steps = 1437 // batch", "cell cell-006: reveals the solution of steps"),
    ],
    ids=["text", "comment", "stub", "self-check", "probe", "markers", "metadata"],
)  # fmt: skip
def test_a_lab_that_tells_a_solution_is_refused(edited, tmp_path, sandboxed, old, new, place):
    assert place in refused(edited("lab.md", old, new), tmp_path)


def test_what_the_stub_has_itself_is_no_secret(edited):
    """A task to mend a function hands out most of its lines."""
    stub = "def triangle(steps, lr_max):\n    ramp = np.arange(steps) / (steps / 2)\n    return ramp\n"
    found = edited("lab.md", "triangle = None  # def triangle(steps, lr_max): ...\n", stub)
    leaks.require_none(found, handout.files(found))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("steps = 1437 // batch", "steps = 1437 / 0", "the master itself fails: task steps: ZeroDivisionError"),
        ('emit("total", total)', 'emit("other", total)', "the master itself fails: task total: value total: missing"),
        pytest.param('emit("total", total)', 'emit("total", np.random.rand())',
                     "lab.md: task total: executed twice, the master's values differ", marks=pytest.mark.slow),
        pytest.param("steps = None  # your answer", "steps = 44",
                     "the stub of task steps gives the master's value of steps", marks=pytest.mark.slow),
        pytest.param('print("steps: not done yet")', "steps + 1",
                     "lab-tiny.ipynb, as handed out, cell cell-006: TypeError", marks=pytest.mark.slow),
        pytest.param("batch <= 1437", "batch <= 1400",
                     f"{SOLVED}: AssertionError: that many batches need more images", marks=pytest.mark.slow),
    ],
    ids=["fails", "no value", "another value each time", "stub is right", "notebook fails", "check fails"],
)  # fmt: skip
def test_a_lab_that_grades_wrongly_is_refused(edited, tmp_path, sandboxed, old, new, reason):
    assert reason in refused(edited("lab.md", old, new), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('print("steps: ok")', 'print("look again")', "look again"),
        ("steps is None:", "steps in (None, 44):", "steps: not done yet"),
    ],
    ids=["no", "nothing was done"],
)
def test_a_check_that_does_not_say_ok_to_the_solutions_is_refused(edited, old, new, said):
    found = edited("lab.md", old, new)
    with pytest.raises(LabError) as error:
        release.require_runs(found, handout.files(found), found.solutions)
    assert f'{SOLVED}: the check says "{said}"' in str(error.value)


def test_a_kernel_that_dies_is_one_clear_line(edited):
    found = edited("lab.md", "steps = None  # your answer", "import os; os._exit(1)")
    with pytest.raises(LabError, match="^lab-tiny.ipynb, as handed out: does not run to the end: Kernel died"):
        release.require_runs(found, handout.files(found))


def test_without_a_sandbox_it_says_how_to_do_without(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(release.sandbox, "unavailable", lambda: "bwrap is not installed (package bubblewrap)")
    assert "bwrap is not installed" in (message := refused(tiny, tmp_path)) and "--no-sandbox" in message


@pytest.mark.parametrize("name", lab.names())
def test_no_lab_of_the_project_tells_a_solution(name):
    found = lab.load(name)
    leaks.require_none(found, handout.files(found))


# -- The learner's copy, and text for the book ---------------------------------------------------------


def test_a_learners_copy_is_never_written_over(tmp_path, capsys):
    file = tmp_path / "work" / "lab-thor.ipynb"
    assert release.main("thor", str(file)) == 0
    assert file.read_bytes() == handout.files(lab.load("thor"))["lab-thor.ipynb"]
    file.write_text("my work")
    assert release.main("thor", str(file)) == 0
    assert file.read_text() == "my work" and os.listdir(file.parent) == [file.name]
    said = "lab.md: missing; labs: cifar10, imagenet, thor, or a folder with both"
    for name in ("nosuch", "CIFAR10", "."):
        assert release.main(name, str(tmp_path / "x")) == 1
        assert said in capsys.readouterr().err


def test_the_books_text_is_the_learners_notebook(tiny):
    text = (TINY / "lab.md").read_text()
    shown = learners_version.learners_text(text)
    cells = [(cell.source, dict(cell.metadata)) for cell in jupytext.reads(shown, fmt="md:myst").cells]
    assert cells == [(cell["source"], cell["metadata"]) for cell in lab.learners(tiny.notebook)["cells"]]
    assert [line for line in shown.splitlines() if line not in text.splitlines()] == []


@pytest.mark.parametrize(
    ("text", "url", "shown"),
    [
        ("([data](../../book/1-cifar10/data.md#normalise), *S*)", "", "([data](../book/1-cifar10/data.md), *S*)"),
        ("[page](../../book/none.md), [recipe](recipe.yaml)", "", "[page](../book/none.md), recipe"),
        ("[data](../../book/a.md#x-y), [b](lab.md)", "https://h", "[data](https://h/book/a.html#x-y), [b](https://h/labs/tiny/lab.html)"),
        ("![rows](../../book/_static/nchw-rows.svg)", "https://h/c", "![rows](https://h/c/_images/nchw-rows.svg)"),
        ("![rows](../../book/_static/nchw-rows.svg)", "", "![rows](../book/_static/nchw-rows.svg)"),
        ("[He](https://arxiv.org/abs/1) [above](#above)", "https://h", "[He](https://arxiv.org/abs/1) [above](#above)"),
        ("(lab-tiny)=\n# Title", "", "# Title"),
        ("`runs/{name}` and `x[0](a/b)`", "", "`runs/{name}` and `x[0](a/b)`"),
        ("{doc}`data </book/none>`, {ref}`none`", "", "data, `none`"),
        ("a {term}`Run` of {term}`jobs <training job>`", "", "a Run of jobs"),
        ("{ref}`lab-cifar10`, {ref}`it <lab-cifar10>`", "", "*Lab: train a ResNet*, it"),
        ("{doc}`/book/1-cifar10/data` {doc}`it <../cifar10/lab>`", "", "[The data set](../book/1-cifar10/data.md) it"),
        ("{doc}`/book/1-cifar10/data`", "https://h/c", "[The data set](https://h/c/book/1-cifar10/data.html)"),
        ("{ref}`a lab <lab-thor>`", "https://h", "[a lab](https://h/labs/thor/lab.html#lab-thor)"),
    ],
)  # fmt: skip
def test_text_stands_alone(text, url, shown):
    master = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    master.metadata.kernelspec = {"name": "python3"}
    assert handout.notebook(master, "labs/tiny", url)["cells"][0]["source"] == shown
