"""A second-order optimizer beside momentum, both tuned with one budget: python -m tests.benchmarks.advantage OUT

Contests on CIFAR-10 with one network: THOR beside momentum (labs/thor, profiles laptop, each trial a Run) and, in
PyTorch, K-FAC beside SGD (tests/benchmarks/kfac.py). OUT gets a folder for each contest, with a JSON file for each
trial that is done; a second call goes on with the others.
First each setting of a grid is trained with seed 1, as many for either side. The baseline's best is the one that ends
most accurate, the challenger's the one that comes as far in the fewest steps, or comes nearest. Then the challenger's
best is trained with the other seeds, and the baseline's two best: the one with the higher median goes on, and its
median is the target. Trainings run two at a time with half of the cores each.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import click

from labkit.data import cifar10_files
from labkit.system import environment
from labkit.system.files import atomic_write
from labkit.training import compare, provenance, runs

RESULT = Path(__file__).with_name("results") / "advantage.json"


@dataclass(frozen=True)
class Side:
    """An optimizer in a contest: its name, how it is started, and the settings it is tried with."""

    name: str
    program: str  # a profile of labs/thor, or "torch"
    grid: tuple[dict, ...]


def tries(common, *settings):
    """Settings of a grid: what all have in common, and what each has."""
    return tuple({**common, **one} for one in settings)


def rates(key, *values):
    return [{key: value} for value in values]


LR = "schedule.lr_max"
CONTESTS = {
    "THOR": (
        Side("momentum", "laptop-momentum", tries({}, *rates(LR, 0.5, 1.0, 2.0, 4.0))),
        Side(
            "thor",
            "laptop",
            tries({}, {"epochs": 3, LR: 0.5}, {"epochs": 4, LR: 0.3}, {"epochs": 4, LR: 0.5}, {"epochs": 5, LR: 0.3}),
        ),
    ),
    "K-FAC": (
        Side("sgd", "torch", tries({"optimizer": "sgd"}, *rates("lr", 0.5, 1.0, 2.0))),
        Side(
            "kfac",
            "torch",
            tries({"optimizer": "kfac", "epochs": 4, "warmup_epochs": 0.5}, *rates("lr", 0.1, 0.3, 1.0)),
        ),
    ),
}


@dataclass
class Trial:
    """A training of a side's setting with a seed, and what came out: its curve, empty where it diverged."""

    side: Side
    settings: dict
    seed: int
    out: Path
    curve: compare.Curve = field(init=False)
    peak_memory_mb: int = field(init=False)

    @property
    def path(self):
        words = [f"{k.rpartition('.')[2]}{value:g}" for k, value in self.settings.items() if not isinstance(value, str)]
        return self.out / "-".join([self.side.name, *words, f"seed{self.seed}"])

    def told(self):
        """What the result keeps of it."""
        curve = {"steps": self.curve.steps, "accuracies": self.curve.accuracies}
        return {"side": self.side.name, "settings": self.settings, "seed": self.seed, **curve}

    def run(self):
        """Train it, if that was not done."""
        file = self.path.with_name(f"{self.path.name}.json")
        if not file.exists():
            atomic_write(file, json.dumps(self._train()) + "\n")
        found = json.loads(file.read_text())
        self.peak_memory_mb = found.pop("peak_memory_mb")
        self.curve = compare.Curve(**found)
        last = f"{self.curve.accuracies[-1]:.2%} after {self.curve.steps[-1]} steps" if self.curve.steps else "diverged"
        click.echo(f"{self.path.name}: {last}")

    def _train(self):
        shutil.rmtree(self.path, ignore_errors=True)  # begun and not ended: compiled twice, it would tell no true times
        if self.side.program == "torch":
            data = str(environment.data_root() / "cifar-10-batches-bin")
            settings = json.dumps({**self.settings, "seed": self.seed})
            command = ["-m", "tests.benchmarks.kfac", data, str(self.path / "curve.json"), settings]
        else:
            command = ["-m", "labkit", "train", "thor", "--profile", self.side.program, "--out", str(self.path)]
            for key, value in {**self.settings, "seed": self.seed, "baseline": None}.items():
                command += ["--set", f"{key}={json.dumps(value)}"]
        log = self.path.with_name(f"{self.path.name}.log")
        with open(log, "w") as output:
            variables = {**os.environ, "OMP_NUM_THREADS": str(max(1, environment.cores() // 2))}
            process = subprocess.Popen([sys.executable, *command], env=variables, stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
        curve = {"steps": [], "seconds": [], "accuracies": [], "compile_seconds": 0.0, "step_ms": 0.0}
        if os.waitstatus_to_exitcode(status) == 0:
            if self.side.program == "torch":
                curve = json.loads((self.path / "curve.json").read_text())
            else:
                curve = vars(compare.curve(runs.open_run(self.path)))
        elif "Error: loss is" not in log.read_text():
            raise click.ClickException(f"{self.path.name}: the training failed, see {log}")
        return {**curve, "peak_memory_mb": usage.ru_maxrss // 1024}


def contest(baseline, challenger, out, seeds):
    """Tune both, train the best settings with all seeds; returns {target, settings, chosen, trials, finals}."""
    tried = {side.name: [Trial(side, one, 1, out) for one in side.grid] for side in (baseline, challenger)}
    in_pairs(sum(tried.values(), []))
    ended = {name: [trial for trial in trials if trial.curve.steps] for name, trials in tried.items()}
    best = sorted(ended[baseline.name], key=lambda trial: -trial.curve.accuracies[-1])[:2]
    target = best[0].curve.accuracies[-1]

    def soonest(trial):
        reached = trial.curve.reaches(target)
        return (0, reached[0], reached[1]) if reached else (1, -max(trial.curve.accuracies), 0)

    best.append(min(ended[challenger.name], key=soonest))
    finals = [[one, *(Trial(one.side, one.settings, seed, out) for seed in range(2, seeds + 1))] for one in best]
    in_pairs([trial for same_seed in zip(*finals) for trial in same_seed])
    for trial in sum(finals, []):
        if not trial.curve.steps:
            raise click.ClickException(f"{trial.path.name}: diverged, though it did not with seed 1; see its log")

    def at_the_end(trials):
        return statistics.median(trial.curve.accuracies[-1] for trial in trials)

    chosen = {baseline.name: max(finals[:-1], key=at_the_end), challenger.name: finals[-1]}
    curves = {name: [trial.curve for trial in trials] for name, trials in chosen.items()}
    target = compare.default_target(curves)
    rows = compare.summary(curves, target)
    for row in rows:
        row["peak_memory_mb"] = statistics.median(trial.peak_memory_mb for trial in chosen[row["setting"]])
    click.echo(compare.table(rows, target))
    return {
        "target": target,
        "settings": rows,
        "chosen": {name: trials[0].settings for name, trials in chosen.items()},
        "trials": [trial.told() for trial in sum(tried.values(), [])],
        "finals": [trial.told() for trial in sum(finals, [])],
    }


def in_pairs(trials):
    """Train what is missing of the trials, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Trial.run, trials))


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(list(CONTESTS)))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
def main(out, names, seeds):
    """Train what is missing under OUT, print the comparisons and write them to results/advantage.json."""
    data = cifar10_files.check(environment.data_root() / "cifar-10-batches-bin")
    made_by = provenance.collect(data.dataset)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in names or CONTESTS:
        (out / name).mkdir(parents=True, exist_ok=True)
        result[name] = {**contest(*CONTESTS[name], out / name, seeds), "provenance": made_by}
        atomic_write(RESULT, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
