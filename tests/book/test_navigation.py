"""One way through the book: previous and next follow the table of contents, and its numbers have no gap."""

import re

import pytest
from bs4 import BeautifulSoup
from chapters import documents

ORDER = documents()


def soup(html, page):
    return BeautifulSoup((html / f"{page}.html").read_text(encoding="utf-8"), "html.parser")


@pytest.mark.parametrize("number", range(len(ORDER)), ids=ORDER)
def test_previous_and_next_follow_the_contents(html, number):
    page = soup(html, ORDER[number])
    for selector, wanted in (("a.left-prev", number - 1), ("a.right-next", number + 1)):
        link = page.select_one(f".prev-next-footer {selector}")
        if not 0 <= wanted < len(ORDER):
            assert link is None
            continue
        target = (html / f"{ORDER[number]}.html").parent / link["href"]
        assert target.resolve() == (html / f"{ORDER[wanted]}.html").resolve()


def test_numbers_have_no_gap(html):
    """2 is followed by 2.1, not by 2.2: a part's first page has no section of its own that would be counted."""
    names = [link.get_text().strip() for link in soup(html, ORDER[0]).select(".bd-links a.reference.internal")]
    numbers = [tuple(map(int, match[1].split("."))) for name in names if (match := re.match(r"([\d.]+)\. ", name))]
    wanted = []
    for part in sorted({number[0] for number in numbers}):
        wanted += [(part,), *((part, n) for n in range(1, sum(number[0] == part for number in numbers)))]
    assert numbers == wanted
    assert len(wanted) > 30
