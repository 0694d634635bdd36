"""What is found in folders and zips of submissions, and read of notebooks; all kinds of broken ones are a row each."""

import errno
import json
import os
import resource
import stat
import time
import zipfile

import jupytext
import nbformat
import pytest

from grader import answers as answers_module
from grader import submissions, untrusted
from grader.answers import read_answers
from grader.submissions import SubmissionsError
from tests.grader.conftest import filled_in


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "handed-in"
    folder.mkdir()
    return folder


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def notebook(tiny):
    """Function that gives the learner's notebook as a dict, with answers, and without ids where asked."""

    def notebook(answers=None, ids=True):
        made = filled_in(tiny, **(answers or {}))
        for cell in made["cells"] if not ids else ():
            del cell["id"]
        return made

    return notebook


@pytest.fixture
def read(tiny, place, scratch):
    """Function that writes one submission and reads its answers."""

    def read(content, name="ann.ipynb"):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (place / name).write_bytes(data)
        (found,) = find(place, scratch)
        return read_answers(tiny, found)

    return read


def zipped(file, entries):
    """A zip of {name: bytes}; a ZipInfo may stand for a name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file


def find(place, scratch):
    """All submissions, looked into."""
    return [submissions.look(one) for one in submissions.find(place, scratch)]


def names(found):
    return [one.student for one in found]


def problem(found):
    (one,) = found
    assert one.problem and "\n" not in one.problem and not one.notebooks
    return one.problem


def test_files_folders_and_zips_are_found(place, scratch, notebook):
    text = json.dumps(notebook())
    (place / "ann.ipynb").write_text(text)
    (place / "Bob Q.md").write_text("x")
    (place / "cyd" / "run" / "checkpoints").mkdir(parents=True)
    (place / "cyd" / "lab.ipynb").write_text(text)
    (place / "cyd" / "run" / "recipe.yaml").write_text("x")
    (place / "cyd" / "run" / "notes.md").write_text("no notebook: it is in the Run")
    zipped(place / "dan.zip", {"work/lab.ipynb": text, "work/mine/recipe.yaml": "x", "work/mine/summary.json": "{}"})
    (place / "Müller").mkdir()
    (place / "Müller" / "LAB.IPYNB").write_text(text)
    found = find(place, scratch)
    assert names(found) == ["Bob Q", "Müller", "ann", "cyd", "dan"]
    assert not any(one.problem for one in found)
    assert [len(one.runs) for one in found] == [0, 0, 0, 1, 1]
    assert found[3].runs[0] == place / "cyd" / "run" and found[4].runs[0].name == "mine"
    assert not list(place.glob("dan/*"))  # unpacked elsewhere


@pytest.mark.parametrize("name", ["class.zip", "class (1).zip"])  # as a browser saves it again
def test_a_zip_is_as_good_as_a_folder(tmp_path, scratch, notebook, name):
    text = json.dumps(notebook())
    whole = zipped(tmp_path / name, {"class/ann.ipynb": text, "class/bob/lab.ipynb": text, "__MACOSX/x": "x"})
    assert names(find(whole, scratch)) == ["ann", "bob"]
    flat = zipped(tmp_path / "other.zip", {"ann.ipynb": text})
    (scratch / "2").mkdir()
    assert names(find(flat, scratch / "2")) == ["ann"]


def test_hidden_files_are_ignored(place, scratch, notebook):
    text = json.dumps(notebook())
    (place / ".DS_Store").write_bytes(b"\x00")
    (place / "__MACOSX").mkdir()
    folder = place / "ann"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / ".ipynb_checkpoints" / "lab-checkpoint.ipynb").write_text("{")
    (folder / "lab.ipynb").write_text(text)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "python").symlink_to("/usr/bin/python3")
    (one,) = find(place, scratch)
    assert (one.student, one.notebooks, one.problem) == ("ann", (folder / "lab.ipynb",), "")


def test_the_labs_own_recipe_is_no_run_and_a_trained_one_is_preferred(place, scratch):
    (place / "ann" / "runs" / "recorded").mkdir(parents=True)
    (place / "ann" / "recipe.yaml").write_text("the lab's")
    (place / "ann" / "lab.ipynb").write_text("{}")
    (place / "ann" / "runs" / "recorded" / "recipe.yaml").write_text("x")
    (place / "ann" / "runs" / "recorded" / "summary.json").write_text("x")
    (one,) = find(place, scratch)
    assert [run.name for run in one.runs] == ["recorded"]
    mine = place / "ann" / "runs" / "mine" / "checkpoints"
    mine.mkdir(parents=True)
    (mine / "latest.ckpt").write_bytes(b"x")
    (mine.parent / "recipe.yaml").write_text("x")
    (one,) = find(place, scratch)
    assert [run.name for run in one.runs] == ["mine"]


def test_a_zip_beside_the_notebook_may_hold_the_run(place, scratch, notebook):
    (place / "ann").mkdir()
    (place / "ann" / "lab.ipynb").write_text(json.dumps(notebook()))
    zipped(place / "ann" / "run.zip", {"r/recipe.yaml": "x", "r/checkpoints/latest.ckpt": "x"})
    (one,) = find(place, scratch)
    assert len(one.runs) == len(one.notebooks) == 1
    zipped(place / "ann" / "more.zip", {"x": "x"})
    assert "more than one zip" in problem(find(place, scratch))


def test_two_of_the_same_learner_are_a_row_with_a_problem(place, scratch):
    for name in ("ann.ipynb", "Ann.md", "bob.ipynb"):
        (place / name).write_text("x")
    ann, bob = find(place, scratch)
    assert "Ann.md, ann.ipynb" in ann.problem and not bob.problem


@pytest.mark.parametrize("name", ["=1+1", "a\nb", "-rf", "a;b", "'ab", "a<b>", "x" * 90, "\u202eann", "b.", "\u0301a"])
def test_a_name_that_no_file_should_have_is_changed_and_told(place, scratch, name):
    (place / f"{name}.ipynb").write_text("x")
    told = []
    (one,) = submissions.find(place, scratch, told.append)
    assert submissions.NAME.fullmatch(one.student) and not submissions.look(one).problem
    (line,) = told
    assert line.isprintable() and line.endswith(f", graded as {one.student}")


@pytest.mark.parametrize(
    "name",
    ["ann (1)", "O'Brien, Mary", "नमिता", "ปิ่น", "x\u030c", "Ann-Lee.2", "María_José", "李小龙", "Ng, A. (late)"],
)
def test_names_of_people_are_kept(place, scratch, name):
    (place / f"{name}.ipynb").write_text("x")
    told = []
    (one,) = submissions.find(place, scratch, told.append)
    assert one.student == name and not told and not submissions.look(one).problem


def test_moodles_download_with_or_without_folders_is_a_row_for_each_learner(place, scratch, notebook):
    text, long = json.dumps(notebook()), "Maximiliane Alexandra von Hohenstein zu Musterstadt"
    (place / "Ann Lee_12_assignsubmission_file_lab-tiny.ipynb").write_text(text)
    zipped(place / "Ann Lee_12_assignsubmission_file_run.zip", {"r/recipe.yaml": "x", "r/checkpoints/latest.ckpt": "x"})
    (place / "Ann Lee_12_assignsubmission_file_notes.pdf").write_text("x")
    for name in ("Bob_7_assignsubmission_file_", "Bob_7_assignsubmission_onlinetext_"):
        (place / name).mkdir()
    (place / "Bob_7_assignsubmission_file_" / "lab.ipynb").write_text(text)
    (place / f"{long}_1234567_assignsubmission_file_lab-tiny.ipynb").write_text(text)
    (place / "Cyd_9_assignsubmission_file_work.rar").write_text("x")
    found = {one.student: one for one in find(place, scratch)}
    assert set(found) == {"Ann Lee_12", "Bob_7", "Cyd_9", f"{long}_1234567"}
    assert [len(one.notebooks) for one in found.values()] == [1, 1, 0, 1]
    assert len(found["Ann Lee_12"].runs) == 1
    assert found["Cyd_9"].problem.startswith("Cyd_9_assignsubmission_file_work.rar: not a notebook")


def test_a_zip_with_backslashes_is_unpacked(place, scratch):
    zipped(place / "ann.zip", {"work\\lab.ipynb": "{}", "work\\run\\": "", "work\\run\\recipe.yaml": "x",
                               "work\\run\\summary.json": "{}"})  # fmt: skip
    (one,) = find(place, scratch)
    assert not one.problem and [run.name for run in one.runs] == ["run"] and one.notebooks[0].name == "lab.ipynb"


def test_names_that_were_changed_do_not_meet(place, scratch):
    for name in ("a;b", "a:b", "a|b"):
        (place / f"{name}.ipynb").write_text("x")
    assert len(set(names(find(place, scratch)))) == 3


def test_a_name_that_is_not_text_is_a_row(place, scratch):
    (place / os.fsdecode(b"ann\xff.ipynb")).write_text("x")
    (one,) = find(place, scratch)
    json.dumps(one.problem).encode()
    one.student.encode()


def test_nothing_to_look_at_is_told(place, scratch):
    (place / "ann").mkdir()
    zipped(place / "cyd.zip", {"notes.txt": "x"})
    assert [one.problem for one in find(place, scratch)] == [
        "ann: no notebook in it (.ipynb or .md)",
        "cyd.zip: no notebook in it (.ipynb or .md)",
    ]


def test_what_is_not_taken_is_a_row_with_the_reason(place, scratch):
    for name in ("kim.py", "kit.rar", "lea", "ann.ipynb", "ann.pdf", "mia.MD", "noa.ipynb.txt"):
        (place / name).write_text("{}")
    told = []
    found = {one.student: submissions.look(one).problem for one in submissions.find(place, scratch, told.append)}
    reason = "not a notebook (.ipynb or .md), a folder or a zip; hand in one of these"
    files = {"kim": "kim.py", "kit": "kit.rar", "lea": "lea", "noa": "noa.ipynb.txt"}
    assert found == {student: f"{file}: {reason}" for student, file in files.items()} | {"ann": "", "mia": ""}
    assert told == ["not a notebook, folder or zip, ignored: ann.pdf, kim.py, kit.rar, lea, noa.ipynb.txt"]
    for number in range(20):
        (place / f"\n{number:02}.txt").write_text("x")
    submissions.find(place, scratch, told.append)
    assert "ignored: ?00.txt" in told[1] and told[1].endswith("and 5 more")


def test_names_that_look_like_one_learners_are_told(place, scratch):
    for name in ("gina", "Gina.final", "bob", "bob_2", "bob-3", "bobby", "ann maria", "ann"):
        (place / f"{name}.ipynb").write_text("x")
    told = []
    assert len(submissions.find(place, scratch, told.append)) == 8
    (line,) = told
    assert line.startswith("perhaps one learner, graded as two (leave one of them): ")
    pairs = line.partition(": ")[2].split("; ")
    assert sorted(pairs) == ["ann, ann maria", "bob, bob-3", "bob, bob_2", "gina, Gina.final"]
    (place / "Gina.final.ipynb").unlink()
    told.clear()
    for name in ("bob_2", "bob-3", "ann maria"):
        (place / f"{name}.ipynb").unlink()
    submissions.find(place, scratch, told.append)
    assert not told


def test_one_notebook_in_the_place_of_a_folder_is_told(place, scratch):
    (place / "ann.ipynb").write_text("{}")
    with pytest.raises(SubmissionsError, match=r"ann\.ipynb: is one notebook: give the folder it is in"):
        find(place / "ann.ipynb", scratch)


def test_no_submissions_at_all_are_an_error(place, scratch):
    with pytest.raises(SubmissionsError, match="holds no submissions"):
        find(place, scratch)
    with pytest.raises(SubmissionsError, match="no such folder"):
        find(place / "other", scratch)
    (place / "class.zip").write_bytes(b"no zip")
    with pytest.raises(SubmissionsError, match=r"class\.zip: damaged"):
        find(place / "class.zip", scratch)


def test_links_and_pipes_are_never_followed(tmp_path, place, scratch, notebook):
    secret = tmp_path / "secret.ipynb"
    secret.write_text(json.dumps(notebook()))
    (place / "ann.ipynb").symlink_to(secret)
    (place / "bob").mkdir()
    (place / "bob" / "lab.ipynb").symlink_to(secret)
    (place / "cyd").symlink_to(tmp_path)
    os.mkfifo(place / "dan.ipynb")
    run = place / "eve" / "run" / "checkpoints"
    run.mkdir(parents=True)
    (place / "eve" / "lab.ipynb").write_text(json.dumps(notebook()))
    (run.parent / "recipe.yaml").write_text("x")
    (run / "latest.ckpt").symlink_to("/etc/passwd")
    assert [one.problem for one in find(place, scratch)] == [
        "ann.ipynb: a link", "bob: lab.ipynb: a link".removeprefix("bob: "), "cyd: a link", "dan.ipynb: not a file",
        "latest.ckpt: a link",
    ]  # fmt: skip


def linked(name, target):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return {entry: target}


@pytest.mark.parametrize(
    "entries, reason",
    [
        ({"../out.ipynb": "x"}, "leads out"),
        ({"/tmp/out.ipynb": "x"}, "leads out"),
        ({"a/../../out.ipynb": "x"}, "leads out"),
        ({"..\\out.ipynb": "x"}, "leads out"),
        ({"C:out.ipynb": "x"}, "leads out"),
        ({"c:/out.ipynb": "x"}, "leads out"),
        (linked("lab.ipynb", "/etc/passwd"), "a link"),
        ({"lab": "x", "lab/lab.ipynb": "x"}, "lab"),
        ({"x" * 300 + ".ipynb": "x"}, "File name too long"),
    ],
)
def test_a_zip_writes_nowhere_else(tmp_path, place, scratch, entries, reason):
    zipped(place / "ann.zip", entries)
    assert reason in problem(find(place, scratch))
    assert {file.name for file in tmp_path.iterdir()} == {"handed-in", "scratch"}
    assert not list(tmp_path.glob("**/out.ipynb")) and not any(file.is_symlink() for file in scratch.glob("**/*"))


def test_bombs_are_not_unpacked(monkeypatch, place, scratch):
    zipped(place / "ann.zip", {"lab.ipynb": bytes(5_000_000)})
    zipped(place / "bob.zip", {f"{number}.txt": "" for number in range(30)})
    monkeypatch.setattr(submissions, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(submissions, "MOST_FILES", 20)
    ann, bob = find(place, scratch)
    assert ann.problem == "ann.zip: 5 MB unpacked are more than 1 MB"
    assert bob.problem == "bob.zip: 30 files are more than 20"
    assert not [file for file in scratch.glob("**/*") if file.is_file()]


def test_a_bomb_that_lies_about_its_size_is_not_unpacked_either(tmp_path):
    file = zipped(tmp_path / "ann.zip", {"lab.ipynb": bytes(5_000_000)})
    data = file.read_bytes()
    file.write_bytes(data.replace((5_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(untrusted.Unreadable, match="damaged"):
        untrusted.unpack(file, tmp_path / "out", 10, 1_000_000)
    assert sum(part.stat().st_size for part in (tmp_path / "out").iterdir()) <= 10


def test_other_zips_that_cannot_be_used_are_told(place, scratch):
    zipped(place / "ann.zip", {"lab.ipynb": "x" * 999})
    whole = (place / "ann.zip").read_bytes()
    (place / "ann.zip").write_bytes(whole[:40])
    damaged = bytearray(whole)
    damaged[50:60] = bytes(10)
    (place / "bob.zip").write_bytes(damaged)
    with zipfile.ZipFile(place / "cyd.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("lab.ipynb", "x")
    locked = bytearray(whole)
    locked[6] |= 1  # of the entry, and of the list
    locked[whole.index(b"PK\x01\x02") + 8] |= 1
    (place / "dan.zip").write_bytes(locked)
    with zipfile.ZipFile(place / "eve.zip", "w") as archive, pytest.warns(UserWarning):
        archive.writestr("lab.ipynb", "x")
        archive.writestr("lab.ipynb", "y")
    reasons = ["damaged", "damaged", "compressed in another way", "needs a password", "lab.ipynb twice"]
    for one, reason in zip(find(place, scratch), reasons, strict=True):
        assert reason in one.problem, one


def test_answers_are_taken_by_id_and_nothing_else_is(read, notebook, tiny):
    made = notebook({"steps": "steps = 44"})
    cell = next(cell for cell in made["cells"] if cell.get("id") == "answer-steps")
    cell["metadata"] = {"tags": ["raises-exception"], "answer": "total"}
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "44"}]
    made["cells"].reverse()
    answers = read(made)
    assert answers.problem == ""
    assert answers.sources == tiny.stubs | {"steps": "steps = 44"}


def test_without_ids_the_metadata_tell_the_cell(read, notebook, tiny):
    answers = read(notebook({"steps": "steps = 44"}, ids=False))
    assert answers.sources == tiny.stubs | {"steps": "steps = 44"}


def test_the_parts_of_a_cell_that_was_split_are_one_answer(read, notebook, tiny):
    """As JupyterLab leaves them: the metadata in all parts, the id in the last."""
    made = notebook({"steps": "steps = images // batch"})
    place = next(number for number, cell in enumerate(made["cells"]) if cell["id"] == "answer-steps")
    upper = made["cells"][place] | {"id": "3f2a9c1e", "source": "images = 1437"}
    made["cells"][place:place] = [upper, made["cells"][place] | {"id": "b7", "source": tiny.stubs["steps"]}]
    made["cells"].append(made["cells"][place] | {"id": "c8", "source": tiny.stubs["steps"]})  # kept for comparison
    assert read(made).sources == tiny.stubs | {"steps": "images = 1437\nsteps = images // batch"}


def test_a_copy_that_was_pasted_below_the_original_is_no_part_of_the_answer(read, notebook, tiny):
    made = notebook({"steps": "steps = 44"})
    cell = next(cell for cell in made["cells"] if cell["id"] == "answer-steps")
    made["cells"].append(cell | {"id": "5d1e", "source": "steps = 45  # another try"})
    assert read(made).sources == tiny.stubs | {"steps": "steps = 44"}
    for untouched in (tiny.stubs["steps"], ""):  # then the copy is the answer
        cell["source"] = untouched
        assert "steps = 45  # another try" in read(made).sources["steps"]


def test_a_source_may_be_a_list_of_lines(read, notebook):
    assert read(notebook({"steps": ["a = 1\n", "steps = 44"]})).sources["steps"] == "a = 1\nsteps = 44"


def test_markdown_is_read_as_well(read, notebook, tiny):
    made = nbformat.from_dict(notebook({"steps": "steps = 44"}))
    answers = read(jupytext.writes(made, fmt="md:myst").encode(), "ann.md")
    assert answers.problem == ""
    assert answers.sources == tiny.stubs | {"steps": "steps = 44"}


def test_a_deleted_cell_is_missing(read, notebook):
    made = notebook()
    made["cells"] = [cell for cell in made["cells"] if cell["id"] != "answer-triangle"]
    assert set(read(made).sources) == {"steps", "total"}
    cell = next(cell for cell in made["cells"] if cell["id"] == "answer-total")
    cell["cell_type"] = "markdown"
    assert set(read(made).sources) == {"steps"}


def test_another_kernel_does_not_matter_but_another_language_does(read, notebook):
    made = notebook()
    made["metadata"] = {"kernelspec": {"name": "mindspore-2.3", "language": "python", "display_name": "x"}}
    assert read(made).problem == ""
    made["metadata"] = {"kernelspec": {"name": "ir", "language": "R"}}
    assert read(made).problem == "ann.ipynb: a notebook in R, not in Python"
    made["metadata"] = {"language_info": {"name": "julia"}}
    assert "julia" in read(made).problem


DEEP = '{"cells":' + "[" * 200_000 + "]" * 200_000 + "}"
BOMB = "---\na: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi")) + "---\n"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "not valid JSON"),
        (b'{"cells": [', "not valid JSON, line 1"),
        (b"\xff\xfe\x00", "not text"),
        (DEEP.encode(), "not valid JSON"),
        (b"[1]", "not a notebook"),
        (b'{"cells": {}}', "not a notebook"),
        (b'{"worksheets": [], "nbformat": 3}', "not a notebook of format 4"),
        (b'{"cells": []}', "no answer cell of the lab tiny"),
        (b'{"cells": [1, null, {"cell_type": "code"}, {"cell_type": "code", "metadata": 7}]}', "no answer cell"),
        (b'{"cells": [{"cell_type": "code", "id": "answer-steps", "source": 7}]}', "the cell of steps holds no text"),
        (b'{"metadata": [], "cells": [{"cell_type": "code", "id": "answer-other", "source": ""}]}', "no answer cell"),
        (json.dumps({"cells": [{"cell_type": "code", "id": "answer-steps", "source": "x" * 200_001}]}).encode(),
         "more than 200,000 characters"),
    ],
)  # fmt: skip
def test_a_notebook_that_cannot_be_used_is_told(read, content, reason):
    answers = read(content)
    assert reason in answers.problem and "\n" not in answers.problem and not answers.sources


@pytest.mark.parametrize(
    "text, reason",
    [
        ("nothing but words", "no answer cell"),
        ("---\na: [\n---\n", "damaged"),
        (BOMB, "aliases"),
        ("```{code-cell} python3\n---\nanswer: &a [steps]\nb: *a\n---\n1\n```", "aliases"),
        ("````{code-cell} python3\n:answer: &a [steps]\n:b: *a\n1\n````", "aliases"),
        ("---\na: " + "x" * 20_000 + "\n---\n", "metadata of more than 20,000 characters"),
        ("---\njupytext: 7\nkernelspec: [1]\n---\n", ""),
    ],
)
def test_markdown_that_cannot_be_used_is_told(read, text, reason):
    answers = read(text.encode(), "ann.md")
    assert answers.problem and reason in answers.problem and "\n" not in answers.problem


def test_a_notebook_that_is_too_large_is_not_read(monkeypatch, read, notebook):
    monkeypatch.setitem(answers_module.LONGEST_NOTEBOOK, ".ipynb", 1000)
    assert "too large" in read(notebook()).problem


def test_of_several_notebooks_the_one_that_fits_is_taken(tiny, place, scratch, notebook):
    folder = place / "ann"
    folder.mkdir()
    (folder / "other.ipynb").write_text('{"cells": []}')
    (folder / "README.md").write_text("# Mine")
    (folder / "lab.ipynb").write_text(json.dumps(notebook()))  # as it was handed out
    (folder / "mine.ipynb").write_text(json.dumps(notebook({"steps": "steps = 44"})))
    (folder / "mine.md").write_text(
        jupytext.writes(nbformat.from_dict(notebook({"steps": "steps = 44  # the same"})), fmt="md:myst")
    )
    (one,) = find(place, scratch)
    assert read_answers(tiny, one).sources["steps"].startswith("steps = 44")
    (folder / "old.ipynb").write_text(json.dumps(notebook({"steps": "steps = 43"})))
    (one,) = find(place, scratch)
    assert read_answers(tiny, one).problem.startswith("several notebooks with different answers: ")
    for name in ("lab.ipynb", "mine.ipynb", "mine.md", "old.ipynb"):
        (folder / name).unlink()
    (one,) = find(place, scratch)
    answers = read_answers(tiny, one)
    assert "other.ipynb: no answer cell" in answers.problem and "README.md" in answers.problem


@pytest.mark.parametrize(
    "text",
    ["---\n" + "\n" * 1_900_000, "---\n" * 40_000, "```{code-cell}\n---\n" * 80_000, "```{code-cell}\n:\n" * 80_000],
)
def test_long_markdown_is_read_in_one_pass(read, text):
    began = time.process_time()
    assert read(text.encode(), "ann.md").problem
    assert time.process_time() - began < 60  # a pattern took hours


def test_more_notebooks_than_anybody_has_are_not_read(place, scratch):
    (place / "ann").mkdir()
    for number in range(21):
        (place / "ann" / f"{number}.ipynb").write_text("{}")
    assert problem(find(place, scratch)) == "ann: 21 notebooks are more than 20"
    (place / "ann" / "0.ipynb").unlink()
    assert len(find(place, scratch)[0].notebooks) == 20


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("whole", [False, True])
def test_a_full_disk_is_no_learners_problem(tmp_path, place, scratch, monkeypatch, reason, whole):
    def full(*_):
        raise OSError(reason, os.strerror(reason))

    zipped(place / "ann.zip", {"lab.ipynb": "{}"})
    monkeypatch.setattr(untrusted.shutil, "copyfileobj", full)
    with pytest.raises(SubmissionsError, match=rf"ann\.zip: cannot be .* here: {os.strerror(reason)}"):
        find(place / "ann.zip" if whole else place, scratch)


def test_a_notebook_that_cannot_be_opened_for_want_of_handles_is_no_learners_problem(tiny, place, scratch, notebook):
    (place / "ann.ipynb").write_text(json.dumps(notebook()))
    (one,) = find(place, scratch)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
        with pytest.raises(SubmissionsError, match="Too many open files"):
            read_answers(tiny, one)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_what_is_unpacked_of_a_learner_goes_when_it_has_been_looked_at(place, scratch):
    for name in ("ann", "bob"):
        zipped(place / f"{name}.zip", {"lab.ipynb": "{}"})
    for listed in submissions.find(place, scratch):
        assert not list(scratch.iterdir())
        one = submissions.look(listed)
        assert one.notebooks[0].is_file()
        assert submissions.look(one).notebooks == one.notebooks  # once more, when it is graded
        submissions.clear(one)
