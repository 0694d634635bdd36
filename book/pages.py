"""Have Sphinx write the pages from the executed chapters: python book/pages.py [LANGUAGE].

Writes to _build/html or _build/html-LANGUAGE. book/locale/LANGUAGE contains a language's catalogues, and a _config.yml
with strings for Sphinx's configuration.
"""

import sys
from functools import cache
from pathlib import Path

import yaml

from labkit.system.environment import cores

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "_build"
LOCALE = REPO / "book" / "locale"


def languages() -> list[str]:
    """The languages into which the book is translated."""
    return sorted(path.parent.name for path in LOCALE.glob("*/_config.yml"))


def html(language: str | None) -> Path:
    """The folder with the pages in a language."""
    return BUILD / (f"html-{language}" if language else "html")


def parts() -> list[tuple[str, list[str]]]:
    """Caption and documents of the book's parts in _toc.yml; the first part is the opening page, without a caption."""

    def documents(entries):
        for entry in entries:
            yield entry["file"]
            yield from documents(entry.get("sections", []))

    toc = yaml.safe_load((REPO / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [(part["caption"], list(documents(part["chapters"]))) for part in toc["parts"]]


@cache
def translations(language: str | None, page: str) -> dict[str, str]:
    """{message: translation} of a page in a language; {} without a language or catalogue."""
    from babel.messages.pofile import read_po

    file = LOCALE / f"{language}" / "LC_MESSAGES" / f"{page}.po"
    if not file.exists():
        return {}
    with open(file, "rb") as opened:
        return {message.id: message.string for message in read_po(opened) if message.id and message.string}


def write(language: str | None = None) -> int:
    """Write the pages, with warnings as errors; return Sphinx's exit status. Shows progress only on a terminal."""
    from jupyter_book.sphinx import build_sphinx  # here: it takes seconds to import
    from sphinx.util.console import nocolor

    is_terminal = sys.stdout.isatty()
    if not is_terminal:
        nocolor()
    config = {"external_toc_path": "_toc.yml", "latex_individualpages": False}
    suffix = f"-{language}" if language else ""
    if language:
        strings = yaml.safe_load((LOCALE / language / "_config.yml").read_text(encoding="utf-8"))
        config |= {"language": language, "locale_dirs": [str(LOCALE)], "gettext_compact": False, **strings}
    result = build_sphinx(
        str(REPO), str(html(language)), path_config=REPO / "_config.yml", noconfig=True, confoverrides=config,
        doctreedir=str(BUILD / f".doctrees{suffix}"), warningiserror=True, keep_going=True,
        jobs=cores(), quiet=not is_terminal,
    )  # fmt: skip
    return result if isinstance(result, int) else 1


if __name__ == "__main__":
    sys.exit(write(*sys.argv[1:]))
