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
    package = environment.REPO / "labkit"
    wanted = {f"labkit/{name}": package / name for name in _tracked(package)}
    wanted |= {name: submission.lab / name for name in _tracked(submission.lab) if not name.startswith("runs/")}
    if BOOT_FILE not in wanted:
        file = submission.lab / BOOT_FILE
        raise CloudError(f"{file}: git does not track it; a job gets what git tracks: `git add` it")
    if taken := [name for name in _tracked(submission.lab) if name.startswith("labkit/") or name == NEEDS_FILE]:
        raise CloudError(f"{submission.lab / taken[0]}: the job brings its own file of this name: rename yours")
    for name, source in wanted.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # of a link, the file that it leads to: one of these
    tree = submission.recipe.model_dump(exclude={"lab", "profile"})
    tree["data"]["folder"] = submission.data_at_home
    recipe = {"lab": submission.recipe.lab, "profiles": {submission.recipe.profile: tree}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    (folder / NEEDS_FILE).write_text("".join(f"{line}\n" for line in needs()), encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def needs() -> list[str]:
    """What a job installs, in the versions of the project's requirements.txt if it exists."""
    file = environment.REPO / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pinned = {line.partition("==")[0].strip(): line.strip() for line in lines if "==" in line}
    return [pinned.get(name, name) for name in NEEDS]


def _tracked(folder):
    """Names of the files below a folder that git tracks and that are there; CloudError where git does not know it."""
    listed = tracked(folder, CloudError)
    if listed is None:
        top = environment.REPO if folder.is_relative_to(environment.REPO) else folder
        raise CloudError(f"{top}: no checkout of git; a job gets what git tracks: `git init`, then `git add .` there")
    names = [name for name in listed if (folder / name).is_file()]
    for path in (folder / name for name in names):  # a link may lead to anybody's file
        end = path.resolve()
        here = path.is_symlink() and checkout(end.parent) == checkout(folder)
        if path.is_symlink() and not (here and end.name in tracked(end.parent, CloudError)):
            raise CloudError(f"{path}: a link to a file that git does not track here: remove it")
    if not names:
        raise CloudError(f"{folder}: git tracks nothing there; a job gets what git tracks: `git add` it")
    return names

