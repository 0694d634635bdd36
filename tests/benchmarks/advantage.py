"""A second-order optimizer against momentum, both tuned with one budget: python -m tests.benchmarks.advantage OUT

Contests on CIFAR-10 with one network: THOR against momentum (labs/thor, profiles laptop, each trial a Run) and, in
PyTorch, K-FAC against SGD (tests/benchmarks/kfac.py). Then THOR's contest again on a second network, with the settings
that won and no tuning. OUT gets a folder for each contest with a JSON file for each trial that is done, and the result,
advantage.json; a second call does what is missing. All trials of a contest come from one commit, with nothing changed.
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
    """Settings of a grid: one for each value of a key."""
    return [{key: value} for value in values]


EVALUATION_STEPS = 6
LR = "schedule.lr_max"
WARMUP = "schedule.warmup_epochs"
CLIP = "optimizer.clip_fisher_norm"
CONTESTS = {
    "THOR": (
        Side(
            "momentum",
            "laptop-momentum",
            tries({}, *rates(LR, 0.5, 1.0, 2.0), {LR: 2.0, WARMUP: 0.0, "optimizer.clip_norm": 1.0})
            + tries({"epochs": 5}, *rates(LR, 1.0, 2.0)),
        ),
        Side(
            "thor",
            "laptop",
            tries({CLIP: 0.4}, *rates(LR, 0.8, 1.2, 1.6))
            + ({CLIP: 0.3, LR: 1.2}, {CLIP: 0.6, LR: 0.8}, {CLIP: None, LR: 0.4, WARMUP: 0.2}),
        ),
    ),
    "K-FAC": (
        Side(
            "sgd",
            "torch",
            tries(
                {"optimizer": "sgd"},
                *rates("lr", 0.5, 1.0, 2.0),
                *tries({"epochs": 5}, *rates("lr", 0.5, 1.0), {"lr": 0.5, "warmup_epochs": 0.5}),
            ),
        ),
        Side(
            "kfac",
            "torch",
            tries(
                {"optimizer": "kfac", "epochs": 4, "warmup_epochs": 0.5},
                *rates("lr", 0.03, 0.1, 0.3), *({"lr": 0.1, "damping": one} for one in (0.01, 0.1)),
                {"lr": 0.1, "epochs": 5},
            ),
        ),
    ),
}

OTHER = "ResNet-20"  # with the settings that won the contest of THOR, untuned
NAMES = (*CONTESTS, OTHER)
SEEDS = {"THOR": 5, "K-FAC": 3, OTHER: 1}


def sides(name, result):
    """The two sides of a contest: one of CONTESTS, or what won in THOR's on another network."""
    if name != OTHER:
        return CONTESTS[name]
    if "THOR" not in result:
        raise click.UsageError(f"{OTHER} takes over the settings that won the contest THOR: that one first")
    other = {"network.name": "resnet20", "data.batch_size": 1024}
    chosen = result["THOR"]["chosen"]
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

    def record(self):
        """What the result keeps of it."""
        seconds = [round(one, 1) for one in self.curve.seconds]
        curve = {"steps": self.curve.steps, "seconds": seconds, "accuracies": self.curve.accuracies}
        return {"side": self.side.name, "settings": self.settings, "seed": self.seed, **curve}

    @property
    def end(self):
        """Final accuracy; 0 where the training diverged."""
        return self.curve.accuracies[-1] if self.curve.steps else 0.0

    def run(self):
        """Train it, if that was not done."""
        file = self.path.with_name(f"{self.path.name}.json")
        if not file.exists():
            atomic_write(file, json.dumps(self._train()) + "\n")
        found = json.loads(file.read_text())
        self.peak_memory_mb = found.pop("peak_memory_mb")
        self.curve = compare.Curve(**found)
        last = f"{self.end:.2%} after {self.curve.steps[-1]} steps" if self.curve.steps else "diverged"
        click.echo(f"{self.path.name}: {last}")

    def _train(self):
        shutil.rmtree(self.path, ignore_errors=True)  # not finished: compiled twice, its times would be wrong
        if self.side.program == "torch":
            data = str(environment.data_root() / "cifar-10-batches-bin")
            settings = json.dumps({**self.settings, "seed": self.seed, "evaluation_steps": EVALUATION_STEPS})
            command = ["-m", "tests.benchmarks.kfac", data, str(self.path / "curve.json"), settings]
        else:
            command = ["-m", "labkit", "train", "thor", "--profile", self.side.program, "--out", str(self.path)]
            fixed = {"seed": self.seed, "baseline": None, "evaluation_steps": EVALUATION_STEPS}
            for key, value in {**self.settings, **fixed}.items():
                command += ["--set", f"{key}={json.dumps(value)}"]
        log = self.path.with_name(f"{self.path.name}.log")
        with open(log, "w") as output:
            process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output)
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
    train(sum(tried.values(), []))
    ended = {name: [trial for trial in trials if trial.curve.steps] for name, trials in tried.items()}
    for name, trials in ended.items():
        if not trials:
            raise click.ClickException(f"{name}: all trials diverged; {out} has their logs")
    accurate = sorted(ended[baseline.name], key=lambda trial: -trial.end)[:2]
    best = {
        baseline.name: {one.path: one for one in (*accurate, fastest(ended[baseline.name], accurate[0].end))}.values(),
        challenger.name: [fastest(ended[challenger.name], accurate[0].end)],
    }
    finals = {
        name: [[one, *(Trial(one.side, one.settings, seed, out) for seed in range(2, seeds + 1))] for one in ones]
        for name, ones in best.items()
    }
    every = sum(finals.values(), [])
    train([trial for same_seed in zip(*every) for trial in same_seed])
    target = max(statistics.median(trial.end for trial in ones) for ones in finals[baseline.name])
    chosen = {name: min(ones, key=lambda trials: median_steps(trials, target)) for name, ones in finals.items()}
    rows = compare.summary(
        {name: [trial.curve for trial in trials if trial.curve.steps] for name, trials in chosen.items()}, target
    )
    for row in rows:
        row["runs"] = len(chosen[row["setting"]])  # those that diverged included
        row["peak_memory_mb"] = statistics.median(trial.peak_memory_mb for trial in chosen[row["setting"]])
    click.echo(compare.table(rows, target))
    return {
        "target": target,
        "settings": rows,
        "chosen": {name: trials[0].settings for name, trials in chosen.items()},
        "trials": [trial.record() for trial in sum(tried.values(), [])],
        "finals": [trial.record() for trial in sum(every, [])],
    }


