"""Verdicts for learners: what each means, and what to do next."""

import builtins
import re

from grader.values import DIFFERENCES

# {verdict: (shade on the page, what it means, what to do next)}
WORDS = {
    "right": ("good", "Everything that was checked is right.", ""),
    "partly right": (
        "some",
        "Some of what was checked is right.",
        "see which checks gave no points, and read what the task says about them.",
    ),
    "wrong": (
        "bad",
        "Your cell runs, but does not give the expected result.",
        "try the smallest example that you can work out by hand, and compare shape and type as well.",
    ),
    "error": (
        "odd",
        "Your answer, or a check that uses it, ended with an error.",
        "restart the kernel and run all cells from the top, so that deleted or renamed variables are missing. "
        "Then call your answer with arguments other than those in the example.",
    ),
    "timed out": (
        "odd",
        "Your answer did not finish within the {seconds:g} seconds allowed for a cell of this task.",
        "look for an endless loop, or for work that is repeated unnecessarily.",
    ),
    "crashed": (
        "odd",
        "Python itself ended while your answer ran.",
        "remove calls that end the process (`exit`, `os._exit`), and use less memory.",
    ),
    "blocked": (
        "odd",
        "This task builds on {other}, which does not work yet, so it could not be judged.",
        "fix {other} first.",
    ),
    "by hand": ("some", "Your instructor gave these points.", ""),
    "missing": (
        "none",
        "Your submission has no answer cell for this task.",
        "put your answer into the cell that came with the lab: open a new copy and move your code there.",
    ),
    "not done": (
        "none",
        "The answer cell is unchanged.",
        "write your answer there, not into a new cell; a partial answer is a good start.",
    ),
}
RUN_WORDS = {
    "partly right": (
        "some",
        "The Run meets some of the requirements.",
        "see which parts gave no points, and why.",
    ),
    "wrong": ("bad", "The Run gave no points.", "see below what is wrong with each part."),
    "missing": (
        "none",
        "No Run was graded.",
        "put one Run next to your notebook, its whole folder, and no other: recipe, history, summary and checkpoint.",
    ),
}
RUN_TITLES = {
    "complete": "the Run is complete",
    "recipe": "the recipe follows the rules",
    "accuracy": "accuracy on the test images",
}
# What to do next about errors that do not occur in the learner's own notebook.
NOT_TAKEN = (
    "define and import everything that the answer needs in its cell, with the names that the task asks for: "
    "your other cells are not executed."
)
BLOCKER = "{task}, “{title}”"
NOT_THERE = "the grader has no network and none of your files, so your answer must work without them."
# Details of values that were not compared with the master's.
NOT_COMPARED = NOT_COUNTED, CHECK_FAILED, MISSING = "not counted", "its check failed", "missing"
IN_CHECK, NOT_RUN = "in a hidden check", "not run, because earlier cells used up everything that is allowed"
FACTS = ("network", "epochs", "steps", "accuracy, by its summary", "accuracy, tested here")  # of a Run
FAILED = "the grader itself failed, which may not be the learner's fault; the instructor can see the reason"
STOPPED = {
    "time": "All cells together took longer than the allowed {total:g} seconds.",
    "memory": "Your answers used more than the allowed {memory} MB of memory.",
    "processes": "Your answers started more than the allowed {processes} processes and threads.",
    "output": "Your answers printed more than allowed.",
}


def texts() -> list[str]:
    """All texts to translate that a learner's page may contain, besides those in its template and the lab."""
    words = [text for table in (WORDS, RUN_WORDS) for name, (_, *texts) in table.items() for text in (name, *texts)]
    others = [*RUN_TITLES.values(), *STOPPED.values(), *NOT_COMPARED, *FACTS, *DIFFERENCES, "right", "Task {number}",
              NOT_TAKEN, NOT_THERE, FAILED, IN_CHECK, NOT_RUN, BLOCKER]  # fmt: skip
    return [text for text in dict.fromkeys([*words, *others]) if text]


def in_words(lab, name: str, entry: dict, say=str) -> dict:
    """{number, label, shade, meaning, next} for a task's result; say: translates a text to the learner's language."""
    task = lab.manifest.tasks.get(name)
    verdict, _, other = entry["verdict"].partition(" by " if entry["verdict"].startswith("blocked") else "\0")
    shade, meaning, advice = (WORDS if task else WORDS | RUN_WORDS).get(verdict, ("none", "It was not graded.", ""))
    if other:
        title = say(lab.manifest.tasks[other].title)
        other = say(BLOCKER).format(task=numbered(lab, other, say).lower(), title=title)
    fields = {"seconds": (task and task.time_limit) or lab.manifest.time_limit, "other": other}
    if task and verdict in ("error", "partly right"):
        advice = _next_after(entry["detail"]) or advice
    if task and verdict in ("wrong", "partly right"):
        differing = [name for name, value in entry["values"].items() if value["detail"] not in ("", *NOT_COMPARED)]
        advice = next(filter(None, (task.values[name].next for name in differing)), advice)
    return {"number": numbered(lab, name, say), "label": say(verdict or "not graded"), "shade": shade,
            "meaning": say(meaning).format(**fields), "next": say(advice).format(**fields)}  # fmt: skip


def numbered(lab, name: str, say=str) -> str:
    """A task's label in the notebook, such as Task 2: numbered by the order of the answer cells, with the Run last."""
    return say("Task {number}").format(number=[*lab.solutions, name].index(name) + 1)


def _next_after(detail):
    """What to do about the error that a detail names; "" if that depends on the answer."""
    named = re.search(r"\braised (\w+)", detail)
    error = getattr(builtins, named[1], None) if named else None
    if not isinstance(error, type):
        return ""
    if issubclass(error, NameError) and error is not UnboundLocalError:
        return NOT_TAKEN
    return NOT_THERE if issubclass(error, (OSError, ModuleNotFoundError)) else ""


def stopped(lab, reason: str, say=str) -> str:
    """A sentence about why a submission was stopped; "" if it was not."""
    limits = {"total": lab.manifest.total_time, "memory": lab.manifest.memory, "processes": lab.manifest.processes}
    return say(STOPPED[reason]).format(**limits) if reason else ""
