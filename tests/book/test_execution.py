"""The page of execution has every page with code, with its time, in the order of the book."""

import re

import pytest
from bs4 import BeautifulSoup
from chapters import notebooks

TIME = re.compile(r"(?:(\d+) min )?(\d+) s")


def seconds(text: str) -> int:
    minutes, rest = TIME.fullmatch(text).groups()
    return 60 * int(minutes or 0) + int(rest)


@pytest.fixture(scope="module")
def rows(html):
    page = BeautifulSoup((html / "book/appendix/execution.html").read_text(encoding="utf-8"), "html.parser")
    return [row.find_all("td") for row in page.select("article tbody tr")]


def test_every_page_with_code_is_there_in_order(rows):
    links = [row[0].a["href"].removesuffix(".html") for row in rows[:-1]]
    assert [link.split("/")[-1] for link in links] == [name.split("/")[-1] for name in notebooks()]


def test_each_has_its_time_and_ended_as_meant(rows):
    taken = [seconds(row[1].get_text()) for row in rows]
    assert sum(taken[:-1]) == pytest.approx(taken[-1], abs=len(taken))  # each is rounded
    assert sum(taken[:-1]) > 30
    assert {row[3].get_text() for row in rows[:-1]} == {"as meant"}
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", row[2].get_text()) for row in rows[:-1])
