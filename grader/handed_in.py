"""Test a handed-in Run: is it complete, does it follow the lab's recipe, how accurate is its checkpoint?

Small files are read as data. The checkpoint is opened only in the sandbox, with the network and images of the lab's own
recipe; its predictions are then compared with the labels here.
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
# Maximum sizes in bytes. ResNet-152 with its optimizer's state has 482 MB, a long history 50 MB.
LARGEST = {"recipe.yaml": 64_000, "summary.json": 1_000_000, "history.jsonl": 64_000_000, CHECKPOINT: 490_000_000}


class Defect(Exception):
    """What is wrong with a part of a Run, in one line for the learner."""


def entries(lab, runs: list[Path], sandboxed: bool = True) -> dict:
    """{"run": entry} of the task of handing in exactly one Run; empty if the lab has no such task."""
    task = lab.manifest.run
    if task is None:
        return {}
    if len(runs) == 1:
        return {"run": examine(lab, runs[0], sandboxed)}
    names = ", ".join(sorted(run.name for run in runs)[:5])
    entry = _entry(task, dict.fromkeys(task.points, "missing"), [])
    return {"run": entry | {"verdict": "missing", "detail": f"several Runs: {names}; hand in one" if runs else ""}}


def examine(lab, folder: Path, sandboxed: bool = True) -> dict:
    """The task entry for a handed-in Run, with `facts`, pairs of texts. Makes the lab's sample data if it is missing.

    A Run whose checkpoint cannot be tested earns nothing: its other files are quickly written by hand. Raises
    RecipeError or DataError if the lab's own recipe or data cannot be used, never because of the Run.
    """
    task, run = lab.manifest.run, Run(folder)
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
        dataset = summary["provenance"]["dataset"] if summary else {"sha256": sha256}
        if not (problem := differences(recipe, required, task)) and dataset["sha256"] != sha256:
            problem = f"data.folder: not the lab's data ({dataset['name'][:80]})"
        details["recipe"] = problem
    if recipe and not details["complete"] and recipe.max_steps is None and abs(summary["epochs"] - recipe.epochs) >= 1:
        details["complete"] = f"history.jsonl: ends in epoch {summary['epochs']} of the recipe's {recipe.epochs}"
    try:
        _require_usable(folder, CHECKPOINT)
        if not recipe:
            raise Defect("not tested without a recipe")
        correct, step = _tested(lab, recipe, required, run.checkpoint, labels, sandboxed)
    except Defect as problem:
        details = {name: details.get(name) or str(problem) for name in task.points}
        return _entry(task, details, facts)
    accuracy = correct / len(labels)
    facts.append(("accuracy, tested here", f"{accuracy:.2%} ({correct:,} of {len(labels):,} images)"))
    details["accuracy"] = "" if accuracy >= task.accuracy else f"{accuracy:.2%}, required: {task.accuracy:.2%}"
    if details["recipe"]:  # more epochs than allowed reach it easily
        details["accuracy"] = f"{accuracy:.2%}, but not with the lab's recipe"
    if not details["complete"] and step != summary["steps"]:
        details["complete"] = f"{CHECKPOINT}: saved at step {step}, but history.jsonl ends at {summary['steps']}"
    return _entry(task, details, facts)


@contextmanager
def _explained(details, name, folder):
    """Any error with a learner's file becomes the detail of this part."""
    details[name] = ""
    try:
        yield
    except (Defect, LabkitError) as error:
        details[name] = str(error).replace(f"{folder}/", "")[:200]
    except Exception as error:
        details[name] = f"cannot be read ({type(error).__name__})"


def required_of(lab) -> tuple[Recipe, str, list[int]]:
    """The recipe that a Run of the lab must have, the sha256 of its data, and the labels of the test images.

    Makes the sample data if it is missing. Raises RecipeError, DataError.
    """
    recipe = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile)
    is_sample = recipe.data.folder.startswith("sample/")
    sha256, labels = _data(recipe.data.format, recipe.data_folder().resolve(), is_sample)
    return recipe, sha256, labels


@functools.lru_cache
def _data(data_format, folder, is_sample):
    from labkit.data.formats import FORMATS

    data = FORMATS[data_format](folder)
    info = (data.make_sample() if is_sample else data).check()
    return info.sha256, list(map(int, info.images["test"][1]))


