"""Grade a class: an executor does a submission at a time, and each result is kept as soon as it is there.

DIR/results/STUDENT.json has a result and its key: the lab, what was handed in, this labkit and its environment, the
seed and the sandbox. A result whose key is still the same is not computed again.
"""

import functools
import hashlib
import json
import os
import shlex
import shutil
import tempfile
import unicodedata
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.grading import executors, fonts, grade, handed_in, report, submissions
from labkit.grading.executors import BatchError
from labkit.grading.lab import Lab
from labkit.system.files import atomic_write, locked

SCRATCH = ".scratch"  # in DIR: what is unpacked; a grading that was killed leaves it, the next one removes it
FILES = {"grades.csv", "grades.json", "index.html", "overview.svg"}
OURS = {"results", "feedback", SCRATCH, *FILES, *(f"{name}.part" for name in FILES)}


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
                else:  # larger than it may be: its size tells that as well
                    copy.truncate(data)
        return grade.grade_one(task.lab, task.student, task.answers, (Path(folder),), *arguments)


def grade_batch(lab: Lab, place: Path, out: Path, *, jobs: int | None = None, scheduler: str | None = None,
                seed: int | None = None, sandboxed: bool = True, progress=None, drop=(),
                tell=lambda line: None) -> tuple[list[dict], dict]:  # fmt: skip
    """Grade all submissions at `place` into the folder `out`: results, and by student why one could not be graded.

    progress(all, done), if given, is a context manager that gives a function, called with each student who is done.
    An interrupted call leaves what is done, and the same call goes on; whoever was graded into `out` before must be
    among the submissions, or in `drop`: that learner's result and page are removed. tell(line) is called with what the
    instructor should know. Raises BatchError, SubmissionsError, LabError.
    """
    place, out, seed = Path(place), Path(out), lab.manifest.seed if seed is None else seed
    _require_apart(place, out)
    earlier = _earlier(lab, out)
    with _folder(out), _scratch(out) as scratch:
        listed = {one.student: one for one in submissions.find(place, scratch, tell)}
        dropped = _dropped(drop, earlier, listed, place, tell)
        _require_all(earlier, {*listed, *dropped}, out)
        kept = [earlier[student]["key"] for student in earlier if student not in dropped]
        others = sorted({key.get("seed", seed) for key in kept} - {seed})
        if others:
            tell(f"the seed differs from the last grading's ({', '.join(map(str, others))}): all are graded again")
        pages = dict(zip(listed, report.feedback_names(list(listed)), strict=True))
        _clear_halves(out, pages)
        about, found, answers, keys = executors.about(lab) | {"seed": seed, "sandboxed": sandboxed}, {}, {}, {}
        with executors.Reader(functools.partial(submissions.read_answers, lab)) as read:
            for student, one in listed.items():
                found[student] = one = submissions.look(one)
                answers[student] = _read(read, one)
                keys[student] = {**about, "submission": _digest(one, answers[student])}
                submissions.clear(one)
        with_run = [student for student in found if found[student].runs and lab.manifest.run]
        data = handed_in.required_of(lab)[1] if with_run else ""  # missing, that is no learner's fault
        for student in with_run:
            keys[student]["data"] = data
        results, failed = {}, {}
        for student in found:
            if earlier.get(student, {}).get("key") == keys[student]:
                results[student] = earlier[student]["result"]
        todo = [student for student in found if student not in results]
        executed = [student for student in todo if not answers[student].problem]

        def keep(student, result):
            text = json.dumps({"key": keys[student], "result": result}, indent=1) + "\n"
            atomic_write(out / "results" / f"{student}.json", text)
            results[student] = json.loads(text)["result"]  # as a later grading finds it

        def begin():
            """From here on there is nothing in `out` that a result does not stand behind, until all is written."""
            for file in [*(out / name for name in FILES), *(out / "feedback" / pages[student] for student in todo),
                         *(out / "results" / f"{student}.json" for student in todo),
                         *(out / name for names in dropped.values() for name in names)]:  # fmt: skip
                file.unlink(missing_ok=True)
            for student in todo:
                if answers[student].problem:
                    keep(student, grade.nothing(lab, student, answers[student].problem))

        if executed:
            with (
                _pool(lab, jobs, scheduler, sandboxed, scratch) as pool,
                (progress or _unseen)(len(found), len(found) - len(executed)) as tell,
            ):
                references = pool.call(grade.references, lab, seed, sandboxed)
                if data and pool.call(handed_in.required_of, lab)[1] != data:
                    raise BatchError("the data of Runs are others on the workers than here")
                begin()
                tasks = {}
                for student in executed:
                    one, sources = found[student], answers[student].sources
                    tasks[student] = functools.partial(
                        _work_of, lab, one, sources, references, seed, sandboxed, scheduler is not None
                    )
                for student, result, error in pool.results(work, tasks):
                    submissions.clear(found[student])
                    if error:
                        failed[student] = error
                    else:
                        keep(student, result)
                    tell(student)
        else:
            begin()
        ordered = [results[student] for student in sorted(results)]
        report.write(lab, ordered, out, seed)
    return ordered, failed


def _read(read, one):
    """Answers of a submission, or its problem where reading it never ends or takes all memory."""
    if one.problem:
        return submissions.Answers(problem=one.problem)
    try:
        return read(one)
    except executors.NotRead as error:
        names = submissions.printable(", ".join(file.name for file in one.notebooks[:5]))
        return submissions.Answers(problem=f"{names}: {error}")


