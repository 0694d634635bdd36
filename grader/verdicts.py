"""Verdicts in a learner's words: what each means, and what to do next."""

import builtins
import re

# What became of a question, with its shade and the colour of the text on it. Shades also differ in lightness, so that
# they can be distinguished in grey.
OUTCOMES = {
    "all points": ("#0072B2", "white"),
    "some points": ("#56B4E9", "black"),
    "no points": ("#D55E00", "black"),
    "ended early or blocked": ("#F0E442", "black"),
    "not done": ("#BFBFBF", "black"),
    "could not be graded": ("#4D4D4D", "white"),
}

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
    "timed out": (
        "odd",
        "Testing the checkpoint took longer than the {seconds:g} seconds that it has.",
        "train the network that the lab asks for, with its recipe.",
    ),
    "crashed": (
        "odd",
        "Testing the checkpoint took down the process, or more memory than there is.",
        "train the network that the lab asks for, and hand in the file that `labkit train` wrote.",
    ),
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
NOT_THERE = "the grader has no network and none of your files: let the answer do without them."
STOPPED = {
    "time": "All cells together took longer than the {total:g} seconds that there are.",
    "memory": "It took more memory than the {memory} MB that there are.",
    "processes": "It started more processes and threads than the {processes} that there may be.",
    "output": "It printed more than can be kept.",
}


def in_words(lab, name: str, verdict: str, detail: str = "", lost: tuple[str, ...] = (), say=str) -> dict:
    """{number, label, shade, meaning, next} of a verdict about a task.

    detail: the result's, which names an error; lost: the values that differ; the first one says what to do next; say:
    gives a text in the learner's language.
    """
    run, task = lab.manifest.run, lab.manifest.tasks.get(name)
    is_run = run is not None and name == run.name
    kind, _, other = verdict.partition(" by ") if verdict.startswith("blocked by ") else (verdict, "", "")
    words = WORDS | RUN_WORDS if is_run else WORDS
    shade, meaning, advice = words.get(kind, ("none", "It was not graded.", ""))
    limit = run.time_limit if is_run else (task and task.time_limit) or lab.manifest.time_limit
    if other in lab.manifest.tasks:
        title = say(lab.manifest.tasks[other].title)
        other = say("{task}, “{title}”").format(task=numbered(lab, other, say).lower(), title=title)
    filled = {"seconds": limit, "other": other}
    after = (not is_run and kind in ("error", "partly right") and _next_after(detail)) or advice
    own = [task.values[value].next for value in lost if task and value in task.values and task.values[value].next]
    advice = say(own[0]) if own and kind in ("wrong", "partly right") else say(after).format(**filled)
    label, meaning = kind if kind in words else verdict or "not graded", say(meaning).format(**filled)
    return {
        "number": numbered(lab, name, say), "label": say(label), "shade": shade, "meaning": meaning, "next": advice,
    }  # fmt: skip


def numbered(lab, name: str, say=str) -> str:
    """A task as the notebook calls it, such as Task 2: by the order of its answer cells, the Run last."""
    return say("Task {number}").format(number=[*lab.solutions, name].index(name) + 1)


def titles(lab, name: str) -> dict[str, str]:
    """What each value of a task is, by its name; "" where the manifest does not say."""
    task = lab.manifest.tasks.get(name)
    return {key: value.title for key, value in task.values.items()} if task else RUN_TITLES


def said_already(entry: dict) -> bool:
    """Whether the detail of a task's result says what its verdict's meaning says."""
    late = entry["verdict"] == "timed out" and entry["detail"].endswith("took longer than allowed")
    return late or entry["verdict"] == "not done"


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
    """Why a submission was stopped, in a sentence; "" where it was not. say: as for `in_words`."""
    if not reason:
        return ""
    limits = {"total": lab.manifest.total_time, "memory": lab.manifest.memory,
              "processes": lab.manifest.processes}  # fmt: skip
    return say(STOPPED.get(reason, "The reason is: {reason}.")).format(reason=reason, **limits)


def outcome(verdict: str, points: float, most: float) -> str:
    """What the class overview counts an answer as, one of OUTCOMES; an empty verdict means it could not be graded."""
    if not verdict:
        return "could not be graded"
    if verdict == "right" or (points and points >= most):
        return "all points"
    if points > 0:
        return "some points"
    if verdict in ("error", "timed out", "crashed") or verdict.startswith("blocked"):
        return "ended early or blocked"
    return "no points" if verdict in ("wrong", "partly right", "by hand") else "not done"
