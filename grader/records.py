"""What the instructor keeps in the folder of grades: roster.csv and overrides.csv.

Each grading reads both and adds them to what was computed; `results/` never has them, so that they survive a regrade.

roster.csv: student_id, and where known last_name, first_name, email, handed_in, due, and the columns by which Canvas
knows a learner. overrides.csv: student_id, task, points, comment; without a task it is a comment on all.
"""

import csv
import io
import math
import re
import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from grader import grade
from labkit.system.errors import LabkitError

ROSTER, OVERRIDES = "roster.csv", "overrides.csv"
KEPT, EXPORTS = {ROSTER, OVERRIDES}, {"moodle.csv", "canvas.csv"}
NAMES = ("last_name", "first_name", "email")
CANVAS = ("ID", "SIS User ID", "SIS Login ID", "Section")  # as Canvas writes them into its own export
ABSENT = "nothing was handed in"
BY_HAND = "by hand"


class RecordsError(LabkitError):
    """A roster or an override that cannot be: one line that names the file and the line."""


@dataclass(frozen=True)
class Records:
    """Both files, as read: learners by id, and rows of overrides."""

    learners: dict[str, dict] = field(default_factory=dict)
    overrides: list[dict] = field(default_factory=list)


def read(lab, folder: Path) -> Records:
    """Both files of a folder, as far as they are there; raises RecordsError."""
    learners = {}
    for where, row in _rows(folder / ROSTER, ("student_id",), (*NAMES, "handed_in", "due", *CANVAS)):
        if row["student_id"] in learners:
            raise RecordsError(f"{where}: {row['student_id']} is there twice")
        times = {key: _time(row[key], f"{where}: {key}") for key in ("handed_in", "due") if row.get(key)}
        learners[row["student_id"]] = row | {"handed_in": None, "due": None} | times
        _require_one_clock(lab, learners[row["student_id"]], where)
    overrides = [_override(lab, where, row) for where, row in _rows(
        folder / OVERRIDES, ("student_id", "task", "points", "comment"), ())]  # fmt: skip
    return Records(learners, overrides)


def _rows(file, needed, known):
    """(file and line, {column: text}) of each row that has anything; none where there is no file."""
    if not file.is_file():
        return
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RecordsError(f"{file}: not UTF-8; save it as CSV UTF-8") from None
    head = text.split("\n", 1)[0]
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        columns, rows = set(table.fieldnames or ()), [(table.line_num, row) for row in table]
    except csv.Error as error:
        raise RecordsError(f"{file}, line {table.line_num}: {error}; is a quotation mark missing?") from None
    if missing := [column for column in needed if column not in columns]:
        raise RecordsError(f"{file}: the column {missing[0]} is missing")
    if strange := sorted(columns - {*needed, *known}):
        raise RecordsError(f"{file}: the column {strange[0]} is none of {', '.join((*needed, *known))}")
    for line, row in rows:
        where = f"{file}, line {line}"
        if None in row or None in row.values():
            raise RecordsError(f"{where}: has another number of columns than the first line")
        row = {column: unicodedata.normalize("NFC", cell.strip()) for column, cell in row.items()}
        if any(row.values()):
            if not row["student_id"]:
                raise RecordsError(f"{where}: student_id is empty")
            yield where, row


def _override(lab, where, row):
    most = {name: task.points for name, task in lab.manifest.tasks.items()}
    if lab.manifest.run:
        most[lab.manifest.run.name] = sum(lab.manifest.run.points.values())
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


def _time(text, where):
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise RecordsError(f"{where} must be like 2026-12-01 18:00, got {text}") from None


def _require_one_clock(lab, learner, where):
    times = [learner["handed_in"], learner["due"] or (lab.manifest.late and lab.manifest.late.due)]
    if all(times) and len({time.tzinfo is None for time in times}) > 1:
        raise RecordsError(f"{where}: of handed_in and due one has a time zone and one has none")


