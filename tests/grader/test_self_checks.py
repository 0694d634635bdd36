"""The labs' self-checks: "not done yet" to a stub, "ok" to right answers, and to a wrong one what was expected."""

import contextlib
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest

from grader import lab as labs
from grader import translation
from labkit.system import device
from labkit.training import recipes
from tests.grader.mutants import cifar10, imagenet, thor

MUTANTS = {
    "cifar10": cifar10.SLIPS + cifar10.OTHERS + cifar10.RIGHT,
    "imagenet": imagenet.SLIPS + imagenet.OTHERS,
    "thor": thor.SLIPS + thor.OTHERS,
}
CASES = [pytest.param(name, mutant, id=f"{name}-{mutant.name}") for name, found in MUTANTS.items() for mutant in found]
ALL = [pytest.param(name, task, id=f"{name}-{task}") for name in MUTANTS for task in labs.load(name).stubs]
SAID = {  # to a stub, and to the master's answer
    None: ("task {}: not done yet", "task {}: ok"),
    "zh_CN": ("第 {} 题：尚未完成（not done yet）", "第 {} 题：通过（ok）"),
}
# Slips that end in an error of Python or MindSpore, which the learner sees anyway.
ERRORS = (AttributeError, IndexError, StopIteration, TypeError, ValueError, ZeroDivisionError, RuntimeError, KeyError)


def lessons(name):
    """What checks use of a lesson's cells that are not run here."""
    import mindspore as ms

    if name == "cifar10":
        return {"result": {"confusion": [[9] * 10] * 10}}
    if name == "imagenet":
        return {}
    factors = [ms.Tensor(np.eye(size, dtype=np.float32)[None]) for size in (6, 4)]
    layer = SimpleNamespace(factor_a=factors[0], factor_g=factors[1])
    return {
        "lab": recipes.find("thor"),
        "preconditioner": SimpleNamespace(layers={"fc": layer}),
        "gradient": np.ones((4, 6), np.float32),
    }


@pytest.fixture(scope="module")
def check(sample_data):
    """Function that gives what the check below a task prints of an answer; it raises what the check raises."""
    import mindspore as ms

    lessons_of, checks = {}, {}

    def prepare(name, catalogue):
        given, task = [], None
        for cell in labs.load(name).notebook["cells"]:
            text = labs.source(cell).replace("%matplotlib inline", "")
            text = translation.translated_code(text, catalogue) if text.startswith("# Check") else text
            if cell["cell_type"] != "code" or labs.probe_of(cell):
                continue
            if labs.answer_of(cell):
                task = labs.answer_of(cell)
            elif task and text.startswith("# Check"):
                checks.setdefault((name, task, bool(catalogue)), text)
            elif "ungraded" not in cell["metadata"].get("tags", []) or "chosen = recipes.load(recipes" in text:
                given.append(text)
        names = lessons(name)
        _run("\n".join(given), names)
        return names

    def check(name, task, answer, language=None):
        if (name, language) not in lessons_of:
            catalogue = translation.translations(language, f"labs/{name}/lab") if language else {}
            lessons_of[name, language] = prepare(name, catalogue)
        return _run(f"{answer}\n{checks[name, task, bool(language)]}", dict(lessons_of[name, language]))

    with device.in_mode(ms.PYNATIVE_MODE):  # the notebooks choose one, and seeds
        yield check


def _run(text, names):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "lab", "exec"), names)
    return said.getvalue()


@pytest.mark.parametrize("language", SAID)
@pytest.mark.parametrize(("name", "task"), ALL)
def test_checks_know_done_from_not_done(name, task, language, check):
    lab = labs.load(name)
    number = 1 + list(lab.stubs).index(task)
    for answer, said in zip((lab.stubs[task], lab.solutions[task]), SAID[language], strict=True):
        assert check(name, task, answer, language).startswith(said.format(number))


@pytest.mark.parametrize(("name", "mutant"), CASES)
def test_a_check_says_ok_to_what_earns_all_points_alone(check, name, mutant):
    """To a wrong answer it says what was expected and what came, unless it ended with an error."""
    try:
        said = check(name, mutant.task, mutant.source)
    except AssertionError as error:
        said = str(error)
    except ERRORS as error:
        assert mutant.verdict != "right", error
        return
    assert bool(": ok" in said) == (mutant.verdict == "right"), said
    if mutant.verdict != "right" and "not done yet" not in said:
        assert "expected" in said and "yours" in said, said


@pytest.mark.parametrize("name", MUTANTS)
def test_each_task_links_what_to_read_and_has_a_hint(name):
    lab = labs.load(name)
    text = (lab.folder / "lab.md").read_text(encoding="utf-8")
    tasks = len(lab.stubs) + bool(lab.manifest.run)
    assert len(re.findall(r"^\*\*Read\*\* \{ref\}`", text, re.MULTILINE)) == tasks
    assert text.count("<summary>Hint</summary>") == tasks
