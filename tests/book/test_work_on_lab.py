"""The row "Work on this lab": where its buttons lead, before and after the addresses are set; Binder's files."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from grader import lab as labs

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book" / "_ext"))
sys.path.insert(0, str(REPO / "book"))

import links  # noqa: E402
import work_on_lab  # noqa: E402

BOOK_URL = "https://example.org/course"
REPOSITORY = "https://github.com/owner/na.me"
CONF = """\
extensions = ["myst_nb", "sphinx_copybutton", "learners_version", "modelarts_button", "work_on_lab"]
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
    environment = os.environ | {"PYTHONPATH": str(REPO / "book" / "_ext")}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def pages(tmp_path_factory, **settings):
    folder = tmp_path_factory.mktemp("book")
    done = sphinx(folder, **settings)
    assert done.returncode == 0, done.stderr
    return folder / "_out"


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    return pages(tmp_path_factory)


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    return pages(tmp_path_factory, book_url=BOOK_URL, repository_url=REPOSITORY, binder_ref="v1/x")


@pytest.fixture(params=labs.names())
def lab(request):
    return request.param


def row(top, lab):
    page = BeautifulSoup((top / f"labs/{lab}/lab.html").read_text(encoding="utf-8"), "html.parser")
    (found,) = page.select("h1 ~ .work-on-lab")
    assert found["aria-label"] == "Work on this lab"
    return found


def addresses(row):
    """What is written on each button, and where it leads."""
    return {" ".join(button.get_text().split()): button["href"] for button in row.select("a.lab-button")}


def leads_somewhere(top, lab, address):
    return links.broken(top / f"labs/{lab}/lab.html", urlsplit(address), top) == ""


@pytest.mark.parametrize("top", ["private", "public"])
def test_the_command_and_the_notebook_are_always_there(request, top, lab):
    top = request.getfixturevalue(top)
    (command,) = row(top, lab).select("div.highlight pre")  # to which sphinx-copybutton gives its button
    assert command.get_text().strip() == f"make lab LAB={lab}"
    notebook = addresses(row(top, lab))["Download notebook"]
    assert notebook.endswith(f"/lab-{lab}.ipynb") and leads_somewhere(top, lab, notebook)
    assert "copybutton.js" in (top / f"labs/{lab}/lab.html").read_text()
    assert (top / "_static/work-on-lab.css").is_file()


def test_without_addresses_the_buttons_say_how(private, lab):
    found = row(private, lab)
    ways = addresses(found)
    binder = [] if lab in work_on_lab.TOO_LARGE_FOR_BINDER else ["Open in Binder: how"]
    assert list(ways) == ["Download notebook", "Open in ModelArts: how", *binder]
    assert [way for way in ways.values() if not leads_somewhere(private, lab, way)] == []
    assert ways["Open in ModelArts: how"].endswith("4-cloud/notebooks.html#open-a-lab")
    assert "The button says how to open this one by hand" in found.get_text()
    assert ("Its button leads to the settings" in found.get_text()) == bool(binder)


def test_modelarts_is_given_the_published_notebook(public, lab):
    address = addresses(row(public, lab))["Open in ModelArts"]
    assert address.startswith("https://authoring-modelarts-cnnorth4.huaweicloud.com/console/lab?")
    (code,) = parse_qs(urlsplit(address).query)["share-url-b64"]
    published = base64.b64decode(code).decode()
    assert (public / published.removeprefix(f"{BOOK_URL}/")).is_file()


def test_binder_is_given_the_repository_and_the_notebook(public, lab):
    found = row(public, lab)
    if lab in work_on_lab.TOO_LARGE_FOR_BINDER:
        assert list(addresses(found)) == ["Download notebook", "Open in ModelArts"]
        assert "more memory than Binder gives" in found.get_text()
        assert leads_somewhere(public, lab, found.select_one("p a")["href"])
        return
    address = urlsplit(addresses(found)["Open in Binder"])
    assert (address.scheme, address.netloc) == ("https", "mybinder.org")
    assert [unquote(part) for part in address.path.split("/")] == ["", "v2", "gh", "owner", "na.me", "v1/x"]
    assert parse_qs(address.query) == {"labpath": [f"work/lab-{lab}.ipynb"]}
    assert "Its button leads" not in found.get_text() and "public" not in found.get_text()