def applied(lab, results: list[dict], records: Records, tell=lambda line: None) -> list[dict]:
    """The results with points and comments by hand, names, penalties, and a row for who handed in nothing."""
    by_id = {result["student"]: result for result in results}
    persons = {student: _person(student, records.learners) for student in by_id}
    if records.learners:
        for student in (student for student, person in persons.items() if not person):
            tell(f"{ROSTER}: {student} is not in it")
        taken = {person["student_id"] for person in persons.values() if person}
        for student in records.learners.keys() - taken - by_id.keys():
            by_id[student], persons[student] = grade.nothing(lab, student, ABSENT), records.learners[student]
    for one in records.overrides:
        if one["student"] in by_id:
            by_id[one["student"]] = _overridden(by_id[one["student"]], one)
        else:
            tell(f"{OVERRIDES}: {one['student']} has no row")
    return [_with_person(lab, by_id[student], persons[student]) for student in sorted(by_id)]


def _person(student, learners):
    """The learner of the roster whose id this is, or to whose name Moodle has added a number; None."""
    named = re.sub(r"_\d+$", "", student)
    alike = [one for one in learners.values() if named == f"{one.get('first_name')} {one.get('last_name')}"]
    return learners.get(student) or (alike[0] if len(alike) == 1 and named != student else None)


def _overridden(result, one):
    if not one["task"]:
        return result | {"comment": "\n".join(filter(None, (result.get("comment"), one["comment"])))}
    entry = result["tasks"][one["task"]] | {"comment": one["comment"]}
    if one["points"] is not None:
        given = {"points": entry["points"], "verdict": entry["verdict"]}
        entry |= {"points": one["points"], "verdict": BY_HAND, "detail": "", "graded": given}
    tasks = result["tasks"] | {one["task"]: entry}
    return result | {"tasks": tasks, "score": grade.total(task["points"] for task in tasks.values())}


def _with_person(lab, result, person):
    if not person:
        return result
    late, raw = lab.manifest.late, result["score"]
    handed_in, due = person["handed_in"], person["due"] or (late and late.due)
    found = {"person": {key: person.get(key, "") for key in ("student_id", *NAMES, *CANVAS)},
             "handed_in": str(handed_in or ""), "due": str(due or "")}  # fmt: skip
    if late and handed_in and due and handed_in > due:
        days = -(-(handed_in - due) // timedelta(days=1))  # each one that has begun
        penalty = min(raw, lab.manifest.max_score * min(late.at_most, days * late.per_day))
        found |= {"raw_score": raw, "penalty": grade.total([penalty]), "score": grade.total([raw, -penalty])}
    return result | found


def exports(lab, results: list[dict], cell, points) -> dict[str, str]:
    """The files that Moodle and Canvas import, as far as the roster knows by what they know a learner.

    cell: makes a text one that no spreadsheet computes; points: a number as text.
    """
    title, files = lab.manifest.title, {}
    known = [result for result in results if result.get("person")]
    persons = [(result["person"], result) for result in known]
    if any(person["email"] for person, _ in persons):
        rows = [("Email address", "First name", "Last name", title, f"{title} (feedback)")]
        rows += [(person["email"], person["first_name"], person["last_name"], points(result["score"]),
                  _comments(result)) for person, result in persons]  # fmt: skip
        files["moodle.csv"] = _csv(rows, cell)
    if any(person[key] for person, _ in persons for key in CANVAS[:3]):
        rows = [("Student", *CANVAS, title)]
        rows += [("    Points Possible", *[""] * len(CANVAS), points(lab.manifest.max_score))]
        rows += [(f"{person['last_name']}, {person['first_name']}", *(person[key] for key in CANVAS),
                  points(result["score"])) for person, result in persons]  # fmt: skip
        files["canvas.csv"] = _csv(rows, cell)
    return files


def _comments(result):
    said = {name: task.get("comment") for name, task in result["tasks"].items()}
    return "\n".join(filter(None, (result.get("comment"), *(f"{name}: {text}" for name, text in said.items() if text))))


def _csv(rows, cell):
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([[cell(text) for text in row] for row in rows])
    return table.getvalue()
