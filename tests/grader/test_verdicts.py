"""What a learner reads about a verdict: which task it is, and what to do next."""

import re

import pytest
from bs4 import BeautifulSoup

from grader import grade, lab, report, verdicts

ANY = "restart the kernel"


@pytest.mark.parametrize(
    ("verdict", "detail", "said"),
    [
        ("error", "raised NameError, line 2", "other cells of yours are not taken"),
        ("error", "a hidden check of it raised NameError", "other cells of yours are not taken"),
        ("partly right", "1 of 2 values are right; a hidden check of it raised NameError", "define and import in the"),
        ("error", "raised OSError, line 1", "no network and none of your files"),
        ("error", "raised ConnectionError", "no network and none of your files"),
        ("error", "a hidden check of it raised PermissionError", "no network and none of your files"),
        ("error", "raised FileNotFoundError, line 3", "no network and none of your files"),
        ("error", "raised ModuleNotFoundError, line 1", "no network and none of your files"),
        ("error", "raised UnboundLocalError, line 1", ANY),
        ("error", "raised TypeError, line 1", ANY),
        ("error", "raised an error", ANY),
        ("error", "", ANY),
        ("partly right", "1 of 2 values are right", "see which checks"),
        ("blocked by triangle", "raised NameError; it needs triangle: A schedule", "fix task 2, “A schedule” first"),
    ],
)
def test_what_to_do_next_goes_by_the_error(tiny, verdict, detail, said):
    assert said in verdicts.in_words(tiny, "total", verdict, detail)["next"]


@pytest.mark.parametrize("name", lab.names())
def test_tasks_have_the_numbers_that_the_notebook_gives_them(name):
    found = lab.load(name)
    shown, number = {}, ""
    for cell in found.notebook["cells"]:
        if cell["cell_type"] == "markdown":
            number = (re.findall(r"^(?:### |\*\*)(Task \d+)", lab.source(cell), re.M) or [number])[-1]
        elif lab.answer_of(cell):
            shown[lab.answer_of(cell)] = number
    shown[found.manifest.run.name] = number
    assert shown == {task: verdicts.numbered(found, task) for task in shown} and len(set(shown.values())) == len(shown)


@pytest.mark.parametrize("name", lab.names())
def test_each_value_that_differs_has_a_next_step_of_its_own(name):
    found = lab.load(name)
    for task, its in found.manifest.tasks.items():
        steps = [value.next for value in its.values.values()]
        assert all(step.endswith((".", "?")) and step[0].islower() for step in steps), (task, steps)
        assert len(set(steps)) == len(steps)
        for value, said in its.values.items():
            assert verdicts.in_words(found, task, "partly right", "", (value,))["next"] == said.next
            assert verdicts.in_words(found, task, "wrong", "", (value, *its.values))["next"] == said.next
            assert ANY in verdicts.in_words(found, task, "error", "raised an error", (value,))["next"]


def test_the_page_gives_the_next_step_of_the_first_value_that_was_compared_and_differs(tmp_path):
    found = lab.load("cifar10")
    result = grade.nothing(found, "ann", "")
    values = {
        "stops": {"points": 0.0, "max_points": 1, "detail": "its check failed"},
        "level": {"points": 0.0, "max_points": 1, "detail": "values differ"},
        "epochs": {"points": 0.0, "max_points": 1, "detail": "values differ"},
        "again": {"points": 1.0, "max_points": 1, "detail": ""},
    }
    result["tasks"]["stop_below"] |= {"verdict": "partly right", "detail": "", "values": values}
    report.write(found, [result], tmp_path)
    page = (tmp_path / "feedback/ann.html").read_text(encoding="utf-8")
    assert "train with a loss that equals the threshold" in page and "train for two epochs" not in page


@pytest.mark.parametrize(
    ("verdict", "detail", "repeats"),
    [
        ("timed out", "took longer than allowed", True),
        ("timed out", "a hidden check of it took longer than allowed", True),
        ("timed out", "was not run: the time for all cells together was over", False),
        ("not done", "the cell is as it was handed out", True),
        ("error", "raised NameError", False),
    ],
)
def test_a_detail_that_repeats_the_meaning_is_left_out(verdict, detail, repeats):
    assert verdicts.said_already({"verdict": verdict, "detail": detail}) == repeats


def test_the_page_counts_tasks_as_the_notebook_does_and_keeps_badges_whole(tiny, tmp_path):
    result = grade.nothing(tiny, "ann", "")
    values = {"long_name": {"points": 0.0, "max_points": 3, "detail": "its check took too long"}}
    late = {"verdict": "timed out", "detail": "a hidden check of it took longer than allowed"}
    result["tasks"]["triangle"] |= late | {"values": values | {"b": values["long_name"]}}
    report.write(tiny, [result], tmp_path)
    page = BeautifulSoup((tmp_path / "feedback/ann.html").read_text(encoding="utf-8"), "html.parser")
    titles = ["Task 1. Steps", "Task 2. A schedule", "Task 3. Its total"]
    assert [title.get_text() for title in page.find_all("h3")] == titles
    assert [link.get_text() for link in page.select("tbody th a")] == titles
    assert "uestion" not in page.main.get_text()
    assert page.select_one("#triangle tbody th").get_text() == "long name"
    assert "longer than allowed" not in page.main.get_text() and "took too long" in page.main.get_text()
    assert re.search(r"\.verdict \{[^}]*white-space: nowrap", page.style.get_text())
