"""Print the book: python book/pdf.py [LANGUAGE], after book/build.py; writes _build/pdf/resnet50-on-mindspore.pdf

The pages that `make book` wrote, joined to one in the order of _toc.yml, are printed by Chromium with book/print.css.
So nothing is executed or typeset a second time: formulas are MathJax's, outputs and figures those of the pages. LaTeX
would need a gigabyte and every SVG converted; WeasyPrint has no MathJax; in Sphinx's singlehtml chapters share their
sections' ids, and links lead to the wrong one. A page is printed twice: CSS in Chromium cannot say on which page a
link's target is, so the first print finds the numbers that stand in the table of contents of the second.
"""

import argparse
import base64
import io
import json
import posixpath
import re
import sys
import time
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import build
import yaml
from bs4 import BeautifulSoup, Tag
from pages import LOCALE, html, languages
from pypdf import PdfReader
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from labkit import doctor
from grader.translation import translations

REPO = Path(__file__).resolve().parent.parent
HTML = REPO / "_build" / "html"
PDF = REPO / "_build" / "pdf"
# What one can only click; what draws a figure anew, where a still one stands; the titles of folded code.
NOT_PRINTED = """
    a.headerlink, button, .toctree-wrapper, .lab-button, .work-on-lab .ways ~ .note, p:has(> a.lab-download),
    .sd-summary-state-marker, script, link, :not(svg) > style, details.hide > summary > p
"""
SCREEN = {  # as wide as the text on a page: 174 of A4's 210 mm
    "setEmulatedMedia": {"media": "print"},
    "setScrollbarsHidden": {"hidden": True},
    "setDeviceMetricsOverride": {"width": 657, "height": 960, "deviceScaleFactor": 1, "mobile": False},
}
PAPER = dict.fromkeys(("preferCSSPageSize", "printBackground", "generateTaggedPDF", "generateDocumentOutline"), True)
NUMBER_CONTENTS = """
for (const link of document.querySelectorAll('body > nav a'))
  link.lastChild.textContent = arguments[0][decodeURIComponent(link.hash.slice(1))];
// Otherwise the next print may use some of this one's layout, and break its pages in other places.
document.body.style.display = 'none';
document.body.getBoundingClientRect();
document.body.style.display = '';
"""

Parts = list[tuple[str, list[str]]]  # as build.parts() has them
OFFLINE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Unprintable(Exception):
    """Why there is no PDF, in one line."""


def said(language: str | None, text: str) -> str:
    """A text that is printed on no page of the book, in a language."""
    return translations(language, "book/_ext/extensions").get(text, text) if language else text


def read(document: str, pages: Path = HTML) -> BeautifulSoup:
    """A page of the book."""
    try:
        return BeautifulSoup((pages / f"{document}.html").read_text(encoding="utf-8"), "html.parser")
    except FileNotFoundError as error:
        raise Unprintable(f"{error.filename} is missing: run `make book`") from None


def place(document: str, address: str, pages: Path = HTML) -> str:
    """Where a file lies that a page refers to."""
    return (pages / document).parent.joinpath(unquote(urlsplit(address).path)).resolve().as_uri()


