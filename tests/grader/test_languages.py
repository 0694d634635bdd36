"""A lab in Chinese: the notebook that is handed out, its way through grading, and the feedback pages."""

import json
import re

import pytest
from bs4 import BeautifulSoup
from running import labkit

from grader import answers, grade, handout, lab, report, translation, verdicts

CHINESE = "zh_CN"
NAMES = lab.names()


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_differs_in_what_is_said_alone(name, tmp_path):
    """Cells, ids and metadata are the same, and all code but for the texts of self-checks; so answers are found."""
    found = lab.load(name)
    english, chinese = (handout.notebook(found.notebook, f"labs/{name}", "", one) for one in (None, CHINESE))
    for ours, theirs in zip(chinese["cells"], english["cells"], strict=True):
        assert (ours["id"], ours["metadata"]) == (theirs["id"], theirs["metadata"])
        if ours["source"] != theirs["source"]:
            assert re.search("[\u4e00-\u9fff]", ours["source"])
            assert ours["cell_type"] == "markdown" or ours["source"].startswith("# Check")
        ours["source"] = found.solutions.get(lab.answer_of(ours), ours["source"])
    (tmp_path / "ann.ipynb").write_text(json.dumps(chinese), encoding="utf-8")
    assert answers.read(found, [tmp_path / "ann.ipynb"]) == (found.solutions, [])


# -- Feedback --------------------------------------------------------------------------------------------


def test_every_text_of_a_learners_page_is_translated():
    template = (report.TEMPLATES / "feedback.html").read_text() + (report.TEMPLATES / "base.html").read_text()
    catalogue = translation.translations(CHINESE, "grader/feedback")
    assert set(catalogue) == {*re.findall(r'say\("([^"]+)"\)', template), *verdicts.texts()}


WORDS = sorted(verdicts.WORDS | verdicts.RUN_WORDS)


@pytest.mark.parametrize("name", NAMES)
def test_no_english_is_left_on_a_page(name, tmp_path):
    """Every verdict, what differs and what to do next, as the pages show it; what stays is a name, a file or code."""
    found = lab.load(name)
    results = []
    for number, verdict in enumerate(WORDS):
        result = grade.nothing(found, f"s{number}", "")
        for entry in result["tasks"].values():
            first = next(iter(found.manifest.tasks))
            entry |= {"verdict": f"blocked by {first}" if verdict == "blocked" else verdict, "detail": "not counted"}
            for value in entry["values"].values():
                value["detail"] = "values differ"
            entry["facts"] = [["accuracy, by its summary", "50.00%"], ["epochs", "3"]]
        result["stopped"] = "time" if number == 0 else ""
        results.append(result)
    results.append(grade.nothing(found, "z", verdicts.FAILED))
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
    done = labkit("grade", "thor", tmp_path / "in", "-o", tmp_path / "out", "--language", "xx", "--no-sandbox")
    assert done.exit_code == 1
    assert "grader/feedback: not translated into xx; the book is in zh_CN" in done.output
    assert not (tmp_path / "out").exists()
