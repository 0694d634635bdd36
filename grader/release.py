"""Hand out a lab: write the learners' files, once they reveal no solution and the lab grades as it should."""

import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import yaml

from grader import execution, fonts, grade, handed_in, handout, leaks, sandbox, verified
from grader import lab as labs
from grader.lab import Lab, LabError
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write

CELL_SECONDS = 600  # of the learner's notebook; the book allows as many


def release(lab: Lab, folder: Path, *, language: str | None = None, sandboxed: bool = True, train: bool = True,
            again: bool = False, tell=print) -> list[Path]:  # fmt: skip
    """Write the three files of `handout.files` into `folder` and return them; raises LabError before it writes any.

    A lab is released only if its files reveal no solution; the learner's notebook runs and, with the solutions, passes
    all checks; the master gets full marks and the blank none.
    train: the instructor's Run is trained and examined as well.
    language: of the text and the self-checks, English by default.
    again: repeat stages that have passed, even if nothing that they depend on has changed.
    tell: called with each stage.
    """
    if sandboxed and (why := sandbox.unavailable()):
        raise LabError(f"no sandbox: {why}; for a lab that you trust: --no-sandbox")
    found = handout.files(lab, book_url(), language)
    for line in handout.by_git(lab):
        tell(line)
    tell("looking for solutions in what is handed out ...")
    leaks.require_none(lab, found)
    with tempfile.TemporaryDirectory(prefix="labkit-release-") as temporary, fonts.kept_in(Path(temporary, "fonts")):
        verify(lab, found, sandboxed=sandboxed, train=train, again=again, tell=tell)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        atomic_write(folder / name, data)
    return [folder / name for name in found]


def write_notebook(lab: Lab, file: Path, language: str | None = None) -> bool:
    """Write the learner's notebook where there is none, not verified; True if it was written."""
    if file.exists():
        return False
    found = handout.files(lab, book_url(), language)
    leaks.require_none(lab, found)
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, found[f"lab-{lab.name}.ipynb"])
    return True


def book_url() -> str:
    """Where everybody can reach the book: `book_url` in _config.yml, "" where it has no such place."""
    file = REPO / "_config.yml"
    tree = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return tree.get("sphinx", {}).get("config", {}).get("book_url", "")


# -- What must hold ------------------------------------------------------------------------------------


def verify(lab: Lab, found: dict[str, bytes], *, sandboxed: bool = True, train: bool = True, again: bool = False,
           tell=print) -> None:  # fmt: skip
    """LabError where the master has less than full marks, the blank has any, or the learner's notebook does not run.

    It runs twice, as handed out and with the solutions, to which each check must say "ok".
    """
    stages = verified.Stages(lab, tell, again, sandboxed=sandboxed, manifest=lab.manifest.model_dump(mode="json"))
    with stages.stage("the master and the blank: executing them", verified.code(lab.graded_cells)) as todo:
        if todo:
            _require_grades(lab, sandboxed, tell)
    cells = verified.code(json.loads(found[f"lab-{lab.name}.ipynb"])["cells"]), _brought(lab, found)
    with stages.stage("the learner's notebook: running it where its zip is unpacked", cells) as todo:
        if todo:
            require_runs(lab, found)
    told = "the learner's notebook with the solutions: running it as well, each check must say ok"
    with stages.stage(told, cells, lab.solutions) as todo:
        if todo:
            require_runs(lab, found, lab.solutions)
    if train and lab.manifest.run:
        data = handed_in.required_of(lab)[1]
        told = "the instructor's Run, in a folder that is removed afterwards: training it with run.solution"
        with stages.stage(told, data) as todo:
            if todo:
                _require_run(lab, sandboxed)


def _brought(lab, found):
    """What the zip brings besides the notebook and its text: names, sizes and checksums."""
    with zipfile.ZipFile(io.BytesIO(found[f"lab-{lab.name}-modelarts.zip"])) as packed:
        entries = [entry for entry in packed.infolist() if not entry.filename.endswith((".ipynb", ".md"))]
        return [(entry.filename, entry.file_size, entry.CRC) for entry in entries]


def _require_grades(lab, sandboxed, tell):
    """LabError where the master has less than full marks, or the blank has any."""
    seed, file = lab.manifest.seed, lab.folder / "lab.md"
    tell("  the master's answers")
    references = grade.references(lab, seed, sandboxed)
    tell("  the master's answers again, which must give the same values")
    for task, entry in _scored(lab, lab.solutions, references, sandboxed).items():
        if entry["points"] == entry["max_points"]:
            continue
        details = {name: value["detail"] for name, value in entry["values"].items() if value["detail"]}
        if grade.NOT_COMPARED.intersection(details.values()):
            raise LabError(f"{file}: the master's own task {task} is {_reasons(entry)}")
        two = f"executed twice, the master emits two values of {', '.join(details)}"
        raise LabError(f"{file}: task {task}: {two}")
    tell("  the blank, which must earn nothing")
    blank = {task: f"{stub}\npass" for task, stub in lab.stubs.items()}  # not as handed out, which earns 0 unseen
    for task, entry in _scored(lab, blank, references, sandboxed, _going_on(lab)).items():
        if right := [name for name, value in entry["values"].items() if value["points"]]:
            told = f"the master's value of {', '.join(right)} (points: {entry['points']:g})"
            raise LabError(f"{file}: the stub of task {task} gives {told}")


