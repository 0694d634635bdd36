"""The instructor's files in the folder of grades: roster.csv and overrides.csv.

roster.csv: student_id, and further columns for grades.csv, such as last_name, first_name, email.
overrides.csv: student_id, task, points, comment; without a task, a comment on the whole submission.
"""

import csv
import io
import math
import unicodedata
from pathlib import Path

from grader import grade
from labkit.system.errors import LabkitError

COLUMNS = ("assignment", "student_id", "last_name", "first_name", "email", "score", "max_score")  # as nbgrader's
ROSTER, OVERRIDES = "roster.csv", "overrides.csv"
ABSENT = "nothing was handed in"
BY_HAND = "by hand"


def read(lab, folder: Path) -> tuple[dict[str, dict], list[dict]]:
    """The roster's rows by student_id, and the overrides, empty if the files are missing; raises LabkitError."""
    learners = {}
    for line, row in _rows(folder / ROSTER, ("student_id",)):
        if row["student_id"] in learners:
            raise LabkitError(f"{line}: {row['student_id']} is there twice")
        learners[row["student_id"]] = row
    columns = ("student_id", "task", "points", "comment")
    return learners, [_override(lab, line, row) for line, row in _rows(folder / OVERRIDES, columns)]


def _rows(file, columns):
    """(file and line, {column: text}) of each row that is not empty; none if there is no file."""
    if not file.is_file():
        return
    try:
        text = unicodedata.normalize("NFC", file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise LabkitError(f"{file}: not UTF-8; save it as CSV UTF-8") from None
    table = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=text.partition("\n")[0].count))
    try:
        rows = [(f"{file}, line {table.line_num}", [cell.strip() for cell in row]) for row in table]
    except csv.Error as error:
        raise LabkitError(f"{file}, line {table.line_num}: {error}; is a quotation mark missing?") from None
    names = rows[0][1] if rows else []
    spelt = {name: name.lower().replace(" ", "_") for name in names}  # Student_ID, Last Name
    names = [spelt[name] if spelt[name] in (*COLUMNS, *columns) else name for name in names]
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise LabkitError(f"{file}: the column {twice[0]} is there twice")
    if missing := [column for column in columns if column not in names]:
        raise LabkitError(f"{file}: the column {missing[0]} is missing")
    for line, cells in rows[1:]:
        if not any(cells):
            continue
        if len(cells) != len(names):
            raise LabkitError(f"{line}: does not have as many columns as the first line")
        row = dict(zip(names, cells))
        if not row["student_id"]:
            raise LabkitError(f"{line}: student_id is empty")
        yield line, row


def _override(lab, line, row):
    most = {name: points for name, (_, points) in lab.manifest.questions.items()}
    task, points = row["task"], None
    if task and task not in most:
        raise LabkitError(f"{line}: unknown task {task}; known: {', '.join(most)}")
    if row["points"]:
        try:
            points = float(row["points"].replace(",", "."))
        except ValueError:
            points = math.nan
        if not task or not 0 <= points <= most[task]:
            limit = f"from 0 to {most[task]:g}" if task else "given for a task"
            raise LabkitError(f"{line}: points must be {limit}, got {row['points']}")
    return {"student": row["student_id"], "task": task, "points": points, "comment": row["comment"]}


def applied(lab, results: list[dict], learners: dict, overrides: list, notify=lambda line: None) -> list[dict]:
    """The results with points and comments by hand, the roster's columns, and rows for learners without submission."""
    by_id = {result["student"]: result for result in results}
    persons = {student: _person(student, learners) for student in by_id}
    if learners:
        for student in (student for student, person in persons.items() if not person):
            notify(f"{ROSTER}: {student} is not in it")
        known = {person["student_id"] for person in persons.values() if person}
        for student in learners.keys() - known - by_id.keys():
            by_id[student], persons[student] = grade.nothing(lab, student, ABSENT), learners[student]
    for override in overrides:
        if override["student"] in by_id:
            by_id[override["student"]] = _overridden(by_id[override["student"]], override)
        else:
            notify(f"{OVERRIDES}: {override['student']} has no result")
    return [by_id[student] | {"person": persons[student] or {}} for student in sorted(by_id)]


def _person(student, learners):
    """The learner in the roster with this id, or with the name in front of the number that a platform adds; None."""
    name, _, number = student.rpartition("_")
    namesakes = [row for row in learners.values() if name and number.isdecimal() and name in _names(row)]
    return learners.get(student) or (namesakes[0] if len(namesakes) == 1 else None)


def _names(row):
    """A person's name as Moodle writes it, and as Canvas does: last name first, in small letters and digits only."""
    first, last = row.get("first_name") or "", row.get("last_name") or ""
    return f"{first} {last}", "".join(filter(str.isalnum, last + first)).lower()


def _overridden(result, override):
    if not override["task"]:
        return result | {"comment": "\n".join(filter(None, (result.get("comment"), override["comment"])))}
    entry = result["tasks"][override["task"]] | {"comment": override["comment"]}
    if override["points"] is not None:
        entry |= {"points": override["points"], "verdict": BY_HAND, "detail": "", "values": {}, "facts": []}
    tasks = result["tasks"] | {override["task"]: entry}
    return result | {"tasks": tasks, "score": grade.total(task["points"] for task in tasks.values())}
