"""A handed-in Run: one that is trained here, then each way in which it may be wrong, damaged or hostile."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest
import yaml

from grader import handed_in, sandbox

UNTESTED = "checkpoints/latest.ckpt: missing"

pytestmark = pytest.mark.usefixtures("sample_data")


@pytest.fixture
def run(trained, tmp_path):
    """A copy to damage."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def untested(run):
    """A copy without its checkpoint, which takes seconds to test: no points, but each part's own reason is told."""
    (run / handed_in.CHECKPOINT).unlink()
    return run


@pytest.fixture
def inside():
    """Whether checkpoints are tested in the sandbox: wherever there is one."""
    return not sandbox.unavailable()


def given(entry):
    return {name: value["points"] for name, value in entry["values"].items()}


def detail(entry, name):
    return entry["values"][name]["detail"]


def change(file, **values):
    """Set keys of a JSON or YAML file; a dotted key is written with __."""
    yes = file.suffix == ".yaml"
    tree = yaml.safe_load(file.read_text()) if yes else json.loads(file.read_text())
    for key, value in values.items():
        *parents, last = key.split("__")
        part = tree
        for parent in parents:
            part = part[parent]
        part[last] = value
    file.write_text(yaml.safe_dump(tree) if yes else json.dumps(tree))


# The whole of it, in a process of its own, which must not load the checkpoint, so not MindSpore.
EXAMINE = """
import json, sys
from pathlib import Path
from grader import handed_in, lab
entry = handed_in.examine(lab.load(sys.argv[1]), Path(sys.argv[2]), sandboxed=sys.argv[3] == "True")
assert "mindspore" not in sys.modules
print(json.dumps(entry))
"""


@pytest.mark.parametrize("inside", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_honest_run_has_all_points_by_the_graders_own_test(run_lab, trained, inside, request):
    if inside:
        request.getfixturevalue("sandboxed")
    command = [sys.executable, "-c", EXAMINE, run_lab.folder, trained, str(inside)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)
    assert (entry["points"], entry["max_points"], entry["verdict"]) == (6, 6, "right"), entry
    accuracy = json.loads((trained / "summary.json").read_text())["accuracy"]
    assert dict(entry["facts"]) == {
        "network": "resnet8", "epochs": "1", "steps": "89", "accuracy, by its summary": f"{accuracy:.2%}",
        "accuracy, tested here": f"{accuracy:.2%} ({round(360 * accuracy)} of 360 images)",
    }  # fmt: skip


def test_what_the_summary_claims_is_worth_nothing(run_lab, run, inside):
    """Neither an end that is not the checkpoint's, nor an accuracy that it does not have."""
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    lines[-1]["accuracy"] = 1.0
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*lines[:-2], lines[-1])))
    change(run / "summary.json", accuracy=1.0, steps=88)
    asked = run_lab.manifest.run.model_copy(update={"accuracy": 0.99})
    strict = dataclasses.replace(run_lab, manifest=run_lab.manifest.model_copy(update={"run": asked}))
    entry = handed_in.examine(strict, run, sandboxed=inside)
    assert given(entry) == {"complete": 0, "recipe": 2, "accuracy": 0} and entry["verdict"] == "partly right"
    assert detail(entry, "complete") == "checkpoints/latest.ckpt: saved at step 89, but history.jsonl ends at 88"
    assert detail(entry, "accuracy").endswith("%, required: 99.00%")


def test_files_of_text_alone_earn_nothing(run_lab, tmp_path):
    """A recipe as asked for, and a history and a summary that fit together, written without any training."""
    required, sha256, _ = handed_in.required_of(run_lab)
    (tmp_path / "recipe.yaml").write_text(required.dump())
    last = {"steps": 88, "epochs": required.epochs, "accuracy": 0.99}
    summary = {**last, "provenance": {"dataset": {"name": "sample", "sha256": sha256}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "history.jsonl").write_text(json.dumps({"step": 88, "epoch": required.epochs, "accuracy": 0.99}))
    entry = handed_in.examine(run_lab, tmp_path)
    assert (entry["points"], entry["max_points"], entry["verdict"]) == (0, 6, "wrong")
    assert {value["detail"] for value in entry["values"].values()} == {UNTESTED}


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("epochs", 5, "epochs: 5, at most 4 is allowed"),
        ("optimizer__weight_decay", 0.5, "optimizer.weight_decay: 0.5, the lab's recipe has 0.0001"),
        ("schedule__lr_max", 0.3, UNTESTED),  # nothing is wrong with the recipe
        ("data__folder", "/home/ada/data", UNTESTED),  # the same data elsewhere
        ("epochs", "many", "recipe.yaml: epochs: must be a valid number, not 'many'"),
        ("colour", "red", "recipe.yaml: colour: unknown key"),
    ],
)
def test_every_key_of_the_recipe_must_be_as_asked(run_lab, untested, key, value, said):
    change(untested / "recipe.yaml", **{key: value})
    entry = handed_in.examine(run_lab, untested)
    assert detail(entry, "recipe") == said
    assert entry["points"] == 0