def _entry(task, details, facts):
    values = {
        name: {"points": 0.0 if details[name] else most, "max_points": most, "detail": details[name]}
        for name, most in task.points.items()
    }
    points = sum(value["points"] for value in values.values())
    verdict = "right" if not any(details.values()) else "partly right" if points else "wrong"
    return {
        "title": task.title, "points": points, "max_points": sum(task.points.values()), "verdict": verdict,
        "detail": "", "values": values, "facts": [list(fact) for fact in facts],
    }  # fmt: skip


def _require_usable(folder, *names):
    for name in names:
        if (folder / name).is_symlink() or (folder / name).parent.is_symlink():
            raise Defect(f"{name}: a link; hand in the file itself")
        if not (folder / name).is_file():
            raise Defect(f"{name}: missing")
        if (size := (folder / name).stat().st_size) > LARGEST[name]:
            raise Defect(f"{name}: {size / 1e6:,.1f} MB, but at most {LARGEST[name] / 1e6:g} MB are allowed")


def _end(run, summary):
    """Facts about the end of the history; Defect if the summary disagrees."""
    last = {"epochs": run.steps()[-1]["epoch"], "steps": run.steps()[-1]["step"],
            "accuracy": run.evaluations()[-1]["accuracy"]}  # fmt: skip
    for key, value in last.items():
        if summary[key] != value:
            raise Defect(f"summary.json: {key} is {summary[key]}, but history.jsonl ends with {value}")
    return [("epochs", f"{last['epochs']:d}"), ("steps", f"{last['steps']:,d}"),
            ("accuracy, by its summary", f"{last['accuracy']:.2%}")]  # fmt: skip


def differences(recipe: Recipe, required: Recipe, task) -> str:
    """The keys in which a recipe breaks the rules, with both values, in one line; "" if there are none."""
    # Where the data is stored does not matter; its sha256 must agree. For an image folder this covers paths and sizes
    # only, since the bytes of the sample may differ between versions of libjpeg.
    free = (*task.may_change, *task.at_most, "data.folder")
    given, expected = recipes.flatten(recipe.model_dump()), recipes.flatten(required.model_dump())
    problems = []
    for key in expected | given:
        value = given.get(key)
        if key in task.at_most and (value is None or value > task.at_most[key]):
            problems.append(f"{key}: {str(value)[:80]}, at most {task.at_most[key]:g} is allowed")
        if value != expected.get(key) and not any(f"{key}.".startswith(f"{name}.") for name in free):
            problems.append(f"{key}: {str(value)[:80]}, the lab's recipe has {expected.get(key)}")
    more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
    return "; ".join(problems[:3] + more)


def _tested(lab, recipe, required, checkpoint, labels, sandboxed):
    """How many of the lab's test images the checkpoint classifies correctly, and its step; raises Defect."""
    folder = required.data_folder().resolve()
    data = recipe.data if recipe.data.format == required.data.format else required.data
    recipe = recipe.model_copy(update={"data": data.model_copy(update={"folder": str(folder)})})
    ended = sandbox.run(
        [sandbox.python(), "-m", "grader.inside_run", "recipe.yaml", "latest.ckpt"],
        files={
            "recipe.yaml": recipe.dump().encode(),
            "latest.ckpt": checkpoint.read_bytes(),
        },
        limits=sandbox.Limits(lab.manifest.run.time_limit, lab.manifest.memory, lab.manifest.processes),
        sandboxed=sandboxed,
        readable=(folder,),
    )
    if ended.stopped:
        raise Defect(f"{CHECKPOINT}: cannot be tested: it needs more {ended.stopped} than allowed")
    try:
        tested = json.loads(ended.output.strip().rpartition(b"\n")[2])
        if "problem" in tested:
            raise Defect(f"{CHECKPOINT}: {str(tested['problem'])[:200]}")
        pairs = zip(tested["predictions"], labels, strict=True)
        return sum(type(predicted) is int and predicted == label for predicted, label in pairs), tested["step"]
    except (ValueError, KeyError, TypeError):
        raise Defect(f"{CHECKPOINT}: does not predict every test image") from None
