"""A lab as its instructor has it: what is read, what is handed out, what is executed, and what is refused."""

import nbformat
import pytest

from grader import lab as labs


def test_what_is_executed_is_the_masters(tiny):
    notebook = tiny.graded_notebook({"steps": "steps = 7"}, seed=11)
    nbformat.validate(nbformat.from_dict(notebook))
    sources = {cell["id"]: cell["source"] for cell in notebook["cells"]}
    assert sources["answer-steps"] == "steps = 7"
    assert sources["answer-total"] == tiny.stubs["total"]
    assert ".probe('triangle', 11, '" in sources["probe-triangle-9"]
    assert sources["cell-002"].endswith(".given(['batch', 'np'])")
    assert not any("# Check" in text for text in sources.values())
    assert all(set(cell["metadata"]) <= {"answer", "probe"} for cell in notebook["cells"])


def test_the_names_that_a_cell_binds():
    """What Python keeps to itself, in a comprehension or a function, is not among them, whichever Python it is."""
    text = """
%time import os.path
import os.path, numpy as np
xs = [(a, b) for a in () for b in {c: 1 for c in ()}]
for i in ():
    def f(p):
        q = p
class C:
    r = 1
"""
    assert labs.bound(text) == {"os", "np", "xs", "i", "f", "C"}
    assert labs.bound("x = (") == set()


def test_the_digest_is_of_what_decides_a_grade(tiny, edited):
    assert edited("grading.yaml", "points: 3", "points: 3").digest == tiny.digest
    changed = edited("grading.yaml", "points: 3", "points: 3.5").digest
    assert changed != tiny.digest and edited("grading.yaml", "points: 3.5", "points: 3").digest == tiny.digest
    assert edited("lab.md", "whole batches", "batches").digest != tiny.digest


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("grading.yaml", "seed: 7", "sed: 7", "grading.yaml: seed: Field required"),
        ("grading.yaml", "title: Steps", "title: Steps\n    point: 3", "tasks.steps.point: Extra inputs"),
        ("grading.yaml", "points: 3", "points: -3", "tasks.triangle.values.rates.points: Input should be greater"),
        ("grading.yaml", "[triangle]", "[circle]", "tasks.total.needs: circle is not a task"),
        ("grading.yaml", "seed: 7", "seed: [", "not valid YAML"),
        ("grading.yaml", "steps:\n    title", "stepz:\n    title", "lab.md, cell answer: steps: not in grading.yaml"),
        ("lab.md", "probe: steps", "probe: total", "task steps of grading.yaml has no probe cell"),
        ("lab.md", "// batch\n# END SOLUTION", "// batch", "answer: steps: no `# END SOLUTION`"),
        ("lab.md", "# BEGIN SOLUTION\nsteps", "### BEGIN SOLUTION\nsteps", "`### BEGIN SOLUTION` must be `# BEGIN"),
        ("lab.md", "// batch\n# END SOLUTION", "// batch\n# End Solution", "`# End Solution` must be"),
        ("lab.md", "# BEGIN SOLUTION\nsteps", "steps", "`# END SOLUTION` instead of the other marker"),
    ],
)  # fmt: skip
def test_a_lab_that_does_not_fit_is_refused_in_one_line(edited, file, old, new, message):
    with pytest.raises(labs.LabError, match="^[^\n]*$") as refused:
        edited(file, old, new)
    assert message in str(refused.value)
    assert "tiny" in str(refused.value)
