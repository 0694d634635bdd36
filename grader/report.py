"""What a graded class gets: grades.csv, grades.json, feedback/STUDENT.html, index.html with overview.svg.

The same results give the same bytes, in whatever order they come: no file has a time in it.
"""

import base64
import csv
import hashlib
import io
import itertools
import json
import platform
import re
import statistics
from pathlib import Path

import labkit
from grader import duplicates, grade, records, translation, verdicts
from labkit.system import environment
from labkit.system.files import atomic_write

# nbgrader's own, in its order (its export plugin); what labkit does not know stays empty.
COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip
TEMPLATES = Path(__file__).parent / "templates"
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # a spreadsheet computes a cell that begins so


def write(lab, results: list[dict], folder: Path, seed: int | None = None, language: str | None = None) -> None:
    """Write all files of a graded class into `folder`; seed: of the probes, the manifest's where not given.

    language: of the learners' pages, English by default; what is for the instructor is English. Raises LabError where
    the lab has no text in it.

    A result: {student, problem, stopped, score, max_score, answers: {task: digest}, tasks: {task: {title, points,
    max_points, verdict, detail, values: {name: {points, max_points, detail}}}}, errors: {task: [[cell, traceback]]}}.
    """
    folder = Path(folder)
    (folder / "feedback").mkdir(parents=True, exist_ok=True)
    results = sorted(results, key=lambda result: (result["student"], json.dumps(result, sort_keys=True)))
    present = [result["student"] for result in results if result["problem"] != records.ABSENT]
    page_of = dict(zip(present, feedback_names(present), strict=True))
    found = graded_by()
    atomic_write(folder / "grades.csv", grades_csv(lab, results).encode("utf-8-sig"))  # Excel needs the mark
    made = records.exports(lab, results, _cell, points)
    for name in records.EXPORTS:
        if name in made:
            atomic_write(folder / name, made[name].encode("utf-8"))
        else:
            (folder / name).unlink(missing_ok=True)
    atomic_write(folder / "grades.json", grades_json(lab, results, found, seed))
    template = _templates()
    common = {"lab": {"name": lab.name, "title": lab.manifest.title, "digest": lab.digest}, "environment": found}
    learners = [_feedback(lab, result, page_of.get(result["student"])) for result in results]
    say, said = speaker(lab, language), learners
    if language:
        said = [_feedback(lab, result, page_of.get(result["student"]), say) for result in results]
    for learner in said:
        if learner["page"]:
            page = template.get_template("feedback.html")
            text = page.render(**common, **learner, say=say, language=language or "en")
            atomic_write(folder / learner["page"], text)
    overview = _overview(lab, results, learners)
    picture, overview["size"] = _picture(overview)
    atomic_write(folder / "overview.svg", picture)
    atomic_write(
        folder / "index.html",
        template.get_template("overview.html").render(**common, **overview, **_script(), say=str, language="en"),
    )


def speaker(lab, language: str | None):
    """A function that translates texts of a learner's page; see `translation.speaker`."""
    return translation.speaker(language, "grader/feedback", f"labs/{lab.name}/grading")


def graded_by() -> dict[str, str]:
    """What graded: versions and platform, but no date."""
    versions = {name: environment.version_of(name) or "not installed" for name in ("mindspore", "numpy", "nbval")}
    system = f"{platform.system()} {platform.machine()}"
    return {"labkit": labkit.__version__, "python": platform.python_version(), **versions, "platform": system}


def points(number: float) -> str:
    """Points as one writes them: 3, 2.5, 0.333; no noise of floating point."""
    text = f"{number:.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def shown(text) -> str:
    """A text that any file and page can hold: control and direction characters and lone surrogates become U+FFFD."""
    strange = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(strange, "\ufffd", str(text).replace("\r\n", "\n"))


def questions(lab) -> dict[str, tuple[str, float]]:
    """Title and points of each question of the manifest, the Run last."""
    found = {name: (task.title, task.points) for name, task in lab.manifest.tasks.items()}
    run = lab.manifest.run
    return found | ({run.name: (run.title, sum(run.points.values()))} if run else {})


