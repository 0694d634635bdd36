"""The recorded races of advantage.md: who reached which accuracy when, as a figure and as tables."""

import json
import math

import numpy as np

from labkit import figures
from labkit.system.environment import REPO

RESULTS = REPO / "tests/benchmarks/results"
SHORT = {"clip_fisher_norm": "bound", "clip_norm": "clip", "warmup_epochs": "warm-up"}  # settings, as words in a table


def load():
    """{name: race}; the commit in its provenance has the program that ran it."""
    return json.loads((RESULTS / "advantage.json").read_text(encoding="utf-8"))


def trainings(race, side, settings=None):
    """Trainings of a setting, one for each seed it was trained with; without one, of the setting that races.

    One that diverged has no steps and no accuracies.
    """
    wanted = side, settings or race["chosen"][side]
    return [one for one in race["finals"] if (one["side"], one["settings"]) == wanted]


def steps_to(one, accuracy):
    """Steps of a training until its first evaluation at or above an accuracy; infinite if there is none."""
    return next((s for s, a in zip(one["steps"], one["accuracies"]) if a >= accuracy), math.inf)


def draw(race):
    """Test accuracy over steps and over minutes: a thin line for each seed, a thick one for their median."""
    figure, axes = figures.new_figure(5.6, 5.6, rows=2)
    colours = figures.colour_of([row["setting"] for row in race["settings"]])
    for row, marker in zip(race["settings"], figures.MARKERS):
        name, ones = row["setting"], [one for one in trainings(race, row["setting"]) if one["steps"]]
        steps = np.array(ones[0]["steps"])
        percent = 100 * np.array([one["accuracies"] for one in ones])
        for axis, unit in zip(axes, (1, row["step_ms"][0] / 60_000)):
            axis.plot(unit * steps, percent.T, color=colours[name], linewidth=0.8, alpha=0.4)
            style = {"color": colours[name], "marker": marker, "markersize": 3.5, "linewidth": 2}
            axis.plot(unit * steps, np.median(percent, axis=0), label=name, **style)
    for axis in axes:
        axis.axhline(100 * race["target"], color=figures.REFERENCE, linestyle="--", linewidth=1)
        axis.set(xlim=(0, None), ylabel="test accuracy (%)")
    axes[0].set(xlabel="steps")
    axes[1].set(xlabel="minutes of training")
    axes[0].legend(loc="lower right")
    return figure


def spread(values, form):
    """Median, lowest and highest, as text."""
    return "not reached" if values is None else "{:{f}} ({:{f}} to {:{f}})".format(*values, f=form)


def table(race):
    """Print what each side needed, and its cost; medians of the seeds, with the lowest and the highest."""
    print(f"target: {race['target']:.2%} of the test images\n")
    print(f"{'':9}{'seeds':>6}{'steps':>19}{'seconds':>21}{'% at the end':>22}{'s a step':>10}")
    for row in race["settings"]:
        ends = [100 * accuracy for accuracy in row["accuracy"]]
        print(
            f"{row['setting']:9}{row['reached']:>4}/{row['runs']}{spread(row['steps'], '.0f'):>19}"
            f"{spread(row['seconds'], '.0f'):>21}{spread(ends, '.1f'):>22}{row['step_ms'][0] / 1000:10.2f}"
        )


def ratio(race, key):
    """The first side's steps or seconds over the second's: of the medians, at least, at most; None without a result."""
    one, other = (row[key] for row in race["settings"])
    return (one[0] / other[0], one[1] / other[2], one[2] / other[1]) if one and other else None


def verdict(race):
    """Print how many times fewer steps and less time the second side needs, if it reaches the target."""
    first, second = (row["setting"] for row in race["settings"])
    if not ratio(race, "steps"):
        print(f"{second} reaches the target with none of the seeds")
        return
    words = {"steps": ("fewer steps than", "as many steps as"), "seconds": ("less time than", "as much time as")}
    for key, (less, more) in words.items():
        median, least, most = ratio(race, key)
        if median < 1:
            median, least, most, less = 1 / median, 1 / most, 1 / least, more
        print(f"{second} needs {spread((median, least, most), '.2f')} times {less} {first}")


def tried(race):
    """Print the settings that each side was tried with, by seed 1; > marks those that race."""
    trials = [(one, _words(race, one)) for one in race["trials"]]
    width = max(len(words) for _, words in trials)
    print(f"{'':12}{'setting':{width}}{'steps':>7}{'to target':>11}{'at the end':>12}   all seeds")
    for one, words in trials:
        mark = ">" if one["settings"] == race["chosen"][one["side"]] else " "
        others = trainings(race, one["side"], one["settings"])
        ends = [100 * other["accuracies"][-1] if other["steps"] else 0.0 for other in others]
        every = spread((np.median(ends), min(ends), max(ends)), ".1f") if ends else ""
        if one["steps"]:
            there = steps_to(one, race["target"])
            result = f"{one['steps'][-1]:7}{there if there < math.inf else '-':>11}{one['accuracies'][-1]:12.1%}"
        else:
            result = f"{'diverged':>30}"
        print(f"{mark} {one['side']:10}{words:{width}}{result}   {every}".rstrip())


def _words(race, trial):
    """What a trial was tried with, without what all trials of its side have in common."""
    others = [one["settings"] for one in race["trials"] if one["side"] == trial["side"]]
    shown = {
        key.split(".")[-1]: value
        for key, value in trial["settings"].items()
        if any(other.get(key) != value for other in others)
    }
    numbers = {key: f"{value:g}" if isinstance(value, float) else value for key, value in shown.items()}
    return ", ".join(f"{SHORT.get(key, key)} {value}" for key, value in numbers.items())


def lower_targets(race, percents):
    """Print the steps to lower accuracies, medians of the seeds."""
    sides = [row["setting"] for row in race["settings"]]
    print(f"{'accuracy':8}{sides[0]:>11}{sides[1]:>8}   times fewer")
    for percent in percents:
        first, second = (np.median([steps_to(one, percent / 100) for one in trainings(race, side)]) for side in sides)
        fewer = f"{first / second:14.2f}" if max(first, second) < math.inf else f"{'-':>14}"
        print(f"{percent:7}%{_count(first):>11}{_count(second):>8}{fewer}")


def _count(steps):
    return f"{steps:.0f}" if steps < math.inf else "-"


def conditions(race):
    """Print what the race was measured with."""
    made, evaluated = race["provenance"], {gap for one in race["finals"] for gap in np.diff(one["steps"])}
    memory = ", ".join(f"{row['setting']} {row['peak_memory_mb'] / 1000:.1f} GB" for row in race["settings"])
    seeds = {one["seed"] for one in race["finals"]}
    print(f"seeds: {len(seeds)}; accuracy measured every {max(evaluated)} steps")
    print(f"peak memory of a process, images included: {memory}")
    print(f"{made['machine']}, {made['cores']} cores, MindSpore {made['versions']['mindspore']}")
    print(f"commit {made['commit'][:10]}")
