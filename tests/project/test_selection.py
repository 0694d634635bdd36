"""Which tests run when: the list of slow ones names what exists, and what passed is run again only after a change."""

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import selection

REPO = selection.REPO


@pytest.mark.parametrize("name", selection.slow())
def test_the_list_of_slow_tests_names_what_exists(name):
    place, _, test = name.partition("::")
    assert (REPO / place).exists()
    assert f"def {test.partition('[')[0]}(" in (REPO / place).read_text() if test else True
    if "[" in test:
        listing = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", place]
        done = subprocess.run(listing, cwd=REPO, capture_output=True, text=True, env=os.environ | {"AGAIN": "1"})
        assert name in done.stdout.splitlines()


def test_no_folder_with_tests_is_left_out(pytestconfig):
    """pytest passes over folders by their names: `data` once meant the data sets, and tests/data with them."""
    patterns = pytestconfig.getini("norecursedirs")
    folders = {part for file in REPO.glob("tests/**/test_*.py") for part in file.relative_to(REPO).parts[1:-1]}
    assert {"data", "thor"} <= folders
    assert [name for name in folders if any(fnmatch(name, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize("name, slow", [
    ("tests/thor/test_ranks.py::test_x", True),
    ("tests/parity/test_parity.py::test_every_other_depth_is_equal[resnet34]", True),
    ("tests/parity/test_parity.py::test_every_other_depth_is_equal_too", False),
    ("tests/obs/test_many.py_other::test_x", False),
    ("tests/parity/test_parity.py::test_nothing_in_common_is_said", False),
])  # fmt: skip
def test_a_name_stands_for_all_below_it(name, slow):
    assert selection.is_slow(name) is slow


PROBE = """
import os
import pytest

def test_passes(): pass
def test_fails(): assert "FIXED" in os.environ
def test_needs():
    import selection
    selection.require("Chromium")
"""


class Project:
    """A repository with a test file and the plugin; its tests are run by pytest itself."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tests").mkdir(parents=True)
        (folder / "tests" / "selection.py").write_text((REPO / "tests" / "selection.py").read_text())
        (folder / "tests" / "slow.yaml").write_text("[{why: slow, tests: [test_slow.py]}]")
        (folder / "tests" / "conftest.py").write_text(
            "import sys; sys.path.insert(0, 'tests')\npytest_plugins = ['selection']\n"
        )
        (folder / "tests" / "test_probe.py").write_text(PROBE)
        (folder / "tests" / "test_slow.py").write_text("def test_waits(): pass\n")
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: slow\n")
        (folder / ".gitignore").write_text("_build\n__pycache__\n.pytest_cache\nreport\n")
        for command in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", "-C", folder, *command], check=True)

    def run(self, *arguments, **variables):
        """Outcomes by test, and what was not run."""
        report = self.folder / "report"
        report.unlink(missing_ok=True)
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("LABKIT_TESTS", "PYTEST", "AGAIN"))}  # fmt: skip
        env |= {"LABKIT_TESTS_REPORT": str(report), **variables}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "tests", *arguments], cwd=self.folder,
            capture_output=True, text=True, env=env,
        )  # fmt: skip
        outcomes = {}
        for line in done.stdout.splitlines():
            words = line.split()
            if "::" in line and len(words) > 1 and words[1] in ("PASSED", "FAILED", "SKIPPED"):
                outcomes[words[0].partition("::")[2]] = words[1]
        lines = report.read_text().splitlines() if report.exists() else []
        return outcomes, dict(map(json.loads, lines))


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


# git, and no Chromium wherever it is
def bare(tmp_path):
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / "git").unlink(missing_ok=True)
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    return {"PATH": str(tmp_path / "bin")}


def test_what_passed_is_run_again_after_a_change_only(project, tmp_path):
    path = bare(tmp_path)
    first, left = project.run("-m", "not slow", **path)
    assert first == {"test_passes": "PASSED", "test_fails": "FAILED", "test_needs": "SKIPPED"}
    assert left[selection.SLOW_ONLY] == 1 and sum(left.values()) == 2
    second, left = project.run("-m", "not slow", FIXED="1", **path)
    assert second == {"test_fails": "PASSED", "test_needs": "SKIPPED"} and left[selection.UNCHANGED] == 1
    again, left = project.run("-m", "not slow", AGAIN="1", **path)
    assert again["test_passes"] == "PASSED" and again["test_fails"] == "FAILED" and selection.UNCHANGED not in left
    assert "test_fails" in project.run("-m", "not slow", **path)[0], "what failed last is forgotten"
    everything, _ = project.run(FIXED="1", **path)
    assert everything.keys() == {"test_fails", "test_needs", "test_waits"}
    (project.folder / "tests" / "test_slow.py").write_text("def test_waits(): assert 1 + 1\n")
    changed, _ = project.run(FIXED="1", **path)
    assert changed.keys() == {"test_passes", "test_fails", "test_needs", "test_waits"}


def test_what_must_be_there_fails_where_it_is_missing(project, tmp_path):
    found, left = project.run(LABKIT_TESTS_NEED="bubblewrap,Chromium", **bare(tmp_path))
    assert found["test_needs"] == "FAILED" and not left
    assert project.run(LABKIT_TESTS_NEED="bubblewrap", **bare(tmp_path))[0]["test_needs"] == "SKIPPED"


def test_without_git_all_tests_run(project, tmp_path):
    for _ in range(2):
        found, _ = project.run("-m", "not slow", PATH=str(tmp_path))
        assert found["test_passes"] == "PASSED"


def test_no_other_mark_makes_a_test_slow():
    files = [path for path in (REPO / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert [path.name for path in files if "mark.slow" in path.read_text()] == []


def test_several_processes_count_once(project):
    _, left = project.run("-m", "not slow", "-n", "2", FIXED="1")
    assert left[selection.SLOW_ONLY] == 1
    _, left = project.run("-m", "not slow", "-n", "2", FIXED="1")
    assert left[selection.UNCHANGED] in (2, 3) and left[selection.SLOW_ONLY] == 1
