"""Execute chapters, and know which have to be executed again.

jupyter-cache knows a chapter by its code cells. What these cells import and read is recorded while they run
(recorder.py), in `_build/.inputs`, with a digest of each file. A chapter is executed again when its code cells, one of
these files or a package changes, or when a program that it asks for appears or disappears.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import sys
import sysconfig
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path

import yaml
from filelock import FileLock
from packaging.requirements import Requirement

from labkit import doctor
from labkit.system.environment import cores, version_of

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "book" / "_ext"))

import learners_version  # noqa: E402

BUILD = REPO / "_build"
INPUTS = BUILD / ".inputs"
RECORDER = REPO / "book" / "recorder.py"
# A line that Python runs when it starts, in a file beside the installed packages: a chapter may change PYTHONPATH.
START_UP = 'import os; os.environ.get("BOOK_READS") and __import__("runpy").run_path(os.environ["BOOK_RECORDER"])\n'
# What is read by programs that are not recorded: the shell, git, and Python in the grader's sandbox.
UNSEEN = {
    "book/2-migration/scaling.md": ["labs/imagenet/scripts/*.sh"],
    "book/4-cloud/jobs.md": ["labkit/**/"],  # it packs the files that git lists
    "book/4-cloud/rehearsal.md": ["labkit/**/"],
    "book/appendix/grading.md": ["grader/*.py", "labkit/system/*.py", "tests/grader/tiny/*"],
}
# Rooms of labkit that a chapter reads only to pack them: a hand-out's zip holds all of labkit, and the page shows
# nothing of it. The tiny lab that is graded there asks for no Run, so nothing trains.
PACKED = {
    "book/appendix/grading.md": ["data", "doctor.py", "launch", "losses.py", "modelarts", "networks", "obs",
                                 "optimizers.py", "parity", "schedules.py", "thor"],
}  # fmt: skip
# Chapters whose figures are times: they are executed one at a time, and nothing else meanwhile.
MEASURING = [
    "book/1-cifar10/callbacks.md",
    "book/2-migration/precision.md",
    "book/2-migration/performance.md",
]
MOST_AT_ONCE = 4  # a chapter takes up to 3 GB
NOT_LISTED = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}


# -- What a chapter's output depends on ----------------------------------------------------------------


def pinned(file: Path) -> dict[str, str]:
    """The packages that a file of requirements asks for on this Python, each with its version."""
    lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {one.name: str(one.specifier).removeprefix("==") for one in found if not one.marker or one.marker.evaluate()}


def installed() -> str:
    """What every chapter runs on: the installed versions, which need not be the pinned ones, and the data sets."""
    packages = [f"{name} {version_of(name)}" for name in pinned(REPO / "requirements.txt")]
    data = [f"{file.parent.name}: {file.read_text(errors='replace')}" for file in sorted(_data().glob("*/SOURCE.txt"))]
    return ", ".join([f"Python {sys.version_info[:2]}", *packages, *data, _sample(), str(digest("constraints.txt"))])


def _data():
    return Path(os.environ.get("LABKIT_DATA") or REPO / "data")


@cache
def _sample():
    """A digest of the sample's files; the recorder leaves out everything in the data folder."""
    found = hashlib.sha256()
    for file in sorted(path for path in (_data() / "sample").rglob("*") if path.is_file()):
        found.update(file.relative_to(_data()).as_posix().encode() + file.read_bytes())
    return f"sample {found.hexdigest()[:16]}"


def pytorch() -> str:
    """PyTorch's packages that are installed: with them part 2 runs live, without them it shows what was recorded."""
    found = {name: importlib.util.find_spec(name) for name in ("torch", "torchvision", "onnxruntime")}
    there = [name for name, spec in found.items() if spec and spec.origin]  # no origin: `pip uninstall` left folders
    return ", ".join(f"{name} {version_of(name)}" for name in there)


