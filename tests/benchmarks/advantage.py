"""A second-order optimizer beside momentum, both tuned with one budget: python -m tests.benchmarks.advantage OUT

Two contests on CIFAR-10 with one network and batch: THOR beside momentum (labs/thor, profiles laptop, each trial a Run
under OUT) and, in PyTorch, K-FAC beside SGD (tests/benchmarks/kfac.py, each trial a JSON file under OUT). A second call
goes on where the first one stopped.
First each setting of a grid is trained with seed 1, as many for either side. The target is the accuracy that the
best setting of momentum has at its end; the challenger's best is the one that reaches it in the fewest steps, or comes
nearest. Then both bests are trained with all seeds and compared. Two trials run at a time, each with half of the
cores; the two of a seed start together, so that what else the machine does meets both.
"""

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from labkit import compare, runtime
from labkit import run as runs

TOGETHER = 2
RESULT = Path(__file__).with_name("results") / "advantage.json"


@dataclass(frozen=True)
class Side:
    """An optimizer in a contest: its name, how it is started, and the settings it is tried with."""

    name: str
    program: str  # a profile of labs/thor, or "torch"
    grid: tuple[dict, ...]


CONTESTS = {
    "mindspore": (
        Side("momentum", "laptop-momentum", tuple({"schedule.lr_max": lr} for lr in (0.5, 1.0, 2.0))),
        Side(
            "thor",
            "laptop",
            tuple({"epochs": epochs, "schedule.lr_max": lr} for epochs, lr in ((3, 0.25), (4, 0.2), (4, 0.3))),
        ),
    ),
    "pytorch": (
        Side("sgd", "torch", tuple({"optimizer": "sgd", "lr": lr} for lr in (0.5, 1.0, 2.0))),
        Side(
            "kfac",
            "torch",
            tuple({"optimizer": "kfac", "epochs": epochs, "lr": lr} for epochs, lr in ((3, 0.1), (4, 0.1), (4, 0.3))),
        ),
    ),
}


@dataclass
class Trial:
    """A training of a side's setting with a seed: where it is, and what came out."""

    side: Side
    settings: dict
    seed: int
    out: Path

    @property
    def path(self):
        words = [f"{key.rpartition('.')[2]}{value:g}" for key, value in self.settings.items() if key != "optimizer"]
        return self.out / "-".join([self.side.name, *words, f"seed{self.seed}"])

    def run(self):
        """Train it where it is not complete; returns itself, with its curve and peak_memory_mb."""
        memory = self.path.with_suffix(".memory.json")
        if self.side.program == "torch":
            file = self.path.with_suffix(".json")
            settings = json.dumps({**self.settings, "seed": self.seed})
            folder = runtime.data_root() / "cifar-10-batches-bin"
            command = ["-m", "tests.benchmarks.kfac", str(folder), str(file), settings]
            if not file.exists():
                self._measure(command, memory)
            self.curve = _torch_curve(json.loads(file.read_text()))
        else:
            run = runs.Run(self.path)
            command = ["-m", "labkit", "train", "thor", "--profile", self.side.program, "--out", str(self.path)]
            command += ["--resume"] if (self.path / "recipe.yaml").exists() else []
            for key, value in {**self.settings, "seed": self.seed, "rival": None}.items():
                command += ["--set", f"{key}={json.dumps(value)}"]
            if not run.complete:
                self._measure(command, memory)
            self.curve = compare.curve(run)
        self.peak_memory_mb = json.loads(memory.read_text())
        click.echo(f"{self.path.name}: {self.curve.accuracies[-1]:.2%} after {self.curve.steps[-1]} steps")
        return self

    def _measure(self, arguments, memory):
        threads = {"OMP_NUM_THREADS": str(max(1, runtime.cores() // TOGETHER))}
        process = subprocess.Popen([sys.executable, *arguments], env={**os.environ, **threads})
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise click.ClickException(f"{self.path.name}: the training ended with status {status}; see above")
        runs.write_whole(memory, json.dumps(usage.ru_maxrss // 1024) + "\n")


def train(trials):
    """Run the trials, so many at a time; returns them."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(Trial.run, trials))


def _torch_curve(trial):
    """The Curve of a trial in PyTorch, where nothing is compiled."""
    return compare.Curve(
        trial["steps"], trial["seconds"], trial["accuracies"], 0.0, 1000 * trial["seconds"][-1] / trial["steps"][-1]
    )


def contest(baseline, challenger, out, seeds):
    """Tune both, train the bests with all seeds; returns {target, settings, chosen, trials}."""
    tried = {side.name: train([Trial(side, one, 1, out) for one in side.grid]) for side in (baseline, challenger)}
    best = {baseline.name: max(tried[baseline.name], key=lambda trial: trial.curve.accuracies[-1])}
    target = best[baseline.name].curve.accuracies[-1]

    def soonest(trial):
        reached = trial.curve.reaches(target)
        return (0, reached[0], reached[1]) if reached else (1, -max(trial.curve.accuracies), 0)

    best[challenger.name] = min(tried[challenger.name], key=soonest)
    pairs = [Trial(t.side, t.settings, seed, out / "final") for seed in range(1, seeds + 1) for t in best.values()]
    train(pairs)
    final = {name: [trial for trial in pairs if trial.side.name == name] for name in best}
    curves = {name: [trial.curve for trial in trials] for name, trials in final.items()}
    target = compare.default_target(curves)  # now of all seeds
    rows = compare.summary(curves, target)
    for row in rows:
        row["peak_memory_mb"] = statistics.median(trial.peak_memory_mb for trial in final[row["setting"]])
    click.echo(compare.table(rows, target))
    trials = [
        {"side": name, "settings": trial.settings, "steps": trial.curve.steps, "accuracies": trial.curve.accuracies}
        for name, several in tried.items()
        for trial in several
    ]
    return {"target": target, "settings": rows, "chosen": {n: t.settings for n, t in best.items()}, "trials": trials}


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(list(CONTESTS)))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
def main(out, names, seeds):
    """Train what is missing under OUT, print the comparison and write results/advantage.json."""
    (out / "final").mkdir(parents=True, exist_ok=True)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in names or CONTESTS:
        result[name] = contest(*CONTESTS[name], out, seeds)
        result[name]["provenance"] = runs.provenance({"name": "CIFAR-10", "sha256": None})
        runs.write_whole(RESULT, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
