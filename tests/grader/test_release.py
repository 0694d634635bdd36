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
from click.testing import CliRunner
from nbclient import NotebookClient

from grader import handout, lab, leaks, release
from grader.lab import LabError
from labkit.cli import main
from labkit.system import environment
from tests.grader.conftest import TINY

SOLVED = "lab-tiny.ipynb, with the solutions, cell cell-006"
FILES = ["lab-tiny-modelarts.zip", "lab-tiny.ipynb", "lab-tiny.md"]


@pytest.fixture(scope="module")
def released(tmp_path_factory, sandboxed):
    """The folder that `labkit release` wrote, into which somebody had put other things before."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "notes.txt").write_text("mine")
    (folder / "lab-tiny.ipynb").write_text("an older release")
    done = CliRunner().invoke(main, ["release", str(TINY), str(folder)])
    assert done.exit_code == 0, done.output
    assert "the blank" in done.stderr and "the master" in done.stderr
    assert done.stdout.split() == [str(folder / name) for name in sorted(FILES, key=lambda name: name[-1:] == "p")]
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- What is written -----------------------------------------------------------------------------------


def test_only_its_three_files_are_written(released):
    assert sorted(contents(released)) == [*FILES, "notes.txt"]
    assert (released / "notes.txt").read_text() == "mine"


def test_the_notebook_has_stubs_and_stable_ids_and_nothing_of_its_instructor(released, tiny):
    notebook = nbformat.read(released / "lab-tiny.ipynb", as_version=4)
    nbformat.validate(notebook)
    answers = {cell.id: cell.source for cell in notebook.cells if "answer" in cell.metadata}
    assert answers == {f"answer-{task}": stub for task, stub in tiny.stubs.items()}
    text = (released / "lab-tiny.ipynb").read_text()
    assert not re.search(r"probe|emit|SOLUTION|1437 // batch", text)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    assert "jupytext" not in notebook.metadata  # which would refuse to save it


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """A folder for what has passed; without it, a test would find what the one before has left."""
    monkeypatch.setattr(release.verified, "FOLDER", tmp_path / "marks")
    return tmp_path / "marks"


def test_a_stage_that_passed_is_not_executed_until_what_it_depends_on_changes(edited, tmp_path, marks, sandboxed):
    def todo(found, **given):
        told = []
        release.release(found, tmp_path / "out", tell=told.append, **given)
        return [line.split(":")[0] for line in told if line.endswith(" ...") and not line.startswith("looking")]

    tiny = edited("lab.md", "# A tiny lab", "# A lab")
    stages = ["the master and the blank", "the learner's notebook", "the learner's notebook with the solutions"]
    assert todo(tiny) == stages and todo(tiny) == []
    assert all(not mark.stat().st_size for mark in marks.iterdir())
    prose = edited("lab.md", "# A lab", "# Its title is text")
    assert todo(prose) == [] and "Its title is text" in (tmp_path / "out/lab-tiny.md").read_text()
    assert todo(prose, again=True) == stages
    assert todo(edited("lab.md", 'print("steps: ok")', 'print("steps: all ok")')) == stages[1:]
    with pytest.raises(LabError, match="the master itself fails"):
        todo(edited("lab.md", "steps = 1437 // batch", "steps = 1437 / 0"))
    with pytest.raises(LabError, match="the master itself fails"):
        todo(edited("lab.md", "steps = 1437 / 0", "steps = 1437/0"))  # what fails is not remembered


def test_the_text_is_the_same_notebook(released):
    notebook = nbformat.read(released / "lab-tiny.ipynb", as_version=4)
    text = jupytext.read(released / "lab-tiny.md")

    def cells(notebook):
        return [(cell.cell_type, cell.source, dict(cell.metadata)) for cell in notebook.cells]

    assert cells(text) == cells(notebook)


def test_releasing_twice_gives_the_same_bytes(released, tmp_path):
    """In another process, whose sets have another order."""
    code = "import sys; from pathlib import Path; from grader import handout, lab\n"
    code += "for name, data in handout.files(lab.load('tiny', Path(sys.argv[1]))).items():\n"
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
    assert {"README.md", "requirements.txt", "constraints.txt", "labkit", "data_scripts"} <= set(os.listdir(place))
    notebook = nbformat.read(place / "lab-tiny.ipynb", as_version=4)
    where = "from labkit.training import recipes\nprint(recipes.__file__)"
    notebook.cells.append(nbformat.v4.new_code_cell(where))
    readme = (place / "README.md").read_text(encoding="utf-8")
    assert "stands for `make env`" in readme and "Rename the notebook to your name or number" in readme
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    NotebookClient(notebook, resources={"metadata": {"path": str(place)}}).execute(env=variables)
    printed = [output.text.strip() for cell in notebook.cells for output in cell.get("outputs", [])]
    assert printed == ["steps: not done yet", str(place / "labkit/training/recipes.py")]


@pytest.mark.parametrize("git", [True, False])
def test_only_what_git_tracks_is_handed_out(tiny, tmp_path, monkeypatch, git):
    """Without git, all that learners may have, and a line says so."""
    tracked = ["labkit/__init__.py", "labkit/obs/copying.py", "data_scripts/cifar10.py", "labs/tiny/recipe.yaml"]
    private = ["labkit/private.py", "data_scripts/mine.py", "labs/tiny/runs/mine/summary.json"]
    for name in (*handout.TOP, *tracked, "labkit/obs/__pycache__/x.py", "labkit/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    if git:
        subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
        subprocess.run(["git", "-C", tmp_path, "add", "--all"], check=True)
    for name in private:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(handout, "REPO", tmp_path)
    mine = dataclasses.replace(tiny, folder=tmp_path / "labs/tiny")
    assert set(handout._project(mine)) == {*handout.TOP, *tracked, *([] if git else private)}
    left_out = {"labkit": "private.py", "data_scripts": "mine.py", "tiny": "runs/mine/summary.json"}
    everything = f"{', '.join(left_out)}: git tracks nothing here, so all files that learners may have are handed out"
    named = [f"{folder}: not handed out, as git does not track it: {name}" for folder, name in left_out.items()]
    assert handout.by_git(mine) == (named if git else [everything])


def test_nothing_is_handed_out_where_git_cannot_say(tiny, tmp_path):
    lab = dataclasses.replace(tiny, folder=shutil.copytree(tiny.folder, tmp_path / "tiny"))
    (lab.folder / ".git").mkdir()  # no repository
    with pytest.raises(LabError, match=r"tiny: git cannot say what it tracks \(fatal: not a git repository.*\)$"):
        handout.files(lab)


def test_the_zip_has_no_master_and_no_manifest(released):
    with zipfile.ZipFile(released / "lab-tiny-modelarts.zip") as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith(("lab.md", "grading.yaml", ".pyc"))]


def test_an_old_jupyter_drops_ids_and_keeps_whose_answer_a_cell_is(released, tiny):
    """nbformat 4.4 knows no ids."""
    notebook = nbformat.read(released / "lab-tiny.ipynb", as_version=4)
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]
    again = nbformat.reads(nbformat.writes(notebook), as_version=4)
    assert [cell.metadata.answer for cell in again.cells if "answer" in cell.metadata] == list(tiny.stubs)


# -- What no release takes -----------------------------------------------------------------------------


def refused(lab, tmp_path):
    """The error of a release that is refused; it has written nothing."""
    with pytest.raises(LabError) as error:
        release.release(lab, tmp_path / "out", tell=lambda stage: None)
    assert not (tmp_path / "out").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("How many whole batches", "`steps = 1437 // batch`: how many", "cell cell-003: tells the solution of steps"),
        ("import numpy as np\n", "# steps=1437//batch\nimport numpy as np\n", "cell cell-002: tells the solution"),
        ("steps = None  # your answer", "steps = None  # steps = 1437 // batch", "cell answer-steps: tells the"),
        ("# Check\n", "ramp = np.arange(steps) / (steps / 2)\n", "cell cell-006: tells the solution of triangle"),
        ("# Check\n", 'emit("total", total)\n', "cell cell-006: tells a probe of total"),
        ("# Check\n", "# BEGIN SOLUTION\n# END SOLUTION\n", "cell cell-006: `# BEGIN SOLUTION` in a cell without"),
        (":tags: [ungraded]", ":hint: steps = 1437 // batch", "cell cell-006: tells the solution of steps"),
    ],
    ids=["text", "comment", "stub", "self-check", "probe", "markers", "metadata"],
)  # fmt: skip
def test_a_lab_that_tells_a_solution_is_refused(edited, tmp_path, sandboxed, old, new, place):
    assert place in refused(edited("lab.md", old, new), tmp_path)


@pytest.mark.parametrize(
    "told",
    ["rng = np.random.default_rng(seed)", "# rates = triangle(2*int(rng.integers(5,50)), float(rng.uniform(0.1,1)))"],
)
def test_a_line_of_a_probe_is_a_secret_whether_it_emits_or_not(edited, told):
    found = edited("lab.md", "# Check\n", f"# Check\n{told}\n")
    with pytest.raises(LabError, match="cell cell-006: tells a probe of triangle"):
        leaks.require_none(found, handout.files(found))


@pytest.mark.parametrize("said", ["The result is steps=44.", "```python\nsteps  =  44  # so many\n```", "`steps = 44`"])
def test_a_solution_of_short_lines_is_a_secret_as_a_whole(edited, said):
    found = edited("lab.md", "steps = 1437 // batch", "steps = 44  # so many")
    leaks.require_none(found, handout.files(found))
    text = (found.folder / "lab.md").read_text()
    (found.folder / "lab.md").write_text(text + "\nNeither `steps = 440` nor `steps = 44.5` tells it.\n")
    found = lab.load("tiny", found.folder)
    leaks.require_none(found, handout.files(found))
    (found.folder / "lab.md").write_text(f"{text}\n{said}\n")
    found = lab.load("tiny", found.folder)
    with pytest.raises(LabError, match="tells the solution of steps: steps = 44"):
        leaks.require_none(found, handout.files(found))


def test_a_solution_of_short_lines_is_found_over_several_lines(edited):
    found = edited("lab.md", "steps = 1437 // batch", "n = 1437\nsteps = n\nsteps //= 32")
    (found.folder / "answers.py").write_text("n=1437\n  steps=n\n\nsteps //= 32\n")
    with pytest.raises(LabError, match="answers.py: tells the solution of steps: n = 1437"):
        leaks.require_none(found, handout.files(found))


@pytest.mark.parametrize("name", ["answers.py", "runs/mine/summary.json"])
def test_a_file_beside_the_notebook_that_tells_a_solution_is_refused(edited, tmp_path, sandboxed, name):
    lab = edited("lab.md", "# A tiny lab", "# A tiny lab, again")
    (lab.folder / name).parent.mkdir(parents=True, exist_ok=True)
    (lab.folder / name).write_text("batch = 32\nsteps  =  1437 // batch  # 44\n")
    assert refused(lab, tmp_path) == (
        f"lab-tiny-modelarts.zip, lab-tiny/labs/tiny/{name}: tells the solution of steps: steps = 1437 // batch"
    )


def test_what_the_stub_has_itself_is_no_secret(edited):
    """A task to mend a function hands out most of its lines."""
    stub = "def triangle(steps, lr_max):\n    ramp = np.arange(steps) / (steps / 2)\n    return ramp\n"
    found = edited("lab.md", "triangle = None  # def triangle(steps, lr_max): ...\n", stub)
    leaks.require_none(found, handout.files(found))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("steps = 1437 // batch", "steps = 1437 / 0", "cell answer-steps: the master itself fails: ZeroDivisionError"),
        ("steps = None  # your answer", "raise IOError", "answer-steps: the master itself fails in a line of the stub"),
        ('emit("total", total)', 'emit("total", np.random.rand())',
         "lab.md: task total: executed twice, the master emits two values of total"),
        ('emit("total", total)', 'emit("other", total)', "no probe of task total emits total"),
        ("steps = None  # your answer", "steps = 44",
         "the stub of task steps gives the master's value of steps (points: 2)"),
        ("rates = triangle(2", 'emit("dtype", "float32")\nrates = triangle(2',
         "the stub of task triangle gives the master's value of dtype (points: 1)"),
        ('print("steps: not done yet")', "steps + 1", "lab-tiny.ipynb, cell cell-006: TypeError"),
        ("triangle = None  # def triangle(steps, lr_max): ...\n# BEGIN SOLUTION\ndef triangle(steps, lr_max):\n",
         "def triangle(steps, lr_max):\n# BEGIN SOLUTION\n",
         "lab-tiny.ipynb, the stub cell answer-triangle: "),
        ("batch <= 1437", "batch <= 1400", f"{SOLVED}: AssertionError: that many batches need more images"),
    ],
    ids=["fails", "stub fails", "another value each time", "no value", "stub is right", "right before it fails",
         "notebook fails", "stub is no Python", "check fails"],
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
    """By the last stage of a release, which `check fails` above comes to."""
    found = edited("lab.md", old, new)
    with pytest.raises(LabError) as error:
        release.require_runs(found, handout.files(found), found.solutions)
    assert f'{SOLVED}: the check says "{said}", and not "ok"' in str(error.value)


@pytest.mark.parametrize("stub, home", [("import os; os._exit(1)", ""), ("steps = None", "/nowhere")])
def test_a_kernel_that_dies_is_one_clear_line(edited, monkeypatch, stub, home):
    """In a cell, or before the first: there is no Python in such a home."""
    found = edited("lab.md", "steps = None  # your answer", stub)
    monkeypatch.setenv("PYTHONHOME", home)
    with pytest.raises(LabError, match="^lab-tiny.ipynb: does not run to its end: Kernel died"):
        release.require_runs(found, handout.files(found))


def test_only_the_check_of_a_run_may_be_not_done():
    """It has no answer before it, and the lab a Run."""

    def told(with_run, *before):
        check = nbformat.v4.new_code_cell("# Check\n", metadata={"tags": ["ungraded"]})
        check.outputs = [nbformat.v4.new_output("stream", text="task 8: not done yet\n")]
        notebook = nbformat.v4.new_notebook(cells=[*before, check])
        release._require_ok(lab.load("cifar10" if with_run else "tiny", None if with_run else TINY), notebook)

    told(True)
    for given in ((False,), (True, nbformat.v4.new_code_cell("a = 1", metadata={"answer": "a"}))):
        with pytest.raises(LabError, match='the check says "task 8: not done yet", and not "ok"'):
            told(*given)


def test_without_a_sandbox_it_says_how_to_do_without(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(release.sandbox, "unavailable", lambda: "bwrap is not installed (package bubblewrap)")
    assert "bwrap is not installed" in (message := refused(tiny, tmp_path)) and "--no-sandbox" in message


@pytest.mark.parametrize("name", lab.names())
def test_no_lab_of_the_project_tells_a_solution(name):
    found = lab.load(name)
    leaks.require_none(found, handout.files(found))


# -- The learner's copy, and text for the book ---------------------------------------------------------


def test_a_learners_copy_is_never_written_over(tiny, tmp_path):
    file = tmp_path / "work" / "lab-tiny.ipynb"
    assert release.write_notebook(tiny, file)
    assert file.read_bytes() == handout.files(tiny)["lab-tiny.ipynb"]
    file.write_text("my work")
    assert not release.write_notebook(tiny, file)
    assert file.read_text() == "my work" and os.listdir(file.parent) == [file.name]


def test_the_books_text_is_the_learners_notebook(tiny):
    text = (TINY / "lab.md").read_text()
    shown = handout.learners_text(text)
    cells = [(cell.source, dict(cell.metadata)) for cell in jupytext.reads(shown, fmt="md:myst").cells]
    assert cells == [(cell["source"], cell["metadata"]) for cell in lab.learners(tiny.notebook)["cells"]]
    assert [line for line in shown.splitlines() if line not in text.splitlines()] == []


def test_the_books_text_keeps_code_that_is_no_cell():
    before, after = "```python\n# BEGIN SOLUTION\n```\n\n", "\n> ```{code-cell}\n> 1\n> ```\n"
    probe = "````{code-cell}\n---\nprobe: a\n---\n'''```'''\n````\n"
    assert handout.learners_text(before + probe + after) == before + after


def test_markers_that_do_not_pair_are_told():
    with pytest.raises(ValueError, match="no `# END SOLUTION`"):
        handout.learners_text("```{code-cell}\n# BEGIN SOLUTION\nx = 1\n```\n")


@pytest.mark.parametrize(
    ("text", "url", "shown"),
    [
        ("([data](../../book/1-cifar10/data.md#normalise), *Shards*)", "", "(*The data set*, *Shards*)"),
        ("[page](../../book/none.md), [recipe](recipe.yaml)", "", "page, recipe"),
        ("[data](../../book/1-cifar10/data.md)", "https://h/c", "[data](https://h/c/book/1-cifar10/data.html)"),
        ("[data](../../book/a.md#x-y), [b](lab.md)", "https://h", "[data](https://h/book/a.html#x-y), [b](https://h/labs/tiny/lab.html)"),
        ("[recipe](recipe.yaml) ![a map](../../book/_static/map.svg)", "https://h", "recipe a map"),
        ("![rows](../../book/_static/nchw-rows.svg)", "https://h/c", "![rows](https://h/c/_images/nchw-rows.svg)"),
        ("![rows](../../book/_static/nchw-rows.svg)", "", "rows"),
        ("[He](https://arxiv.org/abs/1) [above](#above)", "https://h", "[He](https://arxiv.org/abs/1) [above](#above)"),
        ("(lab-tiny)=\n# Title", "", "# Title"),
        ("`runs/{name}` and `x[0](a/b)`", "", "`runs/{name}` and `x[0](a/b)`"),
        ("{doc}`data </book/none>`, {doc}`/book/none`, {ref}`none`", "", "data, `none`, `none`"),
        ("a {term}`Run` of {term}`jobs <training job>`", "", "a Run of jobs"),
        ("{ref}`lab-cifar10`, {ref}`it <lab-cifar10>`", "", "*Lab: train a ResNet*, it"),
        ("{ref}`onednn-trap`", "", "*The oneDNN trap* in *Troubleshooting*"),
        ("{doc}`/book/1-cifar10/data`, {doc}`it <../cifar10/lab>`", "", "*The data set*, it"),
        ("{doc}`/book/1-cifar10/data`", "https://h/c", "[The data set](https://h/c/book/1-cifar10/data.html)"),
        ("{doc}`it <../cifar10/lab>`", "https://h/c", "[it](https://h/c/labs/cifar10/lab.html)"),
        ("{ref}`a lab <lab-thor>`", "https://h", "[a lab](https://h/labs/thor/lab.html#lab-thor)"),
        ("{ref}`a record <recorded-x>`", "https://h", "a record"),
    ],
)  # fmt: skip
def test_text_stands_alone(text, url, shown):
    master = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    master.metadata.kernelspec = {"name": "python3"}
    assert handout.notebook(master, "labs/tiny", url)["cells"][0]["source"] == shown


def test_the_books_address_comes_from_its_configuration():
    assert re.fullmatch(r"|https?://.*[^/]", release.book_url())


def test_matplotlibs_list_of_fonts_is_not_left_in_the_home(tmp_path):
    """It writes one wherever there is none; in the folder that it is given here, a second process finds it."""
    (tmp_path / "home").mkdir()
    program = (
        "import sys\nfrom pathlib import Path\nfrom grader import fonts\n"
        "with fonts.kept_in(Path(sys.argv[1])):\n"
        "    assert len(fonts.font_list()) == 1\n"
    )
    unset = ("MPLCONFIGDIR", "XDG_CACHE_HOME")
    variables = {key: value for key, value in os.environ.items() if key not in unset}
    variables |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(environment.REPO)}
    subprocess.run([sys.executable, "-c", program, tmp_path / "fonts"], env=variables, check=True, cwd=tmp_path)
    assert [path.name for path in (tmp_path / "fonts").glob("fontlist*.json")]
    assert list((tmp_path / "home").iterdir()) == []


def test_a_file_for_the_folder(tmp_path):
    """A notebook's name would become a folder's."""
    done = CliRunner().invoke(main, ["release", str(TINY), str(tmp_path / "lab.ipynb")])
    assert done.exit_code == 2 and "lab.ipynb: release writes several files into a folder" in done.stderr
    assert not (tmp_path / "lab.ipynb").exists()
