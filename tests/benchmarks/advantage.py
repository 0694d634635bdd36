"""A second-order optimizer against momentum, both tuned with one budget: python -m tests.benchmarks.advantage OUT

Contests on CIFAR-10 with one network: THOR against momentum (labs/thor, profiles laptop, each trial a Run) and, in
PyTorch, K-FAC against SGD (tests/benchmarks/kfac.py). Then THOR's contest again on a second network, with the settings
that won and no tuning. OUT gets a folder for each contest with a JSON file for each trial that is done, and the result,
advantage.json; a second call does what is missing.
First each setting of a grid is trained with seed 1, as many for either side. A side's fastest setting is the one that
gets to the baseline's highest final accuracy in the fewest steps, or gets nearest. The baseline's two most accurate
settings, its fastest and the challenger's are then trained with the other seeds. The target is the baseline's highest
median of final accuracies; of its settings, the one that gets there in the fewest steps, by the median, is compared.
Accuracy is measured every 6 steps; that does not count as training time.
"""

import json
import math
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

RECORDED = Path(__file__).with_name("results") / "advantage.json"
EVALUATION_STEPS = 6


@dataclass(eq=False)
class Side:
    """An optimizer in a contest: its name, how it is started, and the settings it is tried with."""

    name: str
    program: str  # a profile of labs/thor, or "torch"
    grid: tuple[dict, ...]


def tries(common, key, *values):
    """Settings of a grid: what all have in common, and one value of a key each."""
    return tuple({**common, key: value} for value in values)


LR = "schedule.lr_max"
WARMUP = "schedule.warmup_epochs"
CLIP = "optimizer.clip_fisher_norm"
SGD = {"optimizer": "sgd"}
KFAC = {"optimizer": "kfac", "epochs": 4, "warmup_epochs": 0.5}
CONTESTS = {
    "THOR": (
        Side("momentum", "laptop-momentum", (
            *tries({}, LR, 0.5, 1.0, 2.0), {LR: 2.0, WARMUP: 0.0, "optimizer.clip_norm": 1.0},
            *tries({"epochs": 5}, LR, 1.0, 2.0),
        )),
        Side("thor", "laptop", (
            *tries({CLIP: 0.4}, LR, 0.8, 1.2, 1.6), {CLIP: 0.3, LR: 1.2}, {CLIP: 0.6, LR: 0.8},
            {CLIP: None, LR: 0.4, WARMUP: 0.2},
        )),
    ),
    "K-FAC": (
        Side("sgd", "torch", (
            *tries(SGD, "lr", 0.5, 1.0, 2.0), *tries({**SGD, "epochs": 5}, "lr", 0.5, 1.0),
            {**SGD, "epochs": 5, "lr": 0.5, "warmup_epochs": 0.5},
        )),
        Side("kfac", "torch", (
            *tries(KFAC, "lr", 0.03, 0.1, 0.3), *tries({**KFAC, "lr": 0.1}, "damping", 0.01, 0.1),
            {**KFAC, "lr": 0.1, "epochs": 5},
        )),
    ),
}  # fmt: skip
OTHER = "ResNet-20"  # with the settings that won the contest of THOR, untuned
SEEDS = {"THOR": 5, "K-FAC": 3, OTHER: 1}


