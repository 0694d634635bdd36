"""What a grade depends on: of labkit the modules that decide it, and no others."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from grader import digests, lab
from grader.batch import grade_batch
from tests.grader.conftest import TINY


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Function that edits a module of a copy of labkit, which is digested in its place."""
    copy = shutil.copytree(digests.PACKAGE, tmp_path / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(digests, "PACKAGE", copy)

    def edit(name):
        with open(copy / name, "a", encoding="utf-8") as module:
            module.write("\n# edited\n")

    return edit


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        ("networks/resnet.py", {"cifar10", "imagenet", "thor"}),
        ("thor/step.py", {"cifar10", "imagenet", "thor"}),  # a recipe may ask for it
        ("training/compare.py", {"thor"}),
        ("parity/clinic.py", {"imagenet"}),
        ("doctor.py", {"cifar10"}),
        ("grading/inside_run.py", {"cifar10", "imagenet", "thor"}),  # labs with a Run
        ("grading/values.py", {"cifar10", "imagenet", "thor", "tiny"}),
        ("grading/inside.py", {"cifar10", "imagenet", "thor", "tiny"}),
        ("system/environment.py", {"cifar10", "imagenet", "thor", "tiny"}),
        ("grading/report.py", set()),
        ("obs/copying.py", set()),
        ("modelarts/submission.py", set()),
        ("launch/msrun.py", set()),
        ("cli.py", set()),
    ],
)
def test_a_grade_depends_on_what_its_lab_imports(edit, name, decides):
    labs = [*map(lab.load, lab.names()), lab.load("tiny", TINY)]
    before = {one.name: digests.of_labkit(one) for one in labs}
    everything = digests.all_of_labkit()
    edit(name)
    assert {one.name for one in labs if digests.of_labkit(one) != before[one.name]} == decides
    assert digests.all_of_labkit() != everything


@pytest.mark.parametrize(
    ("answer", "decides"),
    [
        ("from labkit.obs import copying", True),
        ("from labkit.obs.copying import copy", True),
        ("from labkit import (  # all of it\n    schedules,\n    obs,\n)", True),
        ("from labkit import schedules, \\\n    obs", True),
        ("from labkit.obs import *", True),
        ("import labkit.obs as o", True),
        ("import labkit\nlabkit.obs.copy", True),
        ("!labkit obs ls", True),
        ("import subprocess\nsubprocess.run(['python', '-m', 'labkit'])", True),
        ("x = (\nfrom labkit.obs import copy", True),  # no Python
        ("from labkit import schedules", False),
        ("steps = 1437 // batch", False),
        ("(" * 100_000, False),
        ("labkit" + ".a" * 90_000, False),
        ("labkit." + "a" * 10_000, False),
        ("from labkit import \x00 obs", False),
    ],
    ids=range(16),
)
def test_an_answer_that_imports_more_depends_on_more(edit, tiny, answer, decides):
    before = digests.of_labkit(tiny, [answer])
    edit("obs/copying.py")
    assert (digests.of_labkit(tiny, [answer]) != before) == decides


def test_what_a_room_imports_when_asked_decides_too(edit, tiny):
    answer = "from labkit.parity import compare_step"
    before = digests.of_labkit(tiny, [answer])
    edit("parity/step.py")
    assert digests.of_labkit(tiny, [answer]) != before


def test_a_grade_depends_on_the_lab_whether_git_tracks_it_or_not(edited):
    one = edited("lab.md", "How many whole batches", "How many whole batches")
    subprocess.run(["git", "-C", one.folder, "init", "-q"], check=True)
    subprocess.run(["git", "-C", one.folder, "add", "--all"], check=True)
    before = digests.about(one)
    (one.folder / "recipe.yaml").write_text("lab: tiny")
    assert digests.about(one) != before


def test_imports_that_are_followed_are_absolute():
    for file in Path(digests.PACKAGE).rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level], file


def test_a_class_is_graded_again_only_where_its_rooms_have_changed(edit, tmp_path):
    (tmp_path / "handed-in").mkdir()
    (tmp_path / "handed-in" / "ann.ipynb").write_text("{")  # which needs no process
    trains = lab.load("thor")

    def graded():
        grade_batch(trains, tmp_path / "handed-in", tmp_path / "out")
        return (tmp_path / "out" / "results" / "ann.json").stat().st_mtime_ns

    first = graded()
    edit("obs/copying.py")
    assert graded() == first
    edit("networks/resnet.py")
    assert graded() != first