def programs() -> str:
    """The programs that some chapters ask for, where they are installed."""
    return ", ".join(name for name in ("bwrap", *doctor.BROWSERS, "chromedriver") if shutil.which(name))


# Modules that look for something optional: a chapter that reads one of them depends on what it finds.
ASK_FOR = {
    "labkit/parity/pytorch.py": [pytorch],
    "grader/sandbox.py": [programs],
    "labkit/doctor.py": [pytorch, programs],
}


@cache
def digest(name: str) -> str | None:
    """SHA-256 of a file's contents, or of a directory's list if the name ends with a slash; None where it is gone."""
    path = REPO / name
    try:
        if name.endswith("/"):
            names = {entry.name for entry in path.iterdir() if entry.suffix != ".mo"}  # which Sphinx compiles
            content = "\n".join(sorted(names - NOT_LISTED)).encode()
        else:
            content = path.read_bytes()
    except OSError:
        return None
    return hashlib.sha256(content).hexdigest()


def state_of(names) -> dict[str, dict]:
    """What decides a chapter's output: the files that it read, each with its digest, and what is installed."""
    asked = {look for module, looks in ASK_FOR.items() if module in names for look in looks} | {installed}
    return {"installed": {look.__name__: look() for look in asked}, "files": {name: digest(name) for name in names}}


def recorded(log: Path, chapter: str) -> set[str]:
    """Names of the files in a log of the recorder, less what the chapter only packs; bytecode counts as its source."""
    names = set(log.read_text(encoding="utf-8").splitlines()) if log.exists() else set()
    unseen = {path for pattern in UNSEEN.get(chapter, []) for path in REPO.glob(pattern)}
    names |= {path.relative_to(REPO).as_posix() + "/" * path.is_dir() for path in unseen}
    names = {source_from_cache(name) if name.endswith(".pyc") else name for name in names} - {chapter}
    packed = PACKED.get(chapter, [])
    names = {name for name in names if not (name.startswith("labkit/") and name.split("/")[1] in packed)}
    names.add(RECORDER.relative_to(REPO).as_posix())  # what another one recorded may be less
    # What does not exist was named relative to a folder that was open, as `shutil.rmtree` does.
    return {name for name in names if (REPO / name).exists() and Path(name).name != "__pycache__"}


