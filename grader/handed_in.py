"""A handed-in Run: is it complete, is it of the lab's recipe, what does its checkpoint reach on the test images?

Its small files are read as data; the checkpoint is opened in the sandbox only, in the network and on the images of the
lab's own recipe; its predictions are compared with the labels here.
"""

import functools
import json
from contextlib import contextmanager
from pathlib import Path

from grader import sandbox
from labkit.system.errors import LabkitError
from labkit.training import recipes
from labkit.training.recipes import Recipe
from labkit.training.runs import Run

CHECKPOINT = "checkpoints/latest.ckpt"
# Largest size in bytes. ResNet-152 with its optimizer's state has 482 MB, a year of steps 50 MB.
LARGEST = {"recipe.yaml": 64_000, "summary.json": 1_000_000, "history.jsonl": 64_000_000, CHECKPOINT: 490_000_000}
# Where the data is stored; that it is the same is a matter of its sha256: in an image folder over paths and sizes, as
# the sample's bytes may differ between two versions of libjpeg.
ELSEWHERE = ("data.folder",)


class NotThis(Exception):
    """What is wrong with a part of a Run, in a line for the learner."""


def examine(lab, folder: Path, sandboxed: bool = True) -> dict:
    """The task entry of a handed-in Run, with `facts`, pairs of texts for the learner.

    A Run whose checkpoint cannot be tested earns nothing: its other files are quickly written by hand. Raises
    RecipeError or DataError where the lab's own recipe or data cannot be used, never for what is handed in.
    """
    asked, run = lab.manifest.run, Run(folder)
    required, sha256, labels = required_of(lab)
    details, facts, recipe, summary = {}, [], None, {}
    with _explained(details, "complete", folder):
        _require_usable(folder, "summary.json", "history.jsonl")
        summary = run.summary
        facts += _end(run, summary)
    with _explained(details, "recipe", folder):
        _require_usable(folder, "recipe.yaml")
        recipe = run.recipe
        facts.insert(0, ("network", recipe.network.name))
        details["recipe"] = differences(recipe, required, asked) or _other_data(summary, sha256)
    if recipe and not details["complete"] and recipe.max_steps is None and summary["epochs"] != recipe.epochs:
        details["complete"] = f"history.jsonl: ends in epoch {summary['epochs']} of the recipe's {recipe.epochs}"
    try:
        _require_usable(folder, CHECKPOINT)
        if not recipe:
            raise NotThis("not tested without a recipe")
        correct, step = _tested(lab, recipe, required, run.checkpoint, labels, sandboxed)
    except NotThis as problem:
        details = {name: details.get(name) or str(problem) for name in asked.points}
        return _entry(asked, details, facts)
    reached = correct / len(labels)
    facts.append(("accuracy, tested here", f"{reached:.2%} ({correct:,} of {len(labels):,} images)"))
    details["accuracy"] = "" if reached >= asked.accuracy else f"{reached:.2%}, asked for: {asked.accuracy:.2%}"
    if details["recipe"]:  # more epochs than allowed reach it easily
        details["accuracy"] = f"{reached:.2%}, but not by the lab's recipe"
    if not details["complete"] and step != summary["steps"]:
        details["complete"] = f"{CHECKPOINT}: of step {step}, history.jsonl ends with {summary['steps']}"
    return _entry(asked, details, facts)


@contextmanager
def _explained(details, name, folder):
    """Whatever a learner's file raises is what is wrong with this part."""
    details[name] = ""
    try:
        yield
    except (NotThis, LabkitError) as error:
        details[name] = str(error).replace(f"{folder}/", "")[:200]
    except Exception as error:
        details[name] = f"cannot be read ({type(error).__name__})"


def required_of(lab) -> tuple[Recipe, str, list[int]]:
    """The recipe that a Run of the lab must have, the sha256 of its data, and the labels of the test images.

    Makes the sample data where it is missing. Raises RecipeError, DataError.
    """
    recipe = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile)
    is_sample = recipe.data.folder.startswith("sample/")
    sha256, labels = _data(recipe.data.format, recipe.data_folder().resolve(), is_sample)
    return recipe, sha256, labels


@functools.lru_cache
def _data(kind, folder, is_sample):
    from labkit.data.formats import FORMATS

    data = FORMATS[kind](folder)
    info = data.check(make_sample=is_sample)
    return info.sha256, list(map(int, info.images["test"][1]))


