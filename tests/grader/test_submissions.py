"""What is found in folders and zips of submissions, and what nobody can be graded by."""

import os
import re
import zipfile

import pytest

from grader import submissions
from grader.submissions import Unreadable
from labkit.system.errors import LabkitError
from tests.grader.conftest import write


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "handed-in"
    folder.mkdir()
    return folder


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
    write(place, "ann.ipynb", "cyd/.ipynb_checkpoints/lab-checkpoint.ipynb", "cyd/lab.ipynb", "cyd/run/more.ipynb")
    write(place, "Bob Q.md", ".DS_Store", "cyd/run/recipe.yaml", "cyd/run/notes.md", "eve/run.7z", "fay.rar", "gus.zip")
    (place / "cyd" / "run" / "checkpoints").mkdir()
    zipped(place / "dan.zip", {"work/LAB.IPYNB": "{}", "work/mine/recipe.yaml": "x", "work/mine/summary.json": "{}"})
    write(place, "eve/lab.ipynb", "gus.ipynb")
    zipped(place / "eve" / "run.zip", {"run/recipe.yaml": "x", "run/history.jsonl": ""})
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


def test_moodles_download_is_a_row_for_each_learner(place, tmp_path):
    write(place, "Zoë Müller_12_assignsubmission_file_/lab.ipynb", "Bo Li_13_assignsubmission_file_my lab.ipynb")
    (place / "Zoë Müller_12_assignsubmission_onlinetext_").mkdir()
    zipped(place / "Bo Li_13_assignsubmission_file_run.zip", {"run/recipe.yaml": "x", "run/summary.json": "{}"})
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {
        "Bo Li_13": (["Bo Li_13_assignsubmission_file_my lab.ipynb"], ["run"]),
        "Zoë Müller_12": (["lab.ipynb"], []),
    }


def test_canvas_download_is_a_row_for_each_learner(place, tmp_path):
    write(place, "leeann_12345_67890_lab-tiny.ipynb", "müllerzoe_12346_67896_lab-tiny-1.ipynb")
    zipped(place / "leeann_LATE_12345_67895_one-epoch.zip", {"run/recipe.yaml": "x", "run/summary.json": "{}"})
    write(place, "lab_2026_101_ann.ipynb", "lab_2026_102_bob.ipynb")  # nobody's platform
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {
        "leeann_12345": (["leeann_12345_67890_lab-tiny.ipynb"], ["run"]),
        "müllerzoe_12346": (["müllerzoe_12346_67896_lab-tiny-1.ipynb"], []),
        "lab_2026_101_ann": (["lab_2026_101_ann.ipynb"], []),
        "lab_2026_102_bob": (["lab_2026_102_bob.ipynb"], []),
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
    entries = {"handed-in/ann.ipynb": "{}", "handed-in/bob/lab.ipynb": "{}", "__MACOSX/x": "x"}
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
    """And the lab's own recipe is no Run."""
    for run in ("labs/tiny/runs/recorded", "mine"):
        write(place / "ann" / run, "recipe.yaml", "summary.json")
    write(place / "ann", "mine/checkpoints/latest.ckpt", "labs/tiny/recipe.yaml", "lab.ipynb")
    assert opened(submissions.find(place, tmp_path / "all"), tmp_path) == {"ann": (["lab.ipynb"], ["mine"])}


def test_a_notebook_counts_wherever_it_lies(place, tmp_path):
    write(place / "ann" / "run", "recipe.yaml", "summary.json", "lab.ipynb")
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
    write(place, "ann.ipynb", "fay/lab.ipynb")
    for folder in ("cyd", "eve"):
        (place / folder).mkdir()
    (place / "bob.ipynb").symlink_to("ann.ipynb")
    (place / "cyd" / "lab.ipynb").symlink_to(place / "ann.ipynb")
    (place / "dan").symlink_to("/etc")
    os.mkfifo(place / "eve" / "lab.ipynb")
    (place / "fay" / "data").symlink_to("/etc")
    seen = opened(submissions.find(place, tmp_path / "all"), tmp_path)
    assert seen.pop("ann") == (["ann.ipynb"], [])
    assert seen.pop("fay") == (["lab.ipynb"], [], "data: a link or a device; hand in the file itself")
    problems = {problem.partition(": ")[2] for problem in seen.values()}
    assert len(seen) == 4 and problems == {"a link or a device; hand in the file itself"}


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


def test_names_that_are_cut_or_changed_stay_different(place, tmp_path):
    """Sixty faces take 240 bytes; a file may have 255 for its whole name, and two long names may begin alike."""
    stems = ("\N{GRINNING FACE}" * 60, "a" * 200 + "1", "a" * 200 + "2", "b?", "b*", "plain")
    write(place, *(f"{stem}.ipynb" for stem in stems))
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


def test_a_damaged_run_is_left_out_and_costs_no_other(place, tmp_path):
    """A zip with two Runs, one of them with a wrong CRC: the other is the learner's Run."""
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
