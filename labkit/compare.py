"""Comparing Runs by what it takes to reach a target accuracy, as AlgoPerf does (Dahl et al. 2023, arXiv 2306.07179).

Runs whose recipes differ in the seed only are one setting: of it the median is told, with the range.
"""

import itertools
import re
import statistics
from dataclasses import dataclass

from labkit.run import Run, RunError


@dataclass(frozen=True)
class Curve:
    """Test accuracy (0 to 1) of a Run at the end of each epoch, with the steps and seconds of training until then.

    The first two steps, in which graphs are compiled, count as typical ones; what they took longer is compile_seconds.
    """

    steps: list[int]
    seconds: list[float]
    accuracies: list[float]
    compile_seconds: float
    step_ms: float  # mean

    def reaches(self, target: float) -> tuple[int, float] | None:
        """Steps and seconds to the first evaluation at or above a target accuracy; None where there is none."""
        for steps, seconds, accuracy in zip(self.steps, self.seconds, self.accuracies):
            if accuracy >= target:
                return steps, seconds
        return None


def curve(run: Run) -> Curve:
    """Read a Run's curve; raises RunError where it has no evaluation yet, or was trained in sink mode."""
    records, evaluations = run.steps(), run.evaluations()
    if not evaluations:
        raise RunError(f"{run.path}: not to be compared: it has no evaluation yet")
    if [record["step"] for record in records] != list(range(1, len(records) + 1)):
        raise RunError(f"{run.path}: not to be compared: its history has no line for each step (sink mode)")
    taken = [record["seconds"] for record in records]
    typical = statistics.median(taken[2:] or taken)
    warm = [min(seconds, typical) for seconds in taken[:2]] + taken[2:]
    total = list(itertools.accumulate(warm))
    last = {record["epoch"]: record["step"] for record in records}
    steps = [last[evaluation["epoch"]] for evaluation in evaluations]
    return Curve(
        steps, [total[step - 1] for step in steps], [evaluation["accuracy"] for evaluation in evaluations],
        sum(taken[:2]) - sum(warm[:2]), 1000 * statistics.mean(warm),
    )  # fmt: skip


def settings(runs: list[Run]) -> dict[str, list[Curve]]:
    """Curves by setting, in the order given; a setting's name is its first Run's without a number at the end."""
    found = []
    for run in runs:
        recipe = run.recipe.model_copy(update={"seed": 0, "profile": ""})
        for kept, same in found:
            if kept == recipe:
                same.append(run)
                break
        else:
            found.append((recipe, [run]))
    named = {}
    for _, same in found:
        path = same[0].path
        short = re.sub(r"(-seed)?-?\d+$", "", path.name) if len(same) > 1 else path.name
        named[short if short and short not in named else str(path)] = [curve(run) for run in same]
    return named


def default_target(curves: dict[str, list[Curve]]) -> float:
    """The accuracy that the first setting, the baseline, has at the end: the median of its Runs."""
    return statistics.median(one.accuracies[-1] for one in next(iter(curves.values())))


def summary(curves: dict[str, list[Curve]], target: float) -> list[dict]:
    """A row for each setting: runs, reached (how many), and [median, lowest, highest] of what was measured.

    steps and seconds to the target (of the Runs that reached it, None where none did), accuracy at the end, step_ms.
    """
    rows = []
    for name, ones in curves.items():
        reached = [place for place in (one.reaches(target) for one in ones) if place]
        rows.append({
            "setting": name, "runs": len(ones), "reached": len(reached),
            "steps": _spread([steps for steps, _ in reached]),
            "seconds": _spread([seconds for _, seconds in reached]),
            "accuracy": _spread([one.accuracies[-1] for one in ones]),
            "step_ms": _spread([one.step_ms for one in ones]),
            "compile_seconds": _spread([one.compile_seconds for one in ones]),
        })  # fmt: skip
    return rows


def _spread(values):
    return [statistics.median(values), min(values), max(values)] if values else None


def table(rows: list[dict], target: float) -> str:
    """The rows as text, each beside the first: how many times fewer steps and seconds."""
    baseline = rows[0]
    width = max(len("setting"), *(len(row["setting"]) for row in rows))
    lines = [
        f"to {target:.2%} on the test images; (x) is the first setting's over this one's",
        f"{'setting':{width}}  {'runs':>5}  {'steps':>14}  {'seconds':>14}  {'at the end':>10}  {'ms a step':>9}",
    ]
    for row in rows:
        cells = [f"{row['reached']}/{row['runs']}"]
        for key in ("steps", "seconds"):
            cells.append(_against(row[key], baseline[key]))
        lines.append(
            f"{row['setting']:{width}}  {cells[0]:>5}  {cells[1]:>14}  {cells[2]:>14}  "
            f"{row['accuracy'][0]:>10.2%}  {row['step_ms'][0]:>9.0f}"
        )
    return "\n".join(lines)


def _against(value, baseline):
    if value is None:
        return "not reached"
    ratio = f" ({baseline[0] / value[0]:.2f}x)" if baseline else ""
    return f"{value[0]:,.0f}{ratio}"