def changed(chapter: Path) -> list[str] | None:
    """What has changed of the things that a chapter's last execution read; None if it has not been executed so."""
    try:
        then = json.loads(inputs_of(chapter).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    if then.get("cells") != cells_of(chapter) or not is_cached(chapter):
        return None
    now = state_of(then["files"])
    kinds = ("installed", "files")
    return [name for kind in kinds for name in sorted(then[kind]) if then[kind][name] != now[kind].get(name)]


def inputs_of(chapter: Path) -> Path:
    return (INPUTS / chapter.relative_to(REPO)).with_suffix(".json")


# -- Executing -----------------------------------------------------------------------------------------


def read(chapter: Path):
    """A chapter as MyST-NB reads it, a lab as learners see it: the cache knows it by that."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(learners_version.text_of(chapter), path=chapter)


def cells_of(chapter: Path) -> str:
    """SHA-256 of a chapter's code cells: the cache may have older cells as well, with older outputs."""
    cells = [cell.source for cell in read(chapter).cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def is_cached(chapter: Path) -> bool:
    """True if the cache has an execution of exactly these code cells."""
    from jupyter_cache import get_cache

    try:
        get_cache(BUILD / ".jupyter_cache").match_cache_notebook(read(chapter))
    except KeyError:
        return False
    return True


def kernel_environment() -> dict[str, str]:
    """The environment that chapters see: this Python's kernel, plots inline, compile dumps under _build."""
    env = os.environ.copy()
    share = Path(sys.prefix, "share", "jupyter")
    env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(share), env.get("JUPYTER_PATH")]))
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env["MS_OM_PATH"] = str(BUILD / "mindspore")
    env["PYTHONIOENCODING"] = "utf-8"
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # it would make a folder look edited to another chapter, which lists it
    for name in ("MPLBACKEND", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        env.pop(name, None)
    return env


def forget(chapter: Path) -> None:
    """Drop a chapter's cached execution and its page, so that both are made again."""
    from jupyter_cache import get_cache

    notebooks = get_cache(BUILD / ".jupyter_cache")
    with contextlib.suppress(KeyError):  # never executed
        notebooks.remove_cache(notebooks.match_cache_notebook(read(chapter)).pk)
    (BUILD / ".doctrees" / chapter.relative_to(REPO)).with_suffix(".doctree").unlink(missing_ok=True)
    inputs_of(chapter).unlink(missing_ok=True)


def stale(chapters: list[Path]) -> dict[Path, list[str] | None]:
    """The chapters to execute, each with what has changed, or None for one whose code cells were never executed."""
    digest.cache_clear()
    return {chapter: why for chapter in chapters if (why := changed(chapter)) != []}


def execute(todo: dict[Path, list[str] | None]) -> None:
    """Execute chapters into the cache: several at a time, labs first, which take longest; last those that measure."""
    from jupyter_cache import get_cache

    get_cache(BUILD / ".jupyter_cache").list_cache_records()  # made once, before several processes use it
    Path(sysconfig.get_path("purelib"), "labkit-book-recorder.pth").write_text(START_UP)
    for chapter in todo:
        forget(chapter)
    measuring = [REPO / name for name in MEASURING if REPO / name in todo]
    number = 0

    def report(outcome):
        nonlocal number
        number += 1
        print(f"make book: {outcome} ({number} of {len(todo)})", flush=True)

    with ProcessPoolExecutor(min(cores(), MOST_AT_ONCE)) as pool:
        try:
            for future in as_completed([pool.submit(_one, path) for path in sorted(todo, reverse=True)
                                        if path not in measuring]):  # fmt: skip
                report(future.result())
            for path in measuring:
                report(pool.submit(_one, path).result())
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():  # else the pool waits for all chapters; kernels end alone
                process.kill()
            raise


def _before(moment, path):
    return not path.exists() or path.stat().st_mtime < moment


def _one(chapter):
    """What became of it. A chapter that fails is left to Sphinx, which executes it again and says what fails."""
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.executors.utils import single_nb_execution

    seconds = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))["execute"]["timeout"]  # a cell
    logging.getLogger("traitlets").setLevel(logging.CRITICAL)  # the traceback comes from Sphinx
    notebook, name, began = read(chapter), chapter.relative_to(REPO).as_posix(), time.time()
    log, inputs = inputs_of(chapter).with_suffix(".log"), inputs_of(chapter)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    os.environ |= {"BOOK_READS": str(log), "BOOK_RECORDER": str(RECORDER)}
    try:
        done = single_nb_execution(notebook, cwd=str(chapter.parent), timeout=seconds, allow_errors=False)
    except RuntimeError as error:  # the kernel died, or did not start
        return f"FAILED {name}: {error}"
    if done.err:
        return f"FAILED {name}, {done.time:.0f} s"
    names = sorted(recorded(log, name))
    log.unlink(missing_ok=True)
    if all(_before(began, REPO / one) for one in names):  # else: edited meanwhile, so the next build executes it again
        inputs.write_text(json.dumps({"cells": cells_of(chapter)} | state_of(names), indent=1), encoding="utf-8")
    store(CacheBundleIn(notebook, str(chapter), data={"execution_seconds": done.time}))
    return f"executed {name}, {done.time:.0f} s"


def store(bundle) -> None:
    """Put an executed chapter into the cache, one process at a time."""
    from jupyter_cache import get_cache

    # The cache deletes a record as too old if another process adds it between its two questions to the database.
    with FileLock(BUILD / ".cache.lock"):
        get_cache(BUILD / ".jupyter_cache").cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