def grades_csv(lab, results) -> str:
    """nbgrader's columns, then one per question; a text that a spreadsheet would compute gets an apostrophe."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow([*COLUMNS, *questions(lab)])
    for result in results:
        score = result["score"]
        known = {"assignment": _cell(lab.name), "student_id": _cell(result["student"]),
                 "raw_score": points(result.get("raw_score", score)), "score": points(score),
                 "late_submission_penalty": points(result.get("penalty", 0)),
                 "max_score": points(lab.manifest.max_score),
                 "duedate": _cell(result.get("due", "")), "timestamp": _cell(result.get("handed_in", ""))}  # fmt: skip
        known |= {key: _cell(result.get("person", {}).get(key, "")) for key in records.NAMES}
        given = [points(result["tasks"].get(name, {}).get("points", 0)) for name in questions(lab)]
        rows.writerow([known.get(column, "") for column in COLUMNS] + given)
    return table.getvalue()


def _cell(text):
    text = shown(text)
    return f"'{text}" if text.lstrip().startswith(FORMULA) or text[:1] in ("\t", "\n") else text


def grades_json(lab, results, found, seed=None) -> str:
    """All results with what decided them: the lab's digest, the seed, the environment."""
    tree = {
        "lab": {"name": lab.name, "title": lab.manifest.title, "digest": lab.digest},
        "seed": lab.manifest.seed if seed is None else seed,
        "environment": found,
        "max_score": lab.manifest.max_score,
        "results": results,
    }
    return json.dumps(tree, indent=1, sort_keys=True, allow_nan=False) + "\n"


def feedback_names(students: list[str]) -> list[str]:
    """File names of the learners' pages: the learner's name, changed where a file or an address cannot have it.

    No two learners share a file, even if the file system ignores case; which of them keeps the plain name does not
    depend on their order.
    """
    taken, names = set(), {}
    for place, student in sorted(enumerate(students), key=lambda pair: pair[1]):
        name = re.sub(r"[^\w.@+-]", "_", student)[:60].lstrip(".-") or "learner"
        if name != student:
            name += "-" + hashlib.sha256(student.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        numbered = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        unique = next(one for one in numbered if one.casefold() not in taken)
        taken.add(unique.casefold())
        names[place] = f"{unique}.html"
    return [names[place] for place in range(len(students))]


def _templates():
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"points": points, "percent": lambda share: f"{100 * share:.1f}"}
    return found


def _script():
    """The overview's script, and its digest, by which the page's policy allows it and no other."""
    text = (TEMPLATES / "sort.js").read_text(encoding="utf-8")
    return {"script": text, "script_digest": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}


def _errors(results):
    """(student, task, last line, whole text) of all errors: they may tell of probes."""
    found = [
        (result["student"], task, cell, shown(text))
        for result in results
        for task, errors in result.get("errors", {}).items()
        for cell, text in errors
    ]
    return [(shown(who), task, _last(text), f"{cell}\n\n{text}") for who, task, cell, text in found]


def _last(text):
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:200]


def _tasks(lab, result, say):
    """The questions of a result; of one with a problem none was graded, so no verdict about an answer holds."""
    entries = result["tasks"]
    if result["problem"]:
        entries = {name: entry for name, entry in entries.items() if "graded" in entry}
    return [_task(lab, name, entries.get(name), say) for name in questions(lab)]


def _task(lab, name, entry, say):
    """A question of a result, as the pages show it."""
    title, most = questions(lab)[name]
    entry = entry or {"points": 0.0, "verdict": "", "detail": "", "values": {}}
    titles = verdicts.titles(lab, name)
    values = [
        value | {"title": shown(say(titles.get(key) or key.replace("_", " "))), "said": say(_said(value))}
        for key, value in entry["values"].items()
    ]
    return {
        "name": name,
        "title": say(title),
        "points": entry["points"],
        "max_points": most,
        "detail": "" if verdicts.said_already(entry) else say(shown(entry["detail"])),
        "values": values if _worth_a_table(entry, entry.get("graded", entry)["verdict"]) else [],
        "comment": shown(entry.get("comment", "")),
        "facts": [(say(shown(fact)), say(shown(text))) for fact, text in entry.get("facts", [])],
        "outcome": verdicts.outcome(entry["verdict"], entry["points"], most),
        **verdicts.in_words(lab, name, entry["verdict"], entry["detail"], _differing(entry), say),
    }


def _differing(entry):
    """Names of a result's values that were compared and differ: not those that no probe came to."""
    differ = {name: value["detail"] for name, value in entry["values"].items() if value["detail"]}
    return tuple(name for name, detail in differ.items() if detail not in grade.NOT_COMPARED)


