"""Print the book: python book/pdf.py [LANGUAGE], after book/build.py; writes _build/pdf/resnet50-on-mindspore.pdf

Joins the pages from `make book` in the order of _toc.yml, and has Chromium print them with book/print.css. So nothing
is executed or typeset a second time: formulas come from MathJax, outputs and figures from the pages.
"""

import argparse
import base64
import io
import posixpath
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag
from pages import BUILD, LOCALE, REPO, html, languages, parts, translations
from pypdf import PdfReader
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Elements that are only for clicking; scripts of interactive figures, which have a static image; titles of folded code.
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

OFFLINE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Unprintable(Exception):
    """The PDF cannot be printed: one line with the reason."""


def separate_answers(article: Tag, title: str) -> None:
    """Print questions with their choices alone; what explains each choice comes at the end of the page."""
    end = BeautifulSoup(f'<section class="answers"><h2>{title}</h2><ol></ol></section>', "html.parser").section
    for number, question in enumerate(article.select(".question"), 1):
        question.p.insert(0, f"{number}. ")
        explained = Tag(name="li")
        for part, texts in ((question, ".sd-summary-text"), (explained, ".sd-summary-content")):
            choices = Tag(name="ol", attrs={"type": "a"})
            for text in question.select(texts):
                choices.append(text.wrap(Tag(name="li", attrs={"class": text.find_parent("details")["class"]})))
            part.append(choices)
        end.ol.append(explained)
        for details in question.select("details"):
            details.decompose()
    if end.ol.contents:
        article.append(end)


def chapter(document: str, article: Tag, printed_too: set[str], step: str = "Step {number}") -> str:
    """A page's text for paper: unfolded, with unique ids, and with links inside the PDF or to the web only."""
    for tag in article.select(NOT_PRINTED):
        tag.decompose()
    for tag in article.select("[id]:not(svg *)"):  # a drawing refers to its own ids
        tag["id"] = f"{document}/{tag['id']}"
    for tag in article.find_all("a", href=True):
        address = urlsplit(tag["href"])
        target = posixpath.normpath(posixpath.join(posixpath.dirname(document), unquote(address.path)))
        target = target.removesuffix(".html") if address.path else document
        if not address.scheme and target in printed_too:
            tag["href"] = "#" + quote("/".join(filter(None, (target, unquote(address.fragment)))))
        elif address.scheme not in ("http", "https", "mailto"):  # a file next to the pages, or in an example
            del tag["href"]
    for tag in article.find_all("details"):
        tag["open"] = ""
    for tag in article.select("tr:first-child:not(:has(td)):not(thead *)"):  # a table head, repeated on each page
        tag.wrap(Tag(name="thead"))
    for tag in article.select(".cell_output input[type=radio] + label[for]"):  # show all steps of a figure
        picture = article.find(class_=tag["for"])
        picture.wrap(Tag(name="span", attrs={"class": "frame"})).insert(0, step.format(number=tag.get_text()))
    for tag in article.select(".cell > details.above-input"):  # put the figure before its code
        tag.parent.append(tag)
    for level in (5, 4, 3, 2, 1):  # one level down, below the parts
        for tag in article.find_all(f"h{level}"):
            tag.name = f"h{level + 1}"
    return article.decode_contents()


