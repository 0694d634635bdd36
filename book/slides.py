"""Make slides for a lecture: python book/slides.py [LANGUAGE], after book/build.py; writes _build/html/book/slides

One deck a part: from each page its opening, its figures with heading and caption, and its questions. A deck is an HTML
page with no theme, as deep in the folder as the chapters, so their addresses of pictures and of MathJax hold in it.
"""

import argparse
import re
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag
from pages import REPO, html, languages, parts, translations

# The top folder of the pages, as a deck addresses it.
TOP = "../.."
KEYS = """addEventListener("keydown", ({ key, target }) => {
  const way = (key === "ArrowRight") - (key === "ArrowLeft");
  if (way && target.type !== "radio") scrollBy(0, way * innerHeight);
});"""


def shorten(caption: Tag) -> None:
    """Mark a caption's first sentence; the rest of it is printed smaller."""
    first, text = Tag(name="strong"), caption.select_one(".caption-text")
    for node in list(text.children):
        end = not isinstance(node, Tag) and re.search(r"[.?!](?=\s|$)|[。？！]", node)
        first.append(node[: end.end()] if end else node.extract())
        if end:
            node.replace_with(node[end.end() :])
            break
    text.insert(0, first)


def slides(document: str, article: Tag) -> list[str]:
    """A page's slides, in its order."""
    for tag in article.select("a.headerlink, button, script, .sd-summary-state-marker"):
        tag.decompose()
    for tag in article.select("a[href]"):
        if not urlsplit(tag["href"]).scheme:
            tag["href"] = TOP + urljoin(f"/{document}.html", tag["href"])
    sections = []
    for tag in article.select("h1, h2, h3, figure, .question"):
        if tag.name.startswith("h"):
            address = f"{TOP}/{document}.html#{tag.parent['id']}"
            heading = f'<h2><a href="{address}">{tag.decode_contents()}</a></h2>'
            if tag.name == "h1":
                sections.append(f'<section class="opening">{heading}{tag.find_next_sibling("p")}</section>')
            continue
        for caption in tag.select("figcaption"):
            shorten(caption)
        for choice in tag.select("details"):
            choice["name"] = tag["id"]  # opening one closes the others
        sections.append(f"<section>{heading}{tag}</section>")
    return sections


def deck(caption: str, documents: list[str], language: str | None = None) -> str:
    """An HTML page with the slides of a part of the book."""
    caption, titles, scripts, sections = translations(language, "book/index").get(caption, caption), [], {}, []
    for document in documents:
        page = BeautifulSoup((html(language) / f"{document}.html").read_text(encoding="utf-8"), "html.parser")
        scripts |= dict.fromkeys(str(tag) for tag in page.head.find_all("script") if "mathjax" in str(tag).lower())
        first, *others = slides(document, page.article)
        titles.append(f'<li><a href="#{document}">{page.article.h1.decode_contents()}</a></li>')
        sections += [first.replace("<section", f'<section id="{document}"', 1), *others]
    style = (REPO / "book" / "slides.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html><html lang="{(language or "en").replace("_", "-")}" data-theme="light">
<head><meta charset="utf-8"><title>{caption}</title>
<link rel="stylesheet" href="{TOP}/_static/pygments.css"><style>{style}</style>{"".join(scripts)}
<script>{KEYS}</script></head><body>
<section class="opening"><h1>{caption}</h1><ul>{"".join(titles)}</ul></section>{"".join(sections)}</body></html>"""


def lectures() -> dict[str, tuple[str, list[str]]]:
    """Name, caption and documents of each part with chapters, whose labs are no lectures."""
    chosen = ((caption, [name for name in listed if re.match(r"book/\d", name)]) for caption, listed in parts())
    return {chapters[0].split("/")[1]: (caption, chapters) for caption, chapters in chosen if chapters}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make slides from the pages that were built.")
    parser.add_argument("language", nargs="?", choices=languages(), help="default: English")
    language = parser.parse_args().language
    folder = html(language) / "book" / "slides"
    folder.mkdir(exist_ok=True)
    for name, lecture in lectures().items():
        (folder / f"{name}.html").write_text(deck(*lecture, language), encoding="utf-8")
    print(f"make slides: {', '.join(lectures())} in {folder}")
