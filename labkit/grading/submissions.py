"""What learners handed in: a folder or a zip with a notebook, a folder or a zip for each; and the answers in it.

Nothing here is trusted: a file that cannot be read is its learner's problem, told in a line, and the others go on.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from labkit.grading.archives import ArchiveError, unpack
from labkit.grading.grade import normalised
from labkit.grading.lab import Lab
from labkit.system.errors import LabkitError

NOTEBOOKS = (".ipynb", ".md")
NAME = re.compile(r"\w(?:[\w.@+ -]{0,58}[\w@+-])?")  # what every file system takes, and no spreadsheet computes
RUN_FILES = ("history.jsonl", "summary.json", "provenance.json", "checkpoints")  # the lab's own recipe.yaml has none
MOST_FILES = 10_000  # in one folder or zip
MOST_BYTES = 1_000_000_000  # of a learner's zip, unpacked
MOST_BYTES_OF_ALL = 20_000_000_000  # of a zip with all of them
MOST_NOTEBOOKS = 20  # of a learner
MOST_NAMED = 20  # in a line
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EFBIG, errno.ENOMEM}
LONGEST_NOTEBOOK = {".ipynb": 50_000_000, ".md": 2_000_000}  # bytes; outputs with pictures are large
LONGEST_ANSWER = 200_000  # characters
LONGEST_METADATA = 20_000  # characters of YAML that belong to one cell


class SubmissionsError(LabkitError):
    """Submissions that cannot be graded at all: one line that names the file."""


class Unreadable(Exception):
    """A learner's file that cannot be used: one line that says why, for the learner's page."""


@dataclass(frozen=True)
class Submission:
    """What one learner handed in: its entry, once looked into its notebooks and Runs, or what is wrong with it."""

    student: str
    entries: tuple[Path, ...] = ()
    scratch: Path | None = None  # where its zips are unpacked
    notebooks: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Answers:
    """Source of the answer cells by task, as far as they are there; or why there are none at all."""

    sources: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def find(place: Path, scratch: Path, tell=lambda line: None) -> list[Submission]:
    """Submissions in a folder or a zip, by learner, not looked into yet. Raises SubmissionsError.

    A zip of all is unpacked into `scratch`, as those of learners will be. tell(line) is called with what the
    instructor should know: files that are nobody's, and names that look like one learner's.
    """
    place, origin = Path(place), Path(place)
    if place.is_file() and place.suffix.lower() in NOTEBOOKS:
        raise SubmissionsError(f"{origin}: is one notebook: give the folder it is in")
    if place.is_file():
        place = scratch / "all"
        try:
            unpack(origin, place, MOST_FILES * 10, MOST_BYTES_OF_ALL)
        except ArchiveError as error:
            raise SubmissionsError(f"{origin}: {error}") from None
        except OSError as error:
            raise SubmissionsError(f"{origin}: cannot be unpacked here: {error.strerror}") from None
        entries = _visible(place)
        if [entry.name for entry in entries] == [origin.stem] and entries[0].is_dir():
            place = entries[0]
    elif not place.is_dir():
        raise SubmissionsError(f"{place}: there is no such folder or zip")
    by_student, strays = {}, []
    for entry in _visible(place):
        if not entry.is_dir() and entry.suffix.lower() not in (*NOTEBOOKS, ".zip"):
            strays.append(entry.name)
            continue
        name = entry.name if _is_folder(entry) else entry.stem
        by_student.setdefault(unicodedata.normalize("NFC", name).casefold(), []).append(entry)
    if strays:
        tell(f"not a notebook, folder or zip, ignored: {_listed(strays, ', ')}")
    if not by_student:
        raise SubmissionsError(f"{origin}: holds no submissions")
    found = {}
    for number, entries in enumerate(by_student.values()):
        submission = _of_student(tuple(entries), scratch / f"{number:05}")
        while submission.student in found:  # a name that was changed may be another's
            submission = replace(submission, student=f"{submission.student}_")
        found[submission.student] = submission
    if pairs := _alike(found):
        tell(f"perhaps one learner, graded as two (leave one of them): {_listed(pairs, '; ')}")
    return [found[student] for student in sorted(found)]


def _listed(texts, between):
    more = f"{between}and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return printable(between.join(texts[:MOST_NAMED]) + more)


def _alike(students):
    """["gina, gina.final"]: names of which one is the other with a part more."""
    known = {student.casefold(): student for student in sorted(students)}
    found = []
    for folded, student in known.items():
        shorter = [known.get(folded[:place]) for place, letter in enumerate(folded) if letter in ". _-"]
        found += [f"{other}, {student}" for other in shorter if other]
    return found


def _visible(folder):
    return sorted(entry for entry in folder.iterdir() if not _hidden(entry.name))


def _hidden(name):
    """.DS_Store, .ipynb_checkpoints, and what macOS adds to a zip."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def _is_folder(entry):
    return entry.is_dir() and not entry.is_symlink()


