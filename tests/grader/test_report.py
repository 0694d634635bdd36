"""The files of a graded class: grades, pages of learners, overview; of results made up here."""

import csv
import json
import random
import re
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup

from grader import duplicates, lab, report, verdicts
from tests.grader.conftest import with_run

VERDICTS = (
    "right",
    "partly right",
    "wrong",
    "error",
    "timed out",
    "crashed",
    "blocked by triangle",
    "missing",
    "not done",
)
HOSTILE = [
    "=HYPERLINK(\"http://evil.example\")", "+1", "-2", "@sum", "<script>alert(1)</script>", "../../etc/passwd", "a/b",
    "", ".", "..", "王小明", "Anna", "anna", "O'Brien, \"Bob\"", "line\nbreak", "\udcff", "x" * 300, "50%23 ?#&",
    "{{ 7 * 7 }}", "\u202egnp.exe",
]  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny lab, with a Run."""
    return with_run(tmp_path_factory.mktemp("labs") / "tiny", accuracy=0.9, recipe=1, reached=2)


def entry(title, values, verdict="right", detail="", share=1.0):
    """A task of a result; each value gives this share of its points."""
    given = {
        name: {"points": share * most, "max_points": most, "detail": "" if share == 1 else "values differ"}
        for name, most in values.items()
    }
    scored, most = sum(value["points"] for value in given.values()), sum(values.values())
    return {
        "title": title, "points": scored, "max_points": most, "verdict": verdict, "detail": detail, "values": given
    }  # fmt: skip


def result(student, verdict_of=None, answers=None, problem="", stopped="", **details):
    """A result of the tiny lab; verdict_of: {task: verdict}, right where not given."""
    values = {
        "steps": ("Steps", {"steps": 2}),
        "triangle": ("A schedule", {"rates": 3, "dtype": 1}),
        "total": ("Its total", {"total": 2}),
        "run": ("A trained network", {"complete": 1, "recipe": 1, "accuracy": 2}),
    }
    tasks = {}
    for name, (title, most) in values.items():
        verdict = (verdict_of or {}).get(name, "right")
        share = {"right": 1.0, "partly right": 0.5}.get(verdict, 0.0)
        tasks[name] = entry(title, most, verdict, details.get(name, ""), share)
    score = sum(task["points"] for task in tasks.values())
    return {
        "student": student, "problem": problem, "stopped": stopped, "score": score, "max_score": 12.0, "tasks": tasks,
        "answers": answers or {},
    }  # fmt: skip


def a_class(count=30, seed=1):
    """Results of `count` learners, some of whom did all kinds of things."""
    chance = random.Random(seed)
    weights = (12, 3, 3, 1, 1, 1, 1, 1, 2)
    learners = []
    for number in range(count):
        verdict_of = {task: chance.choices(VERDICTS, weights)[0] for task in ("steps", "triangle", "total", "run")}
        learners.append(
            result(f"learner-{number + 1:02}", verdict_of, {"triangle": f"{number // 2 if number < 4 else number}"})
        )
    learners[7]["problem"] = "notebook.ipynb: not a notebook (Expecting value, line 1)"
    learners[8]["stopped"] = "time"
    return learners


def files_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def page(file):
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


def test_a_class_written_twice_in_another_order_has_the_same_bytes(tiny, tmp_path):
    learners = a_class()
    report.write(tiny, learners, tmp_path / "one")
    report.write(tiny, learners[::-1], tmp_path / "two")
    report.write(tiny, learners, tmp_path / "two")
    one = files_of(tmp_path / "one")
    assert one == files_of(tmp_path / "two")
    assert len([name for name in one if name.startswith("feedback/")]) == 30
    assert {name for name in one if "/" not in name} == {"grades.csv", "grades.json", "index.html", "overview.svg"}


def test_grades_csv_has_nbgraders_columns_then_the_questions(tiny, tmp_path):
    report.write(tiny, [result("zoe", {"triangle": "partly right"}), result("adam", {"steps": "missing"})], tmp_path)
    header, *rows = csv.reader((tmp_path / "grades.csv").read_text(encoding="utf-8-sig").splitlines())
    assert header == [
        "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
        "late_submission_penalty", "score", "max_score", "steps", "triangle", "total", "run",
    ]  # fmt: skip
    assert rows == [
        ["tiny", "", "", "adam", "", "", "", "10", "0", "10", "12", "0", "4", "2", "4"],
        ["tiny", "", "", "zoe", "", "", "", "10", "0", "10", "12", "2", "2", "2", "4"],
    ]


def test_points_have_no_noise():
    assert [report.points(number) for number in (0.1 + 0.2, 3.0, 0, -0.0, 1 / 3, 100, 2.50)] == [
        "0.3", "3", "0", "0", "0.333", "100", "2.5"
    ]  # fmt: skip


def test_no_cell_of_the_csv_is_a_formula(tiny, tmp_path):
    report.write(tiny, [result(name) for name in HOSTILE], tmp_path)
    with open(tmp_path / "grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HOSTILE)
    assert all(not cell.lstrip().startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    assert {"'+1", "'-2", "'@sum", "王小明", 'O\'Brien, "Bob"', "line\nbreak"} <= {row["student_id"] for row in rows}


def test_a_missing_task_has_no_points(tiny, tmp_path):
    lost = result("lost", problem="notebook.ipynb: not JSON") | {"tasks": {}, "score": 0.0}
    report.write(tiny, [lost], tmp_path)
    row = next(csv.DictReader((tmp_path / "grades.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert (row["score"], row["max_score"], row["steps"], row["run"]) == ("0", "12", "0", "0")
    text = page(tmp_path / "feedback" / "lost.html").get_text()
    assert "notebook.ipynb: not JSON" in text


def test_who_could_not_be_graded_gets_no_verdict_on_answers(tiny, tmp_path):
    lost = result("lost", dict.fromkeys(("steps", "triangle", "total", "run"), "missing"), problem="lab.ipynb: damaged")
    report.write(tiny, [lost, result("zoe", {"steps": "missing"})], tmp_path)
    found = page(tmp_path / "feedback" / "lost.html")
    assert not found.select("section, table") and "answer cell" not in found.get_text()
    assert "lab.ipynb: damaged" in found.get_text() and "of 12 points" in found.get_text()
    overview = page(tmp_path / "index.html")
    steps = [cell.get_text() for cell in overview.find("table").select("tbody tr")[0].find_all("td")]
    assert steps[2:] == ["0", "0", "0", "0", "1", "1"]
    assert "missing" not in overview.select(".class tbody tr")[0].get_text()


def test_outcomes_are_told_apart_by_lightness_too():
    def lightness(colour):
        red, green, blue = ((int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
        return 116 * (0.2126 * red + 0.7152 * green + 0.0722 * blue) ** (1 / 3) - 16

    shades = sorted(lightness(colour) for colour, _ in verdicts.OUTCOMES.values())
    assert all(above - below > 5 for below, above in zip(shades, shades[1:])), shades


def test_grades_json_says_what_graded(tiny, tmp_path):
    learners = a_class()
    report.write(tiny, learners, tmp_path, seed=99)
    found = json.loads((tmp_path / "grades.json").read_text(encoding="utf-8"))
    assert found["lab"] == {"name": "tiny", "title": "A tiny lab", "digest": tiny.digest}
    assert (found["seed"], found["max_score"]) == (99, 12)
    assert found["results"] == learners
    assert set(found["environment"]) == {"labkit", "python", "mindspore", "numpy", "nbval", "platform"}


def test_hostile_names_and_details_stay_text(tiny, tmp_path):
    learners = [
        result(name, {"steps": "error"}, steps="<img src=x onerror=alert(1)> {{ 7 * 7 }} \x1b[31m ]]>")
        for name in HOSTILE
    ]
    report.write(tiny, learners, tmp_path / "out")
    pages = sorted((tmp_path / "out" / "feedback").iterdir())
    assert len({file.name.casefold() for file in pages}) == len(HOSTILE)
    assert {file.name for file in tmp_path.iterdir()} == {"out"}
    linked = {anchor["href"] for anchor in page(tmp_path / "out" / "index.html").select(".class a")}
    assert linked == {f"feedback/{quote(file.name)}" for file in pages}
    for file in [*pages, tmp_path / "out" / "index.html"]:
        found = page(file)
        own = [script.extract().string for script in found.select("main > script")]
        assert own == ([report.TEMPLATES.joinpath("sort.js").read_text()] if file.name == "index.html" else []), file
        assert not found.select("script, main img:not([src='overview.svg']), iframe, object, [onerror]"), file
        assert "\x1b" not in file.read_text(encoding="utf-8")
    text = pages[0].read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=alert(1)&gt; {{ 7 * 7 }}" in text


def test_names_of_pages_do_not_depend_on_the_order_of_learners():
    there, back = report.feedback_names(HOSTILE), report.feedback_names(HOSTILE[::-1])
    assert there == back[::-1]
    assert {"Anna.html", "anna-2.html", "王小明.html"} <= set(there)
    assert all(len(name.encode()) < 256 and "/" not in name and not name.startswith(".") for name in there)


def test_a_learners_page_names_nobody_else_and_reaches_nowhere(tiny, tmp_path):
    learners = a_class()
    report.write(tiny, learners, tmp_path)
    names = [learner["student"] for learner in learners]
    for name in names:
        text = (tmp_path / "feedback" / f"{name}.html").read_text(encoding="utf-8")
        assert set(re.findall(r"learner-\d+", text)) == {name}
    for file in [tmp_path / "index.html", *(tmp_path / "feedback").iterdir()]:
        found = page(file)
        targets = [tag.get(key) for tag in found.find_all(True) for key in ("src", "href") if tag.get(key)]
        assert not [target for target in targets if re.match(r"[a-z+]+:|//", target) and target != "data:,"], file


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_said_in_words_with_what_to_do_next(tiny, tmp_path, verdict):
    report.write(tiny, [result("ada", {"total": verdict, "run": verdict})], tmp_path)
    sections = page(tmp_path / "feedback" / "ada.html").select("section")
    assert [section["id"] for section in sections] == ["steps", "triangle", "total", "run"]
    for section in sections[2:]:
        text = section.get_text(" ", strip=True)
        assert ("Next:" in text) == (verdict != "right")
        assert verdict.partition(" by")[0] in text and "{" not in text
    if verdict.startswith("blocked"):
        assert "“A schedule”" in sections[2].get_text()  # the title, not its key


def test_what_was_checked_has_its_title_or_its_name(tiny, tmp_path):
    report.write(tiny, [result("ada")], tmp_path)
    feedback = page(tmp_path / "feedback" / "ada.html")
    checks = {task: [row.get_text() for row in feedback.select(f"#{task} tbody th")] for task in ("triangle", "run")}
    of_the_run = ["the Run is complete", "the recipe keeps to the rules", "accuracy on the test images"]
    assert checks == {"triangle": ["the rates, step by step", "dtype"], "run": of_the_run}


@pytest.mark.parametrize("name", lab.names())
def test_the_courses_own_labs_have_a_title_for_each_value(name):
    for task, described in lab.load(name).manifest.tasks.items():
        assert not [value for value, its in described.values.items() if not its.title], task


def test_the_facts_of_a_run_are_shown(tiny, tmp_path):
    ada = result("ada", {"run": "partly right"})
    ada["tasks"]["run"]["facts"] = [["network", "resnet8"], ["accuracy", "<b>0.93</b>"]]
    report.write(tiny, [ada], tmp_path)
    facts = page(tmp_path / "feedback" / "ada.html").select("#run dd")
    assert [fact.get_text() for fact in facts] == ["resnet8", "<b>0.93</b>"]


def test_pages_can_be_read_by_a_screen_reader(tiny, tmp_path):
    report.write(tiny, a_class(), tmp_path)
    for file in (tmp_path / "index.html", tmp_path / "feedback" / "learner-01.html"):
        found = page(file)
        assert found.html["lang"] == "en" and found.title.get_text().startswith("A tiny lab")
        assert len(found.find_all("h1")) == 1
        for table in found.find_all("table"):
            assert table.caption.get_text(strip=True)
            assert all(header.get("scope") in ("col", "row") for header in table.find_all("th"))
            assert all(row.find("th") for row in table.find_all("tr"))
        assert all(len(image["alt"]) > 50 for image in found.find_all("img"))
        assert len({tag["id"] for tag in found.select("[id]")}) == len(found.select("[id]"))


def test_the_overview_counts_every_learner_once(tiny, tmp_path):
    report.write(tiny, a_class(), tmp_path)
    tables = page(tmp_path / "index.html").find_all("table")
    for row in tables[0].select("tbody tr"):
        assert sum(int(cell.get_text()) for cell in row.find_all("td")[2:]) == 30
    assert len(tables[1].select("tbody tr")) == 30
    problems = tables[-1].get_text(" ", strip=True)
    assert "learner-08 notebook.ipynb: not a notebook" in problems and "learner-09 All cells together" in problems


def test_nobody_handed_in_anything(tiny, tmp_path):
    report.write(tiny, [], tmp_path)
    assert page(tmp_path / "index.html").h1.get_text() == "A tiny lab: class overview"


TRIANGLE = """\
def triangle(steps, lr_max):
    '''Up and down.'''
    middle = steps / 2
    rising = lr_max * np.arange(steps) / middle
    return np.where(np.arange(steps) < middle, rising, 2 * lr_max - rising).astype(np.float32)