@pytest.mark.parametrize(
    ("repository", "place"),
    {
        "https://github.com/owner/name": "gh/owner/name/HEAD",
        "https://github.com/owner/name.git": "gh/owner/name/HEAD",
        "https://example.org/a/b.git": "git/https%3A%2F%2Fexample.org%2Fa%2Fb.git/HEAD",
    }.items(),
)
def test_a_repository_may_lie_on_github_or_elsewhere(repository, place):
    assert work_on_lab.binder_link(repository, "HEAD", "a/b c.ipynb") == (
        f"https://mybinder.org/v2/{place}?labpath=a%2Fb%20c.ipynb"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repository_url": "git@example.org:a/b"}, "repository_url must be an https address without a / at its end"),
        ({"repository_url": "owner/name"}, "repository_url must be an https address without a / at its end"),
        ({"book_url": BOOK_URL + "/"}, "book_url must be an https address without a / at its end"),
        ({"binder_ref": "v1"}, "binder_ref needs repository_url, which is empty"),
    ],
)
def test_a_wrong_setting_stops_the_build(tmp_path, settings, message):
    done = sphinx(tmp_path, **settings)
    assert done.returncode != 0
    assert f"_config.yml: {message}" in done.stderr


def test_pages_know_their_public_address(public, private, lab):
    page = f"labs/{lab}/lab.html"
    found = BeautifulSoup((public / page).read_text(encoding="utf-8"), "html.parser")
    assert found.select_one("link[rel=canonical]")["href"] == f"{BOOK_URL}/{page}"
    assert "canonical" not in (private / page).read_text(encoding="utf-8")


def test_pages_lead_to_a_repository_on_github(tmp_path):
    """With the book's theme and a page alone; no such button before there is an address."""
    (tmp_path / "index.md").write_text("# Index\n")
    for address, buttons in ((REPOSITORY, 1), ("https://example.org/a/b", 0), ("", 0)):
        conf = f'extensions = ["myst_nb", "online"]\nhtml_theme = "sphinx_book_theme"\nrepository_url = "{address}"\n'
        (tmp_path / "conf.py").write_text(conf)
        command = [sys.executable, "-m", "sphinx", "-q", "-E", "-b", "html", tmp_path, tmp_path / "_out"]
        environment = os.environ | {"PYTHONPATH": str(REPO / "book" / "_ext")}
        subprocess.run(command, check=True, env=environment)
        page = BeautifulSoup((tmp_path / "_out/index.html").read_text(encoding="utf-8"), "html.parser")
        leads = [link["href"] for link in page.select("a.btn-source-repository-button, a.btn-source-issues-button")]
        assert len(leads) == 2 * buttons and all(link.startswith(REPOSITORY) for link in leads)


# -- Binder's files ------------------------------------------------------------------------------------


def test_binder_gets_the_courses_versions():
    lines = (REPO / "binder/requirements.txt").read_text().splitlines()
    files = [line.split()[1] for line in lines if line.startswith("-c")]
    assert {(REPO / "binder" / file).resolve() for file in files} == {
        REPO / "requirements.txt",
        REPO / "constraints.txt",
    }
    asked = [line for line in lines if re.match(r"\w", line)]
    pinned = re.findall(r"^([\w-]+)==", (REPO / "requirements.txt").read_text(), re.M)
    assert asked and set(asked) <= set(pinned)
    assert "-e ." in lines


def test_after_the_build_a_button_finds_its_lab(tmp_path):
    """postBuild in a copy of what git tracks, as Binder has it, with the Python that is here."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    environment = {name: value for name, value in os.environ.items() if name != "LABKIT_DATA"}
    subprocess.run(["./binder/postBuild"], cwd=tmp_path, env=environment, check=True)
    for lab in labs.names():
        address = work_on_lab.binder_link("https://github.com/owner/name", "HEAD", f"work/lab-{lab}.ipynb")
        (notebook,) = parse_qs(urlsplit(address).query)["labpath"]
        cells = json.loads((tmp_path / notebook).read_text(encoding="utf-8"))["cells"]
        assert any("answer" in cell["metadata"] for cell in cells)
    assert (tmp_path / "data/sample/cifar-10-batches-bin/data_batch_1.bin").is_file()
