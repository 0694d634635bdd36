"""The files of a graded class: grades, pages of learners, overview; of results made up here."""

import csv
import json
import random
import re

import pytest
from bs4 import BeautifulSoup
from running import contents

from grader import grade, lab, records, report, verdicts

VERDICTS = (
    "right", "partly right", "wrong", "error", "timed out", "crashed", "blocked by triangle", "missing", "not done",
)  # fmt: skip
HOSTILE = ["=HYPERLINK('x')", "+1", "-2", "@sum", "<script>alert(1)</script>", "王小明", "O'Brien, \"Bob\"", "50%23 #&",
           "{{ 7 * 7 }}"]  # fmt: skip


def result(lab, student, verdict_of=None, **details):
    """A result of the tiny lab; verdict_of: {task: verdict}, right where not given."""
    found = grade.nothing(lab, student, "")
    for name, entry in found["tasks"].items():
        verdict = (verdict_of or {}).get(name, "right")
        share = {"right": 1.0, "partly right": 0.5}.get(verdict, 0.0)
        for value in entry["values"].values():
            value |= {"points": share * value["max_points"], "detail": "" if share == 1 else "values differ"}
        points = share * entry["max_points"]
        entry |= {"verdict": verdict, "points": points, "detail": details.get(name, "")}
    return found | {"score": sum(entry["points"] for entry in found["tasks"].values())}


def a_class(lab):
    """Results of learners who did all kinds of things."""
    chance, tasks = random.Random(1), ("steps", "triangle", "total", "run")
    learners = [result(lab, f"learner-{number:02}", {task: chance.choice(VERDICTS) for task in tasks})
                for number in range(1, 13)]  # fmt: skip
    learners[7] = grade.nothing(lab, "learner-08", "notebook.ipynb: not a notebook (Expecting value, line 1)")
    learners[8]["stopped"] = "time"
    return learners


def page(file):
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