def join(printed: list[tuple[str, list[str]]], language: str | None = None) -> str:
    """One HTML page: title, table of contents, and the documents of these parts of the book."""
    config = yaml.safe_load((REPO / "_config.yml").read_text(encoding="utf-8"))
    if language:
        strings = yaml.safe_load((LOCALE / language / "_config.yml").read_text(encoding="utf-8"))
        config |= {"title": strings["html_title"], "copyright": strings["copyright"]}
    captions, said = (translations(language, page) for page in ("book/index", "book/_ext/extensions"))
    pages, everything = html(language), {document for _, documents in printed for document in documents}
    scripts, entries, sections = {}, [], []
    for caption, documents in printed:
        caption = escape(captions.get(caption, caption))
        top = f'<h1 class="part">{caption}</h1>' if caption else ""
        entries += [f'<li class="part">{caption}</li>'] if caption else []
        for document in documents:
            file = pages / f"{document}.html"
            if not file.exists():
                raise Unprintable(f"{file} is missing: run `make book`")
            page = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")
            for tag in page.select("article img[src], head script[src]"):
                if not urlsplit(tag["src"]).scheme:
                    tag["src"] = (file.parent / unquote(urlsplit(tag["src"]).path)).resolve().as_uri()
            mathjax = (str(tag) for tag in page.head.find_all("script") if "mathjax" in str(tag).lower())
            scripts |= dict.fromkeys(mathjax)
            step = said.get("Step {number}", "Step {number}")
            separate_answers(page.article, said.get("Answers", "Answers"))
            text = chapter(document, page.article, everything, step)
            entries.append(
                f'<li><a href="#{quote(document)}"><span>{page.article.h2.decode_contents()}</span></a></li>'
            )
            sections.append(f'<section id="{document}" class="chapter">{top}{text}</section>')
            top = ""
    styles = (pages / "_static" / "pygments.css", REPO / "book" / "print.css")
    links = "".join(f'<link rel="stylesheet" href="{style.as_uri()}">' for style in styles)
    name, _, subtitle = re.sub("： ?", ": ", config["title"]).partition(": ")
    return f"""<!DOCTYPE html><html lang="{(language or "en").replace("_", "-")}" data-theme="light">
<head><meta charset="utf-8"><title>{config["title"]}</title>{links}{"".join(scripts)}</head><body>
<header><p class="title">{name}</p><p class="subtitle">{subtitle}</p>
<p>{config["author"]}</p><p>{config["copyright"]}</p></header>
<nav><h2>{said.get("Contents", "Contents")}</h2><ul>{"".join(entries)}</ul></nav>
<main>{"".join(sections)}</main></body></html>"""


def browser() -> tuple[str | None, str | None]:
    """Programs of Chromium and its chromedriver on PATH, each None if it is missing."""
    return next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")


def no_font(language: str) -> str:
    """Why there is no font for a language, such as "zh"; "" if fontconfig has one."""
    if not shutil.which("fc-list"):
        return "fc-list is not installed (Debian: apt install fontconfig)"
    fonts = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, check=True).stdout
    return "" if fonts else f"no font for {language} is installed (Chinese, Debian: apt install fonts-noto-cjk)"


def chromium(*flags: str, logs: bool = False) -> webdriver.Chrome:
    """Chromium with access to this machine only; logs: record requests and messages."""
    binary, driver = browser()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*OFFLINE, *flags):
        options.add_argument(flag)
    if logs:
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def write(page: str, file: Path, chrome: webdriver.Chrome) -> int:
    """Print an HTML page, saved next to `file`; return the number of sheets. Raises Unprintable for what is cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    source = file.with_suffix(".html")
    source.write_text(page, encoding="utf-8")
    for command, settings in SCREEN.items():
        chrome.execute_cdp_cmd(f"Emulation.{command}", settings)
    chrome.set_script_timeout(300)
    chrome.get(source.as_uri())
    if bad := chrome.execute_async_script((REPO / "book" / "print.js").read_text(encoding="utf-8")):
        raise Unprintable(f"{len(bad)} elements do not fit or are missing, the first: {bad[0]}")
    data = base64.b64decode(chrome.execute_cdp_cmd("Page.printToPDF", PAPER)["data"])
    file.write_bytes(data)
    return len(PdfReader(io.BytesIO(data)).pages)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the book that was built, to one PDF.")
    parser.add_argument("language", nargs="?", choices=languages(), help="default: English")
    language = parser.parse_args().language
    file = BUILD / "pdf" / f"resnet50-on-mindspore{'-' + language if language else ''}.pdf"
    try:
        if not all(browser()):
            raise Unprintable("Chromium with chromedriver is needed (Debian: chromium chromium-driver)")
        if language and (reason := no_font(language[:2])):
            raise Unprintable(reason)
        with chromium() as chrome:
            sheets = write(join(parts(), language), file, chrome)
    except Unprintable as error:
        print(f"make pdf: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"make pdf: {file}, {sheets} pages, {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