def test_other_data_is_no_data_of_the_lab(run_lab, untested):
    change(untested / "summary.json", provenance__dataset__sha256="0" * 64)
    assert detail(handed_in.examine(run_lab, untested), "recipe").startswith("data.folder: not the lab's data")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"epochs: [", b"\xff\xfe\x00bad", b"- 1\n- 2\n", b"[" * 60_000, b"x" * 70_000,
        b"a: !!python/object/apply:os.system [touch hacked]",
    ],
)  # fmt: skip
def test_a_recipe_that_is_none_is_told_and_does_no_harm(run_lab, untested, text, monkeypatch):
    monkeypatch.chdir(untested)
    (untested / "recipe.yaml").write_bytes(text)
    entry = handed_in.examine(run_lab, untested)
    assert (entry["points"], detail(entry, "complete")) == (0, UNTESTED)
    assert detail(entry, "recipe") and "\n" not in detail(entry, "recipe")
    assert len(detail(entry, "recipe")) <= 200 and "/tmp" not in detail(entry, "recipe")
    assert not (untested / "hacked").exists()


@pytest.mark.parametrize(
    "name, change_lines, said",
    [
        ("summary.json", lambda lines: [], "summary.json: damaged: not valid JSON"),
        ("summary.json", lambda lines: ["[]"], "cannot be read"),
        ("summary.json", lambda lines: ["[" * 100_000], "cannot be read"),
        ("summary.json", lambda lines: ['{"steps": 89, "epochs": {}, "provenance": {"dataset": {"sha256": ""}}}'],
         "summary.json: epochs is {}, but history.jsonl ends with 1"),
        ("history.jsonl", lambda lines: [], "cannot be read (IndexError)"),
        ("history.jsonl", lambda lines: lines[:-2] + lines[-1:],
         "summary.json: steps is 89, but history.jsonl ends with 88"),
        ("history.jsonl", lambda lines: ["{"] + lines, "history.jsonl, line 1: not valid JSON"),
        ("history.jsonl", lambda lines: [line.replace('"epoch": 1', '"epoch": []') for line in lines],
         "summary.json: epochs is 1, "),
    ],
)  # fmt: skip
def test_a_summary_or_a_history_that_cannot_be(run_lab, untested, name, change_lines, said):
    file = untested / name
    file.write_text("\n".join(change_lines(file.read_text().splitlines())))
    entry = handed_in.examine(run_lab, untested)
    assert detail(entry, "complete").startswith(said) and given(entry)["complete"] == 0


def test_a_checkpoint_that_cannot_be_tested_costs_all_points(run_lab, run, inside):
    file = run / handed_in.CHECKPOINT
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    entry = handed_in.examine(run_lab, run, sandboxed=inside)
    assert given(entry) == {"complete": 0, "recipe": 0, "accuracy": 0}
    said = detail(entry, "accuracy")
    assert said.startswith(f"{handed_in.CHECKPOINT}: damaged") and "/tmp" not in said
    assert {value["detail"] for value in entry["values"].values()} == {said}


def test_a_test_that_takes_too_long_is_stopped(run_lab, run, inside):
    asked = run_lab.manifest.run.model_copy(update={"time_limit": 0.5})
    hurried = dataclasses.replace(run_lab, manifest=run_lab.manifest.model_copy(update={"run": asked}))
    entry = handed_in.examine(hurried, run, sandboxed=inside)
    assert entry["points"] == 0
    assert detail(entry, "accuracy") == f"{handed_in.CHECKPOINT}: cannot be tested: it needs more time than allowed"


def test_a_link_is_not_followed(run_lab, untested, trained):
    """It may lead to another learner's file."""
    (untested / handed_in.CHECKPOINT).symlink_to(trained / handed_in.CHECKPOINT)
    entry = handed_in.examine(run_lab, untested)
    assert not any(given(entry).values())
    assert detail(entry, "accuracy") == "checkpoints/latest.ckpt: a link; hand in the file itself"


def test_a_file_that_is_too_large_is_not_read(run_lab, run):
    with open(run / "checkpoints" / "latest.ckpt", "wb") as file:
        file.truncate(10**12)  # sparse: it takes no place
    said = "checkpoints/latest.ckpt: 1,000,000.0 MB, but at most 490 MB are allowed"
    assert detail(handed_in.examine(run_lab, run), "accuracy") == said