def test_a_class_written_twice_in_another_order_has_the_same_bytes(run_lab, tmp_path):
    learners = a_class(run_lab)
    report.write(run_lab, learners, tmp_path / "one")
    report.write(run_lab, learners[::-1], tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert {"grades.csv", "grades.json", "index.html", "feedback/learner-01.html"} <= set(contents(tmp_path / "one"))
    report.write(run_lab, learners[1:], tmp_path / "one")
    assert not (tmp_path / "one" / "feedback" / "learner-01.html").exists()


def test_grades_csv_has_nbgraders_columns_then_the_questions(run_lab, tmp_path):
    report.write(run_lab, [result(run_lab, "ada", {"triangle": "partly right"})], tmp_path)
    data = (tmp_path / "grades.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")  # by which Excel knows Unicode
    head, row = data.decode("utf-8-sig").splitlines()
    assert head == "assignment,student_id,last_name,first_name,email,score,max_score,steps,triangle,total,run"
    assert row == "tiny,ada,,,,12,14,2,2,2,6"


def test_hostile_names_and_details_stay_text(run_lab, tmp_path):
    detail = "<img src=x onerror=alert(1)> {{ 7 * 7 }} \x1b[31m \u202e\udcff"
    learners = [result(run_lab, name.replace("/", "_"), {"steps": "error"}, steps=detail) for name in HOSTILE]
    report.write(run_lab, learners, tmp_path)
    with open(tmp_path / "grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HOSTILE)
    assert all(not cell.lstrip().startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    pages = sorted((tmp_path / "feedback").iterdir())
    assert len(pages) == len(HOSTILE)
    for file in [*pages, tmp_path / "index.html"]:
        assert not page(file).select("script, main img, iframe, object, [onerror]"), file
        assert not set("\x1b\u202e") & set(file.read_text(encoding="utf-8"))
    assert "&lt;img src=x onerror=alert(1)&gt; {{ 7 * 7 }}" in pages[0].read_text(encoding="utf-8")
    linked = [anchor["href"] for anchor in page(tmp_path / "index.html").select("a")]
    assert "feedback/50%2523%20%23%26.html" in linked


def test_a_learners_page_names_nobody_else_and_reaches_nowhere(run_lab, tmp_path):
    learners = a_class(run_lab)
    report.write(run_lab, learners, tmp_path)
    for name in (learner["student"] for learner in learners):
        text = (tmp_path / "feedback" / f"{name}.html").read_text(encoding="utf-8")
        assert set(re.findall(r"learner-\d+", text)) == {name}
    for file in [tmp_path / "index.html", *(tmp_path / "feedback").iterdir()]:
        targets = [tag.get(key) for tag in page(file).find_all(True) for key in ("src", "href") if tag.get(key)]
        assert not [target for target in targets if re.match(r"[a-z+]+:|//", target) and target != "data:,"], file


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_said_in_words_with_what_to_do_next(run_lab, tmp_path, verdict):
    report.write(run_lab, [result(run_lab, "ada", {"total": verdict, "run": verdict})], tmp_path)
    sections = page(tmp_path / "feedback" / "ada.html").select("section")
    assert [section["id"] for section in sections] == ["steps", "triangle", "total", "run"]
    for section in sections[2:]:
        text = section.get_text(" ", strip=True)
        assert ("Next:" in text) == (verdict != "right")
        assert verdict.partition(" by")[0] in text and "{" not in text
    if verdict.startswith("blocked"):
        assert "“A schedule”" in sections[2].get_text()  # the title, not its key


def test_the_next_step_is_that_of_the_value_or_of_the_error():
    found = lab.load("cifar10")
    entry = result(found, "ada", {"steps": "wrong"})["tasks"]["steps"]
    entry["values"]["alone"]["detail"] = ""
    assert verdicts.in_words(found, "steps", entry)["next"] == found.manifest.tasks["steps"].values["shared"].next
    for error, said in (("NameError", verdicts.NOT_TAKEN), ("OSError", verdicts.NOT_THERE)):
        entry |= {"verdict": "error", "detail": f"raised {error}, line 2"}
        assert verdicts.in_words(found, "steps", entry)["next"] == said


def test_what_was_checked_has_its_title_or_its_name(run_lab, tmp_path):
    report.write(run_lab, [result(run_lab, "ada")], tmp_path)
    feedback = page(tmp_path / "feedback" / "ada.html")
    checks = {task: [row.get_text() for row in feedback.select(f"#{task} tbody th")] for task in ("triangle", "run")}
    of_the_run = ["the Run is complete", "the recipe follows the rules", "accuracy on the test images"]
    assert checks == {"triangle": ["the rates, step by step", "dtype"], "run": of_the_run}


def test_pages_can_be_read_by_a_screen_reader(run_lab, tmp_path):
    report.write(run_lab, a_class(run_lab), tmp_path)
    for file in (tmp_path / "index.html", tmp_path / "feedback" / "learner-01.html"):
        found = page(file)
        assert found.html["lang"] == "en" and found.title.get_text().startswith("A tiny lab")
        assert len(found.find_all("h1")) == 1
        for table in found.find_all("table"):
            assert table.caption.get_text(strip=True)
            assert all(header.get("scope") in ("col", "row") for header in table.find_all("th"))
            assert all(row.find("th") for row in table.find_all("tr"))
        assert len({tag["id"] for tag in found.select("[id]")}) == len(found.select("[id]"))


def test_the_overview_has_everybody_and_what_went_wrong(run_lab, tmp_path):
    secret = "rates = triangle(58, 0.7)\n\nTypeError: <b>\u202eno"
    learners = a_class(run_lab)
    learners[0]["errors"] = {"steps": [["probe-steps-5", secret]]}
    learners[1]["errors"] = {"steps": [["probe-steps-5", ""]]}
    report.write(run_lab, [*learners, grade.nothing(run_lab, "zoe", records.ABSENT)], tmp_path)
    found = page(tmp_path / "index.html")
    assert len(found.select(".wide tbody tr")) == 13 and len(found.select("a")) == 12
    [problem, stopped, absent] = [item.get_text() for item in found.select("li")]
    assert problem == "learner-08: notebook.ipynb: not a notebook (Expecting value, line 1)"
    assert stopped.startswith("learner-09: All cells together took") and absent == f"zoe: {records.ABSENT}"
    shown = found.find("details")
    assert shown.summary.get_text() == "learner-01, steps: TypeError: <b>\ufffdno"
    assert "probe-steps-5" in shown.get_text() and "rates = triangle(58, 0.7)" in shown.get_text()
    assert not any("58" in file.read_text(encoding="utf-8") for file in (tmp_path / "feedback").iterdir())


def test_grades_json_says_what_graded(run_lab, tmp_path):
    report.write(run_lab, [result(run_lab, "ada")], tmp_path, seed=5)
    tree = json.loads((tmp_path / "grades.json").read_text())
    assert (tree["seed"], tree["lab"]["digest"], tree["max_score"]) == (5, run_lab.digest, 14)
    assert {"labkit", "mindspore", "nbval"} <= tree["environment"].keys() and tree["results"][0]["student"] == "ada"