def require_runs(lab: Lab, found: dict[str, bytes], answers: dict[str, str] | None = None) -> None:
    """LabError if the learner's notebook fails in its unpacked zip, with the packages of this environment.

    answers: right answers by task; with them, each check must also say "ok".
    """
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError

    name = f"lab-{lab.name}"
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LABKIT_DATA")}
    with tempfile.TemporaryDirectory(prefix="labkit-release-", ignore_cleanup_errors=True) as folder:
        with zipfile.ZipFile(io.BytesIO(found[f"{name}-modelarts.zip"])) as packed:
            packed.extractall(folder)
        place = Path(folder, name)
        notebook = nbformat.read(place / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            if answers and labs.answer_of(cell):
                cell.source = answers[labs.answer_of(cell)]
        # This environment's kernel; looking for others would leave a folder in the home.
        kernels = KernelSpecManager(kernel_dirs=[str(Path(sys.prefix, "share/jupyter/kernels"))])
        kernel = AsyncKernelManager(kernel_spec_manager=kernels)
        resources = {"metadata": {"path": str(place)}}
        client = NotebookClient(notebook, km=kernel, timeout=CELL_SECONDS, resources=resources)
        try:
            client.execute(cleanup_kc=True, env=environment | {"TMPDIR": folder, "IPYTHONDIR": f"{folder}/.ipython"})
        except CellExecutionError as error:
            cell, what = _failed(notebook), " ".join(f"{error.ename}: {error.evalue}".split())
            whose = "with the solutions, " if answers else "the stub " if labs.answer_of(cell) else ""
            raise LabError(f"{name}.ipynb, {whose}cell {cell.id}: {what}") from None
        except AssertionError:  # Ctrl-C: nbclient takes its kernel away, and then misses it
            client.km = kernel
            raise KeyboardInterrupt from None
        except (CellControlSignal, RuntimeError) as error:  # RuntimeError: the kernel died, or did not start
            client.km = kernel  # nbclient cleans up once more as the program ends, and asserts that there is one
            raise LabError(f"{name}.ipynb: does not run to its end: {error}") from None
    if answers:
        _require_ok(lab, notebook)


def _require_ok(lab, notebook):
    """LabError where a check has not said "ok". That of a Run may say "not done yet": it has no answer before it."""
    answered = False
    for cell in notebook.cells:
        answered = answered or labs.answer_of(cell) is not None
        if "ungraded" not in cell.metadata.get("tags", []) or not cell.source.startswith("# Check"):
            continue
        said = " ".join("".join(output.get("text", "") for output in cell.outputs).split())
        of_run = lab.manifest.run and not answered
        if not re.search(r"\bok\b", said) and not (of_run and "not done yet" in said):
            what = f'says "{said[:200]}"' if said else "says nothing"
            raise LabError(f'lab-{lab.name}.ipynb, with the solutions, cell {cell.id}: the check {what}, and not "ok"')
        answered = False


def _failed(notebook):
    ends = [cell for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    return ends[-1]  # of several, those before it were announced by a tag


def _going_on(lab):
    """The lab with probes that pass even where they fail, so that what they emitted before that is seen."""
    notebook = copy.deepcopy(lab.notebook)
    for cell in notebook["cells"]:
        if labs.probe_of(cell):
            run = f"exec(get_ipython().transform_cell({labs.source(cell)!r}))"
            cell["source"] = f"try:\n    {run}\nexcept Exception:\n    pass"
    return replace(lab, notebook=notebook)


def _scored(lab, answers, references, sandboxed, executed=None):
    """executed: the lab to execute, where it is not `lab` itself."""
    found = execution.execute(executed or lab, answers, lab.manifest.seed, sandboxed)
    return grade.score(lab, answers, found, references)


def _reasons(entry):
    values = [f"{name}: {value['detail']}" for name, value in entry["values"].items() if value["detail"]]
    return ", ".join(part for part in (entry["verdict"], entry["detail"], *values) if part)


def _require_run(lab, sandboxed):
    wanted = lab.manifest.run
    with tempfile.TemporaryDirectory(prefix="labkit-release-", ignore_cleanup_errors=True) as folder:
        place = Path(folder, "run")
        settings = [word for setting in wanted.solution for word in ("--set", setting)]
        command = [sys.executable, "-m", "labkit", "train", lab.folder, "--profile", wanted.profile, *settings]
        done = subprocess.run([*command, "--out", place], stdout=2, check=False)  # its progress is no result
        if done.returncode:
            raise LabError(f"{lab.folder / 'grading.yaml'}: run.solution: its training ended with {done.returncode}")
        entry = handed_in.examine(lab, place, sandboxed)
    if entry["points"] != entry["max_points"]:
        raise LabError(f"{lab.folder / 'grading.yaml'}: run.solution is {_reasons(entry)}")


def main(name: str, file: str, language: str | None = None) -> int:
    """Write the learner's notebook of a lab where there is none; what `make lab` opens. The exit status."""
    try:
        if write_notebook(labs.load(name), Path(file), language):
            print(f"{file}: a new copy of the lab, for your work")
    except LabkitError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
