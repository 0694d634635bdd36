"""What the instructor keeps in the folder of grades: roster.csv and overrides.csv.

roster.csv: student_id, and what grades.csv is to have of each learner, such as last_name, first_name, email.
overrides.csv: student_id, task, points, comment; without a task it is a comment on all.
"""

import csv
import io
import math
import re
import unicodedata
from pathlib import Path

from grader import grade
from labkit.system.errors import LabkitError

ROSTER, OVERRIDES = "roster.csv", "overrides.csv"
ABSENT = "nothing was handed in"
BY_HAND = "by hand"


class RecordsError(LabkitError):
    """A roster or an override that cannot be: one line that names the file and the line."""


def read(lab, folder: Path) -> tuple[dict[str, dict], list[dict]]:
    """The roster's rows by student_id, and the overrides, as far as the files are there; raises RecordsError."""
    learners = {row["student_id"]: row for _, row in _rows(folder / ROSTER, ("student_id",))}
    columns = ("student_id", "task", "points", "comment")
    return learners, [_override(lab, where, row) for where, row in _rows(folder / OVERRIDES, columns)]


def _rows(file, columns):
    """(file and line, {column: text}) of each row that has anything; none where there is no file."""
    if not file.is_file():
        return
    try:
        text = unicodedata.normalize("NFC", file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise RecordsError(f"{file}: not UTF-8; save it as CSV UTF-8") from None
    head = text.split("\n", 1)[0]
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        rows = [(f"{file}, line {table.line_num}", row) for row in table]
    except csv.Error as error:
        raise RecordsError(f"{file}, line {table.line_num}: {error}; is a quotation mark missing?") from None
    if missing := [column for column in columns if column not in (table.fieldnames or ())]:
        raise RecordsError(f"{file}: the column {missing[0]} is missing")
    for where, row in rows:
        if None in row or None in row.values():
            raise RecordsError(f"{where}: has another number of columns than the first line")
        row = {column: cell.strip() for column, cell in row.items()}
        if any(row.values()) and not row["student_id"]:
            raise RecordsError(f"{where}: student_id is empty")
        if row["student_id"]:
            yield where, row


def _override(lab, where, row):
    most = {name: points for name, (_, points) in lab.manifest.questions.items()}
    task, points = row["task"], None
    if task and task not in most:
        raise RecordsError(f"{where}: task {task} is none of {', '.join(most)}")
    if row["points"]:
        try:
            points = float(row["points"].replace(",", "."))
        except ValueError:
            points = math.nan
        if not task or not 0 <= points <= most[task]:
            limit = f"from 0 to {most[task]:g}" if task else "those of a task"
            raise RecordsError(f"{where}: points must be {limit}, got {row['points']}")
    return {"student": row["student_id"], "task": task, "points": points, "comment": row["comment"]}


def applied(lab, results: list[dict], learners: dict, overrides: list, tell=lambda line: None) -> list[dict]:
    """The results with points and comments by hand, the roster's columns, and a row for who handed in nothing."""
    by_id = {result["student"]: result for result in results}
    persons = {student: _person(student, learners) for student in by_id}
    if learners:
        for student in (student for student, person in persons.items() if not person):
            tell(f"{ROSTER}: {student} is not in it")
        known = {person["student_id"] for person in persons.values() if person}
        for student in learners.keys() - known - by_id.keys():
            by_id[student], persons[student] = grade.nothing(lab, student, ABSENT), learners[student]
    for override in overrides:
        if override["student"] in by_id:
            by_id[override["student"]] = _overridden(by_id[override["student"]], override)
        else:
            tell(f"{OVERRIDES}: {override['student']} has no result")
    return [by_id[student] | {"person": persons[student] or {}} for student in sorted(by_id)]


def _person(student, learners):
    """The learner of the roster whose id this is, or to whose name Moodle has added a number; None."""
    named = re.sub(r"_\d+$", "", student)
    alike = [one for one in learners.values() if named == f"{one.get('first_name')} {one.get('last_name')}"]
    return learners.get(student) or (alike[0] if len(alike) == 1 and named != student else None)


def _overridden(result, override):
    if not override["task"]:
        return result | {"comment": "\n".join(filter(None, (result.get("comment"), override["comment"])))}
    entry = result["tasks"][override["task"]] | {"comment": override["comment"]}
    if override["points"] is not None:
        entry |= {"points": override["points"], "verdict": BY_HAND, "detail": "", "values": {}, "facts": []}
    tasks = result["tasks"] | {override["task"]: entry}
    return result | {"tasks": tasks, "score": grade.total(task["points"] for task in tasks.values())}
