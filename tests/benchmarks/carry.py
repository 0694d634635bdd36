"""Does the arena's result carry over? The settings that raced, untuned, on the workloads in WORKLOADS.

    python data_scripts/cifar10.py split
    python -m tests.benchmarks.carry OUT [--at-most N] [--record]

The target is the best baseline's median end. Seconds are steps to the target times a mean step. Only the steps of the
trainings count, so they may share the machine with other work. Call it once more, on a free machine, when all are done:
this measures the mean steps, the sides by turns. Trainings in OUT or in results/arena-carried.json are not repeated, so
the work can be spread over days; to measure again, remove OUT/carried/measured.
"""

import json
import shutil
import statistics
from collections import defaultdict
from pathlib import Path

import click

from labkit.data import cifar10_files
from labkit.system import environment
from labkit.system.files import atomic_write
from labkit.training import compare, runs
from tests.benchmarks.arena import DATA, EVALUATED, RESULT, SIDES, Trial, commit_and_data, repeated, with_length

FILE = RESULT.with_name("arena-carried.json")
WORKLOADS = {  # changes, times as many epochs, images between two evaluations
    "digits": ({"data.folder": "sample/cifar-10-batches-bin", "data.crop_padding": 2, "data.flip": 0.0}, 4, 512),
    "ResNet-20": ({"network.name": "resnet20"}, 1, EVALUATED),
}
SEEDS = range(2, 5)
STEPS, LEFT_OUT, ROUNDS = 80, 20, 3  # of a mean step: three intervals of THOR's factors; the first one compiles


def planned(out) -> dict[str, list[Trial]]:
    """The trials of each workload, all sides with one seed before the next seed. Raises ClickException."""
    if not (chosen := json.loads(RESULT.read_text()).get("chosen")):
        raise click.ClickException(f"{RESULT.name} has no race: record one first")
    plan = {}
    for name, (changes, times, evaluated) in WORKLOADS.items():
        trials = [with_length(Trial(side, chosen[side.name] | changes, out), times) for side in SIDES]
        plan[name] = [repeated(trial, seed, evaluated) for seed in SEEDS for trial in trials]
    return plan


def trained(trial) -> dict:
    """Train it; returns its side, settings, way in steps, and the commit and machine that trained it."""
    curve, made_by = trial.train().curve(), {}
    if trial.accuracy:
        made_by = runs.open_run(trial.path).provenance
    return {
        "side": trial.side.name, "settings": trial.settings, "steps": curve.steps, "accuracies": curve.accuracies,
        "commit": made_by.get("commit"), "machine": made_by.get("machine"),
    }  # fmt: skip


def mean_steps(trials) -> dict[str, list[float]]:
    """Milliseconds of a mean step of each side in ROUNDS trainings, the sides by turns; the first steps left out."""
    measured = defaultdict(list)
    for number in range(ROUNDS):
        for trial in trials:
            short = trial.settings | {"max_steps": STEPS, "seed": SEEDS[-1] + 1 + number}
            del short["evaluation_steps"]
            run = runs.open_run(Trial(trial.side, short, trial.out / "measured").train().path)
            seconds = [record["seconds"] for record in run.history() if record.get("step", 0) > LEFT_OUT]
            measured[trial.side.name].append(1000 * statistics.mean(seconds))
    return measured


def standings(trainings, measured) -> dict:
    """Target and a row for each side, from its trainings and the milliseconds of its mean step; prints the table."""
    curves = defaultdict(list)
    for training in trainings:
        step_ms = statistics.median(measured[training["side"]])
        seconds = [steps * step_ms / 1000 for steps in training["steps"]]
        curves[training["side"]].append(compare.Curve(training["steps"], seconds, training["accuracies"], 0.0, step_ms))
    ends = {name: statistics.median(curve.accuracies[-1] for curve in group) for name, group in curves.items()}
    target = max(ends[side.name] for side in SIDES if side.baseline)
    rows = compare.summary(curves, target)
    click.echo(compare.table(rows, target))
    for row in rows:
        del row["compile_seconds"]  # not measured
    return {"target": target, "rows": rows, "step_ms": measured}


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--record", is_flag=True, help="Keep what is done so far in this checkout.")
@click.option("--at-most", type=click.IntRange(0), help="End after so many trainings; the next call goes on.")
def main(out, record, at_most):
    """Train what is missing; if nothing is, measure mean steps. Write results and standings to OUT."""
    result = {"provenance": commit_and_data(cifar10_files.check(environment.data_root() / DATA).dataset)}
    out = out / "carried"
    (out / "measured").mkdir(parents=True, exist_ok=True)
    result["trainings"] = {}
    for file in filter(Path.exists, (FILE, out / FILE.name)):
        result["trainings"] |= json.loads(file.read_text())["trainings"]
    plan = planned(out)
    missing = [trial for trials in plan.values() for trial in trials if trial.name not in result["trainings"]]
    for trial in missing[:at_most]:
        result["trainings"][trial.name] = trained(trial)
        atomic_write(out / FILE.name, json.dumps(result, indent=1) + "\n")
    if not missing:
        for name, trials in plan.items():
            click.echo(f"\n{name}")
            done = [result["trainings"][trial.name] for trial in trials]
            result[name] = standings(done, mean_steps(trials[: len(SIDES)]))
    atomic_write(out / FILE.name, json.dumps(result, indent=1) + "\n")
    if record:
        shutil.copyfile(out / FILE.name, FILE)


if __name__ == "__main__":
    main()
