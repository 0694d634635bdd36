"""Grade a class: each thread grades one submission at a time and saves its result immediately.

DIR/results/STUDENT.json contains a result and its key: the lab, the submission, all code and packages, the seed and the
sandbox. A result with an unchanged key is not computed again. DIR/grader.log contains the grader's own failures.
"""

import hashlib
import importlib.metadata
import json
import os
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from grader import answers, grade, handed_in, handout, limits, records, report, submissions, translation
from grader.lab import Lab
from grader.submissions import Unreadable
from grader.verdicts import FAILED
from labkit.system import environment
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write, locked

LOG = "grader.log"


@dataclass
class Learner:
    """A learner's submission and its result."""

    name: str
    entries: list[Path]
    answers: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # a line for each file that cannot be used
    key: dict = field(default_factory=dict)
    result: dict | None = None
    failed: str = ""  # why the grader itself failed; later gradings do not reuse this result


def grade_batch(lab: Lab, place: Path, out: Path, *, jobs: int | None = None, seed: int | None = None,
                sandboxed: bool = True, sources: Path | None = None, language: str | None = None,
                notify=lambda line: None) -> tuple[list[dict], dict]:  # fmt: skip
    """Grade all submissions at `place` into the folder `out`: results, and {student: why grading failed}.

    If interrupted, the same call resumes. Raises LabkitError if the class cannot be graded.
    sources: a folder for the answers as files; notify: called with each line for the instructor.
    """
    place, out, seed = Path(place), Path(out), lab.manifest.seed if seed is None else seed
    translation.speaker(lab.name, language)  # raises before anything is graded
    if out.resolve().is_relative_to(place.resolve()) or place.resolve().is_relative_to(out.resolve()):
        raise LabkitError(f"{out}: choose a folder that neither contains nor is in the submissions, {place}")
    with tempfile.TemporaryDirectory(prefix="labkit-grade-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        learners = [Learner(*found) for found in submissions.find(place, scratch / "all", notify).items()]
        out.mkdir(parents=True, exist_ok=True)
        with locked(out, LabkitError(f"{out}: another grading into this folder is under way")):
            earlier, by_hand = _earlier(lab, out), records.read(lab, out)
            if gone := sorted(earlier.keys() - {learner.name for learner in learners}):
                raise LabkitError(f"{out}: graded before, but not among the submissions: {', '.join(gone[:3])}; grade "
                                  f"all together, delete {out}/results/NAME.json, or choose another -o")  # fmt: skip
            (out / "results").mkdir(exist_ok=True)
            (out / LOG).unlink(missing_ok=True)
            about = {"lab": lab.name, "code": _code(lab), "seed": seed, "sandboxed": sandboxed}
            for learner in learners:
                with _failing(lab, learner, out), submissions.opened(learner.entries, scratch) as submitted:
                    notebooks, runs, left = submitted
                    learner.answers, problems = answers.read(lab, notebooks)
                    learner.left_out = [submissions.shown(line) for line in dict.fromkeys(left + problems)]
                    learner.key = about | {"submission": _digest(lab, learner, runs)}
                    if earlier.get(learner.name, {}).get("key") == learner.key:
                        learner.result = earlier[learner.name]["result"]
            if todo := [learner for learner in learners if not learner.result]:
                references = grade.references(lab, seed, sandboxed)

                def work(learner):
                    with _failing(lab, learner, out), submissions.opened(learner.entries, scratch) as (_, runs, _):
                        if learner.key["submission"] != _digest(lab, learner, runs):
                            raise OSError("it changed while it was graded")
                        distinct = list({_digest_of_run(run): run for run in runs}.values())  # not a folder and its zip
                        given = (lab, learner.name, learner.answers, distinct)
                        learner.result = grade.grade_one(*given, references, seed, sandboxed)
                        learner.result["left_out"] = learner.left_out
                    if not limits.STOP.is_set():
                        _keep(learner, out)
                    return learner.name

                by_memory = psutil.virtual_memory().available // (lab.manifest.memory * 1_000_000)
                _each(work, todo, jobs or max(1, min(environment.cores(), by_memory)), notify)
            for learner in learners:
                _keep(learner, out)
            results = records.applied(lab, [learner.result for learner in learners], *by_hand, notify)
            report.write(lab, results, out, seed, language)
            if sources:
                _write_sources(lab, learners, sources)
    return results, {learner.name: learner.failed for learner in learners if learner.failed}


@contextmanager
def _failing(lab, learner, out):
    """Any error with a submission becomes that learner's result, with the reason; the traceback goes to the log."""
    try:
        yield
        return
    except Unreadable as error:
        problem = str(error)
    except Exception as error:
        problem, learner.failed = FAILED, " ".join(str(error).split()) or type(error).__name__
        with open(out / LOG, "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{learner.name}\n{traceback.format_exc()}\n")
    learner.result = grade.nothing(lab, learner.name, submissions.shown(problem))


def _keep(learner, out):
    document = {"key": {} if learner.failed else learner.key, "result": learner.result}
    atomic_write(out / "results" / f"{submissions.file_name(learner.name)}.json", json.dumps(document, indent=1) + "\n")


def _each(work, todo, jobs, notify):
    """Do the work in threads; an interruption stops all of them."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(work, learner) for learner in todo]
            for number, future in enumerate(as_completed(futures), start=1):
                notify(f"{number} of {len(todo)}: {future.result()}")
        except BaseException:
            limits.STOP.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            limits.STOP.clear()


def _code(lab):
    """SHA-256 of what decides a grade besides the submission: lab, labkit, grader, and installed packages."""
    files = [*(REPO / "labkit").rglob("*.py"), *(REPO / "grader").rglob("*.py"), *handout.handed_out(lab.folder)]
    packages = sorted({(package.name, package.version) for package in importlib.metadata.distributions()})
    total = hashlib.sha256(f"{lab.digest} {packages}".encode())
    for file in sorted(files):
        total.update(os.fsencode(file) + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _digest(lab, learner, runs):
    """SHA-256 of what is graded: a submission's answers, its Run's files, and the lab's data for the Run."""
    total = hashlib.sha256(json.dumps([learner.answers, learner.left_out, [run.name for run in runs]]).encode())
    if lab.manifest.run and runs:
        total.update(handed_in.required_of(lab)[1].encode())
        total.update("".join(map(_digest_of_run, runs)).encode())
    return total.hexdigest()


def _digest_of_run(run):
    total = hashlib.sha256()
    for name, most in handed_in.LARGEST.items():
        size = (run / name).stat().st_size if (run / name).is_file() else None
        content = (run / name).read_bytes() if size is not None and size <= most else b""
        total.update(f"{name} {size}".encode() + hashlib.sha256(content).digest())
    return total.hexdigest()


def _earlier(lab, out):
    """{student: {"key", "result"}} of an earlier grading of this lab in `out`; LabkitError for anything else in it."""
    others = {entry.name for entry in out.iterdir() if entry.name[0] != "."} - {records.ROSTER, records.OVERRIDES}
    if others and not (out / "results").is_dir():
        raise LabkitError(f"{out}: contains {min(others)}, but no earlier grading; choose another folder")
    results = {}
    for file in (out / "results").glob("*.json"):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            results[document["result"]["student"]] = document
            name = document["key"].get("lab", lab.name)
        except (ValueError, KeyError, TypeError):
            raise LabkitError(f"{file}: not a result of an earlier grading; remove it, or choose another -o") from None
        if name != lab.name:
            raise LabkitError(f"{out}: contains a grading of the lab {name}; choose another folder")
    return results


def _write_sources(lab, learners, folder):
    """answers/STUDENT.py for a plagiarism detector, and boilerplate/stubs.py, which it should ignore."""
    answers = {f"answers/{submissions.file_name(learner.name)}.py": learner.answers
               for learner in learners if learner.answers}  # fmt: skip
    for name, sources in (answers | {"boilerplate/stubs.py": lab.stubs}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(f"# {task}\n{source}" for task, source in sources.items()) + "\n"
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