def _of_student(entries, scratch):
    entry = entries[0]
    student = unicodedata.normalize("NFC", entry.name if _is_folder(entry) else entry.stem)
    if not NAME.fullmatch(student):
        # Its own name for its files, and none that another learner could have.
        digest = hashlib.sha256(student.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        safe = re.sub(r"[^\w.@+-]", "_", student).strip("._-@+ ")[:40] or "unnamed"
        problem = "the name must begin with a letter or digit and have letters, digits, spaces, ., _, @, + and - only"
        return Submission(f"{safe}-{digest}", problem=f"{printable(entry.name)}: {problem}, 60 at most")
    if len(entries) > 1:
        names = ", ".join(other.name for other in entries)
        return Submission(student, problem=printable(f"more than one submission: {names}"))
    return Submission(student, entries, scratch)


def look(submission: Submission) -> Submission:
    """The submission with its notebooks and Runs, or with its problem; its zips stay unpacked until `clear`.

    Raises SubmissionsError where the grader's own disk is full or fails.
    """
    if submission.problem:
        return submission
    clear(submission)
    (entry,) = submission.entries
    try:
        _require_plain(entry, entry.name)
        if entry.is_file() and entry.suffix.lower() in NOTEBOOKS:
            return replace(submission, notebooks=(entry,))
        folder = entry if entry.is_dir() else _unpacked(entry, submission.scratch / "zip")
        notebooks, runs = _search(folder, submission.scratch)
        if not notebooks:
            raise Unreadable(f"{entry.name}: no notebook in it (.ipynb or .md)")
        if len(notebooks) > MOST_NOTEBOOKS:
            raise Unreadable(f"{entry.name}: {len(notebooks):,} notebooks are more than {MOST_NOTEBOOKS}")
        return replace(submission, notebooks=tuple(notebooks), runs=tuple(runs))
    except Unreadable as error:
        return replace(submission, problem=printable(error))
    except OSError as error:
        _require_own(error, entry)
        return replace(submission, problem=printable(f"{entry.name}: cannot be read ({error.strerror})"))


def clear(submission: Submission) -> None:
    """Remove what was unpacked of a submission: of a class's zips only those that are looked at take room."""
    if submission.scratch and submission.scratch.exists():
        shutil.rmtree(submission.scratch)


def _require_own(error, file):
    """SubmissionsError where the machine that grades is the reason: no learner's problem."""
    if error.errno in OF_THE_MACHINE:
        raise SubmissionsError(f"{file}: cannot be looked into here: {error.strerror}") from None


def _unpacked(archive, folder):
    try:
        unpack(archive, folder, MOST_FILES, MOST_BYTES)
    except ArchiveError as error:
        raise Unreadable(f"{archive.name}: {error}") from None
    return folder


def _search(folder, scratch, nested=True):
    """Notebooks and Runs below a learner's folder, those in zips beside them included; a Run has no notebooks."""
    notebooks, runs, archives, count = [], [], [], 0
    for path, folders, files in os.walk(folder, onerror=_raise):
        path = Path(path)
        folders[:] = sorted(name for name in folders if not _hidden(name))
        files = sorted(name for name in files if not _hidden(name))
        count += len(folders) + len(files)
        if count > MOST_FILES:
            raise Unreadable(f"more than {MOST_FILES:,} files")
        for name in folders + files:
            _require_plain(path / name, str((path / name).relative_to(folder)))
        if "recipe.yaml" in files and {*folders, *files}.intersection(RUN_FILES):
            runs.append(path)
            for below in [path / name for name in folders]:
                _search(below, scratch, nested=False)  # for links
            folders.clear()
            continue
        notebooks += [path / name for name in files if Path(name).suffix.lower() in NOTEBOOKS]
        archives += [path / name for name in files if Path(name).suffix.lower() == ".zip"]
    if archives and nested:
        if len(archives) > 1:  # each may be large when it is unpacked
            raise Unreadable(f"more than one zip: {', '.join(archive.name for archive in archives)}")
        more = _search(_unpacked(archives[0], scratch / "inner"), scratch, nested=False)
        notebooks, runs = notebooks + more[0], runs + more[1]
    trained = [run for run in runs if any(run.glob("checkpoints/*.ckpt"))]  # the lab's recorded Runs have none
    return notebooks, trained or runs


def _raise(error):
    raise error


def _require_plain(entry, name):
    """A link may lead anywhere, a pipe or a device never ends."""
    mode = entry.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise Unreadable(f"{name}: {'a link' if stat.S_ISLNK(mode) else 'not a file'}")


def read_answers(lab: Lab, submission: Submission) -> Answers:
    """Source of a submission's answer cells, and nothing else of its notebook; never raises for what is in it."""
    if submission.problem:
        return Answers(problem=submission.problem)
    found, problems = {}, []
    for file in submission.notebooks:
        try:
            sources = _answers_of(lab, file)
            found.setdefault(tuple((task, normalised(text)) for task, text in sources.items()), (file, sources))
        except Unreadable as error:
            problems.append(printable(f"{file.name}: {error}"))
    untouched = {task: normalised(stub) for task, stub in lab.stubs.items()}
    begun = [found[key] for key in found if any(text != untouched[task] for task, text in key)]
    usable = begun or list(found.values())[:1]
    if not usable:
        return Answers(problem="; ".join(problems[:3]))
    if len(usable) > 1:
        names = printable(", ".join(file.name for file, _ in usable[:5]))
        return Answers(problem=f"several notebooks with different answers: {names}; hand in one")
    return Answers(usable[0][1])


def _answers_of(lab, file):
    """Sources of a notebook's answer cells by task, in the lab's order; raises Unreadable."""
    try:
        size = file.stat().st_size
        if size > LONGEST_NOTEBOOK[file.suffix.lower()]:
            raise Unreadable(f"{size / 1e6:.0f} MB are too large for a notebook; clear its outputs")
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("not text") from None
    except OSError as error:
        _require_own(error, file)
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    notebook = _from_markdown(text) if file.suffix.lower() == ".md" else _from_json(text)
    _require_python(notebook)
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    sources = {}
    for task in lab.manifest.tasks:
        own = [cell for cell in cells if cell.get("id") == f"answer-{task}"]
        own = own or [cell for cell in cells if _metadata(cell).get("answer") == task]  # old Jupyter drops ids
        if own:
            sources[task] = "\n".join(_source(cell, task) for cell in own)
            if len(sources[task]) > LONGEST_ANSWER:
                raise Unreadable(f"the answer to {task} has more than {LONGEST_ANSWER:,} characters")
    if not sources:
        raise Unreadable(f"no answer cell of the lab {lab.name}: another lab's notebook, or all of them deleted")
    return sources


def _metadata(cell):
    return cell["metadata"] if isinstance(cell.get("metadata"), dict) else {}


def _source(cell, task):
    text = cell.get("source")
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "".join(text)
    if not isinstance(text, str):
        raise Unreadable(f"the cell of {task} holds no text")
    return text


def _from_json(text):
    try:
        notebook = json.loads(text)
    except MemoryError:
        raise Unreadable("takes too much memory; clear its outputs") from None
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"damaged: not valid JSON{where}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise Unreadable("not a notebook of format 4")
    return notebook


def _from_markdown(text):
    import jupytext

    try:
        for block in _metadata_blocks(text):
            if len(block) > LONGEST_METADATA:
                raise Unreadable(f"metadata of more than {LONGEST_METADATA:,} characters")
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(block, yaml.SafeLoader)):
                raise Unreadable("its metadata have YAML aliases")  # ten lines of them can fill the memory
        return jupytext.reads(text, fmt="md:myst")
    except Unreadable:
        raise
    except Exception as error:  # what strangers wrote may upset a parser in any way
        reason = " ".join(str(error).split())[:100]
        raise Unreadable(f"damaged: not a notebook in Markdown ({reason})") from None


def _metadata_blocks(text):
    """The YAML at the head of a text in MyST and of its cells, line by line: a pattern may go over them for hours."""
    block, end = None, ""
    before = "{code-cell}"
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if block is None and "{code-cell}" in before and mark[:1] in ("-", ":"):
            end = "---" if mark == "---" else ""
            block = [] if end else [line.lstrip()[1:]]
        elif block is not None and (mark == end if end else mark[:1] != ":"):
            yield "\n".join(block)
            block = None
        elif block is not None:
            block.append(line if end else line.lstrip()[1:])
        before = line
    if block:
        yield "\n".join(block)


def _require_python(notebook):
    """A kernel of another name does not matter, as the grader takes its own; another language does."""
    metadata = _metadata(notebook)
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        said = metadata.get(key)
        language = said.get(name) if isinstance(said, dict) else None
        if isinstance(language, str) and not language.lower().startswith(("python", "ipython")):
            raise Unreadable(f"a notebook in {language[:40]}, not in Python")


def printable(text) -> str:
    """One line that any file can hold: no control characters, no halves of letters."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
