"""The search, in a browser without a network: from a server it shows lines of what it finds, from a file the pages."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.browser
QUERIES = {
    "natural gradient": "book/3-thor/natural-gradient.html",
    "rank table": "book/4-cloud/cards.html",
    "CrossEntropySmooth": "book/appendix/api/train.html",
    "checkpoint": "book/appendix/glossary.html",
}
FOUND = """
return [...document.querySelectorAll('#search-results ul.search > li')].map(item => [
  item.querySelector('a').getAttribute('href').split(/[?#]/)[0], item.querySelector('p.context')?.textContent || '']);
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def served(html):
    """Address of the built book on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def search(browser, book, words):
    """(page, line) of each result."""
    browser.get(f"{book}/search.html?q={words.replace(' ', '+')}")
    summary = "return document.querySelector('#search-results .search-summary')?.textContent || ''"
    WebDriverWait(browser, 30).until(lambda here: "found" in here.execute_script(summary))
    return browser.execute_script(FOUND)


@pytest.mark.parametrize("words", QUERIES)
def test_it_finds_the_page_and_shows_a_line(browser, served, words):
    assert QUERIES[words] in [page for page, _ in search(browser, served, words)]
    WebDriverWait(browser, 30).until(lambda here: any(line for _, line in here.execute_script(FOUND)))


@pytest.mark.parametrize("words", QUERIES)
def test_it_finds_the_page_from_a_file(browser, html, words):
    assert QUERIES[words] in [page for page, _ in search(browser, html.as_uri(), words)]
