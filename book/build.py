"""Build the book: python book/build.py [--fresh]

jupyter-cache re-executes a chapter when its code cells change. Here is what it cannot see: the code that chapters
import, the recipes and the recorded Runs that they read. When one of those changes, every chapter runs again, several
at a time; those that measure speed follow, one at a time. (A key for each chapter alone would have to know what the
programs read that it starts, some of them in a sandbox.) Of a lab the learner's version is executed and shown.
A kernel's working directory is its chapter's own folder, as in Jupyter.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from labkit.runtime import cores, version_of

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "book" / "_ext"))

import learners_version  # noqa: E402

BUILD = REPO / "_build"
COMPLETE = BUILD / ".complete"  # exists only after a build without a warning; holds what it was built from

# What chapters run on or read: a change here executes all of them again.
EXECUTION_INPUTS = [
    "labkit/**/*",
    "labs/*/*.yaml",
    "labs/*/*.py",
    "labs/*/scripts/*",
    "labs/*/runs/**/*",
    "labs/*/parity/**/*",
    "data_scripts/*",
    "requirements.txt",
    "constraints.txt",
    "tests/benchmarks/*.py",
    "tests/benchmarks/results/*",
    "tests/cloud/modelarts_stub.py",
    "tests/grading/tiny/*",
    "book/4-cloud/*.py",
    "book/_ext/*.py",
    "tests/parity/test_subnets.py",
]
# What single chapters read besides: a change executes these again. A lab is packed for a job, and the page tells its
# size; what is handed out to a class has the licence in it, and links to the book's address.
CHAPTER_INPUTS = {
    "book/4-cloud/jobs.md": ["labs/cifar10/lab.md"],
    "book/4-cloud/notebooks.md": ["labs/cifar10/lab.md"],
    "book/4-cloud/rehearsal.md": ["labs/cifar10/lab.md"],
    "book/appendix/grading.md": ["LICENSE", "_config.yml", "pyproject.toml"],
}
# Chapters whose figures are times: nothing else runs beside them.
MEASURING = ["book/1-cifar10/callbacks.md", "book/2-migration/performance.md"]
MOST_AT_ONCE = 4  # a chapter takes up to 3 GB
# What all pages share: a change here writes all of them again, without executing.
PAGE_INPUTS = [
    "_config.yml", "_toc.yml", "book/references.bib", "book/_static/**/*", "book/_templates/**/*", "book/_ext/*.py",
    "book/build.py",
]  # fmt: skip


def pinned(file: Path) -> dict[str, str]:
    """The packages that a file of requirements asks for on this Python, each with its version."""
    lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {one.name: str(one.specifier).removeprefix("==") for one in found if not one.marker or one.marker.evaluate()}


def installed() -> str:
    """What chapters run on, as it is, not as it should be: Python, required packages, the grader's sandbox."""
    packages = [f"{name} {version_of(name)}" for name in pinned(REPO / "requirements.txt")]
    return ", ".join([f"Python {sys.version_info[:2]}", *packages, "bwrap" if shutil.which("bwrap") else "no bwrap"])


def contents(patterns: list[str]) -> dict[str, str]:
    """SHA-256 of each file that matches, by its path from the project's folder, in a fixed order."""
    files = {path for pattern in patterns for path in REPO.glob(pattern) if path.is_file()}
    return {
        path.relative_to(REPO).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
        if not {"__pycache__", "checkpoints"} & set(path.parts)
    }


def digest(patterns: list[str]) -> str:
    """SHA-256 over names and contents of the files that match, and what is installed."""
    return hashlib.sha256(json.dumps([installed(), contents(patterns)]).encode()).hexdigest()


def data_there() -> str:
    """What a chapter could show beside the sample: a word on each data set that is there."""
    root = Path(os.environ.get("LABKIT_DATA") or REPO / "data")
    sources = sorted(root.glob("*/SOURCE.txt"))
    return "".join(f"{path.parent.name}: {path.read_text(errors='replace')}" for path in sources)


