"""A handed-in Run: is it complete, is it of the lab's recipe, what does its checkpoint reach on the test images?

Nothing in the folder is believed. Small files are read as data, with limits; the checkpoint is opened in the sandbox
only, in the network and on the images of the lab's own recipe; its predictions are compared with the labels here.
"""

import functools
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from grader import sandbox
from grader.lab import LabError
from grader.run_history import NotThis, ended_as_it_says, parsed, short, whole
from grader.submissions import printable
from grader.untrusted import Unreadable, require_plain_yaml
from labkit.system.errors import LabkitError
from labkit.training import recipes
from labkit.training.recipes import Recipe
from labkit.training.runs import Run

CHECKPOINT = "checkpoints/latest.ckpt"
# Largest size in bytes. ResNet-152 with its optimizer's state has 482 MB, a year of steps 50 MB.
TAKEN = {"recipe.yaml": 64_000, "summary.json": 1_000_000, "history.jsonl": 64_000_000, CHECKPOINT: 600_000_000}
# Where the data lies; that it is the same, its sha256 tells: in an image folder over paths and sizes, as the sample's
# bytes may differ between two versions of libjpeg.
ELSEWHERE = ("data.folder",)


def examine(lab, folder: Path, sandboxed: bool = True) -> dict:
    """The task entry of a handed-in Run, with `facts`, pairs of texts for the learner.

    A Run whose checkpoint cannot be tested earns nothing: its other files are quickly written by hand. Raises
    LabError, RecipeError or DataError where the lab's own recipe or data cannot be used, never for what is handed in.
    """
    asked = lab.manifest.run
    required, sha256, labels = required_of(lab)
    info = _data_of(required)[0]
    details, facts, ended = {}, [], ""
    with tempfile.TemporaryDirectory(prefix="labkit-run-") as kept:
        # Resolved, since a link in the way to it would not be one in the sandbox.
        run = Run(Path(kept).resolve())
        theirs, summary, last = None, {}, {}
        try:
            _take(folder, run.path, "recipe.yaml")
            theirs = read_recipe(run.path / "recipe.yaml")
            details["recipe"] = ""
        except NotThis as problem:
            details["recipe"] = str(problem)
        try:
            _take(folder, run.path, "summary.json", "history.jsonl")
            summary = parsed("summary.json", (run.path / "summary.json").read_bytes())
            with open(run.history_file, "rb") as history:
                last, details["complete"] = ended_as_it_says(summary, history, theirs, info)
            facts = [("epochs", str(last["epochs"])), ("steps", f"{last['steps']:,}")]
            facts.append(("accuracy, by its summary", f"{last['accuracy']:.2%}"))
        except NotThis as problem:
            details["complete"] = str(problem)
        if theirs:
            details["recipe"] = differences(theirs, required, asked) or _other_data(summary, sha256)
            required = with_changes(required, theirs, asked.may_change)
            facts.insert(0, ("network", required.network.name))
        try:
            _take(folder, run.path, CHECKPOINT)
            correct, step = _correct(lab, required, run.checkpoint, labels, sandboxed)
            reached = correct / len(labels)
            facts.append(("accuracy, tested here", f"{reached:.2%} ({correct:,} of {len(labels):,} images)"))
            details["accuracy"] = "" if reached >= asked.accuracy else f"{reached:.2%}, asked for: {asked.accuracy:.2%}"
            if not details["accuracy"] and details["recipe"]:  # more epochs than allowed reach it easily
                details["accuracy"] = f"{reached:.2%}, but not by the lab's recipe"
            if last and step != last["steps"]:
                details["complete"] = f"{CHECKPOINT}: of step {short(step)}, history.jsonl ends with {last['steps']}"
        except NotThis as problem:
            ended = problem.ended
            for name in asked.points:
                details[name] = details.get(name) or str(problem)
    return _entry(asked, details, ended, facts)


