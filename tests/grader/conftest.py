"""What the tests of the grader share: the tiny lab, copies of it that are edited, and what is handed in."""

import shutil
import subprocess
from pathlib import Path

import pytest
from running import LABKIT

from grader import lab as labs
from labkit.system.environment import REPO

TINY = Path(__file__).parent / "tiny"
RUN = """
run:
  title: A trained network
  profile: sample
  may_change: [schedule, network.name, data.batch_size]
  at_most: {epochs: 4}
  accuracy: 0.5
  points: {complete: 1, recipe: 2, accuracy: 3}
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


@pytest.fixture(scope="session")
def run_lab(tmp_path_factory):
    """The tiny lab in a folder of its own, with a Run of the CIFAR-10 lab's recipe to hand in."""
    folder = shutil.copytree(TINY, tmp_path_factory.mktemp("labs") / "tiny")
    shutil.copy(REPO / "labs" / "cifar10" / "recipe.yaml", folder)
    with open(folder / "grading.yaml", "a", encoding="utf-8") as manifest:
        manifest.write(RUN)
    return labs.load(folder)


@pytest.fixture(scope="session")
def trained(run_lab, sample_data, tmp_path_factory):
    """A Run by the instructor's own settings: 89 steps of a small network."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = [f"--set={setting}" for setting in run_lab.manifest.run.solution]
    command = [*LABKIT, "train", run_lab.folder, "--profile", "sample", *settings, "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture
def broken(tmp_path):
    """Two learners whose submissions take no process."""
    folder = write(tmp_path / "handed-in", "ann.ipynb", text="{")
    return write(folder, "bob.ipynb", text='{"cells": []}')


def write(folder, *names, text="{}"):
    """Files with these names below a folder; returns the folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def filled_in(lab, **answers):
    """The notebook that the lab hands out, with these answers."""
    made = labs.learners(lab.notebook)
    for cell in made["cells"]:
        cell["source"] = answers.get(labs.answer_of(cell), cell["source"])
    return made
