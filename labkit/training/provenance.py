"""Provenance: where a result comes from. Commit, versions, machine, processes and data set."""

import os
import platform
import subprocess

import labkit
from labkit.system import environment, files

COMMIT = "LABKIT_COMMIT"  # in a job: the commit that it was submitted from, with a "+" if files differed


def collect(dataset: dict, processes: int = 1) -> dict:
    """Where a result comes from: commit, versions, machine, processes and data set."""
    versions = {"labkit": labkit.__version__, "python": platform.python_version()}
    versions |= {package: environment.version_of(package) for package in ("mindspore", "numpy")}
    sha, changed = commit()
    return {
        "commit": sha,
        "dirty": changed,
        "versions": versions,
        "machine": environment.machine(),
        "cores": environment.cores(),
        "processes": processes,
        "dataset": dataset,
    }


def commit() -> tuple[str | None, bool | None]:
    """This labkit's commit, and whether files differ from it; in a job, as `labkit submit` recorded them; else None."""
    sha, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    if sha and git("rev-parse", "--show-toplevel") == str(environment.REPO):
        return sha, None if changes is None else bool(changes)
    given = os.environ.get(COMMIT, "")  # in somebody else's checkout too
    return (given.rstrip("+"), given.endswith("+")) if given else (None, None)


def git(*arguments: str) -> str | None:
    """Output of a git command in labkit's checkout; None if it fails (no checkout, no git)."""
    try:
        done = files.git(environment.REPO, *arguments, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None