def chapter(document: str, article: Tag, printed_too: set[str], language: str | None = None) -> tuple[str, str]:
    """Title and text of a page, for paper: unfolded, its ids its own, its links inside the PDF or out to the web."""
    for tag in article.select(NOT_PRINTED):
        tag.decompose()
    for tag in article.select("[id]:not(svg *)"):  # those of a drawing are for itself
        tag["id"] = f"{document}/{tag['id']}"
    for tag in article.find_all("a", href=True):
        address = urlsplit(tag["href"])
        target = posixpath.normpath(posixpath.join(posixpath.dirname(document), unquote(address.path)))
        target = target.removesuffix(".html") if address.path else document
        if not address.scheme and target in printed_too:
            tag["href"] = "#" + quote("/".join(filter(None, (target, unquote(address.fragment)))))
        elif address.scheme not in ("http", "https", "mailto"):  # a file, with the pages or in an example
            del tag["href"]
    for tag in article.find_all("img", src=lambda address: not address.startswith("data:")):
        tag["src"] = place(document, tag["src"], html(language))
    for tag in article.find_all("details"):
        tag["open"] = ""
    for tag in article.select("tr:first-child:not(:has(td)):not(thead *)"):  # a head that every page repeats
        tag.wrap(Tag(name="thead"))
    step = said(language, "Step {number}")
    for tag in article.select(".cell_output input[type=radio] + label[for]"):  # a figure's steps, all at once
        picture = article.find(class_=tag["for"])
        picture.wrap(Tag(name="span", attrs={"class": "frame"})).insert(0, step.format(number=tag.get_text()))
    for tag in article.select(".cell > details.above-input"):  # the figure first, then its code
        tag.parent.append(tag)
    for level in (5, 4, 3, 2, 1):  # one down, below the parts
        for tag in article.find_all(f"h{level}"):
            tag.name = f"h{level + 1}"
    return article.h2.get_text().strip(), article.decode_contents()


def mathjax(document: str, page: BeautifulSoup, pages: Path = HTML) -> list[str]:
    """The scripts that draw the formulas of a page."""
    found = [tag for tag in page.head.find_all("script") if "mathjax" in str(tag).lower()]
    for tag in found:
        if tag.get("src") and not urlsplit(tag["src"]).scheme:
            tag["src"] = place(document, tag["src"], pages)
    return [str(tag) for tag in found]


def join(parts: Parts, language: str | None = None) -> tuple[str, list[str]]:
    """One page of HTML: title, table of contents, the documents below running heads. And the titles in it."""
    pages, config = html(language), yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))
    book, rights = config["title"], config["copyright"]
    if language:
        own = yaml.safe_load((LOCALE / language / "_config.yml").read_text(encoding="utf-8"))
        book, rights = own["html_title"], own["copyright"]
        captions = translations(language, "book/index")
        parts = [(captions.get(caption, caption), documents) for caption, documents in parts]
    everything = {document for _, documents in parts for document in documents}
    scripts, titles, heads, entries, chapters = {}, [], [], [], []
    for caption, documents in parts:
        top = f'<h1 class="part">{escape(caption)}</h1>' if caption else ""
        titles += [caption] if caption else []
        entries += [f'<li class="part">{escape(caption)}</li>'] if caption else []
        for document in documents:
            page, name = read(document, pages), f"chapter-{len(chapters)}"
            scripts |= dict.fromkeys(mathjax(document, page, pages))
            title, text = chapter(document, page.article, everything, language)
            chapters.append(f'<section id="{document}" class="chapter" style="page: {name}">{top}{text}</section>')
            titles.append(title)
            entries.append(f'<li><a href="#{quote(document)}"><span>{escape(title)}</span><span></span></a></li>')
            left, right = (json.dumps(head, ensure_ascii=False) for head in (caption, title))
            heads.append(f"@page {name} {{ @top-left {{ content: {left} }} @top-right {{ content: {right} }} }}")
            top = ""
    contents = said(language, "Contents")
    heads.append(f"@page contents {{ @top-right {{ content: {json.dumps(contents, ensure_ascii=False)} }} }}")
    styles = (pages / "_static" / "pygments.css", REPO / "book" / "print.css")
    links = "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in styles)
    name, _, subtitle = re.sub("： ?", ": ", book).partition(": ")
    joined = f"""<!DOCTYPE html><html lang="{(language or "en").replace("_", "-")}" data-theme="light">
<head><meta charset="utf-8"><title>{book}</title>
{links}<style>{"".join(heads)}</style>{"".join(scripts)}</head><body>
<header><p class="title">{name}</p><p class="subtitle">{subtitle}</p>
<p>{config["author"]}</p><p>{rights}</p></header>
<nav><h2>{contents}</h2><ul>{"".join(entries)}</ul></nav><main>{"".join(chapters)}</main></body></html>"""
    return joined, titles


