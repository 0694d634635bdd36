"""Grade a class: an executor does a submission at a time, and each result is kept as soon as it is there.

DIR/results/STUDENT.json has a result and its key: the lab, what was handed in, what of labkit decides the grade, its
environment, the seed and the sandbox. A result whose key is still the same is not computed again.
"""

import functools
import json
import shlex
import unicodedata
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from grader import digests, executors, fonts, grade, handed_in, records, report, submissions, work
from grader.answers import Answers, read_answers
from grader.executors import BatchError
from grader.lab import Lab
from grader.untrusted import remove
from labkit.system.files import atomic_write, locked

SCRATCH = ".scratch"  # in DIR: what is unpacked; a grading that was killed leaves it, the next one removes it
FAILED = "the grader itself failed at this, which need not be the learner's fault; the instructor sees why"
FILES = {"grades.csv", "grades.json", "index.html", "overview.svg"}
OURS = {"results", "feedback", SCRATCH, *FILES, *(f"{name}.part" for name in FILES)}


def grade_batch(lab: Lab, place: Path, out: Path, *, jobs: int | None = None, scheduler: str | None = None,
                seed: int | None = None, sandboxed: bool = True, progress=None, drop=(), only=(), tasks=(),
                sources: Path | None = None, language: str | None = None,
                tell=lambda line: None) -> tuple[list[dict], dict]:  # fmt: skip
    """Grade all submissions at `place` into the folder `out`: results, and by student why one could not be graded.

    An interrupted call keeps what is done, and the same call resumes. Whoever was graded into `out` before must be
    among the submissions or in `drop`. Raises BatchError, SubmissionsError, LabError.
    progress: progress(all, done) is a context manager; its value is called with each student graded.
    drop: learners whose results and pages are removed.
    only, tasks: grade these learners, and these tasks with those that need them, again even if nothing has changed;
    other results stay.
    sources: a folder for the answers as files, see `_write_sources`.
    language: of the learners' pages.
    tell: called with each line that the instructor should know.
    """
    place, out, seed = Path(place), Path(out), lab.manifest.seed if seed is None else seed
    only = {unicodedata.normalize("NFC", name) for name in only}
    report.speaker(lab, language)  # raises before anything is graded
    _require_apart(place, out)
    earlier, by_hand = _earlier(lab, out), records.read(lab, out)
    with _folder(out), _scratch(out) as scratch:
        listed = {one.student: one for one in submissions.find(place, scratch, tell)}
        dropped, dropped_files = _dropped(drop, earlier, listed, place, tell)
        _require_all(earlier, {*listed, *dropped}, out)
        kept = [earlier[student]["key"] for student in earlier if student not in dropped]
        others = sorted({key.get("seed", seed) for key in kept} - {seed})
        if others and not (only or tasks):
            tell(f"the seed differs from the last grading's ({', '.join(map(str, others))}): all are graded again")
        chosen = _chosen(lab, only, tasks, listed)
        pages = dict(zip(listed, report.feedback_names(list(listed)), strict=True))
        _clear_halves(out, pages)
        about, found, answers, keys = digests.about(lab) | {"seed": seed, "sandboxed": sandboxed}, {}, {}, {}
        with executors.Reader(functools.partial(_taken, lab)) as take:
            for student, one in listed.items():
                found[student], answers[student], submitted = _take(take, one)
                code = digests.of_labkit(lab, answers[student].sources.values())
                keys[student] = {**about, "labkit": code, "submission": submitted}
        with_run = [student for student in found if found[student].runs and lab.manifest.run]
        data = handed_in.required_of(lab)[1] if with_run else ""  # missing, that is no learner's fault
        for student in with_run:
            keys[student]["data"] = data
        before = {student: earlier[student] for student in found if "result" in earlier.get(student, {})}
        if chosen is None:
            same = [student for student in before if before[student]["key"] == keys[student]]
        else:
            same = [student for student in before if student not in (only or found)]
            now = report.questions(lab).keys()
            if other := [student for student in same if before[student]["result"]["tasks"].keys() != now]:
                raise BatchError(f"the lab's tasks have changed since {other[0]} was graded: leave out --only")
        results, failed = {student: before[student]["result"] for student in same}, {}
        todo = [student for student in found if student not in results]
        executed = [student for student in todo if not answers[student].problem]

        def keep(student, result):
            if tasks and student in before and not (result["problem"] or before[student]["result"]["problem"]):
                result, keys[student] = _merged(before[student]["result"], result, chosen), before[student]["key"]
            text = json.dumps({"key": keys[student], "result": result}, indent=1) + "\n"
            atomic_write(out / "results" / f"{student}.json", text)
            results[student] = json.loads(text)["result"]  # as a later grading finds it

        def begin():
            """From here on `out` has nothing but what a result is there for, until all is written."""
            anew = [student for student in todo if not (tasks and student in before)]  # others' results are merged
            old = [f"results/{student}.json" for student in anew] + [f"feedback/{pages[student]}" for student in todo]
            for name in (*FILES, *records.EXPORTS, *old, *dropped_files):
                (out / name).unlink(missing_ok=True)
            for student in todo:
                if answers[student].problem:
                    keep(student, grade.nothing(lab, student, answers[student].problem))

        if not executed:
            begin()
        else:
            with (
                _pool(lab, jobs, scheduler, sandboxed, scratch) as pool,
                progress(len(found), len(found) - len(executed)) if progress else nullcontext(lambda _: None) as done,
            ):
                references = pool.call(grade.references, lab, seed, sandboxed)
                if data and pool.call(handed_in.required_of, lab)[1] != data:
                    raise BatchError("the data of Runs are others on the workers than here")
                begin()
                work_of = functools.partial(_work_of, lab, references, seed, sandboxed, scheduler is not None)
                left = {
                    student: functools.partial(work_of, found[student], answers[student].sources)
                    for student in executed
                }
                for student, result, error in pool.results(work.work, left):
                    submissions.clear(found[student])
                    if error:  # a row all the same, with a key that no later grading takes for its own
                        failed[student], keys[student] = error, {"lab": lab.name}
                        result = grade.nothing(lab, student, FAILED)
                    keep(student, result)
                    done(student)
        ordered = records.applied(lab, [results[student] for student in sorted(results)], by_hand, tell)
        report.write(lab, ordered, out, seed, language)
        if sources:
            _write_sources(lab, {student: answers[student].sources for student in answers}, Path(sources))
    return ordered, failed


