"""GitHub's workflows name versions, make targets and paths that exist. They have never run; nothing else checks."""

import re
from pathlib import Path

import pytest
import yaml

from labkit.system import versions

REPO = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
MADE = ("_build/", ".venv/")  # paths that a build makes


def loaded(file: Path) -> dict:
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads the key `on` as true
    return found


def steps(file: Path) -> list[dict]:
    return [step for job in loaded(file)["jobs"].values() for step in job["steps"]]


def commands(file: Path) -> str:
    return "\n".join(step.get("run", "") for step in steps(file))


def cells() -> list[dict]:
    return loaded(REPO / ".github/workflows/tests.yml")["jobs"]["quick"]["strategy"]["matrix"]["include"]


def made() -> set[str]:
    return {target for file in WORKFLOWS for target in re.findall(r"^ *make ([a-z-]+)", commands(file), flags=re.M)}


def test_there_are_three():
    assert [file.name for file in WORKFLOWS] == ["book.yml", "nightly.yml", "tests.yml"]


def test_the_matrix_is_that_of_the_project():
    """Each supported Python and series of MindSpore, and no other; the default in the version that is pinned."""
    tested = [cell for cell in cells() if not cell["experimental"]]
    assert {cell["python"] for cell in tested} == set(versions.PYTHONS)
    assert {versions.series_of(cell["mindspore"]) for cell in tested} == set(versions.MINDSPORES)
    assert {cell["python"] for cell in cells()} <= set(versions.PYTHONS)
    of_default = [c for c in cells() if versions.series_of(c["mindspore"]) == versions.series_of(versions.MINDSPORE)]
    assert {cell["mindspore"] for cell in of_default} == {versions.MINDSPORE}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_each_python_is_supported_and_text(file):
    named = [str(step["with"]["python-version"]) for step in steps(file) if "setup-python" in step.get("uses", "")]
    assert named
    assert all(name in versions.PYTHONS or name == "${{ matrix.python }}" for name in named)
    assert "python-version: 3" not in file.read_text(encoding="utf-8")  # without quotes 3.10 is 3.1


@pytest.mark.parametrize("target", sorted(made()))
def test_each_target_is_in_the_makefile(target):
    assert re.search(rf"^{target}:", (REPO / "Makefile").read_text(encoding="utf-8"), flags=re.M)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_each_path_exists(file):
    """In commands, comments and caches. A path is a word that begins with a file or folder of the project."""
    text = file.read_text(encoding="utf-8")
    words = {word.rstrip(".") for word in re.findall(r"[\w.*/-]+", text)}
    top = {path.name for path in REPO.iterdir()}
    named = {word for word in words if word.partition("/")[0] in top and re.search("[./]", word)}
    named |= {line for step in steps(file) for line in step.get("with", {}).get("cache-dependency-path", "").split()}
    assert not [word for word in sorted(named) if not word.startswith(MADE) and not list(REPO.glob(word))]


def test_the_pdf_is_the_one_that_make_pdf_writes():
    assert "_build/pdf/resnet50-on-mindspore.pdf" in commands(REPO / ".github/workflows/book.yml")
    assert "resnet50-on-mindspore.pdf" in (REPO / "book/pdf.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_rights_times_and_versions_are_bounded(file):
    """No right but reading unless a job asks for it, an end for each job, and actions at a major version."""
    found = loaded(file)
    assert found["permissions"] == {"contents": "read"} and "concurrency" in found
    assert all(0 < job["timeout-minutes"] < 360 for job in found["jobs"].values())
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps(file) if "uses" in step)
    assert "Checked with actionlint, but never run." in file.read_text(encoding="utf-8")