"""


def test_layout_comments_and_docstrings_make_no_other_answer():
    other = TRIANGLE.replace("    ", "  ").replace(" = ", "=").replace("'''Up and down.'''", "# mine")
    assert duplicates.normalised(TRIANGLE) == duplicates.normalised(other)
    assert duplicates.answer_digest(TRIANGLE) == duplicates.answer_digest(other) != ""
    assert duplicates.normalised(TRIANGLE) != duplicates.normalised(TRIANGLE.replace("middle", "half"))
    assert duplicates.normalised("if a:\n  b\nc") != duplicates.normalised("if a:\n  b\n  c")


@pytest.mark.parametrize("text", ["x = (", "  x\n y", "!ls", "'''", "a\x00b", "\udcff = 1", "", "\x0c", "%time f()"])
def test_an_answer_that_is_no_python_has_a_normal_form_too(text):
    assert isinstance(duplicates.normalised(text), str)
    assert len(duplicates.answer_digest(f"{text} " * 40)) in (0, 64)


def test_who_shares_answers_is_flagged_and_who_found_the_plain_one_is_not(tiny):
    own = duplicates.answer_digest(TRIANGLE)
    masters = duplicates.answer_digest(tiny.solutions["triangle"])
    stub = tiny.stubs["triangle"] + "\n"
    alone = tiny.solutions["triangle"].replace(stub, "")
    short = duplicates.answer_digest("steps = 1437 // batch")
    handed_in = {
        "a": {"triangle": own, "steps": short}, "b": {"triangle": own, "steps": "other"},
        "c": {"triangle": masters}, "d": {"triangle": masters},
        "e": {"triangle": duplicates.answer_digest(alone)}, "f": {"triangle": duplicates.answer_digest(alone)},
        "g": {"triangle": duplicates.answer_digest(TRIANGLE.replace("middle", "half"))},
        "h": {"triangle": "", "steps": "same"}, "i": {"triangle": "", "steps": "same"}, "j": {}, "k": {},
    }  # fmt: skip
    learners = [result(name, answers=answers) for name, answers in handed_in.items()]
    assert duplicates.groups(tiny, learners) == [{"students": ["a", "b"], "tasks": ["triangle"]}]
    assert short == ""


def test_a_task_that_nobody_answered_is_not_named_as_compared(tiny, tmp_path):
    def identical(*answers):
        report.write(tiny, [result(f"l{number}", answers=one) for number, one in enumerate(answers)], tmp_path)
        return page(tmp_path / "index.html").find("h2", string="Identical answers").find_next("p").get_text()

    blank = {task: duplicates.answer_digest(stub) for task, stub in tiny.stubs.items()}
    assert identical(blank, {}).startswith("Nothing to compare")
    own = {"triangle": duplicates.answer_digest(TRIANGLE)}
    assert identical(own, blank) == "None among the answers that are long enough to be evidence: triangle."


@pytest.fixture(scope="module")
def reported(tiny, tmp_path_factory):
    """A class of 30 with long names, long lines and a Run's facts."""
    learners = a_class()
    learners[4]["student"] = "a.very.long.address.of.a.learner@students.university.example.edu"
    learners[5]["student"] = "王小明"
    for learner in learners:
        learner["tasks"]["steps"]["detail"] = "NameError: name 'x' is not defined " + "y" * 200
        learner["tasks"]["run"]["facts"] = [["network", "resnet8"], ["accuracy, by its summary", "97.22%"]]
    folder = tmp_path_factory.mktemp("class")
    report.write(tiny, learners, folder)
    return folder


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index.html", "feedback/learner-04.html"])
def test_a_page_fits_desktop_and_phone_and_can_be_read_light_and_dark(browser, reported, name, width, scheme):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get_log("browser")  # forget the page before
    browser.get((reported / name).as_uri())
    found = browser.execute_script(
        """
        const room = document.documentElement.clientWidth, page = document.documentElement;
        const narrow = [...document.querySelectorAll('th, dd, td')].filter(e => e.textContent.trim().length > 3)
          .filter(e => e.getBoundingClientRect().width < 30).map(e => e.textContent);
        const pictures = [...document.images].map(image => image.naturalWidth > 300);
        const seen = performance.getEntriesByType('resource').map(entry => entry.name);
        function parts(colour) { return colour.match(/[\\d.]+/g).map(Number); }
        function light(colour) {
          const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
          const [r, g, b] = parts(colour).map(v => linear(v / 255));
          return .2126 * r + .7152 * g + .0722 * b;
        }
        function behind(e) {
          for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (parts(colour).length == 3) return colour;
          }
          return 'rgb(255, 255, 255)';
        }
        const faint = [];
        for (const e of document.querySelectorAll('body *')) {
          if (![...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())) continue;
          const [low, high] = [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => a - b);
          if ((high + .05) / (low + .05) < 4.5) faint.push(e.tagName + ': ' + e.textContent);
        }
        return {sideways: Math.max(page.scrollWidth, document.body.scrollWidth) - room, narrow, pictures, seen, faint,
                dark: light(getComputedStyle(document.body).backgroundColor) < .1};
        """
    )
    assert found["sideways"] <= 0 and found["narrow"] == [] and found["faint"] == []
    assert found["dark"] == (scheme == "dark")
    assert all(found["pictures"]) and len(found["pictures"]) == (name == "index.html")
    assert all(address.startswith(reported.as_uri()) for address in found["seen"])
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_errors_are_shown_in_full_to_the_instructor_alone(tiny, tmp_path):
    secret = "rates = triangle(58, 0.7)\n\nTypeError: <b>\u202eno"
    learners = [result("ann", {"steps": "error"}) | {"errors": {"steps": [["probe-steps-5", secret]]}}, result("bob")]
    report.write(tiny, learners, tmp_path)
    [shown] = page(tmp_path / "index.html").find_all("details")
    assert shown.summary.get_text() == "ann, steps: TypeError: <b>\ufffdno"
    assert "probe-steps-5" in shown.get_text() and "rates = triangle(58, 0.7)" in shown.get_text()
    assert not any("58" in file.read_text(encoding="utf-8") for file in (tmp_path / "feedback").iterdir())


