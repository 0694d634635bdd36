"""Slides: what is on the chapters' pages, in both languages, without a network."""

from urllib.parse import unquote, urlsplit

import pytest
import slides
from bs4 import BeautifulSoup


@pytest.mark.parametrize("name", slides.lectures())
@pytest.mark.parametrize("language", [None, "zh_CN"])
def test_a_deck_has_each_figure_and_question_of_its_chapters_under_a_heading(request, language, name):
    folder = request.getfixturevalue("chinese" if language else "html")
    caption, chapters = slides.lectures()[name]
    deck, expected = BeautifulSoup(slides.deck(caption, chapters, language), "html.parser"), []
    for document in chapters:
        page = BeautifulSoup((folder / f"{document}.html").read_text(encoding="utf-8"), "html.parser")
        expected += [tag.get("id") for tag in page.article.select("figure, .question")]
    shown = deck.select("figure, .question")
    assert [tag.get("id") for tag in shown] == expected
    for tag in shown:
        assert tag.parent.name == "section" and tag.parent.h2.get_text(strip=True)
        if tag.name == "figure":
            assert tag.select_one("img[alt], svg") and tag.figcaption.strong.get_text(strip=True)
        else:
            assert len(tag.select("details[name]")) >= 3 and len(tag.select("details.right")) == 1
    assert [chapter for chapter in chapters if not deck.find(id=chapter)] == []
    for tag in deck.select("[src], [href]:not([href^='#'])"):
        address = urlsplit(tag.get("src") or tag["href"])
        if address.scheme:
            assert tag.name == "a" or address.scheme == "data"
        else:
            assert (folder / "book" / "slides" / unquote(address.path)).resolve().is_file(), tag
