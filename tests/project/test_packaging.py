"""What labkit imports is declared in pyproject.toml; a copy of labkit away from the course says so in one line."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from labkit import cli

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"obs": "cloud", "modelarts": "cloud", "grading": "grading", "parity": "parity"}  # room -> its extra
# Modules whose package has another name; packaging comes with MindSpore, pydantic_core with pydantic.
PACKAGES = {"PIL": "pillow", "markdown_it": "markdown-it-py", "obs": "esdk-obs-python", "packaging": "mindspore",
            "pydantic_core": "pydantic", "sklearn": "scikit-learn", "yaml": "pyyaml"}  # fmt: skip


def declared(extra=None):
    """Canonical names of the dependencies, or of an extra's."""
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return {canonicalize_name(Requirement(line).name) for line in lines} - {"labkit"}


def needed(room):
    """Packages that a room of labkit imports, in functions as well."""
    found = set()
    for file in room.rglob("*.py") if room.is_dir() else [room]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0] for name in names}
    return {canonicalize_name(PACKAGES.get(name, name)) for name in found - sys.stdlib_module_names - {"labkit"}}


@pytest.mark.parametrize("room", sorted(path.name for path in (REPO / "labkit").iterdir() if path.name[0] != "_"))
def test_what_a_room_imports_is_declared(room):
    extra = EXTRAS.get(room.removesuffix(".py"))
    missing = needed(REPO / "labkit" / room) - declared()
    assert missing <= (declared(extra) if extra else set())


def test_extras_are_pinned():
    lines = [line for file in REPO.glob("requirements*.txt") for line in file.read_text().splitlines()]
    lines += (REPO / "constraints.txt").read_text().splitlines() + re.findall(
        r"^\w+ +:= (\S+==\S+)$", (REPO / "Makefile").read_text(), flags=re.M
    )
    pins = {canonicalize_name(re.split(r"[=<>;\s]", line)[0]) for line in lines if line and line[0] != "#"}
    assert {name for extra in PROJECT["optional-dependencies"] for name in declared(extra)} <= pins


# -- A wheel ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Function that runs labkit from a wheel, as `pip install .` leaves it: without the course's folder."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(REPO / "labkit", folder / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", folder)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, folder]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("labkit-*.whl")
    site = folder.resolve() / "site"
    zipfile.ZipFile(wheel).extractall(site)

    def run(*arguments):
        env = os.environ | {"PYTHONPATH": str(site)}
        command = [sys.executable, "-m", "labkit", *arguments]
        return subprocess.run(command, cwd=site, env=env, capture_output=True, text=True)

    run.site = site
    return run


def test_a_wheel_is_whole(away):
    tracked = {path.relative_to(REPO) for path in (REPO / "labkit").rglob("*") if path.suffix in (".py", ".html")}
    assert all((away.site / path).is_file() for path in tracked)


@pytest.mark.parametrize("command", [["train", "cifar10"], ["obs", "ls"], ["release", "cifar10", "out"]])
def test_a_copy_away_from_the_course_says_what_to_do(away, command):
    done = away(*command)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"Error: labkit is a copy in {away.site}, away from the course's labs and data; "
        "run `pip install -e .` in the course's folder\n"
    )


def test_its_help_and_its_doctor_work(away):
    assert "labkit doctor" in away("--help").stdout
    findings = {one["name"]: one for one in json.loads(away("doctor", "--json").stdout)["findings"]}
    assert findings["course"]["status"] == "problem" and "pip install -e ." in findings["course"]["advice"]


def test_a_missing_module_is_one_line(monkeypatch):
    """As after `pip install -e .` without an extra."""
    monkeypatch.setitem(cli.COMMANDS, "plot", "no_such_module.commands:plot")
    done = CliRunner().invoke(cli.main, ["plot"])
    assert (done.exit_code, done.output) == (1, (
        "Error: the module no_such_module is not installed: "
        "run `make env`, or `pip install -e '.[cloud,grading]'` in the course's folder\n"
    ))  # fmt: skip
