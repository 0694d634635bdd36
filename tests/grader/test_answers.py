"""What is read of a handed-in notebook: its answers, and why a broken one has none."""

import json

import jupytext
import nbformat
import pytest

from grader import answers
from grader.lab import PART
from grader.submissions import Unreadable
from tests.grader.conftest import filled_in


@pytest.fixture
def read(tiny, tmp_path):
    """Function that writes one submission and reads its answers."""

    def read(content, name="ann.ipynb"):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / name).write_bytes(data)
        return answers.read(tiny, [tmp_path / name])[0]

    return read


def test_answers_are_taken_by_id_and_nothing_else_is(read, tiny):
    made = filled_in(tiny, steps="steps = 7")
    for cell in made["cells"]:
        cell["metadata"] = {"tags": ["raises-exception"]}
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "ok"}]
    made["cells"].append({"cell_type": "code", "id": "mine", "metadata": {}, "source": "steps = 8", "outputs": []})
    assert read(made) == tiny.stubs | {"steps": "steps = 7"}


def test_without_ids_the_metadata_tell_the_cell(read, tiny):
    made = filled_in(tiny, **tiny.solutions)
    for cell in made["cells"]:
        del cell["id"]
        cell["source"] = cell["source"].splitlines(keepends=True)  # as Jupyter saves it
    assert read(made) == tiny.solutions


def test_a_cell_that_was_split_is_one_answer_and_what_is_below_it_is_a_copy(read, tiny):
    made = filled_in(tiny, steps="steps = a // b")
    place = next(n for n, cell in enumerate(made["cells"]) if cell["id"] == "answer-steps")
    part = made["cells"][place] | {"id": "other", "source": "a, b = 1437, 32"}
    copy = made["cells"][place] | {"id": "copy", "source": "steps = 0"}
    made["cells"][place : place + 1] = [part, made["cells"][place], copy]
    assert read(made)["steps"].split(PART) == ["a, b = 1437, 32", "steps = a // b"]


@pytest.mark.parametrize("above", ["a, b = 1437, 32", "steps = None  # your answer\na, b = 1437, 32"])
def test_a_cell_that_vs_code_split_keeps_its_id_above(read, tiny, above):
    made = filled_in(tiny, steps=above)
    place = next(n for n, cell in enumerate(made["cells"]) if cell["id"] == "answer-steps")
    parts = [made["cells"][place] | {"id": name, "source": text}
             for name, text in [("below", "steps = a // b"), ("copy", "steps = 0")]]  # fmt: skip
    made["cells"][place + 1 : place + 1] = parts
    assert read(made)["steps"].split(PART) == [above, "steps = a // b"]


def test_markdown_is_read_as_well(read, tiny):
    made = nbformat.from_dict(filled_in(tiny, **tiny.solutions))
    assert read(jupytext.writes(made, fmt="md:myst").encode(), "ann.md") == tiny.solutions


def test_a_deleted_cell_is_missing(read, tiny):
    made = filled_in(tiny)
    made["cells"] = [cell for cell in made["cells"] if cell["id"] != "answer-total"]
    assert set(read(made)) == {"steps", "triangle"}


UNREAD = ["steps = '\0'", "steps = '\udc80'", "x = " + "(" * 9999, "steps = " + "1 + " * 60_000 + "1"]  # by a parser


@pytest.mark.parametrize("text", UNREAD, ids=range(len(UNREAD)))
def test_what_no_parser_reads_is_an_answer_all_the_same(read, tiny, text):
    assert read(filled_in(tiny, steps=text))["steps"] == text


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "damaged, not valid JSON, line 1"),
        (b"\xff\xfe", "not text"),
        (b"[" * 100_000, "damaged"),
        (b"[]", "damaged, not a notebook of format 4"),
        ({"cells": [7]}, "damaged, not a notebook of format 4"),
        ({"cells": [{"cell_type": "code", "id": "answer-steps", "source": 7}]}, "damaged, not a notebook"),
        ({"cells": []}, "no answer cells of the lab tiny"),
    ],
    ids=range(7),
)
def test_a_notebook_that_cannot_be_used_is_told(read, content, reason):
    with pytest.raises(Unreadable, match=f"^ann.ipynb: {reason}"):
        read(content)


def test_of_several_notebooks_the_one_that_was_begun_is_taken(tiny, tmp_path):
    def written(name, **given):
        (tmp_path / name).write_text(json.dumps(filled_in(tiny, **given)))
        return tmp_path / name

    blank, mine, other = written("a.ipynb"), written("b.ipynb", steps="steps = 7"), written("c.ipynb", steps="steps=8")
    assert answers.read(tiny, [blank, mine]) == (tiny.stubs | {"steps": "steps = 7"}, [])
    for name, text in [("lab.md", "---\n---\n"), ("broken.ipynb", "{")]:
        (tmp_path / name).write_text(text)
    beside = [blank, mine, tmp_path / "lab.md", tmp_path / "broken.ipynb"]
    assert answers.read(tiny, beside)[1] == ["broken.ipynb: damaged, not valid JSON, line 1"]
    with pytest.raises(Unreadable, match="several notebooks with different answers: b.ipynb, c.ipynb; hand in one"):
        answers.read(tiny, [blank, mine, other])
