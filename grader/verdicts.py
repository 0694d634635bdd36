"""Verdicts in a learner's words: what each means, and what to do next."""

import builtins
import re

from grader.values import DIFFERENCES

# verdict: (shade of the page, what it means, what to do next)
WORDS = {
    "right": ("good", "All that was checked is right.", ""),
    "partly right": (
        "some",
        "A part of what was checked is right.",
        "see which checks gave no points, and read the task again for what they are about.",
    ),
    "wrong": (
        "bad",
        "Your cell runs, but what it gives is not what was asked.",
        "try it on the smallest example that you can work out by hand, and look at shape and type as well.",
    ),
    "error": (
        "odd",
        "Your answer, or a check that uses it, ended with an error.",
        "restart the kernel and run all cells from the top: what you deleted or renamed is gone there too. "
        "Then call your answer with other arguments than those of the example.",
    ),
    "timed out": (
        "odd",
        "Your answer did not come to its end within the {seconds:g} seconds that a cell of this task has.",
        "look for a loop that never ends, or for work that is done again and again.",
    ),
    "crashed": (
        "odd",
        "Python itself ended while your answer ran.",
        "leave out what ends the process (`exit`, `os._exit`), and what takes more memory than there is.",
    ),
    "blocked": (
        "odd",
        "This task builds on {other}, which does not work yet, so it could not be judged.",
        "fix {other} first.",
    ),
    "by hand": ("some", "Your instructor gave these points.", ""),
    "missing": (
        "none",
        "There is no answer cell of this task in what you handed in.",
        "put your answer into the cell that came with the lab: open a fresh copy and move your code there.",
    ),
    "not done": (
        "none",
        "The answer cell is as it was handed out.",
        "write your answer there; some of it is enough to begin.",
    ),
}
RUN_WORDS = {
    "partly right": (
        "some",
        "A part of what was asked of the Run is there.",
        "see which parts gave no points, and why.",
    ),
    "wrong": ("bad", "The Run gave no points.", "see below what is wrong with each part of it."),
    "missing": (
        "none",
        "No Run was graded.",
        "put the whole folder of the Run next to your notebook: recipe, history, summary and checkpoint.",
    ),
}
RUN_TITLES = {
    "complete": "the Run is complete",
    "recipe": "the recipe keeps to the rules",
    "accuracy": "accuracy on the test images",
}
# What to do next about an error that a notebook never shows where it was written.
NOT_TAKEN = (
    "define and import in the answer cell what it needs, under the names that the task asks for: "
    "other cells of yours are not taken."
)
BLOCKER = "{task}, “{title}”"
NOT_THERE = "the grader has no network and none of your files: let the answer do without them."
# Details of values that were never compared with the master's.
NOT_COMPARED = NOT_COUNTED, CHECK_FAILED, MISSING = "not counted", "its check failed", "missing"
IN_CHECK, NOT_RUN = "in a hidden check", "not run, as what came before it used up all that is allowed"
FACTS = ("network", "epochs", "steps", "accuracy, by its summary", "accuracy, tested here")  # of a Run
FAILED = "the grader itself failed at this, which need not be the learner's fault; the instructor sees why"
STOPPED = {
    "time": "All cells together took longer than the {total:g} seconds that there are.",
    "memory": "It took more memory than the {memory} MB that there are.",
    "processes": "It started more processes and threads than the {processes} that there may be.",
    "output": "It printed more than can be kept.",
}


def texts() -> list[str]:
    """All that a learner's page may say, besides its template and the lab's own words: what is to be translated."""
    words = [text for table in (WORDS, RUN_WORDS) for kind, (_, *said) in table.items() for text in (kind, *said)]
    others = [*RUN_TITLES.values(), *STOPPED.values(), *NOT_COMPARED, *FACTS, *DIFFERENCES, "right", "Task {number}",
              NOT_TAKEN, NOT_THERE, FAILED, IN_CHECK, NOT_RUN, BLOCKER]  # fmt: skip
    return [text for text in dict.fromkeys([*words, *others]) if text]


def in_words(lab, name: str, entry: dict, say=str) -> dict:
    """{number, label, shade, meaning, next} of a task's result; say: gives a text in the learner's language."""
    task = lab.manifest.tasks.get(name)
    kind, _, other = entry["verdict"].partition(" by " if entry["verdict"].startswith("blocked") else "\0")
    shade, meaning, advice = (WORDS if task else WORDS | RUN_WORDS).get(kind, ("none", "It was not graded.", ""))
    if other:
        title = say(lab.manifest.tasks[other].title)
        other = say(BLOCKER).format(task=numbered(lab, other, say).lower(), title=title)
    fields = {"seconds": (task and task.time_limit) or lab.manifest.time_limit, "other": other}
    if task and kind in ("error", "partly right"):
        advice = _next_after(entry["detail"]) or advice
    if task and kind in ("wrong", "partly right"):
        advice = next(filter(None, (task.values[value].next for value in _differing(entry))), advice)
    return {"number": numbered(lab, name, say), "label": say(kind or "not graded"), "shade": shade,
            "meaning": say(meaning).format(**fields), "next": say(advice).format(**fields)}  # fmt: skip


def _differing(entry):
    """Names of a result's values that were compared and differ: not those that no probe came to."""
    return [name for name, value in entry["values"].items() if value["detail"] and value["detail"] not in NOT_COMPARED]


def numbered(lab, name: str, say=str) -> str:
    """A task as the notebook calls it, such as Task 2: by the order of its answer cells, the Run last."""
    return say("Task {number}").format(number=[*lab.solutions, name].index(name) + 1)


def _next_after(detail):
    """What to do about the error that a detail names; "" where that depends on the answer."""
    named = re.search(r"\braised (\w+)", detail)
    error = getattr(builtins, named[1], None) if named else None
    if not isinstance(error, type):
        return ""
    if issubclass(error, NameError) and error is not UnboundLocalError:
        return NOT_TAKEN
    return NOT_THERE if issubclass(error, (OSError, ModuleNotFoundError)) else ""


def stopped(lab, reason: str, say=str) -> str:
    """Why a submission was stopped, in a sentence; "" where it was not."""
    limits = {"total": lab.manifest.total_time, "memory": lab.manifest.memory, "processes": lab.manifest.processes}
    return say(STOPPED[reason]).format(**limits) if reason else ""
