"""`make links`: nothing in the book or in the project's texts leads nowhere; and it finds what does."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "book"))

import links  # noqa: E402
import mentions  # noqa: E402


def told(found):
    """Line and target of what is broken."""
    return [(entry.line, entry.target) for entry in found.broken]


def test_nothing_in_the_book_leads_nowhere(html):
    found = links.check_book(html)
    assert [str(entry) for entry in found.broken] == []
    assert found.links > 1000  # an empty list would pass


@pytest.mark.parametrize("name", links.DOCUMENTS)
def test_nothing_in_a_document_leads_nowhere(name):
    assert [str(entry) for entry in links.check_document(REPO / name).broken] == []


def test_what_texts_name_exists():
    files = sorted({file for pattern in links.CHAPTERS for file in REPO.glob(pattern)})
    found = [links.check_names(file) for file in files]
    assert [str(entry) for one in found for entry in one.broken] == []
    assert sum(one.names for one in found) > 200


GOOD_PAGE = """<html><body><h1 id="top">T</h1><a name="old"></a>
<a href="#top">x</a> <a href="#old">x</a> <a href="b.html#s%20t">x</a> <a href="./?q=1">x</a> <a href="sub/">x</a>
<a href="f.ipynb" download>x</a> <img src="i.svg#part" srcset="i.svg 1x, i.svg 2x"><script src="s.js?digest=1"></script>
<link href="c.css" rel="stylesheet"><a href="https://example.org/a">x</a> <a href="mailto:a@example.org">x</a>
</body></html>"""
FILES = {
    "index.html": '<meta http-equiv="refresh" content="0; url=a.html">',
    "a.html": GOOD_PAGE,
    "b.html": '<p id="s t"></p>',
    "sub/index.html": '<a href="../a.html">x</a>',
    "f.ipynb": "{}",
    "i.svg": '<svg xmlns="http://www.w3.org/2000/svg"><g id="part"/><use xlink:href="#part"/></svg>',
    "s.js": "",
    "c.css": "@import 'd.css';\nbody { background: url(i.svg) }\na { background: url('data:image/png;base64,AA') }",
    "d.css": "",
}
BROKEN = {  # added to a.html as its line 6, or to another file: what must be told
    '<a href="gone.html">x</a>': "gone.html",
    '<a href="b.html#gone">x</a>': "b.html#gone",
    '<a href="#gone">x</a>': "#gone",
    '<a href="sub/gone.html">x</a>': "sub/gone.html",
    '<a href="../outside.html">x</a>': "../outside.html",
    '<a href="gone.ipynb" download>x</a>': "gone.ipynb",
    '<img src="gone.png">': "gone.png",
    '<img src="i.svg" srcset="i.svg 1x, gone.png 2x">': "gone.png",
    '<img src="i.svg#gone">': "i.svg#gone",
    '<script src="gone.js?digest=1"></script>': "gone.js?digest=1",
    '<link rel="stylesheet" href="gone.css">': "gone.css",
    '<video poster="gone.jpg"></video>': "gone.jpg",
    '<object data="gone.svg"></object>': "gone.svg",
    '<form action="gone.html"></form>': "gone.html",
    '<iframe src="gone/"></iframe>': "gone/",
}


def book(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder.parent / "outside.html").write_text("")
    return folder


def test_what_a_page_may_refer_to(tmp_path):
    found = links.check_book(book(tmp_path / "html", FILES))
    assert told(found) == []
    assert found.external == {"https://example.org/a": {"a.html"}}
    assert found.links == 16


@pytest.mark.parametrize(("planted", "target"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_reference_of_a_page_is_found(tmp_path, planted, target):
    page = GOOD_PAGE.replace("</body>", f"\n{planted}</body>")
    found = links.check_book(book(tmp_path / "html", FILES | {"a.html": page}))
    assert [(entry.file, entry.line, entry.target) for entry in found.broken] == [("a.html", 6, target)]


def test_broken_references_of_other_files_are_found(tmp_path):
    changed = {
        "index.html": '<meta http-equiv="refresh" content="0; url=gone.html">',
        "c.css": "@import 'gone.css';\nbody { background: url(gone.svg) }",
        "i.svg": '<svg xmlns="http://www.w3.org/2000/svg"><g id="part"/>\n<image href="gone.png"/></svg>',
    }
    found = links.check_book(book(tmp_path / "html", FILES | changed))
    assert sorted((entry.file, *pair) for entry, pair in zip(found.broken, told(found))) == [
        ("c.css", 1, "gone.css"),
        ("c.css", 2, "gone.svg"),
        ("i.svg", 2, "gone.png"),
        ("index.html", 1, "gone.html"),
    ]


DOCUMENT = """\
# One thing, and another!

