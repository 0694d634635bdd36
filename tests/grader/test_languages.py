"""A lab in Chinese: the notebook that is handed out, its way through grading, and the feedback pages."""

import json
import re

import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner

from grader import grade, handout, lab, report, translation, verdicts
from grader.answers import read_answers
from grader.submissions import Submission, look
from labkit.cli import main

CHINESE = "zh_CN"
NAMES = lab.names()


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_differs_in_what_is_said_alone(name):
    """Cells, ids and metadata are the same; so is all code, but for the texts of self-checks."""
    found = lab.load(name)
    english, chinese = (handout.notebook(found.notebook, f"labs/{name}", "", one)["cells"] for one in (None, CHINESE))
    assert [cell["id"] for cell in chinese] == [cell["id"] for cell in english]
    for ours, theirs in zip(chinese, english, strict=True):
        assert ours["metadata"] == theirs["metadata"]
        if ours["source"] != theirs["source"]:
            assert re.search("[\u4e00-\u9fff]", ours["source"])
            assert ours["cell_type"] == "markdown" or ours["source"].startswith("# Check")


@pytest.mark.parametrize("name", NAMES)
def test_answers_in_a_chinese_notebook_are_graded_as_in_an_english_one(name, tmp_path):
    """What the master executes is what such a notebook gives: test_labs.py has the master's full marks."""
    found = lab.load(name)
    made = handout.notebook(found.notebook, f"labs/{name}", "", CHINESE)
    for cell in made["cells"]:
        cell["source"] = found.solutions.get(lab.answer_of(cell), cell["source"])
    (tmp_path / "ann.ipynb").write_text(json.dumps(made), encoding="utf-8")
    answers = read_answers(found, look(Submission("ann", (tmp_path / "ann.ipynb",))))
    assert (answers.problem, answers.sources) == ("", found.solutions)


# -- Feedback --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def say():
    return report.speaker(lab.load("thor"), CHINESE)


@pytest.mark.parametrize(("english", "chinese"), [
    ("values differ", "值不同"),
    ("1 of 2 values are right; a hidden check of it raised NameError",
     "2 个值里对了 1 个；一项隐藏的检查抛出了 NameError"),
    ("raised ValueError, line 3", "抛出了 ValueError，第 3 行"),
    ("latest.ckpt: missing", "latest.ckpt：缺失"),
    ("epochs: 9, at most 6 is allowed; seed: 2, the lab's recipe has 1",
     "epochs：9，最多允许 6；seed：2，实验的配方是 1"),
    ("several Runs: one, two; hand in one", "有好几个 Run：one, two；请只上交一个"),
    ("ann.ipynb: damaged, not valid JSON, line 4", "ann.ipynb：已损坏，不是合法的 JSON，第 4 行"),
    ("a: " * 400 + "b", "a: " * 400 + "b"),
    ("", ""),
])  # fmt: skip
def test_what_was_filled_in_is_kept(say, english, chinese):
    assert say(english) == chinese


WORDS = sorted(verdicts.WORDS | verdicts.RUN_WORDS)


@pytest.mark.parametrize("name", NAMES)
def test_no_english_is_left_on_a_page(name, tmp_path):
    """Every verdict, what differs and what to do next, as the pages show it; what stays is a name, a file or code."""
    found = lab.load(name)
    results = []
    for number, verdict in enumerate(WORDS):
        result = grade.nothing(found, f"s{number}", "")
        for task, entry in result["tasks"].items():
            first = next(iter(found.manifest.tasks))
            entry |= {"verdict": f"blocked by {first}" if verdict == "blocked" else verdict, "detail": "not counted"}
            for value in entry["values"].values():
                value["detail"] = "values differ" if task in found.manifest.tasks else "history.jsonl: no step in it"
            entry["facts"] = [["accuracy, by its summary", "50.00%"], ["epochs", "3"]]
        result["stopped"] = "time" if number == 0 else ""
        results.append(result)
    results.append(grade.nothing(found, "z", "ann.ipynb: damaged, not valid JSON"))
    report.write(found, results, tmp_path, language=CHINESE)
    of_python = r"`[^`]*`|[\w.]+\.(?:jsonl|yaml|ipynb|ckpt)"
    for file in (tmp_path / "feedback").iterdir():
        page = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")
        assert page.html["lang"] == "zh-CN"
        text = re.sub(of_python, " ", page.body.get_text(" "))
        translated = " ".join(said for one in ("grader/feedback", f"labs/{name}/grading")
                              for said in translation.translations(CHINESE, one).values())  # fmt: skip
        left = set(re.findall(r"[A-Za-z]{3,}", text)) - set(re.findall(r"[A-Za-z]{3,}", translated))
        assert left <= set(re.findall("[a-z]{3,}", f"{name} {found.digest[:12]}")), (file, left)
    overview = BeautifulSoup((tmp_path / "index.html").read_text(encoding="utf-8"), "html.parser")
    assert overview.html["lang"] == "en" and not re.search("[\u4e00-\u9fff]", overview.get_text())


def test_a_language_that_the_lab_lacks_is_refused_before_anything_is_graded(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ann.md").write_text("")
    asked = ["grade", "thor", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--language", "xx", "--no-sandbox"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 1
    assert "grader/feedback: not translated into xx; the book is in zh_CN" in done.output
    assert not (tmp_path / "out").exists()