def sides(name, result):
    """The two sides of a contest: one of CONTESTS, or what won in THOR's on another network."""
    if name != OTHER:
        return CONTESTS[name]
    chosen, other = result["THOR"]["chosen"], {"network.name": "resnet20", "data.batch_size": 1024}
    return tuple(Side(side.name, side.program, ({**chosen[side.name], **other},)) for side in CONTESTS["THOR"])


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
        numbers = {key.rpartition(".")[2]: value for key, value in self.settings.items() if not isinstance(value, str)}
        words = [f"{key}{value}" if value is None else f"{key}{value:g}" for key, value in numbers.items()]
        return self.out / "-".join([self.side.name, *words, f"seed{self.seed}"])

    @property
    def end(self):
        """Final accuracy; 0 where the training diverged."""
        return self.curve.accuracies[-1] if self.curve.steps else 0.0

    def record(self):
        """What the result keeps of it."""
        seconds = [round(second, 1) for second in self.curve.seconds]
        curve = {"steps": self.curve.steps, "seconds": seconds, "accuracies": self.curve.accuracies}
        return {"side": self.side.name, "settings": self.settings, "seed": self.seed, **curve}

    def run(self):
        """Train it, if that was not done."""
        file = self.path.with_name(f"{self.path.name}.json")
        if not file.exists():
            atomic_write(file, json.dumps(self._train()) + "\n")
        trained = json.loads(file.read_text())
        self.peak_memory_mb = trained.pop("peak_memory_mb")
        self.curve = compare.Curve(**trained)
        click.echo(f"{self.path.name}: {self.end:.2%}")

    def _train(self):
        shutil.rmtree(self.path, ignore_errors=True)  # not finished: compiled twice, its times would be wrong
        settings = {**self.settings, "seed": self.seed, "evaluation_steps": EVALUATION_STEPS}
        if self.side.program == "torch":
            data = str(environment.data_root() / "cifar-10-batches-bin")
            command = ["-m", "tests.benchmarks.kfac", data, str(self.path / "curve.json"), json.dumps(settings)]
        else:
            command = ["-m", "labkit", "train", "thor", "--profile", self.side.program, "--out", str(self.path)]
            for key, value in settings.items():
                command += ["--set", f"{key}={json.dumps(value)}"]
        log = self.path.with_name(f"{self.path.name}.log")
        with open(log, "w") as output:
            process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
        curve = {"steps": [], "seconds": [], "accuracies": [], "compile_seconds": 0.0, "step_ms": 0.0}
        if os.waitstatus_to_exitcode(status) == 0:
            written = self.path / "curve.json"  # by PyTorch's side
            run = None if written.exists() else runs.open_run(self.path)
            curve = vars(compare.curve(run)) if run else json.loads(written.read_text())
        elif "Error: loss is" not in log.read_text():
            raise click.ClickException(f"{self.path.name}: the training failed, see {log}")
        return {**curve, "peak_memory_mb": usage.ru_maxrss // 1024}


def contest(baseline, challenger, out, seeds):
    """Tune both, train the best settings with all seeds; returns {target, settings, chosen, trials, finals}."""
    tried = {side: train([Trial(side, settings, 1, out) for settings in side.grid]) for side in (baseline, challenger)}
    accurate = sorted(tried[baseline], key=lambda trial: -trial.end)[:2]
    best = {trial.path: trial for trial in (*accurate, fastest(tried[baseline], accurate[0].end))}
    best = {baseline: best.values(), challenger: [fastest(tried[challenger], accurate[0].end)]}
    finals = {side: [with_seeds(trial, seeds) for trial in trials] for side, trials in best.items()}
    target = max(statistics.median(trial.end for trial in trials) for trials in finals[baseline])
    chosen = {side.name: min(ways, key=lambda trials: median_steps(trials, target)) for side, ways in finals.items()}
    curves = {name: [trial.curve for trial in trials if trial.curve.steps] for name, trials in chosen.items()}
    rows = compare.summary(curves, target)
    for row in rows:
        row["runs"] = len(chosen[row["setting"]])  # those that diverged included
        row["peak_memory_mb"] = statistics.median(trial.peak_memory_mb for trial in chosen[row["setting"]])
    click.echo(compare.table(rows, target))
    return {
        "target": target,
        "settings": rows,
        "chosen": {name: trials[0].settings for name, trials in chosen.items()},
        "trials": [trial.record() for trials in tried.values() for trial in trials],
        "finals": [trial.record() for ways in finals.values() for trials in ways for trial in trials],
    }


def with_seeds(trial, seeds):
    """A trial with seed 1, and those of its settings with the other seeds, trained."""
    return [trial, *train([Trial(trial.side, trial.settings, seed, trial.out) for seed in range(2, seeds + 1)])]


def train(trials):
    """Train the missing trials, and return all: Runs one at a time, PyTorch's two at a time with a core each."""
    with ThreadPoolExecutor(2 if trials and trials[0].side.program == "torch" else 1) as pool:
        list(pool.map(Trial.run, trials))
    return trials


def fastest(trials, accuracy):
    """The trial that gets to an accuracy in the fewest steps; where none does, the one that gets nearest."""

    def order(trial):
        reached = trial.curve.reaches(accuracy)
        return (0, reached[0], -trial.end) if reached else (1, -max(trial.curve.accuracies, default=0.0), 0)

    return min(trials, key=order)


def median_steps(trials, target):
    """Steps to the target, the median over the seeds of a setting; infinitely many where a seed does not come there."""
    return statistics.median((trial.curve.reaches(target) or (math.inf,))[0] for trial in trials)


def commit_and_data(data):
    """Provenance of what is measured on a data set; raises UsageError if files differ from the commit."""
    made_by = provenance.collect(data)
    if made_by["dirty"] is not False:
        raise click.UsageError("what is recorded must come from a commit: files of this checkout differ from it")
    return made_by


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice([*SEEDS]))
def main(out, names):
    """Train what is missing under OUT, print the comparisons and write OUT/advantage.json.

    Contests that were not run are in it as they were recorded.
    """
    made_by = commit_and_data(cifar10_files.check(environment.data_root() / "cifar-10-batches-bin").dataset)
    made_by["versions"] |= {package: environment.version_of(package) for package in ("torch", "asdfghjkl")}
    written = out / RECORDED.name
    for name in names or SEEDS:
        (out / name).mkdir(parents=True, exist_ok=True)
        result = json.loads((written if written.exists() else RECORDED).read_text())
        result[name] = {**contest(*sides(name, result), out / name, SEEDS[name]), "provenance": made_by}
        atomic_write(written, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