def test_excel_knows_the_grades_as_unicode(tiny, tmp_path):
    report.write(tiny, [result("王小明")], tmp_path)
    assert (tmp_path / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbfassignment,")


@pytest.mark.browser
def test_a_head_of_the_overview_sorts_by_its_column(browser, tiny, tmp_path):
    learners = [result(name, its) for name, its in (
        ("learner-10", {"run": "wrong"}), ("learner-9", {}), ("Ärger", {"total": "partly right"}),
        ("zoe", {"steps": "wrong"}),
    )]  # fmt: skip
    report.write(tiny, learners, tmp_path)
    browser.get_log("browser")
    browser.get((tmp_path / "index.html").as_uri())
    table = browser.find_element("css selector", ".sorts")

    def names_by(head):
        next(
            button for button in table.find_elements("css selector", "th button") if button.text.startswith(head)
        ).click()
        return [row.text for row in table.find_elements("css selector", "tbody th")]

    assert names_by("Score") == ["learner-10", "zoe", "Ärger", "learner-9"]  # 8, 10, 11 and 12 points
    assert names_by("Score") == ["learner-9", "Ärger", "zoe", "learner-10"]
    assert table.find_element("css selector", "[aria-sort]").get_attribute("aria-sort") == "descending"
    assert names_by("Learner") == ["Ärger", "learner-9", "learner-10", "zoe"]
    assert names_by("steps")[0] == "zoe"
    assert browser.execute_script("document.body.append(Object.assign(document.createElement('script'), "
                                  "{textContent: 'window.strange = 1'})); return window.strange") is None  # fmt: skip
    assert [
        entry["message"] for entry in browser.get_log("browser") if "Content Security" not in entry["message"]
    ] == []


def test_no_text_of_a_learners_turns_the_direction_of_a_page():
    from pathlib import Path

    from grader import handed_in

    asked = lab.load("cifar10").manifest.run
    entry = handed_in.not_one(asked, (Path("a\u202eb"), Path("c\u2066d")))
    assert entry["detail"] == "several Runs: a?b, c?d; hand in one"
    assert report.shown("x\u202ey\u2069z") == "x\ufffdy\ufffdz" and report.shown("א\u200f ב") == "א\u200f ב"
