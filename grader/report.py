"""Write the results of a class: grades.csv, grades.json, feedback/STUDENT.html, index.html.

The same results give the same bytes, in whatever order they arrive: no file contains a time.
"""

import csv
import io
import json
import platform
import statistics
from pathlib import Path

import labkit
from grader import records, translation, verdicts
from grader.records import COLUMNS
from grader.submissions import file_name, shown
from labkit.system import environment
from labkit.system.files import atomic_write

TEMPLATES = Path(__file__).parent / "templates"
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t")  # in a spreadsheet, formulas begin with these


def write(lab, results: list[dict], folder: Path, seed: int | None = None, language: str | None = None) -> None:
    """Write all files of a graded class into `folder`; seed: of the probes, by default the manifest's.

    language: of the learners' pages, English by default; the instructor's pages are always English. Raises LabError if
    the lab is not translated.
    """
    say = translation.speaker(lab.name, language)
    versions = {name: environment.version_of(name) or "not installed" for name in ("mindspore", "numpy", "nbval")}
    versions |= {"labkit": labkit.__version__, "python": platform.python_version()}
    results = sorted(results, key=lambda result: result["student"])
    (folder / "feedback").mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "grades.csv", grades_csv(lab, results).encode("utf-8-sig"))  # Excel needs the mark
    tree = {
        "lab": {"name": lab.name, "title": lab.manifest.title, "digest": lab.digest},
        "seed": lab.manifest.seed if seed is None else seed,
        "environment": versions | {"platform": f"{platform.system()} {platform.machine()}"},
        "max_score": lab.manifest.max_score,
        "results": results,
    }
    atomic_write(folder / "grades.json", json.dumps(tree, indent=1, sort_keys=True, allow_nan=False) + "\n")
    templates, common = _templates(), {"lab": tree["lab"], "environment": tree["environment"]}
    page, pages = templates.get_template("feedback.html"), set()
    for result in results:
        if result["problem"] != records.ABSENT:
            pages.add(file := folder / "feedback" / f"{file_name(result['student'])}.html")
            text = page.render(**common, **_feedback(lab, result, say), say=say, language=language or "en")
            atomic_write(file, text)
    for old in set((folder / "feedback").glob("*.html")) - pages:
        old.unlink()
    overview = templates.get_template("overview.html")
    atomic_write(folder / "index.html", overview.render(**common, **_overview(lab, results), say=str, language="en"))


def points(number: float) -> str:
    """Points as text: 3, 2.5, 0.333; no floating-point noise."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def grades_csv(lab, results) -> str:
    """nbgrader's columns, one per question, and the other columns of roster.csv; no cell is a spreadsheet formula."""
    questions = lab.manifest.questions
    more = [name for name in dict.fromkeys(key for result in results for key in result.get("person", {}))
            if name not in (*COLUMNS, *questions)]  # fmt: skip
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow([*COLUMNS, *questions, *map(_cell, more)])
    for result in results:
        row = {key: _cell(text) for key, text in result.get("person", {}).items()}
        row |= {"assignment": lab.name, "student_id": _cell(result["student"]), "score": points(result["score"])}
        row |= {"max_score": points(lab.manifest.max_score)}
        row |= {name: points(result["tasks"][name]["points"]) for name in questions}
        rows.writerow([row.get(column, "") for column in (*COLUMNS, *questions, *more)])
    return table.getvalue()


def _cell(text):
    text = shown(text)
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text


def _templates():
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.filters |= {"points": points, "file_name": file_name, "shown": shown}
    return templates


def _feedback(lab, result, say=str):
    entries = result["tasks"]
    if result["problem"]:  # no task was graded, so verdicts about answers mean nothing
        entries = {name: entry for name, entry in entries.items() if entry["verdict"] == records.BY_HAND}
    return {
        "student": shown(result["student"]),
        "problem": say(shown(result["problem"])),
        "left_out": result["left_out"],
        "stopped": verdicts.stopped(lab, result["stopped"], say),
        "score": result["score"],
        "max_score": lab.manifest.max_score,
        "comment": shown(result.get("comment", "")),
        "tasks": [_task(lab, name, entries[name], say) for name in lab.manifest.questions if name in entries],
    }


def _task(lab, name, entry, say):
    """A question of a result, as the learner's page shows it."""
    task = lab.manifest.tasks.get(name)
    titles = {key: value.title for key, value in task.values.items()} if task else verdicts.RUN_TITLES
    values = []
    for key, value in entry["values"].items():
        texts = {"title": say(titles[key] or key.replace("_", " ")), "result": say(shown(value["detail"]) or "right")}
        values.append(value | texts)
    ran = entry["verdict"] not in ("missing", "not done")
    return {
        "name": name,
        "title": say(entry["title"]),
        "points": entry["points"],
        "max_points": entry["max_points"],
        "detail": say(shown(entry["detail"])),
        "values": values if ran and (len(values) > 1 or entry["verdict"] == "wrong") else [],
        "comment": shown(entry.get("comment", "")),
        "facts": [(say(fact), shown(text)) for fact, text in entry.get("facts", [])],
        **verdicts.in_words(lab, name, entry, say),
    }


def _overview(lab, results):
    questions = []
    for name, (title, most) in lab.manifest.questions.items():
        column = [result["tasks"][name]["points"] for result in results]
        questions.append({
            "name": name, "title": title, "max_points": most, "mean": round(statistics.fmean(column or [0]), 2),
            "full": sum(number >= most for number in column), "nothing": column.count(0),
        })  # fmt: skip
    return {
        "questions": questions,
        "max_score": lab.manifest.max_score,
        "mean": round(statistics.fmean([result["score"] for result in results] or [0]), 2),
        "results": results,
        "shades": {verdict: words[0] for verdict, words in verdicts.WORDS.items()},
        "absent": records.ABSENT,
        "problems": [(result["student"], text) for result in results for text in
                     (shown(result["problem"]), verdicts.stopped(lab, result["stopped"]), *result["left_out"]) if text],
        "errors": [(result["student"], task, cell, shown(text)) for result in results
                   for task, errors in result["errors"].items() for cell, text in errors],
    }  # fmt: skip
