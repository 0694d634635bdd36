"""`make env`: which MindSpore and Python it is about, and what it must not touch. Nothing is installed here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
FILES = ("Makefile", ".ci/env", "requirements.txt", "requirements-dev.txt", "constraints.txt", "pyproject.toml",
         "labkit/system/versions.py")  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """What `make env` reads, and a .venv that is made."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / ".choice").write_text("default\n")
    (tmp_path / ".venv" / ".stamp").touch()
    return tmp_path


def make(project, *arguments):
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VENV", "PYTHON", "MINDSPORE")  # of the make that runs the tests
    env = {key: value for key, value in os.environ.items() if key not in ours} | {"VENV": "/elsewhere"}
    return subprocess.run(["make", *arguments], cwd=project, env=env, capture_output=True, text=True)


def installs(project, *arguments):
    """The MindSpore that would be installed; None where all is well."""
    done = make(project, "-n", "env", *arguments)
    assert done.returncode == 0, done.stderr
    venv, _, after = done.stdout.partition(".ci/env ")[2].partition(" ")
    assert venv in ("", str(project / ".venv"))  # a variable of the shell names no environment
    return after.partition(" ")[0] or None


def test_a_choice_stays_until_there_is_another(project):
    assert installs(project) is None
    assert installs(project, "MINDSPORE=2.8.0") is None  # the default by its name
    assert installs(project, "MINDSPORE=2.10.0") == "2.10.0"
    (project / ".venv" / ".choice").write_text("2.10.0 /usr/bin/python3.12\n")
    assert installs(project) is None
    assert installs(project, "PYTHON=/usr/bin/python3.11") == "2.10.0"
    assert installs(project, "MINDSPORE=2.8.0") == "2.8.0"


@pytest.mark.parametrize("choice, expected", [("default", "9.9.9"), ("2.10.0", "2.10.0")])
def test_the_default_follows_requirements(project, choice, expected):
    (project / ".venv" / ".choice").write_text(f"{choice}\n")
    file = project / "requirements.txt"
    file.write_text(file.read_text().replace("mindspore==2.8.0", "mindspore==9.9.9"))
    os.utime(project / ".venv" / ".stamp", (0, 0))
    assert installs(project) == expected


def test_a_folder_that_is_no_environment_stays(project):
    (project / "mine").mkdir()
    (project / "mine" / "thesis.txt").write_text("all of it")
    done = make(project, "env", f"VENV={project / 'mine'}", f"PYTHON={sys.executable}")
    assert done.returncode == 2 and "mine exists but is not a Python environment" in done.stderr, done.stderr
    assert (project / "mine" / "thesis.txt").read_text() == "all of it"