def _taken(lab, listed):
    """A submission looked into, its answers, and the digest of both: all that is done with what a stranger made."""
    one = submissions.look(listed)
    own = read_answers(lab, one)
    return one, own, work.digest(one.runs, own.sources, own.problem)


def _take(take, listed):
    """`_taken` in a process of its own; a problem where that never ends, takes all memory, or raises anything."""
    try:
        return take(listed)
    except executors.NotRead as error:
        names = ", ".join(entry.name for entry in listed.entries[:5]) or listed.student
        one = replace(listed, problem=submissions.printable(f"{names}: {error}"))
        return one, Answers(problem=one.problem), work.digest((), {}, one.problem)
    finally:
        submissions.clear(listed)


def _work_of(lab, references, seed, sandboxed, elsewhere, one, sources):
    if one.runs:
        one = submissions.look(one)  # its zip was unpacked to be read, and is again, for a while
        if one.problem:
            raise executors.NotRead(f"changed while the class was graded: {one.problem}")
    files = work.run_files(one.runs[0]) if elsewhere and len(one.runs) == 1 else None
    return work.Work(lab, one.student, sources, one.runs, files, references, seed, sandboxed)


def _pool(lab, jobs, scheduler, sandboxed, scratch):
    if scheduler:
        return executors.dask(scheduler, lab, sandboxed)
    return executors.local(jobs or executors.most_jobs(lab.manifest.memory), scratch)


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
    remove(scratch)
    new = [folder for folder in (out / "results", out / "feedback") if not folder.exists()]
    for folder in (*new, scratch):
        folder.mkdir(exist_ok=True)
    try:
        with fonts.kept_in(scratch.resolve() / "matplotlib"):
            yield scratch.resolve()
    finally:
        remove(scratch)
        _remove_empty(*new)


