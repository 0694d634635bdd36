"""The built book, for the tests of its pages."""

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
HTML = REPO / "_build" / "html"

sys.path.insert(0, str(REPO / "tests" / "notebooks"))

from chapters import documents  # noqa: E402


def pages() -> list[str]:
    """Addresses of all pages, relative to the book's top folder."""
    return [f"{document}.html" for document in documents()]


def pytest_generate_tests(metafunc):
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages())


@pytest.fixture(scope="session")
def html() -> Path:
    """Folder of the built book. Its last build must have ended without a warning."""
    if not (REPO / "_build" / ".complete").exists():
        pytest.fail("the last book build failed or never ran: run `make book` (`make test` does)", pytrace=False)
    return HTML
