"""The row "Work on this lab": where its buttons lead, before and after the addresses are set; Binder's files."""

import base64
import os
import shutil
import subprocess
import sys
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import work_on_lab
from bs4 import BeautifulSoup
from chapters import REPO

from grader import lab as labs

BOOK_URL = "https://example.org/course"
REPOSITORY = "https://github.com/owner/na.me"
CONF = """\
extensions = ["myst_nb", "sphinx_copybutton", "learners_version", "work_on_lab"]
html_theme = "sphinx_book_theme"
nb_execution_mode = "off"
html_static_path = ["book/_static"]
exclude_patterns = ["_out"]
root_doc = "index"
"""


def sphinx(folder, **settings):
    """Build the labs' pages and the chapter that buttons lead to; the process."""
    for name in [f"labs/{lab}/lab.md" for lab in labs.names()] + ["book/4-cloud/notebooks.md"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, folder / name)
    shutil.copytree(REPO / "book/_static", folder / "book/_static")
    (folder / "conf.py").write_text(CONF + "".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    (folder / "index.md").write_text("# Index\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", folder, folder / "_out"]
    environment = os.environ | {"PYTHONPATH": f"{REPO / 'book'}{os.pathsep}{REPO / 'book' / '_ext'}"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    done = sphinx(folder, book_url=BOOK_URL, repository_url=REPOSITORY, binder_ref="v1/x")
    assert done.returncode == 0, done.stderr
    return folder / "_out"


def page(top, lab):
    return BeautifulSoup((top / f"labs/{lab}/lab.html").read_text(encoding="utf-8"), "html.parser")


def ways(top, lab):
    """The row on a lab's page, and what is written on each button with where it leads."""
    (row,) = page(top, lab).select("h1 ~ .work-on-lab")
    return row, {" ".join(button.get_text().split()): button["href"] for button in row.select("a.lab-button")}


@pytest.mark.parametrize("lab", labs.names())
def test_without_addresses_the_buttons_say_how(html, lab):
    """Their links lead somewhere, which tests/book/test_pages.py asks."""
    row, buttons = ways(html, lab)
    (command,) = row.select("div.highlight pre")
    assert command.get_text().strip() == f"make lab LAB={lab}"
    binder = [] if lab in work_on_lab.TOO_LARGE_FOR_BINDER else ["Open in Binder: how"]
    assert list(buttons) == ["Download notebook", "Open in ModelArts: how", *binder]
    assert buttons["Open in ModelArts: how"].endswith("4-cloud/notebooks.html#open-a-lab")
    assert not page(html, lab).select("link[rel=canonical]")


@pytest.mark.parametrize("lab", labs.names())
def test_with_addresses_they_open_the_lab(public, lab):
    _, buttons = ways(public, lab)
    address = buttons["Open in ModelArts"]
    assert address.startswith("https://authoring-modelarts-cnnorth4.huaweicloud.com/console/lab?")
    (code,) = parse_qs(urlsplit(address).query)["share-url-b64"]
    assert (public / base64.b64decode(code).decode().removeprefix(f"{BOOK_URL}/")).is_file()
    assert page(public, lab).select_one("link[rel=canonical]")["href"] == f"{BOOK_URL}/labs/{lab}/lab.html"
    assert page(public, lab).select(f"a.btn-source-repository-button[href='{REPOSITORY}']")
    if lab in work_on_lab.TOO_LARGE_FOR_BINDER:
        assert list(buttons) == ["Download notebook", "Open in ModelArts"]
    else:
        address = urlsplit(buttons["Open in Binder"])
        assert [unquote(part) for part in address.path.split("/")] == ["", "v2", "gh", "owner", "na.me", "v1/x"]
        assert parse_qs(address.query) == {"labpath": [f"work/lab-{lab}.ipynb"]}


@pytest.mark.parametrize(("settings", "message"), [
    ({"repository_url": "owner/name"}, "repository_url is not an address like https://github"),
    ({"binder_ref": "v1"}, "binder_ref needs repository_url, which is empty"),
])  # fmt: skip
def test_a_wrong_setting_stops_the_build(tmp_path, settings, message):
    done = sphinx(tmp_path, **settings)
    assert done.returncode != 0
    assert f"_config.yml: {message}" in done.stderr


@pytest.mark.slow
def test_binder_finds_the_labs(tmp_path):
    """postBuild in a copy of what git tracks, as Binder has it, with the Python that is here."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    environment = {name: value for name, value in os.environ.items() if name != "LABKIT_DATA"}
    subprocess.run(["./binder/postBuild"], cwd=tmp_path, env=environment, check=True)
    assert {file.name for file in tmp_path.glob("work/*.ipynb")} >= {f"lab-{lab}.ipynb" for lab in labs.names()}
    assert (tmp_path / "data/sample/cifar-10-batches-bin/data_batch_1.bin").is_file()
