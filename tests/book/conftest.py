"""The built book in its languages, for the tests of its pages."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "notebooks"))

from chapters import pages  # noqa: E402


def built(language: str | None = None) -> Path:
    """Folder of the pages in a language. Their last build must have ended without a warning."""
    if not (pages.BUILD / f".complete{f'-{language}' if language else ''}").exists():
        pytest.fail("the last book build failed or never ran: run `make book` (`make test` does)", pytrace=False)
    return pages.html(language)


@pytest.fixture(scope="session")
def html() -> Path:
    return built()


@pytest.fixture(scope="session")
def chinese() -> Path:
    return built("zh_CN")


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def site():
    """Address of a server of this machine that has the book in all its languages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=pages.BUILD)) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