def required_of(lab) -> tuple[Recipe, str, list[int]]:
    """The recipe that a Run of the lab must have, the sha256 of its data, and the labels of the test images.

    Makes the sample data where it is missing. Raises RecipeError, DataError.
    """
    recipe = recipes.load(lab.folder / "recipe.yaml", lab.manifest.run.profile)
    info, labels = _data_of(recipe)
    return recipe, info.sha256, list(labels)


def _data_of(recipe):
    """What the data holds, a labkit.data.files.Info, and the labels of its test images."""
    return _data(recipe.data.format, recipe.data_folder().resolve(), recipe.data.folder.startswith("sample/"))


@functools.lru_cache
def _data(kind, folder, is_sample):
    from labkit.data.formats import FORMATS

    data = FORMATS[kind](folder)
    return data.check(make_sample=is_sample), tuple(map(int, data.test_labels()))


def is_own_file(run: Path, name: str) -> bool:
    """True where a Run has this file itself: no link, nor in one, through which another's would be read."""
    file = run / name
    return file.is_file() and not any(place.is_symlink() for place in (file, file.parent))


def not_one(asked, runs: tuple[Path, ...]) -> dict:
    """The task entry where no Run, or more than one, was handed in."""
    several = f"several Runs: {printable(', '.join(sorted(run.name for run in runs)[:5]))}; hand in one"
    entry = _entry(asked, dict.fromkeys(asked.points, "missing"), "missing")
    return entry | {"detail": several if runs else "no Run was handed in"}


def _entry(asked, details, ended="", facts=()):
    values = {
        name: {"points": 0.0 if details[name] else most, "max_points": most, "detail": details[name]}
        for name, most in asked.points.items()
    }
    points = sum(value["points"] for value in values.values())
    verdict = ("partly right" if points else ended or "wrong") if any(details.values()) else "right"
    return {
        "title": asked.title, "points": points, "max_points": sum(asked.points.values()), "verdict": verdict,
        "detail": "", "values": values, "facts": [list(fact) for fact in facts],
    }  # fmt: skip


