"""What learners handed in: a folder or a zip, with a notebook, a folder or a zip for each of them.

Nothing here is trusted: a file that cannot be used is its learner's problem, in a line, and the others are graded.
"""

import errno
import hashlib
import os
import re
import stat
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path

from grader.untrusted import DEEPEST, Unreadable, remove, unpack, unpack_each
from labkit.system.errors import LabkitError

NOTEBOOKS = (".ipynb", ".md")
# What every file system takes, and no spreadsheet computes; letters may have marks besides.
NAME = re.compile(r"\w(?:[\w.@+ ,'’()-]*[\w@+)-])?")
MOODLE = re.compile(r"(.+?_\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")  # of a download of all submissions
NOT_TAKEN = "not a notebook (.ipynb or .md), a folder or a zip; hand in one of these"
RUN_FILES = ("history.jsonl", "summary.json", "provenance.json", "checkpoints")  # the lab's own recipe.yaml has none
LONGEST_LINE = 1000
LONGEST_NAME = 180  # bytes, so that pages and results have room for their endings in the 255 of a file's name
MOST_FILES = 10_000  # in one folder or zip
MOST_BYTES = 1_000_000_000  # of a learner's zip, unpacked
MOST_NOTEBOOKS = 20  # of a learner
MOST_NAMED = 20  # in a line
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EFBIG, errno.ENOMEM}


class SubmissionsError(LabkitError):
    """Submissions that cannot be graded at all: one line that names the file."""


@dataclass(frozen=True)
class Submission:
    """What one learner handed in: its entries; after `look`, also its notebooks and Runs, or its problem."""

    student: str
    entries: tuple[Path, ...] = ()
    scratch: Path | None = None  # where its zips are unpacked
    notebooks: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()
    problem: str = ""


def find(place: Path, scratch: Path, tell=lambda line: None) -> list[Submission]:
    """Submissions in a folder or a zip, by learner, still unopened. Raises SubmissionsError.

    A zip of all is unpacked into `scratch`, as those of learners will be. tell(line) reports what the instructor should
    know: ignored files, changed names, and names that may belong to one learner.
    """
    origin, by_student, strays, renamed = Path(place), {}, [], []
    folder, left_out = _folder_of(origin, scratch / "all")
    for entry in sorted({*_visible(folder), *(folder / name for name in left_out)}):
        by_student.setdefault(_name(entry).lower(), []).append(entry)
    if not by_student:
        raise SubmissionsError(f"{origin}: holds no submissions")
    found = {}
    for number, entries in enumerate(by_student.values()):
        taken = [entry for entry in entries if entry.name in left_out or _is_taken(entry)]
        strays += [entry.name for entry in entries if entry not in taken]
        submission = _of_student(tuple(taken), _name(entries[0]), scratch / f"{number:05}")
        if not taken:
            submission = replace(submission, problem=printable(f"{entries[0].name}: {NOT_TAKEN}"))
        if why := next((left_out[entry.name] for entry in entries if entry.name in left_out), ""):
            submission = replace(submission, problem=printable(why))
        while submission.student in found:  # a name that was changed may be another's
            submission = replace(submission, student=f"{submission.student}_")
        found[submission.student] = submission
        if submission.student != _name(entries[0]):
            renamed.append(f"{_name(entries[0])}, graded as {submission.student}")
    if strays:
        tell(f"not a notebook, folder or zip, ignored: {_listed(strays, ', ')}")
    if renamed:
        tell(f"a name that not every file system takes: {_listed(renamed, '; ')}")
    if pairs := _alike(found):
        tell(f"perhaps one learner, graded as two (leave one of them): {_listed(pairs, '; ')}")
    return [found[student] for student in sorted(found)]


def _folder_of(place, scratch):
    """The folder with an entry for each learner, and of a zip what could not be unpacked: why, by an entry's name."""
    if place.is_dir():
        return place, {}
    if not place.is_file():
        raise SubmissionsError(f"{place}: there is no such folder or zip")
    if place.suffix.lower() in NOTEBOOKS:
        raise SubmissionsError(f"{place}: is one notebook: give the folder it is in")
    try:
        return unpack_each(place, scratch, MOST_FILES, MOST_BYTES)
    except Unreadable as error:
        raise SubmissionsError(str(error)) from None
    except OSError as error:
        raise SubmissionsError(f"{place}: cannot be unpacked here: {error.strerror}") from None


def _listed(texts, between):
    more = f"{between}and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return printable(between.join(texts[:MOST_NAMED]) + more)


