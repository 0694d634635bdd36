"""Verdicts in a learner's words: what each means, and what to do next."""

OUTCOMES = ("all points", "some points", "no points", "ended early or blocked", "not done", "could not be graded")

# verdict: (shade of the page, what it means, what to do next)
WORDS = {
    "right": ("good", "All that was checked is right.", ""),
    "partly right": (
        "some",
        "A part of what was checked is right.",
        "see which checks gave no points, and read the question again for what they are about.",
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
        "Your answer did not come to its end within the {seconds:g} seconds that a cell of this question has.",
        "look for a loop that never ends, or for work that is done again and again.",
    ),
    "crashed": (
        "odd",
        "Python itself ended while your answer ran.",
        "leave out what ends the process (`exit`, `os._exit`), and what takes more memory than there is.",
    ),
    "blocked": (
        "odd",
        "This question builds on “{other}”, which does not work yet, so it could not be judged.",
        "mend “{other}” first.",
    ),
    "missing": (
        "none",
        "There is no answer cell of this question in what you handed in.",
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
        "put the whole folder of the Run beside your notebook: recipe, history, summary and checkpoint.",
    ),
}
STOPPED = {
    "time": "All cells together took longer than the {total:g} seconds that there are.",
    "memory": "It took more memory than the {memory} MB that there are.",
    "processes": "It started more processes and threads than the {processes} that there may be.",
    "output": "It printed more than can be kept.",
}


def in_words(lab, name: str, verdict: str) -> dict:
    """{label, shade, meaning, next} of a verdict about a question."""
    run = lab.manifest.run
    is_run = run is not None and name == run.name
    kind, _, other = verdict.partition(" by ") if verdict.startswith("blocked by ") else (verdict, "", "")
    words = (RUN_WORDS if is_run and kind in RUN_WORDS else WORDS).get(kind)
    if words is None:
        return {"label": verdict or "not graded", "shade": "none", "meaning": "It was not graded.", "next": ""}
    task = lab.manifest.tasks.get(name)
    limit = run.time_limit if is_run else (task and task.time_limit) or lab.manifest.time_limit
    title = lab.manifest.tasks[other].title if other in lab.manifest.tasks else other
    shade, meaning, advice = words
    filled = {"seconds": limit, "other": title}
    return {"label": kind, "shade": shade, "meaning": meaning.format(**filled), "next": advice.format(**filled)}


def stopped(lab, reason: str) -> str:
    """Why a submission was stopped, in a sentence; "" where it was not."""
    if not reason:
        return ""
    limits = {"total": lab.manifest.total_time, "memory": lab.manifest.memory,
              "processes": lab.manifest.processes}  # fmt: skip
    return STOPPED.get(reason, "The reason is: {reason}.").format(reason=reason, **limits)


def outcome(verdict: str, points: float, most: float) -> str:
    """What the class overview counts an answer as: one of OUTCOMES; no verdict is for what could not be graded."""
    if not verdict:
        return "could not be graded"
    if verdict == "right" or (points and points >= most):
        return "all points"
    if points > 0:
        return "some points"
    if verdict in ("error", "timed out", "crashed") or verdict.startswith("blocked"):
        return "ended early or blocked"
    return "no points" if verdict in ("wrong", "partly right") else "not done"
