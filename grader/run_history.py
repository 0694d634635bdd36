"""Where the history of a handed-in Run ends, whether its summary agrees, and whether its recipe makes such a one."""

import json
import sys

from labkit.system.errors import LabkitError
from labkit.training import recipes

MOST_LINES = 2_000_000


class NotThis(Exception):
    """What is wrong with a part of a Run, in a line for the learner; ended: how its test did, where it never came."""

    def __init__(self, text, ended=""):
        super().__init__(text)
        self.ended = ended


def short(value) -> str:
    """A value of a learner's file in a message: numbers and texts, cut."""
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)[:80]
    return repr(value[:80]) if isinstance(value, str) else f"a {type(value).__name__}"


def parsed(place: str, text) -> dict:
    """A JSON object of a learner's file; NotThis."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NotThis(f"{place}: not valid JSON") from None
    if not isinstance(found, dict):
        raise NotThis(f"{place}: not a JSON object")
    return found


def whole(number) -> bool:
    """Whether a value is a whole number, and no bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def ended_as_it_says(summary: dict, history, recipe, info) -> tuple[dict, str]:
    """Where the history ends, {steps, epochs, accuracy}, and why the recipe makes no such history, "" where it does.

    NotThis where the summary has another end.
    """
    per_epoch, odd = _steps_per_epoch(summary, recipe, info), ""
    last = {"steps": 0, "epochs": None, "accuracy": None}
    for number, line in enumerate(history, start=1):
        if number > MOST_LINES:
            raise NotThis(f"history.jsonl: more than {MOST_LINES:,} lines")
        record = parsed(f"history.jsonl, line {number}", line)
        if "step" in record:
            step = record["step"]
            if not whole(step) or step <= last["steps"]:
                raise NotThis(f"history.jsonl, line {number}: step {short(step)} after step {last['steps']}")
            last |= {"steps": step, "epochs": record.get("epoch")}
            if per_epoch and last["epochs"] != -(-step // per_epoch):
                where = f"history.jsonl, line {number}: step {step} in epoch {short(last['epochs'])}"
                odd = odd or f"{where}; an epoch of this recipe and data has {per_epoch} steps"
        last["accuracy"] = record.get("accuracy", last["accuracy"])
    if not last["steps"]:
        raise NotThis("history.jsonl: no step in it")
    accuracy = last["accuracy"]
    if not isinstance(accuracy, float) or not 0 <= accuracy <= 1:
        raise NotThis(f"history.jsonl: ends with accuracy {short(accuracy)}, not a number from 0 to 1")
    for key, found in last.items():
        said = summary.get(key)
        if not isinstance(said, (int, float)) or said != found:
            raise NotThis(f"summary.json: {key} is {short(said)}, history.jsonl ends with {short(found)}")
    if recipe and recipe.max_steps is None and last["epochs"] != recipe.epochs:
        raise NotThis(f"history.jsonl: ends in epoch {short(last['epochs'])} of the recipe's {recipe.epochs}")
    if per_epoch and not odd:
        most = min(recipe.epochs * per_epoch, recipe.max_steps or sys.maxsize)
        odd = "" if last["steps"] == most else f"history.jsonl: ends with step {last['steps']} of the recipe's {most}"
    return last, odd


def _steps_per_epoch(summary, recipe, info):
    """Steps of an epoch by a learner's recipe, on the lab's data and as many processes as its summary says; or None."""
    provenance = summary.get("provenance")
    processes = provenance.get("processes", 1) if isinstance(provenance, dict) else 1
    if recipe is None or not whole(processes) or not 0 < processes < 10_000:
        return None
    try:
        return recipes.require_fit(recipe, info, processes)
    except LabkitError:
        return None
