"""`make status`: a real repository, changed in one place after the other, and what is said of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.system.environment import mindspore_version

REPO = Path(__file__).resolve().parents[2]
RUN = "labs/cifar10/runs/resnet20-laptop"
STEPS = "tests/benchmarks/results/steps.json"
CLINIC = "labs/imagenet/parity/clinic.json"
INSTALLED = mindspore_version()


class Project:
    """The project's own status.py, Makefile, pins and recipe, a recorded Run, and a repository of git around them."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("book/build.py", "book/execution.py", "book/pages.py",
                     "book/status.py", "Makefile", "labs/cifar10/recipe.yaml",
                     "constraints.txt", "requirements.txt", "requirements-dev.txt",
                     "requirements-torch.txt"):  # fmt: skip
            self.write(name, (REPO / name).read_text())
        shutil.copytree(REPO / "book" / "_ext", folder / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
        self.write(".gitignore", "__pycache__/\n_build/\n.venv/\n")
        self.write(".venv/.choice", f"{INSTALLED}\n")
        self.write("labkit/networks/resnet.py", "layers = 20\n")
        self.write("labkit/parity/clinic.py", "defects = 17\n")
        self.write("labkit/obs/store.py", "parts = 8\n")
        self.git("init", "-q")
        code = self.commit()
        made = {"commit": code, "dirty": False, "versions": {"mindspore": self.pin("mindspore")}, "machine": "a CPU"}
        self.write(f"{RUN}/summary.json", json.dumps({"provenance": made}))
        self.write(f"{RUN}/recipe.yaml", (REPO / RUN / "recipe.yaml").read_text())
        self.write(STEPS, json.dumps({"date": "2026-11-21", "provenance": made}))
        self.write(CLINIC, json.dumps({"epsilon": {"about": {"MindSpore": self.pin("mindspore")}}}))
        self.commit()

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def edit(self, name, old, new):
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def git(self, *arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one more")
        return self.git("rev-parse", "HEAD")

    def pin(self, package):
        lines = (self.folder / "requirements.txt").read_text().splitlines()
        return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))

    def python(self, *arguments):
        env = {**os.environ, "LABKIT_DATA": str(self.folder / "data"), "VIRTUAL_ENV": str(self.folder / ".venv")}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=env, capture_output=True, text=True
        )  # fmt: skip

    def status(self) -> dict[str, tuple[str, str]]:
        """What is said of each thing, and what is to be done."""
        done = self.python("book/status.py")
        assert done.returncode == 0 and not done.stderr, done.stderr
        found, what = {}, ""
        for line in done.stdout.splitlines()[:-1]:
            if "  -> " in line and line.startswith(" "):
                found[what] = found[what][0], line.partition("-> ")[2]
            else:
                what, _, said = line.partition("  ")
                found[what] = said.strip(), ""
        return found

    def built(self):
        """As a build leaves it, without one."""
        code = "import sys, json; sys.path.insert(0, 'book'); import build; build.BUILD.mkdir(); "
        done = self.python("-c", code + "build.COMPLETE.write_text(json.dumps(build.pages()))")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


def test_records_without_a_change(project):
    found = project.status()
    assert {found[name] for name in (RUN, STEPS, CLINIC)} == {("current", "")}


def test_records_older_than_their_code(project):
    project.edit("labkit/obs/store.py", "8", "16")  # decides no result
    assert project.status()[RUN] == ("current", "")
    project.edit("labkit/networks/resnet.py", "20", "50")  # not committed
    changed, do = project.status()[RUN]
    assert changed.startswith("1 file of its code changed since") and "labkit/networks/resnet.py" in changed
    assert do.endswith("labkit train cifar10 --profile laptop")
    project.commit()
    found = project.status()
    assert found[RUN] == (changed, do) and found[STEPS][1].endswith("make bench ARGS=steps")
    assert "labkit/networks/resnet.py" in found[CLINIC][0]  # names no commit: compared with the one that brought it


