"""Check all links and names that need no network: python book/links.py

In the built book: links, anchors, images, style sheets, scripts, downloads, addresses in style sheets and SVG.
In README.md, CONTRIBUTING.md and CHANGELOG.md: links to files and headings.
In the first two, in chapters and labs: paths of the project, targets of `make`, commands and options of `labkit`.

One line for each that is broken, with file and line, and exit status 1. Addresses outside the book are not asked for:
_build/links.txt lists them, each with the pages that have it.
"""

import argparse
import re
import sys
import warnings
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning
from mentions import REPO, Broken, Found, check_names, line_of, parser

HTML = REPO / "_build" / "html"
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")  # read in the repository, not in the book
CHAPTERS = ("README.md", "CONTRIBUTING.md", "book/**/*.md", "labs/*/lab.md")  # their names; old ones may be gone


# -- The built book ------------------------------------------------------------------------------------
# LinkChecker 10.6 with its AnchorCheck was tried: it misses a page's links to its own anchors and those that leave the
# folder, and had not ended after five minutes; this takes ten seconds.

ATTRIBUTES = ("href", "src", "srcset", "poster", "data", "action", "xlink:href")
IN_CSS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
NO_PAGE = "webpack-macros.html"  # templates that themes leave among their static files


@cache
def soup(file: Path) -> BeautifulSoup:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # of an SVG, ids and addresses are enough
        return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(file: Path) -> frozenset[str]:
    """All that a link with a `#` can lead to in a page or an SVG."""
    return frozenset(tag.get("id") or tag["name"] for tag in soup(file).select("[id], a[name]"))


def references(file: Path) -> list[tuple[int, str]]:
    """Line and target of all that a page, an SVG or a style sheet refers to."""
    if file.suffix == ".css":
        lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        return [(n, a or b) for n, line in lines for a, b in IN_CSS.findall(line)]
    found = []
    for tag in soup(file).find_all(True):
        if file.suffix == ".svg" and tag.name == "a":  # relative to the page that shows it, and followed there
            continue
        for name in ATTRIBUTES:
            if name in tag.attrs and not (name == "data" and tag.name != "object"):
                several = tag[name].split(",") if name == "srcset" else [tag[name]]
                found += [(tag.sourceline, entry.split()[0] if name == "srcset" else entry) for entry in several]
        if tag.name == "meta" and tag.get("http-equiv", "").lower() == "refresh":
            found.append((tag.sourceline, tag["content"].partition("url=")[2]))
    return found


def check_book(html: Path = HTML) -> Found:
    """Follow all that the files of a built book refer to. A link that leaves the book's folder is broken as well."""
    found = Found()
    top = html.resolve()
    files = sorted(f for kind in ("html", "svg", "css") for f in top.rglob(f"*.{kind}") if not f.name.endswith(NO_PAGE))
    for file in files:
        name = file.relative_to(top).as_posix()
        for line, address in references(file):
            parts = urlsplit(address.strip())
            if parts.scheme or parts.netloc:
                if parts.scheme in ("http", "https", ""):
                    found.external.setdefault(address.strip(), set()).add(name)
                continue
            found.links += 1
            if why := broken(file, parts, top):
                found.broken.append(Broken(name, line or 0, address, why))
    return found


def broken(file: Path, parts, top: Path) -> str:
    """Why a link in `file` leads nowhere, or an empty text."""
    path, fragment = unquote(parts.path), unquote(parts.fragment)
    target = (file.parent / path).resolve() if path else file
    if not target.is_relative_to(top):
        folder = target.relative_to(top.parent).parts[0] if target.is_relative_to(top.parent) else ""
        # the page in another language, which is shown where that is built
        return "" if re.fullmatch("html(-[a-z]{2}_[A-Z]{2})?", folder) else "leads out of the book"
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if fragment and target.suffix in (".html", ".svg") and fragment not in anchors(target):
        return "no such anchor"
    return ""


# -- Markdown ------------------------------------------------------------------------------------------


@cache
def headings(file: Path) -> frozenset[str]:
    tokens = parser().parse(file.read_text(encoding="utf-8"))
    return frozenset(token.attrs["id"] for token in tokens if token.type == "heading_open")


def check_document(file: Path, top: Path = REPO) -> Found:
    """Follow the links of a Markdown file to other files of the project and to headings."""
    found = Found()
    text = file.read_text(encoding="utf-8")
    lines, name = text.splitlines(), file.relative_to(top).as_posix()
    for block in parser().parse(text):
        for token in block.children or []:
            address = token.attrs.get("href") or token.attrs.get("src")
            if token.type not in ("link_open", "image") or not address:
                continue
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                found.external.setdefault(address, set()).add(name)
                continue
            found.links += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            why = "" if target.exists() else "no such file"
            if parts.fragment and target.suffix == ".md" and not why:
                why = "" if unquote(parts.fragment) in headings(target) else "no such heading"
            if why:
                found.broken.append(Broken(name, line_of(lines, block.map, address), address, why))
    return found


# -- All of it -----------------------------------------------------------------------------------------


def check(html: Path = HTML, top: Path = REPO) -> Found:
    found = check_book(html)
    for document in DOCUMENTS:
        found += check_document(top / document, top)
    for file in sorted({file for pattern in CHAPTERS for file in top.glob(pattern)}):
        found += check_names(file, top)
    return found


def listing(external: dict[str, set[str]]) -> str:
    """Addresses outside, sorted, each followed by the files that have it."""
    return "".join("\n    ".join([address, *sorted(external[address])]) + "\n" for address in sorted(external))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--html", type=Path, default=HTML, help="the built book (default: _build/html)")
    html = options.parse_args().html
    if not (html / "index.html").is_file():
        print(f"make links: no book in {html}; `make book` builds it", file=sys.stderr)
        return 1
    found = check(html)
    for entry in sorted(found.broken):
        print(entry)
    file = html.parent / "links.txt"
    file.write_text(listing(found.external), encoding="utf-8")
    print(
        f"make links: {found.links} links and {found.names} names looked up, {len(found.broken)} broken; "
        f"{len(found.external)} addresses outside, not asked for: {file}"
    )
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
