"""Hand out a lab: write the learners' files after checking that they reveal no solution and are graded correctly."""

import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from grader import execution, grade, handed_in, handout, leaks, sandbox
from grader import lab as labs
from grader.lab import Lab, LabError
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write

CELL_SECONDS = 600  # for a cell of the learner's notebook, as in the book


def release(lab: Lab, folder: Path, *, language: str | None = None, sandboxed: bool = True, train: bool = True,
            notify=print) -> list[Path]:  # fmt: skip
    """Write the three files of `handout.files` into `folder` and return them; raises LabError before it writes any.

    A lab is released only if its files reveal no solution, the learner's notebook runs and, with the solutions, passes
    all checks, the master gets full marks and the blank none.
    train: also train and test the instructor's Run; notify: called with a line for each stage.
    """
    if sandboxed and (reason := sandbox.unavailable()):
        raise LabError(f"no sandbox: {reason}; if you trust the lab, use --no-sandbox")
    files = handout.files(lab, book_url(), language)
    leaks.require_none(lab, files)
    notify("executing the master, and the blank ...")
    _require_grades(lab, sandboxed)
    notify("running the learner's notebook in its unpacked zip ...")
    require_runs(lab, files)
    notify("running it with the solutions: each check must say ok ...")
    require_runs(lab, files, lab.solutions)
    if train and lab.manifest.run:
        notify("training the instructor's Run, in a temporary folder ...")
        _require_run(lab, sandboxed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        atomic_write(folder / name, data)
    return [folder / name for name in files]


def book_url() -> str:
    """The book's public address: `book_url` in _config.yml, or "" if there is none."""
    tree = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))
    return tree.get("sphinx", {}).get("config", {}).get("book_url", "")


def _require_grades(lab, sandboxed):
    """LabError unless the master gets full marks and the blank none."""
    seed, file = lab.manifest.seed, lab.folder / "lab.md"
    references = grade.references(lab, seed, sandboxed)
    again = execution.execute(lab, lab.solutions, seed, sandboxed)
    for task, entry in grade.score(lab, lab.solutions, again, references).items():
        if entry["points"] < entry["max_points"]:
            raise LabError(f"{file}: task {task}: executed twice, the master's values differ: {_reasons(entry)}")
    blank = {task: f"{stub}\npass" for task, stub in lab.stubs.items()}  # unchanged stubs would get 0 unexecuted
    executed = execution.execute(lab, blank, seed, sandboxed)
    for task, entry in grade.score(lab, blank, executed, references).items():
        if right := [name for name, value in entry["values"].items() if value["points"]]:
            raise LabError(f"{file}: the stub of task {task} gives the master's value of {', '.join(right)}")


def require_runs(lab: Lab, files: dict[str, bytes], answers: dict[str, str] | None = None) -> None:
    """LabError if the learner's notebook fails in its unpacked zip, with the packages in this environment.

    answers: correct answers by task, with which each check must also say "ok".
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError

    name = f"lab-{lab.name}"
    ours = ("PYTHONPATH", "LABKIT_DATA", "JPY_SESSION_NAME")
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    with tempfile.TemporaryDirectory(prefix="labkit-release-", ignore_cleanup_errors=True) as folder:
        with zipfile.ZipFile(io.BytesIO(files[f"{name}-modelarts.zip"])) as packed:
            packed.extractall(folder)
        place = Path(folder, name)
        notebook = nbformat.read(place / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            if answers and labs.answer_of(cell):
                cell.source = answers[labs.answer_of(cell)]
        client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(place)}})
        variant = "with the solutions" if answers else "as handed out"
        try:
            client.execute(cleanup_kc=True, env=environment | {"TMPDIR": folder, "IPYTHONDIR": f"{folder}/.ipython"})
        except CellExecutionError as error:
            *_, cell = (cell for cell in notebook.cells if cell.get("execution_count"))
            raise LabError(f"{name}.ipynb, {variant}, cell {cell.id}: {error.ename}: {error.evalue}") from None
        except (CellControlSignal, RuntimeError) as error:  # RuntimeError: the kernel died, or did not start
            raise LabError(f"{name}.ipynb, {variant}: does not run to the end: {error}") from None
    if answers:
        _require_ok(lab, notebook)


def _require_ok(lab, notebook):
    """LabError if a check did not say "ok". A Run's check, which follows no answer cell, may say "not done yet"."""
    answered = False
    for cell in notebook.cells:
        answered = answered or labs.answer_of(cell) is not None
        if "ungraded" not in cell.metadata.get("tags", []) or not cell.source.startswith("# Check"):
            continue
        text = " ".join("".join(output.get("text", "") for output in cell.outputs).split())
        of_run = lab.manifest.run and not answered
        if not re.search(r"\bok\b", text) and not (of_run and "not done yet" in text):
            raise LabError(f'lab-{lab.name}.ipynb, with the solutions, cell {cell.id}: the check says "{text[:200]}"')
        answered = False


def _reasons(entry):
    values = [f"{name}: {value['detail']}" for name, value in entry["values"].items() if value["detail"]]
    return ", ".join(part for part in (entry["verdict"], entry["detail"], *values) if part)


def _require_run(lab, sandboxed):
    task = lab.manifest.run
    with tempfile.TemporaryDirectory(prefix="labkit-release-", ignore_cleanup_errors=True) as folder:
        run = Path(folder, "run")
        settings = [word for setting in task.solution for word in ("--set", setting)]
        command = [sys.executable, "-m", "labkit", "train", lab.folder, "--profile", task.profile, *settings]
        done = subprocess.run([*command, "--out", run], stdout=2, check=False)  # show its progress on stderr
        if done.returncode:
            raise LabError(f"{lab.folder / 'grading.yaml'}: run.solution: its training ended with {done.returncode}")
        entry = handed_in.examine(lab, run, sandboxed)
    if entry["points"] != entry["max_points"]:
        raise LabError(f"{lab.folder / 'grading.yaml'}: run.solution is {_reasons(entry)}")


def main(name: str, file: str, language: str | None = None) -> int:
    """Write a lab's notebook for `make lab`, unverified, unless the file exists; return the exit status."""
    target = Path(file)
    try:
        if not target.exists():
            files = handout.files(labs.load(name), book_url(), language)
            target.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(target, files[f"lab-{name}.ipynb"])
            print(f"{file}: a new copy of the lab for your work")
    except LabkitError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
