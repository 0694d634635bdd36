"""A submission on its way to the process that grades it, which may be on another machine."""

import functools
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grader import grade, handed_in
from grader.lab import Lab


@dataclass(frozen=True)
class Work:
    """All that a process needs to grade one submission; pickled on its way there."""

    lab: Lab
    student: str
    answers: dict[str, str]
    runs: tuple[Path, ...]
    run_files: dict[str, bytes | int] | None  # of the Run, where the process may be on another machine
    references: dict
    seed: int
    sandboxed: bool


def work(task: Work) -> dict:
    """Result of a submission; what the executor's processes do."""
    arguments = (task.references, task.seed, task.sandboxed)
    if task.run_files is None:
        return grade.grade_one(task.lab, task.student, task.answers, task.runs, *arguments)
    with tempfile.TemporaryDirectory(prefix="labkit-grade-") as folder:
        for name, data in task.run_files.items():
            file = Path(folder, name)
            file.parent.mkdir(exist_ok=True)
            with open(file, "wb") as copy:
                if isinstance(data, bytes):
                    copy.write(data)
                else:  # larger than it may be: its size is all that counts
                    copy.truncate(data)
        return grade.grade_one(task.lab, task.student, task.answers, (Path(folder),), *arguments)


def run_files(run: Path) -> dict[str, bytes | int]:
    """What can be read of a Run: the files' bytes, or their size where it is more than they may have."""
    found = {}
    for name, most in handed_in.TAKEN.items():
        if handed_in.is_own_file(run, name) and os.access(run / name, os.R_OK, effective_ids=True):
            size = (run / name).stat().st_size
            found[name] = size if size > most else (run / name).read_bytes()
    return found


def digest(runs: tuple[Path, ...], *answers) -> str:
    """SHA-256 of what is graded of a submission: its answers, and the files of its Run."""
    total = hashlib.sha256(json.dumps([*answers, len(runs)]).encode())
    for run in runs:
        total.update(json.dumps(run.name).encode())
        for name in filter(functools.partial(handed_in.is_own_file, run), handed_in.TAKEN):
            total.update(name.encode())
            try:
                with open(run / name, "rb") as file:
                    while block := file.read(1 << 20):
                        total.update(block)
            except PermissionError:  # the Run's page has it
                total.update(b"\0")
    return total.hexdigest()