def fastest(trials, accuracy):
    """The trial that gets to an accuracy in the fewest steps; where none does, the one that gets nearest."""

    def order(trial):
        reached = trial.curve.reaches(accuracy)
        return (0, reached[0], -trial.end) if reached else (1, -max(trial.curve.accuracies), 0)

    return min(trials, key=order)


def median_steps(trials, target):
    """Steps to the target, the median over the seeds of a setting; infinitely many where a seed does not come there."""
    return statistics.median((trial.curve.reaches(target) or (math.inf,))[0] for trial in trials)


def require_same_code(folder, made_by):
    """Record the commit and data of a contest's folder; raises UsageError for others, or if files have changed."""
    if made_by["dirty"] is not False:
        raise click.UsageError("the trials must come from a commit: files of this checkout differ from it")
    file, own = folder / "made_by.json", {key: made_by[key] for key in ("commit", "dataset")}
    if not file.exists():
        atomic_write(file, json.dumps(own) + "\n")
    elif (theirs := json.loads(file.read_text())) != own:
        raise click.UsageError(f"{folder}: its trials are of {theirs}, not {own}: name another folder")


def train(trials):
    """Train the missing trials: Runs one at a time, PyTorch's two at a time with a core each."""
    with ThreadPoolExecutor(2 if trials[0].side.program == "torch" else 1) as pool:
        list(pool.map(Trial.run, trials))


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--seeds", show_default=", ".join(f"{name} {n}" for name, n in SEEDS.items()), type=click.IntRange(1))
def main(out, names, seeds):
    """Train what is missing under OUT, print the comparisons and write OUT/advantage.json.

    Contests that were not run are in it as they were recorded.
    """
    data = cifar10_files.check(environment.data_root() / "cifar-10-batches-bin")
    made_by = provenance.collect(data.dataset)
    made_by["versions"] |= {package: environment.version_of(package) for package in ("torch", "asdfghjkl")}
    written = out / RECORDED.name
    for name in names or NAMES:
        (out / name).mkdir(parents=True, exist_ok=True)
        require_same_code(out / name, made_by)
        result = json.loads((written if written.exists() else RECORDED).read_text())
        result[name] = {**contest(*sides(name, result), out / name, seeds or SEEDS[name]), "provenance": made_by}
        atomic_write(written, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