def _alike(students):
    """["gina, gina.final"]: names of which one is the other with a part more."""
    known = {student.lower(): student for student in sorted(students)}
    cuts = [(folded, at) for folded in known for at, letter in enumerate(folded) if letter in ". _-("]
    return [f"{known[folded[:at]]}, {known[folded]}" for folded, at in cuts if folded[:at] in known]


def _visible(folder):
    return sorted(entry for entry in folder.iterdir() if not _hidden(entry.name))


def _hidden(name):
    """.DS_Store, .ipynb_checkpoints, and what macOS adds to a zip."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def _is_folder(entry):
    try:
        return stat.S_ISDIR(entry.stat().st_mode)
    except OSError:  # a link that leads nowhere
        return False


def _is_taken(entry):
    return _is_folder(entry) or entry.suffix.lower() in (*NOTEBOOKS, ".zip")


def _name(entry):
    """The learner's name: of Moodle's longer one its first part, of `ann.ipynb.txt` what is before the endings."""
    text = unicodedata.normalize("NFC", entry.name)
    if moodle := MOODLE.match(text):
        return moodle[1]
    if _is_folder(entry) and not entry.is_symlink():
        return text
    text = Path(text).stem
    while Path(text).suffix.lower() in (*NOTEBOOKS, ".zip"):
        text = Path(text).stem
    return text


def _is_usual(name):
    letters = "".join(letter for letter in name if not unicodedata.category(letter).startswith("M"))
    short = len(name) <= 60 and len(os.fsencode(name)) <= LONGEST_NAME
    return short and letters[:1] == name[:1] and NAME.fullmatch(letters) is not None


def _of_student(entries, name, scratch):
    student = name
    if not _is_usual(name):
        # Its own name for its files, and none that another learner could have.
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        safe = re.sub(r"[^\w.@+-]", "_", name).strip("._-@+ ")[:40] or "unnamed"
        student = f"{safe}-{digest}"
    if len(entries) > 1 and not all(MOODLE.match(entry.name) for entry in entries):
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
    name, entry = submission.entries[0].name, submission.entries[0]
    notebooks, runs, archives = [], [], []
    try:
        for entry in submission.entries:
            _require_plain(entry, entry.name)
            if entry.is_dir():
                more = _search(entry, submission.scratch)
                notebooks, runs = notebooks + more[0], runs + more[1]
            else:
                (notebooks if entry.suffix.lower() in NOTEBOOKS else archives).append(entry)
        if len(archives) > 1:
            raise Unreadable(f"more than one zip: {', '.join(archive.name for archive in archives)}")
        for entry in archives:
            more = _search(unpack(entry, submission.scratch / "zip", MOST_FILES, MOST_BYTES), submission.scratch)
            notebooks, runs = notebooks + more[0], runs + more[1]
        if not notebooks:
            raise Unreadable(f"{name}: no notebook in it (.ipynb or .md)")
        if len(notebooks) > MOST_NOTEBOOKS:
            raise Unreadable(f"{name}: {len(notebooks):,} notebooks are more than {MOST_NOTEBOOKS}")
        return replace(submission, notebooks=tuple(notebooks), runs=tuple(runs))
    except Unreadable as error:
        return replace(submission, problem=printable(error))
    except OSError as error:
        require_own(error, entry)
        return replace(submission, problem=printable(f"{name}: cannot be read ({error.strerror})"))


def clear(submission: Submission) -> None:
    """Remove a submission's unpacked files, so that of a class only open submissions use disk space."""
    if submission.scratch and submission.scratch.exists():
        remove(submission.scratch)


def require_own(error: OSError, file: Path) -> None:
    """SubmissionsError if the grader's machine caused the error, not the learner."""
    if error.errno in OF_THE_MACHINE:
        raise SubmissionsError(f"{file}: cannot be looked into here: {error.strerror}") from None


def _search(folder, scratch, nested=True):
    """Notebooks and Runs below a learner's folder, those in zips beside them included; a Run has no notebooks."""
    notebooks, runs, archives, count = [], [], [], 0
    for path, folders, files in os.walk(folder, onerror=_raise):
        path = Path(path)
        folders[:] = sorted(name for name in folders if not _hidden(name))
        files = sorted(name for name in files if not _hidden(name))
        if len(path.relative_to(folder).parts) > DEEPEST:
            raise Unreadable(f"folders within folders, more than {DEEPEST} deep")
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
        more = _search(unpack(archives[0], scratch / "inner", MOST_FILES, MOST_BYTES), scratch, nested=False)
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


def printable(text) -> str:
    """The text as one line that any file can hold, not too long; control characters and lone surrogates become "?"."""
    line = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} ..."
