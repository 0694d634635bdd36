"""What is found in folders and zips of submissions, and read of notebooks; each kind of broken one is a row."""

import json
import os
import re
import zipfile

import jupytext
import nbformat
import pytest

from grader import answers, submissions
from grader.lab import PART
from grader.submissions import Unreadable
from labkit.system.errors import LabkitError
from tests.grader.conftest import filled_in


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "handed-in"
    folder.mkdir()
    return folder


@pytest.fixture
def read(tiny, place, tmp_path):
    """Function that writes one submission and reads its answers."""

    def read(content, name="ann.ipynb"):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (place / name).write_bytes(data)
        with submissions.opened([place / name], tmp_path) as (notebooks, _, _):
            return answers.read(tiny, notebooks)[0]

    return read


def zipped(file, entries):
    """A zip of {name: bytes}."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file


def opened(found, tmp_path):
    """{learner: names of notebooks and Runs, or the problem}."""
    seen = {}
    for name, entries in found.items():
        try:
            with submissions.opened(entries, tmp_path) as (notebooks, runs, left):
                seen[name] = ([path.name for path in notebooks], [path.name for path in runs], *map(str, left))
        except Unreadable as error:
            seen[name] = str(error)
    return seen


def test_files_folders_and_zips_are_found(place, tmp_path):
    (place / "ann.ipynb").write_text("{}")
    (place / "Bob Q.md").write_text("x")
    (place / ".DS_Store").write_text("x")
    (place / "cyd" / "run" / "checkpoints").mkdir(parents=True)
    (place / "cyd" / ".ipynb_checkpoints").mkdir()
    (place / "cyd" / ".ipynb_checkpoints" / "lab-checkpoint.ipynb").write_text("{}")
    (place / "cyd" / "lab.ipynb").write_text("{}")
    (place / "cyd" / "run" / "recipe.yaml").write_text("x")
    (place / "cyd" / "run" / "notes.md").write_text("x")
    (place / "cyd" / "run" / "more.ipynb").write_text("{}")
    zipped(place / "dan.zip", {"work/LAB.IPYNB": "{}", "work/mine/recipe.yaml": "x", "work/mine/summary.json": "{}"})
    (place / "eve").mkdir()
    (place / "eve" / "lab.ipynb").write_text("{}")
    zipped(place / "eve" / "run.zip", {"run/recipe.yaml": "x", "run/history.jsonl": ""})
    (place / "eve" / "run.7z").write_text("x")
    (place / "fay.rar").write_text("x")
    (place / "gus.ipynb").write_text("{}")
    (place / "gus.zip").write_text("x")
    zipped(place / "hal.zip", {"LAB.md": "x", "recipe.yaml": "x", "history.jsonl": "", "more/run.tar.gz": "x"})
    neither = "neither a notebook (.ipynb or .md) nor a folder or zip with one"
    seen = opened(submissions.find(place, tmp_path / "all"), tmp_path)
    assert seen == {
        "Bob Q": (["Bob Q.md"], []), "ann": (["ann.ipynb"], []),
        "cyd": (["lab.ipynb", "more.ipynb", "notes.md"], ["run"]),
        "dan": (["LAB.IPYNB"], ["mine"]), "eve": (["lab.ipynb"], ["run"], f"run.7z: {neither}"),
        "fay": f"fay.rar: {neither}",
        "gus": (["gus.ipynb"], [], "gus.zip: damaged, or not a zip (File is not a zip file)"),
        "hal": (["LAB.md"], ["0"], f"run.tar.gz: {neither}"),
    }  # fmt: skip


def test_a_zip_is_as_good_as_a_folder(tmp_path):
    entries = {"class/ann.ipynb": "{}", "class/bob/lab.ipynb": "{}", "__MACOSX/x": "x"}
    assert list(submissions.find(zipped(tmp_path / "class.zip", entries), tmp_path / "1")) == ["ann", "bob"]
    flat = zipped(tmp_path / "other.zip", {"ann.ipynb": "{}"})
    assert list(submissions.find(flat, tmp_path / "2")) == ["ann"]


def test_moodles_download_is_a_row_for_each_learner(place, tmp_path):
    (place / "Zoë Müller_12_assignsubmission_file_").mkdir()
    (place / "Zoë Müller_12_assignsubmission_file_" / "lab.ipynb").write_text("{}")
    (place / "Zoë Müller_12_assignsubmission_onlinetext_").mkdir()
    (place / "Bo Li_13_assignsubmission_file_my lab.ipynb").write_text("{}")
    zipped(place / "Bo Li_13_assignsubmission_file_run.zip", {"run/recipe.yaml": "x", "run/summary.json": "{}"})
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {
        "Bo Li_13": (["Bo Li_13_assignsubmission_file_my lab.ipynb"], ["run"]),
        "Zoë Müller_12": (["lab.ipynb"], []),
    }


def test_canvas_download_is_a_row_for_each_learner(place, tmp_path):
    (place / "leeann_12345_67890_lab-tiny.ipynb").write_text("{}")
    zipped(place / "leeann_LATE_12345_67895_one-epoch.zip", {"run/recipe.yaml": "x", "run/summary.json": "{}"})
    (place / "müllerzoe_12346_67896_lab-tiny-1.ipynb").write_text("{}")
    for name in ("lab_2026_101_ann", "lab_2026_102_bob"):  # nobody's platform
        (place / f"{name}.ipynb").write_text("{}")
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {
        "leeann_12345": (["leeann_12345_67890_lab-tiny.ipynb"], ["run"]),
        "müllerzoe_12346": (["müllerzoe_12346_67896_lab-tiny-1.ipynb"], []),
        "lab_2026_101_ann": (["lab_2026_101_ann.ipynb"], []), "lab_2026_102_bob": (["lab_2026_102_bob.ipynb"], []),
    }


@pytest.mark.parametrize(
    "name, file",
    [("Zoë", "Zoë"), ("नीता", "नीता"), ("阿卜杜拉·买买提", "阿卜杜拉·买买提"), ("山田\u3000太郎", "山田_太郎"),
     ("a\nb", "a_b"), ("a\udc80b", "a_b"), ('a:"b', "a__b"), ("x" * 200, "x" * 120)],
)  # fmt: skip
def test_a_name_stays_as_handed_in_and_changes_only_for_files(place, tmp_path, name, file):
    (place / f"{name}.ipynb").write_text("{}")
    assert list(submissions.find(place, tmp_path / "all")) == [name]
    assert re.fullmatch(re.escape(file) + ("" if file == name else "-[0-9a-f]{8}"), submissions.file_name(name))


def raw_zip(file, *names):
    """A zip of notebooks whose names are these bytes, without the flag for UTF-8."""
    stand_ins = [f"{number:02}".ljust(len(name), "x") for number, name in enumerate(names)]
    data = zipped(file, dict.fromkeys(stand_ins, "{}")).read_bytes()
    for stand_in, name in zip(stand_ins, names):
        data = data.replace(stand_in.encode(), name)
    file.write_bytes(data)
    return file


def test_a_zip_of_chinese_windows_and_others(tmp_path):
    chinese = ["张三", "誠", "錦", "張錦"]  # three end in the byte of a backslash, two with only letters before it
    broken = [b"\x80\xb0", b"\xff\xb0"]  # no text, and still two learners
    names = [*(name.encode("gbk") for name in chinese), "Zoë".encode("cp437"), "नीता".encode(), *broken]
    found = submissions.find(raw_zip(tmp_path / "class.zip", *(name + b".ipynb" for name in names)), tmp_path / "all")
    assert set(found) == {*chinese, "Zoë", "नीता", *map(os.fsdecode, broken)}


def test_a_folder_that_holds_the_class_is_opened_or_refused(tmp_path):
    entries = {"handed-in/ann.ipynb": "{}", "handed-in/bob/lab.ipynb": "{}"}
    assert list(submissions.find(zipped(tmp_path / "handed-in.zip", entries), tmp_path / "1")) == ["ann", "bob"]
    with pytest.raises(LabkitError, match="class.zip: its only folder, handed-in, has several notebooks"):
        submissions.find(zipped(tmp_path / "class.zip", entries), tmp_path / "2")
    for several in (["ann.zip", "bob.zip"], ["ann.md", "bob.md"], ["Lab 3/ann.ipynb", "Lab 3/bob.ipynb"]):
        file = zipped(tmp_path / f"{several[0][:-4]}.zip".replace("/", " "), {f"2026/{name}": "x" for name in several})
        with pytest.raises(LabkitError, match="its only folder, 2026.*, has several notebooks or zips"):
            submissions.find(file, tmp_path / file.stem)
    released = ["lab.ipynb", "lab.md", "README.md", ".ipynb_checkpoints/lab-checkpoint.ipynb"]
    with_run = (["lab.ipynb", "run/recipe.yaml"], ["lab.ipynb", "run.zip"])
    for number, alone in enumerate((released, *with_run, ["work/lab.ipynb"])):
        file = zipped(tmp_path / f"{number}.zip", {f"ann/{name}": "{}" for name in alone})
        assert list(submissions.find(file, tmp_path / f"one {number}")) == ["ann"]


def test_a_run_that_was_trained_is_preferred(place, tmp_path):
    for run in ("labs/tiny/runs/recorded", "mine"):
        (place / "ann" / run).mkdir(parents=True)
        (place / "ann" / run / "recipe.yaml").write_text("x")
        (place / "ann" / run / "summary.json").write_text("{}")
    (place / "ann" / "mine" / "checkpoints").mkdir()
    (place / "ann" / "mine" / "checkpoints" / "latest.ckpt").write_text("x")
    (place / "ann" / "labs" / "tiny" / "recipe.yaml").write_text("the lab's own is no Run")
    (place / "ann" / "lab.ipynb").write_text("{}")
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {"ann": (["lab.ipynb"], ["mine"])}


def test_a_notebook_counts_wherever_it_lies(place, tmp_path):
    for name in ("recipe.yaml", "summary.json", "lab.ipynb"):
        (place / "ann" / "run").mkdir(parents=True, exist_ok=True)
        (place / "ann" / "run" / name).write_text("x")
    zipped(place / "bob.zip", dict.fromkeys(("recipe.yaml", "summary.json", "lab.ipynb"), "x"))
    seen = opened(submissions.find(place, tmp_path / "all"), tmp_path)
    assert [names for names, _ in seen.values()] == [["lab.ipynb"]] * 2 and [len(r) for _, r in seen.values()] == [1, 1]


@pytest.mark.parametrize(
    "name, said", [("empty", "contains no submissions"), ("none", "there is no such"), ("x.zip", "not a zip")]
)
def test_no_submissions_at_all_are_an_error(tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.zip").write_text("x")
    with pytest.raises(LabkitError, match=said):
        submissions.find(tmp_path / name, tmp_path / "all")


# -- What nobody can be graded by ------------------------------------------------------------------------


def test_links_and_pipes_are_never_followed(place, tmp_path):
    (place / "ann.ipynb").write_text("{}")
    (place / "bob.ipynb").symlink_to("ann.ipynb")
    (place / "cyd").mkdir()
    (place / "cyd" / "lab.ipynb").symlink_to(place / "ann.ipynb")
    (place / "dan").symlink_to("/etc")
    (place / "eve").mkdir()
    os.mkfifo(place / "eve" / "lab.ipynb")
    (place / "fay").mkdir()
    (place / "fay" / "lab.ipynb").write_text("{}")
    (place / "fay" / "data").symlink_to("/etc")
    seen = opened(submissions.find(place, tmp_path / "all"), tmp_path)
    assert seen.pop("ann") == (["ann.ipynb"], [])
    assert seen.pop("fay") == (["lab.ipynb"], [], "data: a link or a device; hand in the file itself")
    assert len(seen) == 4 and {problem.partition(": ")[2] for problem in seen.values()} == {
        "a link or a device; hand in the file itself"
    }


def test_a_zip_writes_nowhere_else_and_never_too_much(place, tmp_path, monkeypatch):
    """What cannot be used of it is left out, and the notebook counts."""
    link = zipfile.ZipInfo("other.ipynb")
    link.external_attr = 0o120777 << 16
    good = {"lab.ipynb": "{}", ".venv/lib/x.md": "x", "photo.png": "x"}
    zipped(place / "ann.zip", {"../../lab.ipynb": "{}", "/etc/labkit.ipynb": "{}"})
    zipped(place / "bob.zip", {link: "/etc/passwd", **good})
    zipped(place / "cyd.zip", {**good, "zeros.ckpt": bytes(2_000_000)})
    zipped(place / "dan.zip", {f"{'a/' * 60}lab.ipynb": "{}", **good})
    zipped(place / "eve.zip", {**good, "lab.ipynb/x.md": "{}"})
    (place / "fay.zip").write_bytes((place / "ann.zip").read_bytes()[:-9])
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(place / "gus.zip", "w") as archive:
        archive.writestr("lab.ipynb", "{}")
        archive.writestr("lab.ipynb", "[]")
    zipped(place / "hal.zip", {"inner.zip": (place / "bob.zip").read_bytes()})
    zipped(place / "ida.zip", {f"{'n' * 300}.ipynb": "{}"})
    bomb = zipped(tmp_path / "bomb.zip", {"zeros.ckpt": bytes(900_000)}).read_bytes()  # a learner has one budget
    zipped(place / "kim.zip", {**good, "a.zip": bomb, "b.zip": bomb})
    (tmp_path / "bomb.zip").unlink()
    packed = (place / "ann.zip").read_bytes()
    for _ in range(3):
        packed = zipped(place / "jon.zip", {"lab.ipynb": "{}", "x.zip": packed}).read_bytes()
    monkeypatch.setattr(submissions, "MOST_BYTES", 1_000_000)
    found = submissions.find(place, tmp_path / "all")
    with submissions.opened(found["ann"], tmp_path) as (notebooks, _, _):
        assert len(notebooks) == 2 and all(path.is_relative_to(tmp_path) for path in notebooks)
    seen = opened(found, tmp_path)
    assert seen["fay"].startswith("fay.zip: damaged, or not a zip")
    assert all(seen[name][0] == ["lab.ipynb"] for name in ("bob", "cyd", "dan", "eve", "gus", "hal")), seen
    left = {name: seen[name][2].partition(": ")[2] for name in ("bob", "cyd", "dan", "eve", "gus", "hal")}
    too_much = "too many files, too large, or in too many folders"
    assert left["bob"] == left["hal"] == "other.ipynb: a link; hand in the file itself"
    assert left["cyd"] == f"zeros.ckpt: {too_much}" and left["dan"] == f"lab.ipynb: {too_much}"
    assert left["eve"] in ("x.md: Not a directory", "x.md: File exists")
    assert left["gus"] == "lab.ipynb: there twice; the first counts"
    assert seen["kim"] == (["lab.ipynb"], [], f"b.zip: zeros.ckpt: {too_much}")
    assert len(seen["jon"][0]) == 5  # in zips in zips
    assert len(seen["ida"][0]) == 1 and sorted(tmp_path.iterdir()) == [place]


# -- Answers ---------------------------------------------------------------------------------------------


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


def test_names_that_are_cut_or_changed_stay_different(place, tmp_path):
    """Sixty faces take 240 bytes; a file may have 255 for its whole name, and two long names may begin alike."""
    for name in ("\N{GRINNING FACE}" * 60, "a" * 200 + "1", "a" * 200 + "2", "b?", "b*", "plain"):
        (place / f"{name}.ipynb").write_text("{}")
    names = list(map(submissions.file_name, submissions.find(place, tmp_path / "all")))
    assert len(set(names)) == 6 and "plain" in names and max(len(name.encode()) for name in names) < 140


def test_what_cannot_be_unpacked_of_a_class_costs_one_row(tmp_path):
    file = zipped(tmp_path / "class.zip", {"ann.ipynb": b"{}", "bob.ipynb": b"{}" * 99, f"{'c' * 300}.ipynb": b"{}"})
    data = bytearray(file.read_bytes())
    data[data.index(b"bob.ipynb") + len("bob.ipynb") + 2] ^= 0xFF  # in what bob's compressed notebook says
    file.write_bytes(data)
    found = submissions.find(file, tmp_path / "all")
    assert len(found) == 3
    assert found["ann"][0].read_bytes() == b"{}" and found["bob"][0].read_bytes() == b""


def test_a_damaged_run_is_left_out_and_costs_no_other(tmp_path):
    """A zip with two Runs, one of them with a wrong CRC: the other is the learner's Run."""
    place = tmp_path / "in"
    place.mkdir()
    file = place / "ann.zip"
    with zipfile.ZipFile(file, "w") as archive:  # stored as they are
        archive.writestr("lab.ipynb", "{}")
        for run in ("good", "bad"):
            archive.writestr(f"{run}/recipe.yaml", "lab: x")
            archive.writestr(f"{run}/checkpoints/latest.ckpt", f"weights, {run}")
    file.write_bytes(file.read_bytes().replace(b"weights, bad", b"weights, had"))
    (learner,) = submissions.find(place, tmp_path / "all").values()
    with submissions.opened(learner, tmp_path) as (_, runs, left_out):
        assert [run.name for run in runs if (run / "checkpoints/latest.ckpt").exists()] == ["good"]
        assert "latest.ckpt" in left_out[0]