def _work_of(lab, one, sources, references, seed, sandboxed, elsewhere):
    if one.runs:
        one = submissions.look(one)  # its zip was unpacked to be read, and is again, for a while
        if one.problem:
            raise BatchError(f"{one.student}: changed while the class was graded: {one.problem}")
    files = _run_files(one.runs[0]) if elsewhere and len(one.runs) == 1 else None
    return Work(lab, one.student, sources, one.runs, files, references, seed, sandboxed)


def _run_files(run):
    """What can be read of a Run: the files' bytes, or their size where it is more than they may have."""
    found = {}
    for name, most in handed_in.TAKEN.items():
        if handed_in.is_own_file(run, name) and os.access(run / name, os.R_OK, effective_ids=True):
            size = (run / name).stat().st_size
            found[name] = size if size > most else (run / name).read_bytes()
    return found


def _pool(lab, jobs, scheduler, sandboxed, scratch):
    if scheduler:
        return executors.dask(scheduler, lab, sandboxed)
    return executors.local(jobs or executors.most_jobs(lab.manifest.memory), scratch)


@contextmanager
def _unseen(total, done):
    yield lambda student: None


@contextmanager
def _folder(out):
    """`out` for this grading alone; gone again where it is new and nothing has come into it."""
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(out, BatchError(f"{out}: another grading into it is under way")):
            yield
    finally:
        if new:
            _remove_empty(out)


@contextmanager
def _scratch(out):
    """An empty folder in `out`; what an earlier grading left, as it was killed, is removed."""
    scratch = out / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    new = [folder for folder in (out / "results", out / "feedback") if not folder.exists()]
    for folder in (*new, scratch):
        folder.mkdir(exist_ok=True)
    try:
        with fonts.kept_in(scratch.resolve() / "matplotlib"):
            yield scratch.resolve()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _remove_empty(*new)


def _remove_empty(*folders):
    for folder in folders:
        with suppress(OSError):  # there is something in it
            folder.rmdir()


def _digest(one, answers):
    """SHA-256 of what is graded of a submission: its answers' sources, and the files of its Run."""
    total = hashlib.sha256(json.dumps([answers.sources, answers.problem, len(one.runs)]).encode())
    for run in one.runs:
        total.update(json.dumps(run.name).encode())
        for name in handed_in.TAKEN:
            if handed_in.is_own_file(run, name):
                total.update(name.encode())
                try:
                    with open(run / name, "rb") as file:
                        while block := file.read(1 << 20):
                            total.update(block)
                except PermissionError:  # the Run's page tells the learner
                    total.update(b"\0")
    return total.hexdigest()


def _require_apart(place, out):
    """BatchError where results would lie among the submissions, or these in the folder of results."""
    if not place.exists():
        raise submissions.SubmissionsError(f"{place}: there is no such folder or zip")
    inner, outer = place.resolve(), out.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise BatchError(f"{out}: choose a folder apart from the submissions, {place}")


def _earlier(lab, out):
    """{student: {"key", "result"}} of an earlier grading of this lab into `out`; BatchError for anything else there."""
    if not out.exists():
        return {}
    if not out.is_dir():
        raise BatchError(f"{out}: not a folder")
    there = {entry.name for entry in out.iterdir()}
    if "grades.json" in there and "results" not in there and there <= OURS:
        raise BatchError(f"{out}: its folder results is gone: put it back, or remove all of {out} to grade anew")
    strange = sorted(there - OURS) or (sorted(there) if there and "results" not in there else [])
    if strange:
        raise BatchError(f"{out}: holds {strange[0]}, which no earlier grading has left; choose another folder")
    found = {}
    for file in sorted((out / "results").iterdir()) if there else []:
        if file.suffix == ".part":
            continue
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            name, student = document["key"]["lab"], document["result"]["student"]
        except (ValueError, KeyError, TypeError, OSError):
            raise BatchError(f"{file}: not a result of an earlier grading; choose another folder") from None
        if name != lab.name:
            raise BatchError(f"{out}: holds a grading of the lab {name}; choose another folder")
        found[student] = document
    return found


def _dropped(drop, earlier, found, place, tell):
    """{student: files in `out`} of those whose results are to be removed; BatchError for one who would come again."""
    pages = dict(zip(earlier, report.feedback_names(list(earlier)), strict=True))
    dropped = {}
    for name in (unicodedata.normalize("NFC", name) for name in drop):
        if name in found:
            raise BatchError(f"--drop {name}: is among the submissions: take it out of {place} first")
        if name in earlier:
            dropped[name] = (f"results/{name}.json", f"feedback/{pages[name]}")
        else:  # the same command may go on after an interruption
            tell(f"--drop {name}: nobody of that name has a result, nothing to remove")
    return dropped


def _require_all(earlier, found, out):
    """BatchError where learners graded before are not among the submissions: their results would be gone."""
    gone = sorted(set(earlier) - set(found))
    if gone:
        names = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        many = "1 learner graded before is" if len(gone) == 1 else f"{len(gone)} learners graded before are"
        options = " ".join(f"--drop {shlex.quote(name)}" for name in gone[:3]) + (" ..." if len(gone) > 3 else "")
        raise BatchError(
            f"{out}: {many} not among the submissions ({names}): grade all together, remove the results with "
            f"{options}, or choose another -o"
        )


def _clear_halves(out, pages):
    """Remove the halves of files that a grading left as it was killed."""
    own = [name for student, page in pages.items() for name in (f"results/{student}.json", f"feedback/{page}")]
    for name in [*FILES, *own]:
        (out / f"{name}.part").unlink(missing_ok=True)
