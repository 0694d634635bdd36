"""Packing: the code of a job, which is what git tracks of the lab and of labkit, and the recipe that was asked for."""

import shutil
from pathlib import Path

import yaml

from labkit.obs.place import CloudError
from labkit.system import environment
from labkit.system.files import checkout, tracked

BOOT_FILE = "train.py"
# What a start file imports besides MindSpore and what that brings; ModelArts installs them before it starts the code.
NEEDS = ("pydantic", "PyYAML", "psutil", "tqdm", "click", "filelock", "esdk-obs-python")
NEEDS_FILE = "pip-requirements.txt"


def pack(submission, folder: Path) -> list[str]:
    """Write a Submission's code into an empty folder; returns the names of its files.

    The lab and labkit are side by side, so that a start file finds labkit. The recipe has the requested settings and
    this machine's data folder: the job uses another, but a fetched Run must name this one. Recorded Runs are no code
    and stay here.
    """
    package, lab = environment.REPO / "labkit", submission.lab
    files = {f"labkit/{name}": package / name for name in _tracked(package)}
    files |= {name: lab / name for name in _tracked(lab) if not name.startswith("runs/")}
    if BOOT_FILE not in files:
        raise CloudError(f"{lab / BOOT_FILE}: git does not track it; a job gets what git tracks: `git add` it")
    for name, source in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # of a link, the file that it leads to
    tree = submission.recipe.model_dump(exclude={"lab", "profile"})
    tree["data"]["folder"] = submission.data_at_home
    recipe = {"lab": submission.recipe.lab, "profiles": {submission.recipe.profile: tree}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    pinned = (environment.REPO / "requirements.txt").read_text(encoding="utf-8").splitlines()
    needed = [line for line in pinned if line.partition("==")[0] in NEEDS]
    (folder / NEEDS_FILE).write_text("\n".join(needed), encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _tracked(folder):
    """Names of the files below a folder that git tracks and that are there; CloudError where git does not know it."""
    names = [name for name in tracked(folder, CloudError) or () if (folder / name).is_file()]
    if not names:
        raise CloudError(f"{folder}: git tracks nothing there; a job gets what git tracks: `git add` it")
    for path in (folder / name for name in names):
        if not path.resolve().is_relative_to(checkout(folder)):
            raise CloudError(f"{path}: a link to a file that is not in this checkout: remove it")
    return names
