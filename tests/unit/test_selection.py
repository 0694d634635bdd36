"""Which tests run when: the list of slow ones names what exists, and what passed is run again only after a change."""

import json
import os
import subprocess
import sys

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


@pytest.mark.parametrize("name, slow", [
    ("tests/thor/test_ranks.py::test_x", True),
    ("tests/parity/test_parity.py::test_every_other_depth_is_equal[resnet34]", True),
    ("tests/parity/test_parity.py::test_every_other_depth_is_equal_too", False),
    ("tests/cloud/test_many.py_other::test_x", False),
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
        for name in ("selection.py",):
            (folder / "tests" / name).write_text((REPO / "tests" / name).read_text())
        (folder / "tests" / "slow.yaml").write_text("[{why: slow, tests: [test_slow.py]}]")
        (folder / "tests" / "conftest.py").write_text(
            "import sys; sys.path.insert(0, 'tests')\npytest_plugins = ['selection']\n"
        )
        (folder / "tests" / "test_probe.py").write_text(PROBE)
        (folder / "tests" / "test_slow.py").write_text("def test_waits(): pass\n")
        (folder / "book").mkdir()
        (folder / "book" / "pdf.py").write_text((REPO / "book" / "pdf.py").read_text())
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


NO_CHROMIUM = {"PATH": "/nonexistent"}


def test_what_passed_is_run_again_after_a_change_only(project):
    path = {"PATH": os.pathsep.join(part for part in ["/usr/bin", "/bin"] if os.path.exists(f"{part}/git"))}
    first, left = project.run("-m", "not slow", **path)
    assert first["test_passes"] == "PASSED" and first["test_fails"] == "FAILED" and "test_waits" not in first
    assert left[selection.SLOW_ONLY] == 1
    second, left = project.run("-m", "not slow", FIXED="1", **path)
    assert "test_passes" not in second and second["test_fails"] == "PASSED" and left[selection.UNCHANGED] >= 1
    again, left = project.run("-m", "not slow", FIXED="1", AGAIN="1", **path)
    assert again["test_passes"] == again["test_fails"] == "PASSED" and selection.UNCHANGED not in left
    everything, _ = project.run(FIXED="1", **path)
    assert everything.keys() - {"test_needs"} == {"test_waits"}
    (project.folder / "tests" / "test_slow.py").write_text("def test_waits(): assert 1 + 1\n")
    changed, _ = project.run(FIXED="1", **path)
    assert {"test_passes", "test_fails", "test_waits"} <= changed.keys()


def test_several_processes_count_once(project):
    _, left = project.run("-m", "not slow", "-n", "2", FIXED="1")
    assert left[selection.SLOW_ONLY] == 1
    _, left = project.run("-m", "not slow", "-n", "2", FIXED="1")
    assert left[selection.UNCHANGED] in (2, 3) and left[selection.SLOW_ONLY] == 1
