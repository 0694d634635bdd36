"""Pack the code of a job: the files of the lab and labkit that git tracks, and the requested recipe."""

import os
import shutil
from pathlib import Path

import yaml

from labkit.obs.place import CloudError
from labkit.system import environment
from labkit.system.files import checkout, git, tracked

BOOT_FILE = "train.py"
# Packages that a start file imports besides MindSpore and its dependencies; ModelArts installs them before the start.
NEEDS = ("pydantic", "PyYAML", "psutil", "tqdm", "click", "filelock", "esdk-obs-python")
NEEDS_FILE = "pip-requirements.txt"
OWN = {"__pycache__", ".venv", ".idea", ".vscode", ".DS_Store", ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache"}


def pack(submission, folder: Path) -> list[str]:
    """Write a Submission's code into an empty folder; returns the names of the files.

    The lab's files and labkit are next to each other, so that a start file finds labkit. The recipe has the requested
    settings and this machine's data folder: the job uses another, but a fetched Run must name this one. Recorded Runs
    are not packed.
    """
    package, lab = environment.REPO / "labkit", submission.lab
    files = {f"labkit/{name}": package / name for name in _tracked(package)}
    of_lab = [name for name in _tracked(lab) if not name.startswith("runs/")]
    if taken := [name for name in of_lab if name == NEEDS_FILE or name.startswith("labkit/")]:
        raise CloudError(f"{lab / taken[0]}: a job has labkit's own file of this name: rename it")
    files |= {name: lab / name for name in of_lab}
    if BOOT_FILE not in files:
        raise CloudError(f"{lab / BOOT_FILE}: not tracked by git, so a job would not get it: `git add` it")
    for name, source in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # follows links
    tree = submission.recipe.model_dump(exclude={"lab", "profile"})
    tree["data"]["folder"] = submission.data_at_home
    recipe = {"lab": submission.recipe.lab, "profiles": {submission.recipe.profile: tree}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    pinned = (environment.REPO / "requirements.txt").read_text(encoding="utf-8").splitlines()
    needed = "\n".join(line for line in pinned if line.partition("==")[0] in NEEDS)
    (folder / NEEDS_FILE).write_text(needed, encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def left_behind(lab: Path) -> list[str]:
    """Files of the lab and labkit that a job does not get: git does not track them, or has not checked them out."""
    names = []
    for folder in (lab, environment.REPO / "labkit"):
        others = git(folder, "ls-files", "--others", "-z").stdout.split(b"\0")
        missing = [name for name in tracked(folder, CloudError) or () if not (folder / name).is_file()]
        names += [str(folder / name) for name in [*map(os.fsdecode, filter(None, others)), *missing]
                  if not name.startswith("runs/") and OWN.isdisjoint(Path(name).parts)]  # fmt: skip
    return names


def _tracked(folder):
    """Names of the existing files in a folder that git tracks; CloudError if there are none."""
    names = [name for name in tracked(folder, CloudError) or () if (folder / name).is_file()]
    if not names:
        raise CloudError(f"{folder}: not tracked by git, so a job would not get it: `git add` it")
    for path in (folder / name for name in names):
        if not path.resolve().is_relative_to(checkout(folder)):
            raise CloudError(f"{path}: a link that leads out of this checkout: remove it")
    return names
