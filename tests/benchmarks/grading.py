"""Grading beside nbgrader: a class that harms nobody, by `labkit grade --jobs 2` and by two of nbgrader's autograders.

nbgrader's assignment is made of the same master: the answers are its solutions, and a probe is a hidden test, which
compares what it emits with the master's values. nbgrader grades one submission after the other, so two processes take
half of the class each. It executes all that a notebook has, labkit leaves out what its master tags `ungraded`; so
nbgrader grades once without those cells too, and executes the same as labkit.
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from grader import lab as labs
from labkit.system import environment
from tests.benchmarks import rotated
from tests.grader import class_of

JOBS = 2
LABKIT, SAME, WHOLE = f"labkit grade --jobs {JOBS}", "nbgrader autograde, the same cells", "nbgrader autograde"
REFERENCE = SAME
LONGEST = 600  # seconds a cell, where a notebook's own trainings are executed too
PROBE = '''\
### BEGIN HIDDEN TESTS
import json
from grader import values
wanted, tolerances = json.loads({wanted!r}), {tolerances!r}
def emit(name, value):
    reason = values.difference(values.encoded(value), wanted[name], *tolerances[name])
    assert not reason, f"{{name}}: {{reason}}"
seed = {seed}
{probe}
### END HIDDEN TESTS
'''


def measure(report, rounds=1, submissions=30, name="cifar10") -> dict:
    """Seconds of every peer for the class, by turns; report(line) on the way. Raises SystemExit on a wrong point."""
    from grader import grade, sandbox

    if not importlib.util.find_spec("nbgrader"):
        sys.exit("nbgrader is not installed: `make bench` does that where Python is 3.11, for which it asks")
    if sandbox.unavailable():
        sys.exit(f"the sandbox is part of what is measured: {sandbox.unavailable()}")
    lab = class_of.load(name)
    class_ = class_of.peaceful(lab, submissions)
    found = {LABKIT: [], SAME: [], WHOLE: []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        expected = class_of.write(lab, folder / "class", class_, labs.learners(lab.notebook))
        wanted = grade.references(lab, lab.manifest.seed, True)
        for number in range(rounds):
            # The whole notebooks take five times as long, and once is enough to see that.
            for peer in rotated([peer for peer in found if peer != WHOLE or number == 0], number):
                place = folder / "turn"
                if peer == LABKIT:
                    found[peer].append(_labkit(lab, folder / "class", place, expected))
                else:
                    found[peer].append(_nbgrader(lab, class_, expected, wanted, place, whole=peer == WHOLE))
                shutil.rmtree(place)
                report(f"round {number + 1} of {rounds}: {peer}, {found[peer][-1] / submissions:.1f} s a submission")
    about = {"lab": name, "submissions": submissions, "jobs": JOBS, "rounds": rounds}
    return about | {"reference": REFERENCE, "rows": [_row(peer, found, submissions) for peer in found]}


def table(result):
    """The rows as text."""
    lines = [f"\n{result['submissions']} submissions of the lab {result['lab']}, {result['jobs']} at a time"]
    for row in result["rows"]:
        lines.append(
            f"  {row['peer']:36} {row['seconds']:7.2f} s a submission {row['speed']:6.2f}x  "
            f"({row['speed_lowest']:.2f} to {row['speed_highest']:.2f})"
        )
    return "\n".join(lines)


def _row(peer, found, submissions):
    ratios = [reference / own for own, reference in zip(found[peer], found[REFERENCE])]  # of a round each
    package = "labkit" if peer == LABKIT else "nbgrader"
    row = {"peer": peer, "version": f"{package} {metadata.version(package)}"}
    row |= {"seconds": statistics.median(found[peer]) / submissions}
    return row | {"speed": statistics.median(ratios), "speed_lowest": min(ratios), "speed_highest": max(ratios)}


def _labkit(lab, class_folder, place, expected):
    command = [sys.executable, "-m", "labkit", "grade", lab.folder, class_folder / "submissions", "-o", place]
    start = time.perf_counter()
    done = subprocess.run([*command, "--jobs", str(JOBS)], stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"labkit grade: ended with status {done.returncode}; see above")
    for result in json.loads((place / "grades.json").read_text())["results"]:
        student = result["student"]
        if result["score"] != expected[student]["score"]:
            sys.exit(f"labkit: {student}: {result['score']} points, expected {expected[student]['score']}")
    return seconds


def _nbgrader(lab, class_, expected, wanted, place, whole):
    """Seconds of the two autograders together; generating the assignment is not timed."""
    courses = [place / f"course-{number}" for number in range(JOBS)]
    source = _source(lab, wanted, whole)
    limits = [task.time_limit or lab.manifest.time_limit for task in lab.manifest.tasks.values()]
    for number, course in enumerate(courses):
        half = list(zip(expected, class_, strict=True))[number::JOBS]
        _course(lab, course, source, half, LONGEST if whole else max(limits))
    start = time.perf_counter()
    processes = [_start_nbgrader("autograde", lab, course) for course in courses]
    for process, course in zip(processes, courses, strict=True):
        _require_done(process, course)
    seconds = time.perf_counter() - start
    for course in courses:
        _require_full_marks(lab, course, expected)
    return seconds


def _source(lab, wanted, whole):
    """The master as nbgrader's source notebook."""
    notebook = lab.notebook | {"cells": lab.notebook["cells"] if whole else lab.graded_cells}
    notebook = json.loads(json.dumps(notebook))
    probes = [labs.probe_of(cell) for cell in notebook["cells"]]
    for cell in notebook["cells"]:
        answer, probe = labs.answer_of(cell), labs.probe_of(cell)
        cell["metadata"] = {}
        if answer:
            marked = labs.source(cell).replace(labs.BEGIN, "### BEGIN SOLUTION").replace(labs.END, "### END SOLUTION")
            cell["source"] = marked
            cell["metadata"]["nbgrader"] = _nbgrader_cell(cell, solution=True)
        elif probe:
            task = lab.manifest.tasks[probe]
            tolerances = {name: (value.rtol, value.atol) for name, value in task.values.items()}
            given = {"wanted": json.dumps(wanted[probe]), "tolerances": tolerances, "seed": lab.manifest.seed}
            cell["source"] = PROBE.format(probe=labs.source(cell), **given)
            cell["metadata"]["nbgrader"] = _nbgrader_cell(cell, grade=True, points=task.points / probes.count(probe))
    return notebook