def _take(folder, run, *names):
    """Copy files of the Run to where nobody changes them, readable for all; NotThis for one that cannot be."""
    for name in names:
        if (folder / name).parent.is_symlink():
            raise NotThis(f"{name}: in a link, not in a folder of the Run")
        try:
            # Not blocking: opening a named pipe would wait for ever.
            handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise NotThis(f"{name}: missing") from None
        except OSError as error:
            link = (folder / name).is_symlink()
            why = "a link, hand in the file itself" if link else f"cannot be read ({error.strerror})"
            raise NotThis(f"{name}: {why}") from None
        found, most, target = os.fstat(handle), TAKEN[name], run / name
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            os.close(handle)
            size = f"{found.st_size / 1e6:,.1f} MB, more than the {most / 1e6:g} MB that it may have"
            raise NotThis(f"{name}: {size if stat.S_ISREG(found.st_mode) else 'not a file'}")
        target.parent.mkdir(exist_ok=True)
        with open(handle, "rb") as file, open(target, "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        target.chmod(0o644)


def read_recipe(file: Path) -> Recipe:
    """A learner's recipe.yaml, read as data only; raises NotThis."""
    try:
        require_plain_yaml(file.read_text(encoding="utf-8"))
        found = recipes.read_resolved(file)
    except Unreadable as error:
        raise NotThis(f"recipe.yaml: not a recipe ({error})") from None
    except LabkitError as error:
        raise NotThis(str(error).replace(str(file), "recipe.yaml")[:200]) from None
    except Exception as error:  # whatever a parser raises at a hostile file is that file's fault
        raise NotThis(f"recipe.yaml: not a recipe ({type(error).__name__})") from None
    for key, value in recipes.flatten(found.model_dump()).items():
        if any(whole(one) and abs(one) > sys.maxsize for one in (value if isinstance(value, list) else [value])):
            raise NotThis(f"recipe.yaml: {key}: a number of more than 64 bits")
    return found


def _within(key, names):
    return any(key == name or key.startswith(f"{name}.") for name in names)


def differences(theirs: Recipe, required: Recipe, asked) -> str:
    """Keys in which a recipe is not as asked, with both values, in a line; "" where there are none."""
    given_keys, wanted_keys = recipes.flatten(theirs.model_dump()), recipes.flatten(required.model_dump())
    found = []
    for key in wanted_keys | given_keys:
        given, wanted = given_keys.get(key), wanted_keys.get(key)
        if key in asked.at_most and (given is None or given > asked.at_most[key]):
            found.append(f"{key}: {short(given)}, at most {asked.at_most[key]:g} is allowed")
        if given != wanted and not _within(key, [*asked.may_change, *asked.at_most, *ELSEWHERE]):
            found.append(f"{key}: {short(given)}, the lab's recipe has {short(wanted)}")
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return "; ".join(found[:3] + more)


def _other_data(summary, sha256):
    """What is wrong with the data that a Run was trained on, as its provenance has it; ""."""
    provenance = summary.get("provenance")
    dataset = provenance.get("dataset") if isinstance(provenance, dict) else None
    if not isinstance(dataset, dict):
        return "summary.json: does not tell the data that it was trained on" if summary else ""
    if dataset.get("sha256") == sha256:
        return ""
    return f"data.folder: other data than the lab's ({short(dataset.get('name'))})"


def with_changes(required: Recipe, theirs: Recipe, may_change: list[str]) -> Recipe:
    """The required recipe with those keys of theirs that may be changed; where the data lies is never theirs."""
    tree, other = required.model_dump(), theirs.model_dump()
    for name in may_change:
        *parents, key = name.split(".")
        source, target = other, tree
        for parent in parents:
            source, target = source.get(parent, {}), target.get(parent, {})
        if key in source:
            target[key] = source[key]
    for key in ("folder", "format"):
        tree["data"][key] = getattr(required.data, key)
    try:
        return Recipe.model_validate(tree)
    except ValueError:  # parts of two recipes that do not fit together
        return required


def _correct(lab, recipe, checkpoint, labels, sandboxed):
    """How many test images the checkpoint tells right, and of which step it is; raises NotThis."""
    folder = recipe.data_folder().resolve()
    data = recipe.data.model_copy(update={"folder": str(folder)})
    limits = sandbox.Limits(lab.manifest.run.time_limit, lab.manifest.memory, lab.manifest.processes)
    ended = sandbox.run(
        [sandbox.python(), "-m", "grader.inside_run", "recipe.yaml", str(checkpoint)],
        files={"recipe.yaml": recipe.model_copy(update={"data": data}).dump().encode()},
        limits=limits, sandboxed=sandboxed, readable=(checkpoint, folder),
    )  # fmt: skip
    if ended.stopped == "time":
        raise NotThis(f"{CHECKPOINT}: testing it takes longer than {limits.seconds:g} seconds", "timed out")
    if ended.stopped or ended.status:
        reason = f"it takes more {ended.stopped} than there is" if ended.stopped else "Python itself ended"
        raise NotThis(f"{CHECKPOINT}: cannot be tested: {reason}", "crashed")
    found = parsed(CHECKPOINT, ended.output.strip().rpartition(b"\n")[2])
    if found.get("stage") == "testing" and recipe == required_of(lab)[0]:  # nothing of the learner's is in that
        raise LabError(f"{lab.folder / 'recipe.yaml'}: the test images cannot be used: {found['problem']}")
    if found.get("problem"):
        raise NotThis(f"{CHECKPOINT}: {str(found['problem'])[:200]}")
    predicted = found.get("predictions")
    if not isinstance(predicted, list) or len(predicted) != len(labels):
        raise NotThis(f"{CHECKPOINT}: gives no prediction for each test image")
    return sum(whole(one) and one == label for one, label in zip(predicted, labels)), found.get("step")
