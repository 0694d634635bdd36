"""Execute the chapters, and know which have to be executed again.

An executed chapter is _build/executed/NAME.ipynb, with a key in its metadata: a digest of what decides its outputs. It
is executed again when the key is another one. USES says what the chapters of a part import, run or read.
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
from nbclient.exceptions import CellExecutionError

from labkit.system.environment import cores

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "book" / "_ext"))

import learners_version  # noqa: E402

BUILD = REPO / "_build"
EXECUTED = BUILD / "executed"
CELL_SECONDS = 600
MOST_AT_ONCE = 4  # a chapter takes up to 3 GB

# What decides what a chapter shows, besides its own cells and the Python files next to it.
EVERY_CHAPTER = [
    "constraints.txt", "labkit/*.py", "labkit/system", "labkit/data", "labkit/networks",
    "labkit/training", "data_scripts", "labs/*/recipe.yaml",
]  # fmt: skip
RESULTS = "tests/benchmarks/results"
USES = {  # by the beginning of a chapter's name
    "book/1-cifar10/": ["labs/cifar10", RESULTS],
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
# Chapters that look for PyTorch or a sandbox, and show something else where they are missing.
LOOKING = ("book/2-migration/", "book/appendix/grading", "book/appendix/troubleshooting", "labs/cifar10/",
           "labs/imagenet/")  # fmt: skip
# Chapters whose figures are times: they are executed one at a time, and nothing else meanwhile.
MEASURING = ("book/1-cifar10/callbacks", "book/2-migration/precision", "book/2-migration/performance")


def name_of(chapter: Path) -> str:
    return chapter.relative_to(REPO).with_suffix("").as_posix()


def is_notebook(path: Path) -> bool:
    """True for a chapter with code: it carries a kernelspec, as Jupytext writes it."""
    text = path.read_text(encoding="utf-8")
    return text.startswith("---") and "kernelspec:" in text.split("\n---", 1)[0]


def chapters() -> list[Path]:
    """All chapters with code."""
    return [path for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/lab.md")]) if is_notebook(path)]


def read(chapter: Path):
    """A chapter as MyST-NB reads it, without outputs, a lab as learners see it."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(learners_version.text_of(chapter), path=chapter)


def executed(chapter: Path) -> Path:
    """Where a chapter is kept with its outputs."""
    return EXECUTED / f"{name_of(chapter)}.ipynb"


# -- What a chapter's output depends on ----------------------------------------------------------------


def files(patterns: list[str]) -> list[Path]:
    """The files that match, and those in folders that match, in a fixed order; of a folder no Markdown."""
    found = set()
    for path in (path for pattern in patterns for path in REPO.glob(pattern)):
        inside = [file for file in path.rglob("*") if file.suffix not in (".md", ".ipynb")]
        found.update(inside if path.is_dir() else [path])
    return sorted(path for path in found if path.is_file() and not {"__pycache__", "checkpoints"} & set(path.parts))


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(patterns: list[str]) -> list[tuple[str, str]]:
    """Name and digest of each file that matches."""
    return [(path.relative_to(REPO).as_posix(), digest(path)) for path in files(patterns)]


@cache
def installed() -> list[str]:
    """What all chapters run on: Python, the installed versions, which need not be the pinned ones, and the data."""
    wanted = re.findall(r"^([\w.-]+)==", (REPO / "requirements.txt").read_text(encoding="utf-8"), re.M)
    data = Path(os.environ.get("LABKIT_DATA") or REPO / "data")
    sample = [digest(path) for path in sorted(data.glob("sample/**/*")) if path.is_file()]
    there = [path.parent.name for path in sorted(data.glob("*/SOURCE.txt"))]
    return [sys.version, *map(_version, wanted), *there, *sample]


def looked_for() -> list[str]:
    """What some chapters look for: PyTorch and a sandbox."""
    return [str(shutil.which("bwrap")), *map(_version, ("torch", "torchvision", "onnxruntime"))]


def _version(package):
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {package}"


def used_by(name: str) -> list[str]:
    """Files and folders that decide what a chapter shows."""
    of_its_part = [pattern for part, patterns in USES.items() if name.startswith(part) for pattern in patterns]
    return [*EVERY_CHAPTER, *of_its_part, f"{name.rpartition('/')[0]}/*.py"]


def key_of(chapter: Path) -> str:
    """A digest of what decides a chapter's outputs."""
    name = name_of(chapter)
    cells = [cell.source for cell in read(chapter).cells if cell.cell_type == "code"]
    state = [cells, contents(used_by(name)), installed()]
    state += [looked_for()] if name.startswith(LOOKING) else []
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def is_stale(chapter: Path) -> bool:
    """True for a chapter that is to be executed."""
    file = executed(chapter)
    return not file.exists() or json.loads(file.read_text(encoding="utf-8"))["metadata"]["key"] != key_of(chapter)


# -- Executing -----------------------------------------------------------------------------------------


def kernel_environment() -> dict[str, str]:
    """The environment that chapters see: this Python's kernel, plots inline, compile dumps under _build."""
    env = os.environ.copy()
    share = Path(sys.prefix, "share", "jupyter")
    env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(share), env.get("JUPYTER_PATH")]))
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env["MS_OM_PATH"] = str(BUILD / "mindspore")
    env["PYTHONIOENCODING"] = "utf-8"
    for name in ("MPLBACKEND", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        env.pop(name, None)
    return env


def execute(todo: list[Path]) -> list[str]:
    """Execute chapters, several at a time, labs first, last those that measure; the names of what failed."""
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
            for process in multiprocessing.active_children():  # else the pool waits for all chapters; kernels end alone
                process.kill()
            raise
    return failed


def execute_chapter(name: str, tries: int = 2) -> tuple[str, float, str]:
    """Execute a chapter and keep it; its name, the seconds it took, and what failed.

    A kernel's ports are chosen before it runs: where another process took one, it is tried again.
    """
    chapter, start = REPO / f"{name}.md", time.monotonic()
    notebook, key = read(chapter), key_of(chapter)
    try:
        resources = {"metadata": {"path": str(chapter.parent)}}
        NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    except (CellExecutionError, RuntimeError) as stopped:  # a cell failed; the kernel died, or did not start
        if tries > 1 and not isinstance(stopped, CellExecutionError):
            return execute_chapter(name, tries - 1)
        return name, time.monotonic() - start, str(stopped)
    notebook.metadata["key"] = key
    file = executed(chapter)
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_suffix(".part")
    nbformat.write(notebook, hidden)
    hidden.replace(file)
    return name, time.monotonic() - start, ""