def _worth_a_table(entry, verdict):
    """Whether it says more than the task's own line to show each value of a task."""
    if verdict in ("missing", "not done"):
        return False
    return len(entry["values"]) > 1 or verdict in ("wrong", "partly right")


def _said(value):
    return shown(value["detail"]) or ("right" if value["points"] >= value["max_points"] else "not right")


def _feedback(lab, result, page, say=str):
    most = lab.manifest.max_score
    return {
        "student": shown(result["student"]),
        "page": f"feedback/{page}" if page else "",
        "problem": say(shown(result["problem"])),
        "stopped": verdicts.stopped(lab, result["stopped"], say),
        "score": result["score"],
        "max_score": most,
        "share": min(1.0, result["score"] / most) if most else 0.0,
        "comment": shown(result.get("comment", "")),
        "late": {key: result.get(key) for key in ("raw_score", "penalty", "handed_in", "due")},
        "tasks": _tasks(lab, result, say),
        "by_hand": any(entry["verdict"] == records.BY_HAND for entry in result["tasks"].values()),
    }


def _overview(lab, results, rows):
    found = []
    for number, (name, (title, max_points)) in enumerate(questions(lab).items()):
        column = [row["tasks"][number] for row in rows]
        counts = {outcome: sum(task["outcome"] == outcome for task in column) for outcome in verdicts.OUTCOMES}
        mean = statistics.fmean([task["points"] for task in column]) if column else 0.0
        found.append({"name": name, "title": title, "max_points": max_points, "mean": mean, "counts": counts})
    problems = [(row["student"], row["problem"] or row["stopped"]) for row in rows if row["problem"] or row["stopped"]]
    scores = [row["score"] for row in rows] or [0.0]
    shares = [row["share"] for row in rows]
    alike = [
        group | {"students": [shown(student) for student in group["students"]]}
        for group in duplicates.groups(lab, results)
    ]
    middle = f"{points(round(statistics.fmean(scores), 2))} of {points(lab.manifest.max_score)}"
    return {
        "rows": rows,
        "questions": found,
        "outcomes": verdicts.OUTCOMES,
        "tiles": [
            ("learners", len(results)),
            ("mean score", middle),
            ("median score", points(statistics.median(scores))),
            ("with all points", sum(share >= 1 for share in shares)),
            ("with a problem", len(problems)),
            ("groups with identical answers", len(alike)),
        ],
        "problems": problems,
        "errors": _errors(results),
        "duplicates": alike,
        "comparable": duplicates.compared(lab, results),
        "shares": shares,
        "alternative": _alternative(found, shares),
    }


def _alternative(found, shares):
    """The figure in words."""
    full = {question["name"]: question["counts"]["all points"] for question in found}
    most, least = (
        f"{', '.join(name for name in full if full[name] == number)} ({number})"
        for number in (max(full.values(), default=0), min(full.values(), default=0))
    )
    return (
        f"Bars, a question each: how many of {len(shares)} learners got all, some or no points. Most got all points in "
        f"{most}, fewest in {least}. Histogram of scores: {sum(share >= 0.5 for share in shares)} of {len(shares)} "
        "learners have half of the points or more."
    )


def _picture(overview):
    """The figure as SVG, the same bytes each time, and its width and height; its text takes the page's colour."""
    import matplotlib

    ink = "#123456"  # nobody's colour, to find it again in the SVG
    settings = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
    with matplotlib.rc_context({"svg.hashsalt": "labkit", "svg.fonttype": "path", **settings}):
        from grader.class_figure import class_overview

        counts = {question["name"]: question["counts"] for question in overview["questions"]}
        figure = class_overview(counts, overview["shares"])
        drawn = io.StringIO()
        # Not cropped: the size is then the figure's own.
        with matplotlib.rc_context({"savefig.bbox": "standard"}):
            figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = drawn.getvalue().replace(ink, "currentColor").replace("#e5e5e5", "#80808055")
    style = "svg{color:#1b1f24}@media(prefers-color-scheme:dark){svg{color:#e6e9ec}}"
    text = text.replace("<defs>", f"<style>{style}</style>\n <defs>", 1)
    width, height = figure.get_size_inches()
    return text, (round(96 * width), round(96 * height))