def _remove_empty(*folders):
    for folder in folders:
        with suppress(OSError):  # there is something in it
            folder.rmdir()


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
    there = {entry.name for entry in out.iterdir()} - records.KEPT - records.EXPORTS
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
        except (ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) and file.suffix == ".json":
                found[file.stem] = {"key": {"lab": lab.name}}  # half of a result: that learner is graded again
                continue
            raise BatchError(f"{file}: not a result of an earlier grading; choose another folder") from None
        if name != lab.name:
            raise BatchError(f"{out}: holds a grading of the lab {name}; choose another folder")
        found[student] = document
    return found


def _dropped(drop, earlier, found, place, tell):
    """Students whose results are to be removed, and their files in `out`; BatchError for one who would come again."""
    pages = dict(zip(earlier, report.feedback_names(list(earlier)), strict=True))
    names = {unicodedata.normalize("NFC", name) for name in drop}
    for name in sorted(names):
        if name in found:
            raise BatchError(f"--drop {name}: is among the submissions: take it out of {place} first")
        if name not in earlier:  # the same command may be given again after an interruption
            tell(f"--drop {name}: nobody of that name has a result, nothing to remove")
    dropped = names.intersection(earlier)
    return dropped, [file for name in dropped for file in _files_of(name, pages[name])]


def _chosen(lab, only, tasks, listed):
    """The tasks that are graded again, which are these and those that need them; None where all is as changes say."""
    for name in sorted(only):
        if name not in listed:
            raise BatchError(f"--only {name}: is not among the submissions")
    known = report.questions(lab)
    for name in tasks:
        if name not in known:
            raise BatchError(f"--task {name}: is none of {', '.join(known)}")
    if not (only or tasks):
        return None
    return {*tasks, *(name for name in lab.manifest.tasks if lab.manifest.all_needs(name).intersection(tasks))}


def _merged(before, result, chosen):
    """The earlier result with these tasks of a new one."""
    parts = {}
    for key in ("tasks", "answers", "errors"):
        old = {name: its for name, its in before.get(key, {}).items() if name not in chosen}
        new = {name: its for name, its in result[key].items() if name in chosen or name not in before["tasks"]}
        parts[key] = {name: (old | new)[name] for name in result["tasks"] if name in old | new}
    return result | parts | {"score": grade.total(task["points"] for task in parts["tasks"].values())}


def _files_of(student, page):
    return f"results/{student}.json", f"feedback/{page}"


def _require_all(earlier, found, out):
    """BatchError where learners graded before are not among the submissions: their results would be gone."""
    gone = sorted(set(earlier) - set(found))
    if gone:
        more = ["..."] if len(gone) > 3 else []
        many = "1 learner graded before is" if len(gone) == 1 else f"{len(gone)} learners graded before are"
        options = " ".join([f"--drop {shlex.quote(name)}" for name in gone[:3]] + more)
        raise BatchError(
            f"{out}: {many} not among the submissions ({', '.join(gone[:3] + more)}): grade all together, remove the "
            f"results with {options}, or choose another -o"
        )


def _write_sources(lab, answers, folder):
    """answers/STUDENT.py for a tool that looks for copies, and what is no evidence, boilerplate/stubs.py."""
    of_all = {f"answers/{student}.py": sources for student, sources in answers.items() if sources}
    for name, sources in (of_all | {"boilerplate/stubs.py": lab.stubs}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(f"# {task}\n{source}" for task, source in sources.items()) + "\n"
        atomic_write(folder / name, text.encode("utf-8", "backslashreplace"))


def _clear_halves(out, pages):
    """Remove the halves of files that a grading left as it was killed."""
    own = [name for student, page in pages.items() for name in _files_of(student, page)]
    for name in (*FILES, *own):
        (out / f"{name}.part").unlink(missing_ok=True)
