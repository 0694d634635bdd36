"""Execute the chapters, and decide which have to be executed again.

An executed chapter is _build/executed/NAME.ipynb, with a key in its metadata: a digest of everything that its outputs
depend on. It is executed again if the key has changed. USES lists what the chapters of a part import, run or read.
"""

import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import re
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import chain
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

from labkit.system.environment import cores

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "book" / "_ext"))

import learners_version  # noqa: E402

BUILD = REPO / "_build"
EXECUTED = BUILD / "executed"
CELL_SECONDS = 600
MOST_AT_ONCE = 4  # a chapter takes up to 3 GB

# What a chapter's outputs depend on, besides its own cells and the Python files next to it.
EVERY_CHAPTER = [
    "constraints.txt", "labkit/*.py", "labkit/system", "labkit/data", "labkit/networks",
    "labkit/training", "data_scripts", "labs/*/recipe.yaml",
]  # fmt: skip
RESULTS = "tests/benchmarks/results"
USES = {  # by prefix of a chapter's name
    "book/1-cifar10/": ["labs/cifar10", RESULTS],
    "book/2-migration/merge": ["book/2-migration/ports"],
    "book/2-migration/": ["labkit/parity", "labkit/launch", "labs/imagenet", RESULTS],
    "book/3-thor/": ["labkit/thor", "labs/thor", RESULTS],
    "book/4-cloud/": ["labkit", "labs/cifar10", RESULTS],
    "book/4-cloud/notebooks": ["grader", "book/_ext", "labs/cifar10/lab.md"],
    "book/appendix/": ["labs", RESULTS],
    "book/appendix/grading": ["grader", "book/4-cloud/terminal.py", "tests/grader/tiny"],
    "book/appendix/original-thor": ["labkit/thor"],
    "book/appendix/writing-labs": ["tests/grader/tiny"],
    "labs/cifar10/": ["labs/cifar10"],
    "labs/imagenet/": ["labkit/parity", "labs/imagenet"],
    "labs/thor/": ["labkit/thor", "labs/thor"],
}
# Chapters whose outputs depend on whether PyTorch and a sandbox are installed.
OPTIONAL = ("book/2-migration/", "book/appendix/grading", "book/appendix/troubleshooting", "labs/cifar10/",
            "labs/imagenet/")  # fmt: skip
# Chapters that measure times: they are executed one at a time, with nothing else running.
MEASURING = ("book/1-cifar10/callbacks", "book/2-migration/precision", "book/2-migration/performance")


def name_of(chapter: Path) -> str:
    return chapter.relative_to(REPO).with_suffix("").as_posix()


def is_notebook(path: Path) -> bool:
    """True for a chapter with code, which has a kernelspec in Jupytext's format."""
    text = path.read_text(encoding="utf-8")
    return text.startswith("---") and "kernelspec:" in text.split("\n---", 1)[0]


