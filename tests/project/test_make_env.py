"""`make env`: which MindSpore and Python it is about, and what it must not touch. Nothing is installed here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PINNED = "mindspore==2.8.0"
FILES = (
    "Makefile", "requirements.txt", "requirements-dev.txt", "constraints.txt", "pyproject.toml",
    "labkit/system/versions.py",
)  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """What `make env` reads, and a .venv that is made."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    assert PINNED in (tmp_path / "requirements.txt").read_text()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / ".choice").write_text("default\n")
    (tmp_path / ".venv" / ".stamp").touch()
    return tmp_path


def make(project, *arguments, **env):
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VENV", "PYTHON", "MINDSPORE")  # of the make that runs the tests
    env = {key: value for key, value in os.environ.items() if key not in ours} | env
    return subprocess.run(["make", *arguments], cwd=project, env=env, capture_output=True, text=True)


def installs(project, *arguments, **env):
    """The MindSpore that would be installed; None where all is well."""
    done = make(project, "-n", "env", *arguments, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("/mindspore==")[2].partition("/")[0] or None


def test_an_environment_that_is_there(project):
    assert installs(project) is None
    assert installs(project, "MINDSPORE=2.8.0") is None  # the default by its name


def test_a_choice_stays_until_there_is_another(project):
    assert installs(project, "MINDSPORE=2.10.0") == "2.10.0"
    (project / ".venv" / ".choice").write_text("2.10.0 /usr/bin/python3.12\n")
    assert installs(project) is None
    assert installs(project, "MINDSPORE=2.10.0", "PYTHON=/usr/bin/python3.12") is None
    assert installs(project, "PYTHON=/usr/bin/python3.11") == "2.10.0"
    assert installs(project, "MINDSPORE=2.8.0") == "2.8.0"


@pytest.mark.parametrize("choice, expected", [("default", "9.9.9"), ("2.10.0", "2.10.0")])
def test_the_default_follows_requirements(project, choice, expected):
    (project / ".venv" / ".choice").write_text(f"{choice}\n")
    file = project / "requirements.txt"
    file.write_text(file.read_text().replace(PINNED, "mindspore==9.9.9"))
    os.utime(project / ".venv" / ".stamp", (0, 0))
    assert installs(project) == expected


def test_a_variable_of_the_shell_names_no_environment(project):
    """Many have a VENV of their own; `make env` may remove what it names."""
    assert "/elsewhere" not in make(project, "-n", "env", "MINDSPORE=2.10.0", VENV="/elsewhere").stdout
    assert "/elsewhere" in make(project, "-n", "env", "VENV=/elsewhere").stdout


def test_a_folder_that_is_no_environment_stays(project):
    (project / "mine").mkdir()
    (project / "mine" / "thesis.txt").write_text("all of it")
    done = make(project, "env", f"VENV={project / 'mine'}", f"PYTHON={sys.executable}")
    assert done.returncode == 2 and "mine exists but is not a Python environment" in done.stderr, done.stderr
    assert (project / "mine" / "thesis.txt").read_text() == "all of it"