def _nbgrader_cell(cell, grade=False, solution=False, **points):
    about = {"schema_version": 3, "grade_id": cell["id"], "grade": grade, "solution": solution, "task": False}
    return about | {"locked": not solution} | points


def _course(lab, course, source, half, seconds):
    """A folder of nbgrader's with the assignment, and with what these learners handed in."""
    place = course / "source" / lab.name / f"{lab.name}.ipynb"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(source))
    (course / "nbgrader_config.py").write_text(f"get_config().Execute.timeout = {int(seconds)}\n")
    _require_done(_start_nbgrader("generate_assignment", lab, course), course)
    released = json.loads((course / "release" / lab.name / f"{lab.name}.ipynb").read_text())
    for student, member in half:
        for cell in released["cells"]:
            name = cell["metadata"].get("nbgrader", {})
            if name.get("solution"):
                task = name["grade_id"].removeprefix("answer-")
                cell["source"] = member.answers.get(task, lab.stubs[task])
        file = course / "submitted" / student / lab.name / f"{lab.name}.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(released))


def _start_nbgrader(what, lab, course):
    command = [sys.executable, "-m", "nbgrader", what, lab.name, f"--course={course}", "--log-level=WARN"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # nbgrader starts `alembic`
    threads = str(max(1, environment.cores() // JOBS))  # as labkit's own processes have it
    variables = {"OMP_NUM_THREADS": threads} | os.environ | {"PATH": path}
    with open(course / f"{what}.log", "wb") as log:
        return subprocess.Popen(command, cwd=course, stdout=log, stderr=subprocess.STDOUT, env=variables)


def _require_done(process, course):
    if process.wait():
        told = "\n".join(log.read_text() for log in sorted(course.glob("*.log")))
        sys.exit(f"nbgrader: ended with status {process.returncode}\n{told[-3000:]}")


def _require_full_marks(lab, course, expected):
    """Those with all points by labkit must have them by nbgrader too: it executed the same."""
    from nbgrader.api import Gradebook

    everything = sum(task.points for task in lab.manifest.tasks.values())
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for found in book.assignment_submissions(lab.name):
            student = expected[found.student_id]
            if student["kind"] == "right" and abs(found.score - everything) > 1e-6:
                sys.exit(f"nbgrader: {found.student_id} ({student['what']}): {found.score} of {everything} points")