[a](other.md), [b](other.md#two-words), [c](#one-thing-and-another), [d](folder/), ![e](image.svg), <https://example.org>

| table |
| --- |
| [f](other.md#two-words-1) |

{planted}
"""


@pytest.fixture
def document(tmp_path):
    """A function that writes a document with a paragraph of one's own, in line 9, beside the files of others."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "image.svg").touch()
    (tmp_path / "other.md").write_text("## Two words\n\n## Two words\n\n```\n# no heading\n```\n")

    def write(planted=""):
        file = tmp_path / "README.md"
        file.write_text(DOCUMENT.format(planted=planted))
        return links.check_document(file, tmp_path)

    return write


def test_what_a_document_may_refer_to(document):
    found = document("`[code](gone.md)`")
    assert told(found) == []
    assert (found.links, found.external) == (6, {"https://example.org": {"README.md"}})


@pytest.mark.parametrize("target", ["gone.md", "other.md#no-heading", "#gone", "folder/gone.png"])
def test_a_broken_link_of_a_document_is_found(document, target):
    assert told(document(f"A long\nsentence [x]({target}).")) == [(10, target)]


GOOD_NAMES = """\
`make book`, `make lab LAB=thor`, `make distclean env PYTHON=/path/to/python3.11`, `make`, `labkit`, `$ labkit -h`,
`labkit train LAB --profile sample`, `labkit train --profile`, `labkit obs ls --help`, `labkit COMMAND --help`,
`labkit train ...`, `.venv/bin/labkit jobs list`,
`LABKIT_DATA=/data labkit doctor --json`, `python data_scripts/cifar10.py import PATH`,
`labkit/networks/convolution.py`, `labkit/thor/`, `labs/*/recipe.yaml`, `labs/NAME/lab.md`, `book/<part>/<name>.md`,
`labkit launch -n 2 train imagenet --set max_steps=4`, `python -m grader.release cifar10 FILE`, `train/`,
{doc}`/book/gone`, {ref}`gone <labs/gone.md>`, `runs/gone`, `python -m pip install labs/thor`, `labkit/parity`

```sh
. .venv/bin/activate && labkit train cifar10 --resume | tee gone; make lint # make gone
labkit export runs/x --format onnx \\
    --out gone.onnx > gone
echo labkit gone
```

```{code-cell} python3
labkit.gone(`make gone`)
```
"""
BROKEN_NAMES = {
    "`make gone`": "make gone",
    "`make lab GONE=1`": "make lab GONE=1",
    "`labkit gone`": "labkit gone",
    "`labkit train cifar10 --gone 3`": "labkit train cifar10 --gone 3",
    "`.venv/bin/labkit obs gone`": ".venv/bin/labkit obs gone",
    "`labkit export runs/x --format gone`": "labkit export runs/x --format gone",
    "`labkit doctor --json=3`": "labkit doctor --json=3",
    "`labkit launch -n 2 train imagenet --gone`": "labkit launch -n 2 train imagenet --gone",
    "`python data_scripts/cifar10.py gone`": "python data_scripts/cifar10.py gone",
    "`python -m labkit.gone`": "python -m labkit.gone",
    "`labkit/networks/gone.py`": "labkit/networks/gone.py",
    "`labs/*/gone.yaml`": "labs/*/gone.yaml",
    "`labkit eval labs/gone/runs`": "labs/gone/runs",
    "```\nmake gone\n```": "make gone",
    "```sh\nlabkit doctor\nlabkit train thor \\\n  --gone\n```": "labkit train thor   --gone",
    "```sh\nmake env && make gone\n```": "make gone",
    "```{note}\nRead\n`labkit/gone.py`.\n```": "labkit/gone.py",
    "````{dropdown} D\n```\n$ labkit gone\n```\n````": "labkit gone",
    "`make 'gone`": "make 'gone",
}


def names(folder, text):
    """What is found in a chapter of a project that is otherwise this one."""
    for name in ("Makefile", *mentions.FOLDERS):
        (folder / name).symlink_to(REPO / name)
    (folder / "chapter.md").write_text(text)
    return links.check_names(folder / "chapter.md", folder)


def test_what_a_text_may_name(tmp_path):
    found = names(tmp_path, GOOD_NAMES)
    assert told(found) == []
    assert found.names == 27


@pytest.mark.parametrize(("planted", "target"), BROKEN_NAMES.items(), ids=BROKEN_NAMES.values())
def test_a_name_that_is_gone_is_found(tmp_path, planted, target):
    found = names(tmp_path, f"---\ntitle: x\n---\n\n# Title\n\nText.\n\n{planted}\n")
    (entry,) = found.broken
    assert " ".join(entry.target.split()) == " ".join(target.split())
    place = planted.split("\n")
    word = target.split()[0] if "\\" in planted else target
    line = next((n for n, text in enumerate(place) if word in text and "doctor" not in text), 0)
    assert entry.line == 9 + line


def test_the_command_tells_what_is_broken_and_lists_the_rest(tmp_path):
    folder = book(tmp_path / "html", FILES)
    command = [sys.executable, REPO / "book" / "links.py", "--html", folder]
    well = subprocess.run(command, capture_output=True, text=True)
    assert (well.returncode, well.stderr) == (0, "")
    assert "https://example.org/a\n    a.html\n" in (tmp_path / "links.txt").read_text()
    (folder / "b.html").unlink()
    ill = subprocess.run(command, capture_output=True, text=True)
    assert ill.returncode == 1
    assert ill.stdout.splitlines()[0] == "a.html:2: b.html#s%20t: no such file"
    none = subprocess.run([*command[:-1], tmp_path], capture_output=True, text=True)
    assert none.returncode == 1 and "make book" in none.stderr