def pytorch_there() -> str:
    """Part 2 runs live where PyTorch is installed and shows what was recorded where it is not."""
    found = {name: importlib.util.find_spec(name) for name in ("torch", "torchvision", "onnxruntime")}
    there = [name for name, spec in found.items() if spec and spec.origin]  # no origin: `pip uninstall` left folders
    return ", ".join(f"{name} {version_of(name)}" for name in there)


def notebooks() -> list[Path]:
    """All chapters with code."""
    return [path for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/*.md")]) if is_notebook(path)]


def state() -> dict:
    """All that the book is built from, for `make status` to compare."""
    return {
        "inputs": contents(EXECUTION_INPUTS),
        "of chapters": {chapter: contents(patterns) for chapter, patterns in CHAPTER_INPUTS.items()},
        "installed": installed(),
        "PyTorch": pytorch_there(),
        "data": data_there(),
        "pages": contents([*PAGE_INPUTS, "book/**/*.md", "labs/*/*.md"]),
    }


def parts() -> list[tuple[str, list[str]]]:
    """The book's parts in _toc.yml, caption and documents; the first is its opening page, without a caption."""

    def files(entries):
        for entry in entries:
            yield entry["file"]
            yield from files(entry.get("sections", []))

    toc = yaml.safe_load((REPO / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [(part["caption"], list(files(part["chapters"]))) for part in toc["parts"]]


def remove(*names: str) -> None:
    for name in names:
        shutil.rmtree(BUILD / name, ignore_errors=True)


def remove_stale(record: str, value: str, *names: str) -> bool:
    """Remove what was built from other inputs than `value`, then record it; True if there was something to remove."""
    file = BUILD / f".{record}"
    if file.exists() and file.read_text() == value:
        return False
    stale = any((BUILD / name).exists() for name in names)
    remove(*names)
    file.write_text(value)  # last: an interrupted build removes again
    return stale


def forget_stale(chapter: str) -> None:
    """Have a chapter executed again, and its page written, if one of the files changed that it alone reads."""
    from jupyter_cache import get_cache

    file, value = BUILD / ".inputs" / chapter, digest(CHAPTER_INPUTS[chapter])
    if (file.exists() and file.read_text() == value) or not (REPO / chapter).exists():
        return
    cache = get_cache(BUILD / ".jupyter_cache")
    with contextlib.suppress(KeyError):  # not executed yet
        cache.remove_cache(cache.match_cache_notebook(read(REPO / chapter)).pk)
    (BUILD / ".doctrees" / chapter).with_suffix(".doctree").unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value)


def read(chapter: Path):
    """A chapter as MyST-NB reads it, a lab as learners see it: the cache knows it by that."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(learners_version.text_of(chapter), path=chapter)


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


def execute(chapters: list[Path]) -> None:
    """Execute chapters into the cache, unless it has them: several at a time, the labs, which take longest, first."""
    from jupyter_cache import get_cache

    get_cache(BUILD / ".jupyter_cache").list_cache_records()  # made once, before several processes use it
    missing = [chapter for chapter in sorted(chapters, reverse=True) if not _is_cached(chapter)]
    if not missing:
        return
    with ProcessPoolExecutor(min(cores(), MOST_AT_ONCE)) as pool:
        done = as_completed([pool.submit(_execute_one, chapter) for chapter in missing])
        try:
            for number, future in enumerate(done, 1):
                print(f"make book: {future.result()} ({number} of {len(missing)})", flush=True)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():  # else the pool waits for all chapters; kernels end alone
                process.kill()
            raise


def _is_cached(chapter):
    from jupyter_cache import get_cache

    try:
        get_cache(BUILD / ".jupyter_cache").match_cache_notebook(read(chapter))
    except KeyError:
        return False
    return True


def _execute_one(chapter):
    """What became of it. A chapter that fails is left to Sphinx, which executes it again and says what fails."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.executors.utils import single_nb_execution

    seconds = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))["execute"]["timeout"]  # a cell
    logging.getLogger("traitlets").setLevel(logging.CRITICAL)  # the traceback comes from Sphinx
    notebook, name = read(chapter), chapter.relative_to(REPO)
    try:
        done = single_nb_execution(notebook, cwd=str(chapter.parent), timeout=seconds, allow_errors=False)
    except RuntimeError as error:  # the kernel died, or did not start
        return f"FAILED {name}: {error}"
    if not done.err:
        bundle = CacheBundleIn(notebook, str(chapter), data={"execution_seconds": done.time})
        get_cache(BUILD / ".jupyter_cache").cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return f"{'FAILED' if done.err else 'executed'} {name}, {done.time:.0f} s"


def is_notebook(path: Path) -> bool:
    """True for a chapter with code: it carries a kernelspec, as Jupytext writes it."""
    text = path.read_text(encoding="utf-8")
    return text.startswith("---") and "kernelspec:" in text.split("\n---", 1)[0]


def export_executed() -> None:
    """Write each chapter with its outputs to _build/executed, for the tests.

    MyST-NB's own copies (_build/jupyter_execute) have no outputs when they came from the cache.
    """
    import nbformat
    from jupyter_cache import get_cache

    remove("executed")
    cache = get_cache(BUILD / ".jupyter_cache")
    written = BUILD / "jupyter_execute"
    for path in sorted(written.rglob("*.ipynb")):
        try:
            _, notebook = cache.merge_match_into_notebook(nbformat.read(path, as_version=4))
        except KeyError:  # not executed; tests/notebooks says so
            continue
        target = BUILD / "executed" / path.relative_to(written)
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)


def build(environment: dict[str, str]) -> int:
    """Execute what has changed, write the pages; the process's exit status."""
    first, began_with = not (BUILD / ".jupyter_cache").exists(), state()
    inputs = digest(EXECUTION_INPUTS) + data_there() + pytorch_there()
    if remove_stale("execution", inputs, ".jupyter_cache", ".doctrees", "jupyter_execute", "html"):
        print("make book: labkit, a recipe, a recorded result, a package or the data has changed: executing all again")
    remove_stale("pages", digest(PAGE_INPUTS), ".doctrees", "jupyter_execute", "html")
    for chapter in CHAPTER_INPUTS:
        forget_stale(chapter)
    if not COMPLETE.exists():  # Sphinx repeats no warning of a page that it need not read again
        remove(".doctrees")
    COMPLETE.unlink(missing_ok=True)

    if first:
        print("make book: executing the chapters, about 10 minutes on two free cores; the next build takes seconds")
    start = time.monotonic()
    os.environ.clear()
    os.environ.update(environment)
    execute([path for path in notebooks() if path.relative_to(REPO).as_posix() not in MEASURING])
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", str(REPO), "-W", "--keep-going"]
    done = subprocess.run(command, cwd=REPO, check=False)
    seconds = time.monotonic() - start
    if done.returncode:
        print(f"make book: FAILED after {seconds:.0f} s; the warnings and tracebacks above say where", file=sys.stderr)
        return 1
    export_executed()
    COMPLETE.write_text(json.dumps(began_with, indent=1))
    print(f"make book: done in {seconds:.0f} s; open {BUILD / 'html' / 'index.html'}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute the chapters and build _build/html/index.html.")
    parser.add_argument("--fresh", action="store_true", help="forget every earlier result")
    if parser.parse_args().fresh:
        shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="labkit-book-", ignore_cleanup_errors=True) as temporary:
            return build(kernel_environment() | {"TMPDIR": temporary})  # chapters leave their Runs there
    except KeyboardInterrupt:
        print("\nmake book: stopped; the same command goes on with the chapters that are left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
