"""What the tests of the grader share: the tiny lab, copies of it that are edited, and its notebook filled in."""

import shutil
from pathlib import Path

import pytest

from grader import lab as labs
from labkit.system.environment import REPO

TINY = Path(__file__).parent / "tiny"
RUN = """
run:
  title: A trained network
  profile: sample
  may_change: [{may_change}]
  at_most: {{epochs: 4}}
  accuracy: {accuracy}
  points: {{complete: 1, recipe: {recipe}, accuracy: {reached}}}
  solution: [network.name=resnet8, epochs=1, data.batch_size=16, schedule.warmup_epochs=0.2]
"""


@pytest.fixture(scope="session")
def tiny():
    """The tiny lab, which executes in a second."""
    return labs.load(TINY)


@pytest.fixture
def edited(tmp_path):
    """Function that gives a copy of the tiny lab another text in the place of one, wherever that is, and loads it."""

    def edited(file, old, new):
        folder = tmp_path / "tiny"
        if not folder.exists():
            shutil.copytree(TINY, folder)
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))
        return labs.load(folder)

    return edited


def with_run(folder, may_change="schedule", accuracy=0.5, recipe=2, reached=3):
    """The tiny lab in a new folder, with a Run of the CIFAR-10 lab's recipe to hand in."""
    shutil.copytree(TINY, folder)
    shutil.copy(REPO / "labs" / "cifar10" / "recipe.yaml", folder)
    with open(folder / "grading.yaml", "a", encoding="utf-8") as manifest:
        manifest.write(RUN.format(may_change=may_change, accuracy=accuracy, recipe=recipe, reached=reached))
    return labs.load(folder)


def filled_in(lab, **answers):
    """The notebook that the lab hands out, with these answers."""
    made = labs.learners(lab.notebook)
    for cell in made["cells"]:
        cell["source"] = answers.get(labs.answer_of(cell), cell["source"])
    return made