def test_a_run_whose_recipe_has_changed(project):
    project.edit("labs/cifar10/recipe.yaml", "epochs: 30", "epochs: 31")
    assert project.status()[RUN][0] == "its recipe differs from today's in epochs"
    project.edit("labs/cifar10/recipe.yaml", "  laptop:", "  desk:")
    assert "no profile 'laptop'" in project.status()[RUN][0]


def test_another_mindspore(project):
    pin = project.pin("mindspore")
    project.edit("requirements.txt", f"mindspore=={pin}", "mindspore==9.9.9")
    project.write(".venv/.choice", "default\n")
    found = project.status()
    assert f"mindspore {INSTALLED}, pinned 9.9.9" in found["environment"][0] and found["environment"][1] == "make env"
    for name in (RUN, STEPS, CLINIC):
        assert found[name][0] == f"made with MindSpore {pin}, pinned 9.9.9"


def test_a_mindspore_of_ones_choice(project):
    """The environment is held against it, the records against the default."""
    assert "as pinned" in project.status()["environment"][0]
    project.write(".venv/.choice", "9.9.9 python3.12\n")
    found = project.status()
    assert f"mindspore {INSTALLED}, pinned 9.9.9" in found["environment"][0]
    assert found[RUN] == ("current", "")


def test_a_copy_without_the_history(project):
    """A shallow clone has not the commit, an archive no commit at all."""
    project.edit(f"{RUN}/summary.json", '"commit": "', '"commit": "0000')
    assert "commit 0000" in project.status()[RUN][0] and "not in this copy" in project.status()[RUN][0]
    shutil.rmtree(project.folder / ".git")
    assert project.status()[CLINIC][0] == "no history of git to compare with"


def test_a_damaged_record_hides_no_other(project):
    project.write(STEPS, "{")
    found = project.status()
    assert found[STEPS][0].startswith("cannot be looked at: JSONDecodeError") and found[RUN] == ("current", "")


def test_missing_packages(project):
    project.write("requirements-dev.txt", "no-such-package==1.0\n")
    assert "1 of" in project.status()["environment"][0]
    assert "no-such-package missing, pinned 1.0" in project.status()["environment"][0]


def test_pytorch_is_optional(project):
    project.write("requirements-torch.txt", "no-such-package==1.0\n")
    found, do = project.status()["PyTorch"]
    assert found.startswith("not installed") and "make torch" in found and not do


def test_the_sample_as_make_sees_it(project):
    assert project.status()["sample data"][1] == "make sample"


def test_book(project):
    assert project.status()["book"] == ("not built", "make book")
    project.built()
    assert project.status()["book"][0].endswith("current")
    project.write("book/index.md", "# A page\n")
    found = project.status()
    assert found["book: pages"] == ("1 of their files changed: book/index.md", "make book")
    assert "book: chapters" not in found and "book" not in found
    (project.folder / "_build" / ".complete").unlink()
    (project.folder / "_build" / "html").mkdir()
    assert project.status()["book"] == ("its last build failed or was interrupted", "make book")


def test_chapters_that_were_not_executed(project):
    project.built()
    project.write("book/one.md", "---\nkernelspec: {name: python3}\n---\n# One\n```{code-cell} python3\n1 + 1\n```\n")
    found = project.status()
    assert found["book: chapters"] == ("1 of 1 chapters to execute; changed: code cells", "make book")
    assert found["executed notebooks"] == ("0 of 1 chapters", "make book")


def test_printed_before_the_book_was_built(project):
    project.write("_build/pdf/course.pdf", "%PDF")
    assert project.status()["course.pdf"] == ("older than the book", "make pdf")


def test_an_environment_without_its_packages(project):
    done = project.python("-S", "book/status.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("environment: incomplete (No module named") and "make env" in done.stdout


def test_a_clone_without_an_environment(project):
    """It says so, makes nothing and ends well."""
    before = sorted(project.folder.rglob("*"))
    done = subprocess.run(["make", "status"], cwd=project.folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no .venv" in done.stdout and "make book" in done.stdout
    assert sorted(project.folder.rglob("*")) == before
