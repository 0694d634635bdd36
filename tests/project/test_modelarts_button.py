"""The button of a lab's page: its link, and the notebook that it opens."""

import base64
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from labkit.system.environment import REPO

sys.path.insert(0, str(REPO / "book" / "_ext"))

import modelarts_button as button


@pytest.mark.parametrize("url", ["https://h/a/lab.ipynb", "https://h/~~/???/lab-é.ipynb"])
def test_the_link_holds_the_notebooks_address(url):
    (told,) = parse_qs(urlsplit(button.console_link(url)).query)["share-url-b64"]
    assert base64.b64decode(told).decode() == url


@pytest.mark.parametrize("lab", ["cifar10", "imagenet", "thor"])
def test_the_notebook_stands_alone(lab):
    """It looks for labkit first; no link leads to a file that it does not bring."""
    found = button.notebook(REPO / "labs" / lab / "lab.md", "https://h/course")
    first = found.cells[0].source
    assert "find_spec" in first and "https://h/course/book/4-cloud/notebooks.html" in first
    text = "".join(cell.source for cell in found.cells if cell.cell_type == "markdown")
    assert "](../" not in text
    assert button.file_name(f"labs/{lab}/lab") == f"lab-{lab}.ipynb"
