"""What labkit and the grader import is declared and pinned; a copy of labkit away from the course says so."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"labkit/obs": "cloud", "labkit/modelarts": "cloud", "labkit/parity": "parity", "grader": "grading"}
# Modules whose package has another name; packaging comes with MindSpore, pydantic_core with pydantic.
PACKAGES = {"PIL": "pillow", "markdown_it": "markdown-it-py", "obs": "esdk-obs-python", "packaging": "mindspore",
            "pydantic_core": "pydantic", "sklearn": "scikit-learn", "yaml": "pyyaml"}  # fmt: skip


def declared(extra=None):
    """Canonical names of the dependencies, or of an extra's."""
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return {canonicalize_name(Requirement(line).name) for line in lines} - {"labkit"}


def needed(package):
    """Packages that a package's modules import, in functions as well."""
    modules = set()
    for file in package.rglob("*.py") if package.is_dir() else [package]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules |= {name.partition(".")[0] for name in names}
    theirs = modules - sys.stdlib_module_names - {"labkit", "grader"}
    return {canonicalize_name(PACKAGES.get(name, name)) for name in theirs}


@pytest.mark.parametrize(
    "package", ["grader", *sorted(f"labkit/{path.name}" for path in (REPO / "labkit").iterdir() if path.name[0] != "_")]
)
def test_what_a_package_imports_is_declared(package):
    extra = EXTRAS.get(package)
    assert needed(REPO / package) - declared() <= (declared(extra) if extra else set())


def test_extras_are_pinned():
    lines = [line for file in REPO.glob("requirements*.txt") for line in file.read_text().splitlines()]
    lines += (REPO / "constraints.txt").read_text().splitlines()
    lines += re.findall(r"^\w+ +:= (\S+==\S+)$", (REPO / "Makefile").read_text(), flags=re.M)
    pins = {canonicalize_name(re.split(r"[=<>;\s]", line)[0]) for line in lines if line and line[0] != "#"}
    assert {name for extra in PROJECT["optional-dependencies"] for name in declared(extra)} <= pins


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Function that runs labkit from a wheel, as `pip install .` leaves it: without the course's folder."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in ("labkit", "grader"):
        shutil.copytree(REPO / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", folder)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, folder]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("labkit-*.whl")
    site = folder.resolve() / "site"
    zipfile.ZipFile(wheel).extractall(site)

    def run(*arguments):
        command = [sys.executable, "-m", "labkit", *arguments]
        return subprocess.run(
            command, cwd=site, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True
        )  # fmt: skip

    run.site = site
    return run


def test_a_wheel_is_whole(away):
    files = [path for package in ("labkit", "grader") for path in (REPO / package).rglob("*")]
    missing = [path for path in files if path.suffix in (".py", ".html", ".css")
               and not (away.site / path.relative_to(REPO)).is_file()]  # fmt: skip
    assert missing == []


@pytest.mark.parametrize("command", [("train", "cifar10"), ("doctor",)], ids=" ".join)
def test_a_copy_away_from_the_course_says_what_to_do(away, command):
    done = away(*command)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "run `pip install -e .` in the course's folder" in done.stderr


def test_its_help_works(away):
    assert "labkit doctor" in away("--help").stdout
