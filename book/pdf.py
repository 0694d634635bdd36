"""Print the book: python book/pdf.py, after book/build.py; writes _build/pdf/resnet50-on-mindspore.pdf

The pages that `make book` wrote, joined to one in the order of _toc.yml, are printed by Chromium with book/print.css.
So nothing is executed or typeset a second time: formulas are MathJax's, outputs and figures those of the pages. LaTeX
would need a gigabyte and conversions of every SVG; WeasyPrint has no MathJax; Sphinx's singlehtml lets the ids of
chapters collide, and links then lead to the wrong one. CSS in Chromium knows no page numbers of link targets: the first
print finds them, the second has them in its table of contents.
"""

import base64
import io
import json
import posixpath
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

REPO = Path(__file__).resolve().parent.parent
HTML = REPO / "_build" / "html"
PDF = REPO / "_build" / "pdf" / "resnet50-on-mindspore.pdf"
NOT_PRINTED = "a.headerlink, button, .toctree-wrapper, p:has(> a.lab-download), .sd-summary-state-marker, .collapsed"

SETTINGS = {
    "preferCSSPageSize": True,
    "printBackground": True,
    "generateTaggedPDF": True,
    "generateDocumentOutline": True,
}
# When formulas and fonts are there: tables and formulas that are too wide shrink, code wraps by itself. Returns what is
# cut off all the same, and what is missing.
FIT = """
const done = arguments[0], all = what => [...document.querySelectorAll(what)], room = document.body.clientWidth;
const size = e => parseFloat(getComputedStyle(e).fontSize);
const told = e => `${e.closest('.chapter')?.id}: ${e.tagName} ${e.className} ${e.textContent.slice(0, 60)}`;
const cut = e => !e.closest('mjx-container > *, svg > *') && (e.getBoundingClientRect().right > room + 1 ||
  e.clientWidth && e.scrollWidth > e.clientWidth + 1 ||
  getComputedStyle(e).overflowY != 'visible' && e.scrollHeight > e.clientHeight + 1);
Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]).then(() => {
  for (const box of all('main table, mjx-container[display="true"]'))
    for (let tries = 0; tries < 5 && box.scrollWidth > box.parentElement.clientWidth; tries++)
      box.style.fontSize = size(box) * Math.min(0.98, box.parentElement.clientWidth / box.scrollWidth) + 'px';
  done([...all('main *').filter(cut), ...all('.math:not(:has(mjx-container)), mjx-merror'),
        ...all('img').filter(image => !image.naturalWidth)].map(told));
}, error => done([String(error)]));
"""


NUMBER = """
for (const link of document.querySelectorAll('nav a'))
  link.lastChild.textContent = arguments[0][decodeURIComponent(link.hash.slice(1))];
"""


class Unprintable(Exception):
    """Why there is no PDF, in one line."""


