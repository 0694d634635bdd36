"""Comparing Runs by what it takes to reach a target accuracy, as AlgoPerf does (Dahl et al. 2023, arXiv 2306.07179).

Runs with equally many processes whose recipes differ only in the seed are one setting, shown as median and range.
"""

import itertools
import math
import re
import shlex
import statistics
from collections import Counter
from dataclasses import dataclass

from labkit.data.files import same_data
from labkit.training.runs import Run, RunError, is_evaluation

NO_MATTER = {"seed": 0, "profile": "", "checkpoint_steps": None, "evaluation_steps": None}  # keys of equal settings


@dataclass(frozen=True)
class Curve:
    """Accuracy (0 to 1) of a Run at each evaluation, with the steps and seconds of training until then."""

    steps: list[int]
    seconds: list[float]
    accuracies: list[float]
    compile_seconds: float  # more than typical steps took, of those that compiled; not in the others
    step_ms: float  # mean

    def reaches(self, target: float) -> tuple[int, float] | None:
        """Steps and seconds to the first evaluation at or above a target accuracy; None if there is none."""
        points = zip(self.steps, self.seconds, self.accuracies)
        return next(((steps, seconds) for steps, seconds, accuracy in points if accuracy >= target), None)


def curve(run: Run) -> Curve:
    """Read a Run's curve; raises RunError if it is not complete or was trained in sink mode."""
    if not run.complete:
        again = f"labkit train {run.recipe.lab} --resume --out {shlex.quote(str(run.path))}"
        raise RunError(f"{run.path}: cannot be compared: it is not complete; resume it with `{again}`")
    records, evaluations, steps = [], [], []
    for record in run.history():  # an evaluation comes right after its step
        if "step" in record:
            records.append(record)
        elif is_evaluation(record):
            evaluations.append(record)
            steps.append(len(records))
    if [record["step"] for record in records] != list(range(1, len(records) + 1)):
        raise RunError(f"{run.path}: cannot be compared: its history has no line for each step (sink mode)")
    compiled = [record.get("compiled", False) for record in records]
    taken = [record["seconds"] for record in records]
    typical = statistics.median([seconds for seconds, slow in zip(taken, compiled) if not slow] or taken)
    warm = [min(seconds, typical) if slow else seconds for seconds, slow in zip(taken, compiled)]
    total = list(itertools.accumulate(warm))
    return Curve(
        steps, [total[step - 1] for step in steps], [evaluation["accuracy"] for evaluation in evaluations],
        sum(taken) - sum(warm), 1000 * statistics.mean(warm),
    )  # fmt: skip


def settings(runs: list[Run], any_data=False) -> dict[str, list[Curve]]:
    """Curves by setting, named after its first Run, in the order given; each Run once. Raises RunError.

    any_data: compare Runs that were trained on different data, too.

    A second Run with the same seed becomes a setting of its own.
    """
    curves = {run: curve(run) for run in runs}
    groups, seeds, data = {}, Counter(), runs[0].provenance["dataset"]
    for run in curves:
        if not any_data and not same_data(data, other := run.provenance["dataset"]):
            name = f"{other['name']}, {runs[0].path} on {data['name']}"
            raise RunError(f"{run.path}: trained on other data ({name}); --any-data compares them all the same")
        setting = run.recipe.model_copy(update=NO_MATTER).dump(), run.processes
        repetition = seeds[setting, run.recipe.seed]
        seeds[setting, run.recipe.seed] += 1
        groups.setdefault((setting, repetition), []).append(run)
    named = {}
    for group in groups.values():
        path = group[0].path
        short = re.sub(r"-(seed-?)?\d+$", "", path.name) if len(group) > 1 else path.name
        name = next(name for name in (short, path.name, str(path), str(path.resolve())) if name and name not in named)
        named[name] = [curves[run] for run in group]
    return named


def default_target(curves: dict[str, list[Curve]]) -> float:
    """Final accuracy of the first setting, the baseline: the median of its Runs."""
    return statistics.median(curve.accuracies[-1] for curve in next(iter(curves.values())))


def summary(curves: dict[str, list[Curve]], target: float) -> list[dict]:
    """A row for each setting: runs, reached (how many), [median, lowest, highest] of each measurement.

    A Run that misses the target took infinitely many steps and seconds.
    """
    rows = []
    for name, group in curves.items():
        needed = [curve.reaches(target) or (math.inf, math.inf) for curve in group]
        rows.append({
            "setting": name, "runs": len(group), "reached": sum(steps < math.inf for steps, _ in needed),
            "steps": _spread([steps for steps, _ in needed]),
            "seconds": _spread([seconds for _, seconds in needed]),
            "accuracy": _spread([curve.accuracies[-1] for curve in group]),
            "step_ms": _spread([curve.step_ms for curve in group]),
            "compile_seconds": _spread([curve.compile_seconds for curve in group]),
        })  # fmt: skip
    return rows


def _spread(values):
    return [statistics.median(values), min(values), max(values)]


def table(rows: list[dict], target: float) -> str:
    """The rows as text, each compared with the first: how many times fewer steps and seconds."""
    baseline = rows[0]
    width = max(len("setting"), *(len(row["setting"]) for row in rows))
    lines = [
        f"steps, and seconds of training without compiling and evaluating, to an accuracy of {target:.2%};",
        f"in parentheses: how many times less than {baseline['setting']}",
        f"{'setting':{width}}  {'seeds':>5}  {'steps':>14}  {'seconds':>14}  {'at the end':>10}  {'mean ms':>9}",
    ]
    for row in rows:
        seeds = f"{row['reached']}/{row['runs']}"
        steps, seconds = (_against(row[key], baseline[key]) for key in ("steps", "seconds"))
        end = f"{row['accuracy'][0]:>10.2%}  {row['step_ms'][0]:>9.0f}"
        lines.append(f"{row['setting']:{width}}  {seeds:>5}  {steps:>14}  {seconds:>14}  {end}")
    return "\n".join(lines)


def _against(value, baseline):
    if value[0] == math.inf:
        return "not reached"
    return f"{value[0]:,.0f}" + (f" ({baseline[0] / value[0]:.2f}x)" if baseline[0] < math.inf else "")