def chapters() -> list[Path]:
    """All chapters with code."""
    return [path for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/lab.md")]) if is_notebook(path)]


def read(chapter: Path):
    """A chapter as read by MyST-NB, without outputs; of a lab, the learners' version."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(learners_version.text_of(chapter), path=chapter)


def executed(chapter: Path) -> Path:
    """The file of a chapter with its outputs."""
    return EXECUTED / f"{name_of(chapter)}.ipynb"


# -- What a chapter's output depends on ----------------------------------------------------------------


def files(patterns: list[str]) -> list[Path]:
    """Matching files, and the files in matching folders except Markdown and notebooks, in a fixed order."""
    paths = set()
    for path in (path for pattern in patterns for path in REPO.glob(pattern)):
        inside = [file for file in path.rglob("*") if file.suffix not in (".md", ".ipynb")]
        paths.update(inside if path.is_dir() else [path])
    return sorted(path for path in paths if path.is_file() and not {"__pycache__", "checkpoints"} & set(path.parts))


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(patterns: list[str]) -> list[tuple[str, str]]:
    """Name and digest of each matching file."""
    return [(path.relative_to(REPO).as_posix(), digest(path)) for path in files(patterns)]


@cache
def installed() -> list[str]:
    """What all chapters depend on: Python, the installed versions, which may differ from the pins, and the data."""
    packages = re.findall(r"^([\w.-]+)==", (REPO / "requirements.txt").read_text(encoding="utf-8"), re.M)
    data = Path(os.environ.get("LABKIT_DATA") or REPO / "data")
    sample = [digest(path) for path in sorted(data.glob("sample/**/*")) if path.is_file()]
    data_sets = [path.parent.name for path in sorted(data.glob("*/SOURCE.txt"))]
    return [sys.version, *map(_version, packages), *data_sets, *sample]


def optional() -> list[str]:
    """What some chapters also depend on: PyTorch and a sandbox."""
    return [str(shutil.which("bwrap")), *map(_version, ("torch", "torchvision", "onnxruntime"))]


def _version(package):
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {package}"


def used_by(name: str) -> list[str]:
    """Files and folders that a chapter's outputs depend on."""
    of_part = [pattern for part, patterns in USES.items() if name.startswith(part) for pattern in patterns]
    return [*EVERY_CHAPTER, *of_part, f"{name.rpartition('/')[0]}/*.py"]


def key_of(chapter: Path) -> str:
    """A digest of everything that a chapter's outputs depend on."""
    name = name_of(chapter)
    cells = [cell.source for cell in read(chapter).cells if cell.cell_type == "code"]
    state = [cells, contents(used_by(name)), installed()]
    state += [optional()] if name.startswith(OPTIONAL) else []
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def is_stale(chapter: Path) -> bool:
    """True if a chapter must be executed."""
    file = executed(chapter)
    return not file.exists() or json.loads(file.read_text(encoding="utf-8"))["metadata"]["key"] != key_of(chapter)


# -- Executing -----------------------------------------------------------------------------------------


def kernel_environment() -> dict[str, str]:
    """Environment variables for chapters: this Python's kernel, inline plots, compile dumps under _build."""
    env = os.environ.copy()
    share = Path(sys.prefix, "share", "jupyter")
    env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(share), env.get("JUPYTER_PATH")]))
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env["MS_OM_PATH"] = str(BUILD / "mindspore")
    env["IPYTHONDIR"] = str(BUILD / "ipython")  # not the user's settings, which may show more outputs
    env["PYTHONIOENCODING"] = "utf-8"
    for name in ("MPLBACKEND", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        env.pop(name, None)
    return env


def execute(todo: list[Path]) -> list[str]:
    """Execute chapters, several at a time: labs first, those that measure last. Returns the names of failed ones."""
    failed, names = [], sorted(map(name_of, todo), reverse=True)
    with ProcessPoolExecutor(min(cores(), MOST_AT_ONCE)) as pool:
        try:
            futures = [pool.submit(execute_chapter, name) for name in names if name not in MEASURING]
            alone = (pool.submit(execute_chapter, name).result() for name in names if name in MEASURING)
            outcomes = chain((future.result() for future in as_completed(futures)), alone)
            for number, (name, seconds, error) in enumerate(outcomes, 1):
                done = f"make book: {'FAILED' if error else 'executed'} {name}"
                print(f"{done}, {seconds:.0f} s ({number} of {len(todo)})", flush=True)
                if error:
                    failed.append(name)
                    print(error, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():  # or the pool would wait; kernels end by themselves
                process.kill()
            raise
    return failed


def execute_chapter(name: str, tries: int = 2) -> tuple[str, float, str]:
    """Execute and save a chapter; return its name, the seconds it took, and the error.

    A kernel's ports are chosen before it runs; if another process has taken one meanwhile, this tries again.
    """
    chapter, start = REPO / f"{name}.md", time.monotonic()
    notebook, key = read(chapter), key_of(chapter)
    try:
        resources = {"metadata": {"path": str(chapter.parent)}}
        NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    except (CellExecutionError, CellTimeoutError, RuntimeError) as error:  # the last: a kernel died, or did not start
        if tries > 1 and isinstance(error, RuntimeError):
            return execute_chapter(name, tries - 1)
        return name, time.monotonic() - start, str(error)
    notebook.metadata["key"] = key
    file = executed(chapter)
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_suffix(".part")
    nbformat.write(notebook, hidden)
    hidden.replace(file)
    return name, time.monotonic() - start, ""