def contents() -> list[tuple[str, list[str]]]:
    """Parts of the book: caption and documents, in the order of _toc.yml."""

    def files(entries):
        for entry in entries:
            yield entry["file"]
            yield from files(entry.get("sections", []))

    toc = yaml.safe_load((REPO / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [(part["caption"], list(files(part["chapters"]))) for part in toc["parts"]]


def join(parts: list[tuple[str, list[str]]]) -> str:
    """One page of HTML: title, table of contents, then the documents; their links lead to each other inside of it."""
    pages = {doc: soup(HTML / f"{doc}.html") for _, docs in parts for doc in docs}
    uses = Counter(tag["id"] for page in pages.values() for tag in page.article.find_all(id=True))
    config = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))

    def anchor(doc: str, id: str) -> str:
        return id if uses[id] == 1 else f"{doc}/{id}"

    def local(doc: str, tag, name: str) -> None:  # an image or a script, wherever this page will lie
        address = urlsplit(tag[name])
        if not address.scheme:
            tag[name] = (HTML / doc).parent.joinpath(unquote(address.path)).resolve().as_uri()

    chapters, rules, entries, scripts = [], [], [], {}
    for caption, docs in parts:
        if caption:
            entries.append(f'<li class="part">{caption}</li>')
        for doc in docs:
            page, article = pages[doc], pages[doc].article
            for tag in article.select(NOT_PRINTED):
                tag.decompose()
            for tag in article.find_all(id=True):
                tag["id"] = anchor(doc, tag["id"])
            for tag in article.find_all("a", href=True):
                address = urlsplit(tag["href"])
                target = posixpath.normpath(posixpath.join(posixpath.dirname(doc), unquote(address.path)))
                target = target.removesuffix(".html") if address.path else doc
                if not address.scheme and target in pages:
                    id = unquote(address.fragment)
                    tag["href"] = "#" + quote(anchor(target, id) if id else target)
                elif not address.scheme:  # a file of the pages, or a chapter that is not printed
                    del tag["href"]
            for tag in article.find_all(src=True):
                local(doc, tag, "src")
            for tag in article.find_all("details"):
                tag["open"] = ""
            for tag in article.select(".cell > details.hide.above-input"):  # what it shows first
                tag.parent.append(tag)
            title = article.h1.get_text().strip()
            for level in (5, 4, 3, 2, 1):  # parts are the first level
                for tag in article.find_all(f"h{level}"):
                    tag.name = f"h{level + 1}"
            for tag in page.head.find_all("script"):
                if "mathjax" in (tag.get("src", "") + tag.get_text()).lower():
                    if tag.get("src"):
                        local(doc, tag, "src")
                    scripts[str(tag)] = None
            part = f'<h1 class="part">{caption}</h1>' if caption and doc == docs[0] else ""
            chapters.append(
                f'<section class="chapter" id="{doc}" style="page: p{len(chapters)}">{part}{article.decode_contents()}</section>'
            )
            heads = "".join(
                f"@{place} {{ content: {json.dumps(text, ensure_ascii=False)} }}"
                for place, text in (("top-left", caption), ("top-right", title))
            )
            rules.append(f"@page p{len(rules)} {{ {heads} }}")
            entries.append(f'<li><a href="#{quote(doc)}"><span>{title}</span><span></span></a></li>')
    styles = [HTML / "_static" / "pygments.css", REPO / "book" / "print.css"]
    links = "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in styles)
    name, _, subtitle = config["title"].partition(": ")
    return f"""<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{config["title"]}</title>
{links}<style>{"".join(rules)}</style>{"".join(scripts)}</head><body>
<header><p class="title">{name}</p><p class="subtitle">{subtitle}</p><p>{config["author"]}</p><p>{config["copyright"]}</p></header>
<nav><h1>Contents</h1><ul>{"".join(entries)}</ul></nav><main>{"".join(chapters)}</main></body></html>"""


def soup(file: Path) -> BeautifulSoup:
    """A page of the book."""
    try:
        return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")
    except FileNotFoundError:
        raise Unprintable(f"{file} is missing: run `make book`") from None


def chromium() -> webdriver.Chrome:
    """Chromium without a network, as wide as the text on a page."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not (binary and driver):
        raise Unprintable("Chromium with chromedriver is needed (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_script_timeout(300)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {"width": 657, "height": 960, "deviceScaleFactor": 1, "mobile": False}  # 174 mm, of A4 without margins
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return browser


def page_numbers(reader: PdfReader) -> dict[str, int]:
    """Page of each target of a link, the first page of the file being 1."""
    targets = reader.named_destinations
    return {name.removeprefix("/"): reader.get_destination_page_number(targets[name]) + 1 for name in targets}


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


def write(parts: list[tuple[str, list[str]]], file: Path) -> None:
    """Print these parts of the book to a file. Raises Unprintable where something is missing or would be cut off."""
    html = join(parts)
    data = printed(html, file.with_suffix(".html"))
    check(PdfReader(io.BytesIO(data)), [tag.get_text() for tag in BeautifulSoup(html, "html.parser").select("h1, h2")])
    file.write_bytes(data)


def printed(html: str, file: Path) -> bytes:
    """The PDF of a page, kept in `file` for Chromium."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(html, encoding="utf-8")
    browser = chromium()
    try:
        browser.get(file.as_uri())
        if bad := browser.execute_async_script(FIT):
            raise Unprintable(f"{len(bad)} places do not fit or are missing, the first: {bad[0]}")
        for _ in range(2):  # the second time with page numbers in the table of contents
            data = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", SETTINGS)["data"])
            browser.execute_script(NUMBER, page_numbers(PdfReader(io.BytesIO(data))))
    finally:
        browser.quit()
    return data


def main() -> int:
    start = time.monotonic()
    try:
        write(contents(), PDF)
    except Unprintable as error:
        print(f"make pdf: FAILED: {error}", file=sys.stderr)
        return 1
    pages = len(PdfReader(PDF).pages)
    print(f"make pdf: done in {time.monotonic() - start:.0f} s: {PDF}, {pages} pages, {PDF.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