def not_one(asked, runs: list[Path]) -> dict:
    """The task entry where no Run, or more than one, was handed in."""
    names = ", ".join(sorted(run.name for run in runs)[:5])
    entry = _entry(asked, dict.fromkeys(asked.points, "missing"), [])
    return entry | {"verdict": "missing", "detail": f"several Runs: {names}; hand in one" if runs else ""}


def _entry(asked, details, facts):
    values = {
        name: {"points": 0.0 if details[name] else most, "max_points": most, "detail": details[name]}
        for name, most in asked.points.items()
    }
    points = sum(value["points"] for value in values.values())
    verdict = "right" if not any(details.values()) else "partly right" if points else "wrong"
    return {
        "title": asked.title, "points": points, "max_points": sum(asked.points.values()), "verdict": verdict,
        "detail": "", "values": values, "facts": [list(fact) for fact in facts],
    }  # fmt: skip


def _require_usable(folder, *names):
    for name in names:
        if not (folder / name).is_file():
            raise NotThis(f"{name}: missing")
        if (size := (folder / name).stat().st_size) > LARGEST[name]:
            raise NotThis(f"{name}: {size / 1e6:,.1f} MB, more than the {LARGEST[name] / 1e6:g} MB that it may have")


def _end(run, summary):
    """Facts about where the history ends; NotThis where the summary has another end."""
    last = {"epochs": run.steps()[-1]["epoch"], "steps": run.steps()[-1]["step"],
            "accuracy": run.evaluations()[-1]["accuracy"]}  # fmt: skip
    for key, value in last.items():
        if summary[key] != value:
            raise NotThis(f"summary.json: {key} is {summary[key]}, history.jsonl ends with {value}")
    return [("epochs", f"{last['epochs']:d}"), ("steps", f"{last['steps']:,d}"),
            ("accuracy, by its summary", f"{last['accuracy']:.2%}")]  # fmt: skip


def differences(theirs: Recipe, required: Recipe, asked) -> str:
    """Keys in which a recipe is not as asked, with both values, in a line; "" where there are none."""
    free = (*asked.may_change, *asked.at_most, *ELSEWHERE)
    given_keys, wanted_keys = recipes.flatten(theirs.model_dump()), recipes.flatten(required.model_dump())
    found = []
    for key in wanted_keys | given_keys:
        given, wanted = given_keys.get(key), wanted_keys.get(key)
        if key in asked.at_most and (given is None or given > asked.at_most[key]):
            found.append(f"{key}: {str(given)[:80]}, at most {asked.at_most[key]:g} is allowed")
        if given != wanted and not any(f"{key}.".startswith(f"{name}.") for name in free):
            found.append(f"{key}: {str(given)[:80]}, the lab's recipe has {wanted}")
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return "; ".join(found[:3] + more)


def _other_data(summary, sha256):
    """What is wrong with the data that a Run was trained on, as its provenance has it; ""."""
    dataset = summary["provenance"]["dataset"] if summary else {"sha256": sha256}
    return "" if dataset["sha256"] == sha256 else f"data.folder: other data than the lab's ({dataset['name'][:80]})"


def _tested(lab, recipe, required, checkpoint, labels, sandboxed):
    """How many test images of the lab the checkpoint classifies right, and of which step it is; raises NotThis."""
    folder = required.data_folder().resolve()
    data = recipe.data if recipe.data.format == required.data.format else required.data
    recipe = recipe.model_copy(update={"data": data.model_copy(update={"folder": str(folder)})})
    limits = sandbox.Limits(lab.manifest.run.time_limit, lab.manifest.memory, lab.manifest.processes)
    ended = sandbox.run(
        [sandbox.python(), "-m", "grader.inside_run", "recipe.yaml", "latest.ckpt"],
        files={
            "recipe.yaml": recipe.dump().encode(),
            "latest.ckpt": checkpoint.read_bytes(),
        },
        limits=limits,
        sandboxed=sandboxed,
        readable=(folder,),
    )
    if ended.stopped or ended.status:
        reason = f"it takes more {ended.stopped} than there is" if ended.stopped else "Python itself ended"
        raise NotThis(f"{CHECKPOINT}: cannot be tested: {reason}")
    try:
        tested = json.loads(ended.output.strip().rpartition(b"\n")[2])
        if "problem" in tested:
            raise NotThis(f"{CHECKPOINT}: {str(tested['problem'])[:200]}")
        pairs = zip(tested["predictions"], labels, strict=True)
        return sum(type(predicted) is int and predicted == label for predicted, label in pairs), tested["step"]
    except (ValueError, KeyError, TypeError):
        raise NotThis(f"{CHECKPOINT}: gives no prediction for each test image") from None
