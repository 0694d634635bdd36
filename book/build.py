"""Build the book: python book/build.py [--fresh] [--language zh_CN]

A chapter is executed again only when something it uses has changed (execution.py); then Sphinx writes the pages. A lab
is shown in the learner's version. A kernel's working directory is its chapter's own folder, as in Jupyter. In another
language the pages are written as well, from the same executed cells.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import execution
import pages as sphinx_pages
import yaml
from execution import BUILD, REPO, kernel_environment
from filelock import FileLock, Timeout

COMPLETE = BUILD / ".complete"  # exists only after a build without a warning; holds what its pages were written from
LOCK = BUILD / ".lock"

# What all pages share: a change here writes all of them again, without executing.
PAGE_INPUTS = [
    "_config.yml", "_toc.yml", "book/references.bib", "book/_static/**/*", "book/_templates/**/*", "book/_ext/*.py",
    "book/build.py", "book/execution.py", "book/pages.py",
]  # fmt: skip


def contents(patterns: list[str]) -> dict[str, str]:
    """SHA-256 of each file that matches, by its path from the project's folder, in a fixed order."""
    files = {path for pattern in patterns for path in REPO.glob(pattern) if path.is_file()}
    return {
        path.relative_to(REPO).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
        if not {"__pycache__", "checkpoints"} & set(path.parts)
    }


def notebooks() -> list[Path]:
    """All chapters with code."""
    return [path for path in sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/*.md")]) if is_notebook(path)]


def pages() -> dict[str, str]:
    """All that pages are written from, besides what chapters show when they are executed."""
    return contents([*PAGE_INPUTS, "book/**/*.md", "labs/*/*.md"])


def parts() -> list[tuple[str, list[str]]]:
    """The book's parts in _toc.yml, caption and documents; the first is its opening page, without a caption."""

    def files(entries):
        for entry in entries:
            yield entry["file"]
            yield from files(entry.get("sections", []))

    toc = yaml.safe_load((REPO / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [(part["caption"], list(files(part["chapters"]))) for part in toc["parts"]]


def remove(*names: str) -> None:
    for path in map(BUILD.joinpath, names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def begin(record: Path, value: str, *names: str) -> None:
    """Remove what was not completed from these inputs. The caller writes the record again when everything is there."""
    if not record.exists() or record.read_text() != value:
        remove(*names)  # not only the pages: Sphinx repeats no warning of a page that it need not read again
    record.unlink(missing_ok=True)


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


def reason(todo: dict[Path, list[str] | None]) -> str:
    """How many chapters have to be executed, and what has changed."""
    files = sorted({name for why in todo.values() for name in (["code cells"] if why is None else why)})
    few = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return f"{len(todo)} of {len(notebooks())} chapters to execute; changed: {few}"


def build(environment: dict[str, str], language: str | None = None) -> int:
    """Execute what has changed, write the pages, then those in another language; the process's exit status."""
    began_with = pages()
    shared, record = json.dumps([execution.installed(), contents(PAGE_INPUTS)]), BUILD / ".pages"
    digest = hashlib.sha256(shared.encode()).hexdigest()
    begin(record, digest, ".doctrees", "jupyter_execute", "html")
    COMPLETE.unlink(missing_ok=True)

    start = time.monotonic()
    os.environ.clear()
    os.environ.update(environment)
    if todo := execution.stale(notebooks()):
        if any((BUILD / ".inputs").rglob("*.json")):
            print(f"make book: {reason(todo)}", flush=True)
        else:
            print("make book: executing the chapters, about 10 minutes on two free cores; the next build takes seconds")
        execution.execute(todo)
    if not _written(None, start):
        return 1
    export_executed()
    record.write_text(digest)
    COMPLETE.write_text(json.dumps(began_with, indent=1))
    if language:
        said = json.dumps([began_with, shared, contents([f"book/locale/{language}/**/*.po"])])
        digest, record = hashlib.sha256(said.encode()).hexdigest(), BUILD / f".pages-{language}"
        begin(record, digest, f".doctrees-{language}", f"html-{language}")
        if not _written(language, time.monotonic()):
            return 1
        record.write_text(digest)
    built = [one for one in (None, *sphinx_pages.languages()) if (sphinx_pages.html(one) / "index.html").exists()]
    names = json.dumps([one or "en" for one in built])
    for one in built:
        there = sphinx_pages.html(one) / "_static" / "languages.js"
        there.write_text(f"window.LANGUAGES = {names};\n", encoding="utf-8")
    return 0


def _written(language, start):
    """Have Sphinx write the pages in a language, and say how that went; True if it did."""
    command = [sys.executable, str(REPO / "book" / "pages.py"), *([language] if language else [])]
    done = subprocess.run(command, cwd=REPO, check=False)
    seconds, index = time.monotonic() - start, sphinx_pages.html(language) / "index.html"
    if done.returncode:
        print(f"make book: FAILED after {seconds:.0f} s; the warnings and tracebacks above say where", file=sys.stderr)
        return False
    print(f"make book: done in {seconds:.0f} s; open {index}")
    return True


def _alone():
    """The lock of a build, held; where another build has it, this one says so and waits."""
    lock = FileLock(LOCK)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        print("make book: another build is running; this one waits for it", flush=True)
        return lock.acquire()


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute the chapters and build _build/html/index.html.")
    parser.add_argument("--fresh", action="store_true", help="forget every earlier result")
    parser.add_argument("--language", choices=sphinx_pages.languages(), help="write the pages in this language as well")
    chosen = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    try:
        with _alone():
            if chosen.fresh:
                remove(*(path.name for path in BUILD.iterdir() if path != LOCK))
            with tempfile.TemporaryDirectory(prefix="labkit-book-", ignore_cleanup_errors=True) as temporary:
                # chapters leave their Runs there
                return build(kernel_environment() | {"TMPDIR": temporary}, chosen.language)
    except KeyboardInterrupt:
        print("\nmake book: stopped; run it again to continue with the remaining chapters", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
