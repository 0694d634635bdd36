"""Build the book: python book/build.py [--language zh_CN | --only CHAPTER...]

Executes chapters whose inputs have changed (execution.py), then Sphinx writes the pages from the executed chapters
(pages.py): in English and, if requested, in another language. --only executes some chapters and writes no pages.
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

import execution
import pages
from execution import BUILD, REPO
from filelock import FileLock

# Shared by all pages: a change here rewrites all of them. For other files, Sphinx knows which pages depend on them.
SHARED = [
    "_config.yml", "_toc.yml", "book/references.bib", "book/_static", "book/_templates", "book/_ext", "book/pages.py",
]  # fmt: skip
PAGES = ["book/**/*.md", "book/**/*.py", "labs/*/lab.md", "labs", "labkit", "grader", "tests/benchmarks/results"]


def inputs(language: str | None) -> dict[str, str]:
    """Digests of the pages' inputs: of those that all pages share, and of all inputs."""
    shared, everything = SHARED, PAGES
    if language:
        catalogues = f"book/locale/{language}/LC_MESSAGES"
        shared = [*SHARED, f"book/locale/{language}/_config.yml", f"{catalogues}/book/_*/*.po"]
        everything = [*PAGES, catalogues]
    executed = [execution.digest(execution.executed(chapter)) for chapter in execution.chapters()]
    parts = [execution.contents(shared), execution.installed()], [execution.contents(everything), executed]
    digests = [hashlib.sha256(json.dumps(part).encode()).hexdigest() for part in parts]
    return {"shared": digests[0], "everything": digests[1]}


def write(language: str | None) -> bool:
    """Have Sphinx write the pages in a language, unless nothing has changed; True if this succeeds."""
    start, suffix = time.monotonic(), f"-{language}" if language else ""
    record, index = BUILD / f".complete{suffix}", pages.html(language) / "index.html"
    before, now = json.loads(record.read_text()) if record.exists() else {}, inputs(language)
    if before != now:
        record.unlink(missing_ok=True)
        if before.get("shared") != now["shared"]:  # also after a failed build: Sphinx would not repeat its warnings
            for folder in (f".doctrees{suffix}", "jupyter_execute", f"html{suffix}"):
                shutil.rmtree(BUILD / folder, ignore_errors=True)
        command = [sys.executable, str(REPO / "book" / "pages.py"), *([language] if language else [])]
        if subprocess.run(command, cwd=REPO, check=False).returncode:
            print("make book: FAILED; the warnings above say where", file=sys.stderr)
            return False
        record.write_text(json.dumps(now))
    print(f"make book: pages done in {time.monotonic() - start:.0f} s; open {index}", flush=True)
    return True


def link_languages() -> None:
    """Write the list of built languages, from which the pages create their links."""
    built = [name for name in (None, *pages.languages()) if (pages.html(name) / "index.html").exists()]
    names = json.dumps([name or "en" for name in built])
    for language in built:
        file = pages.html(language) / "_static" / "languages.js"
        file.write_text(f"window.LANGUAGES = {names};\n", encoding="utf-8")


def build(language: str | None, only: list[str]) -> int:
    """Execute changed chapters, then write the pages; return the exit status."""
    chapters = [chapter for chapter in execution.chapters() if not only or execution.name_of(chapter) in only]
    if todo := [chapter for chapter in chapters if execution.is_stale(chapter)]:
        print(f"make book: executing {len(todo)} of {len(chapters)} chapters; all take 10 minutes on two free cores")
        if failed := execution.execute(todo):
            print(f"make book: FAILED: {', '.join(failed)}; the tracebacks above say where", file=sys.stderr)
            return 1
    if only:
        return 0
    if not all(write(name) for name in dict.fromkeys([None, language])):
        return 1
    link_languages()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute the chapters and build _build/html/index.html.")
    parser.add_argument("--language", choices=pages.languages(), help="also write the pages in this language")
    chapters = [execution.name_of(chapter) for chapter in execution.chapters()]
    parser.add_argument("--only", nargs="+", default=[], choices=chapters, metavar="CHAPTER", help="only execute these")
    chosen = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    environment = execution.kernel_environment()
    os.environ.clear()
    # Chapters leave their Runs in a temporary folder.
    with (
        FileLock(BUILD / ".lock"),
        tempfile.TemporaryDirectory(prefix="labkit-book-", ignore_cleanup_errors=True) as temporary,
    ):
        os.environ.update(environment | {"TMPDIR": temporary})
        try:
            return build(chosen.language, chosen.only)
        except KeyboardInterrupt:
            print("\nmake book: stopped; run it again to continue with the remaining chapters", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main())