def chromium(*flags: str, logs: bool = False) -> webdriver.Chrome:
    """Chromium without a network but this machine's own address; if asked, it keeps logs of requests and messages."""
    binary, driver = doctor.browser()
    if not (binary and driver):
        raise Unprintable("Chromium with chromedriver is needed (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*OFFLINE, *flags):
        options.add_argument(flag)
    if logs:
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def page_numbers(reader: PdfReader) -> dict[str, int]:
    """Page of each target of a link, the file's first page being 1."""
    targets = reader.named_destinations
    return {name.removeprefix("/"): reader.get_destination_page_number(targets[name]) + 1 for name in targets}


def printed(html: str, file: Path, browser: webdriver.Chrome) -> bytes:
    """The PDF of a page, which is kept in `file`. Raises Unprintable where something is missing, cut off or moves."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(html, encoding="utf-8")
    for command, settings in SCREEN.items():
        browser.execute_cdp_cmd(f"Emulation.{command}", settings)
    browser.set_script_timeout(300)
    browser.get(file.as_uri())
    if bad := browser.execute_async_script((REPO / "book" / "print.js").read_text(encoding="utf-8")):
        raise Unprintable(f"{len(bad)} places do not fit or are missing, the first: {bad[0]}")

    def to_paper():
        data = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", PAPER)["data"])
        return data, page_numbers(PdfReader(io.BytesIO(data)))

    _, numbers = to_paper()
    browser.execute_script(NUMBER_CONTENTS, numbers)
    data, found = to_paper()
    if moved := [name for name in numbers if found[name] != numbers[name]]:
        raise Unprintable(f"the contents would name wrong pages: {len(moved)} targets moved, first {moved[0]}")
    return data


def check(reader: PdfReader, titles: list[str]) -> None:
    """Raises Unprintable if a title is not in the outline, or a link leads nowhere."""

    def outline(entries):
        for entry in entries:
            yield from outline(entry) if isinstance(entry, list) else [entry.title]

    if missing := set(titles) - set(outline(reader.outline)):
        raise Unprintable(f"not in the outline: {', '.join(sorted(missing))}")
    targets = reader.named_destinations
    for number, page in enumerate(reader.pages, 1):
        for link in page.annotations or []:
            address = link.get("/A", {}).get("/URI", "")
            if link.get("/Dest") not in targets and not address.startswith(("https://", "http://", "mailto:")):
                raise Unprintable(f"page {number}: a link leads nowhere: {link.get('/Dest', address)}")


def require_font(language: str | None) -> None:
    """Raises Unprintable where no font has the language's letters: on paper there is nobody's own to fall back on."""
    if language and (why := doctor.no_font(language[:2])):
        raise Unprintable(why)


def write(parts: Parts, file: Path, browser: webdriver.Chrome, language: str | None = None) -> PdfReader:
    """Print these parts of the book to a file, and check it. Raises Unprintable."""
    page, titles = join(parts, language)
    data = printed(page, file.with_suffix(".html"), browser)
    reader = PdfReader(io.BytesIO(data))
    check(reader, titles)
    file.write_bytes(data)
    return reader


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the book that was built, to one PDF.")
    parser.add_argument("language", nargs="?", choices=languages(), help="default: English")
    start, language = time.monotonic(), parser.parse_args().language
    file = PDF / f"resnet50-on-mindspore{'-' + language if language else ''}.pdf"
    try:
        require_font(language)
        with chromium() as browser:
            reader = write(build.parts(), file, browser, language)
    except Unprintable as error:
        print(f"make pdf: FAILED: {error}", file=sys.stderr)
        return 1
    pages, megabytes, seconds = len(reader.pages), file.stat().st_size / 1e6, time.monotonic() - start
    print(f"make pdf: done in {seconds:.0f} s: {file}, {pages} pages, {megabytes:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
