"""The arena: which optimizer gets to an accuracy soonest, each at the best of its own settings?

    python data_scripts/cifar10.py split
    python -m tests.benchmarks.arena OUT

Rules, after AlgoPerf (Dahl et al. 2023, arXiv 2306.07179), as far as two cores allow. ResNet-8 trains on 45,000 images
of CIFAR-10; the other 5,000 training images choose settings and measure the way to the target; the test images are
looked at once, at the end.
1. Every side has TRIALS trainings of EPOCHS epochs with seed 1: it begins with its start, changes a key at a time, and
   keeps what is better. A batch twice as large comes with the next higher learning rate.
2. The best of each baseline is repeated with SEEDS other seeds. The target is the highest of their medians at the end.
3. Every side has LENGTHS trainings of its best settings with other numbers of epochs, by bisection. The shortest that
   ends above the target by a margin races: the standard deviation over the seeds that set the target.
4. The race: SEEDS seeds of every side, one training at a time, the sides by turns. A seed that misses the target counts
   as infinitely slow.
A side is added by an entry in SIDES and a profile in labs/thor/recipe.yaml. Trainings that are done are in OUT, and
those before the race in results/arena.json as well: a second call does the rest. Only the race is timed: what comes
before it may run side by side, which changes nothing but rounding.
"""

import hashlib
import json
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from labkit.data import cifar10_files
from labkit.system import environment
from labkit.system.files import atomic_write
from labkit.training import compare, evaluation, provenance, recipes, runs

RESULT = Path(__file__).with_name("results") / "arena.json"
RECORDED = environment.REPO / "labs" / "thor" / "runs"
DATA = "arena/cifar-10-batches-bin"  # by `python data_scripts/cifar10.py split`
TRIALS, LENGTHS, EPOCHS, SEEDS = 12, 4, 2, range(2, 7)
EVALUATED = 4_096  # images between two evaluations on the way; evaluations do not count as time
DIVERGED = "Error: .*(loss is|too close to singular)"  # what bad settings end a training with
LR, WARMUP, BATCH, DECAY = "schedule.lr_max", "schedule.warmup_epochs", "data.batch_size", "optimizer.weight_decay"


@dataclass(frozen=True)
class Side:
    """An optimizer in the arena: what a profile of labs/thor is named after, and for its keys a start and a ladder."""

    name: str
    start: dict = field(hash=False)
    ladders: dict[str, tuple] = field(hash=False)
    baseline: bool = False

    @property
    def profile(self):
        """The profile that it starts from."""
        return f"arena-{self.name}"


BATCHES = {BATCH: (16, 32, 64, 128, 256, 512)}
SIDES = (
    Side("momentum", {LR: 0.2, BATCH: 128, "optimizer.momentum": 0.9, WARMUP: 0.25, DECAY: 5e-4}, {
        LR: (0.05, 0.1, 0.2, 0.4, 0.8), **BATCHES, "optimizer.momentum": (0.8, 0.9, 0.95),
        WARMUP: (0.1, 0.25, 0.5), DECAY: (1e-4, 5e-4, 2e-3),
    }, baseline=True),
    Side("adamw", {LR: 4e-3, BATCH: 128, "optimizer.beta2": 0.99, WARMUP: 0.25, DECAY: 0.02}, {
        LR: (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2), **BATCHES, "optimizer.beta2": (0.95, 0.99, 0.999),
        WARMUP: (0.1, 0.25, 0.5), DECAY: (0.005, 0.02, 0.08),
    }, baseline=True),
    Side("muon", {LR: 0.02, "optimizer.rest": 3.0, BATCH: 128, "optimizer.momentum": 0.9, DECAY: 0.0, WARMUP: 0.1}, {
        LR: (0.005, 0.01, 0.02, 0.04, 0.08, 0.16), "optimizer.rest": (1.0, 3.0, 10.0, 30.0), **BATCHES,
        "optimizer.momentum": (0.8, 0.9, 0.95), DECAY: (0.0, 0.1, 0.5), WARMUP: (0.1, 0.25, 0.5),
    }),
    Side("thor", {
        "optimizer.damping": 0.1, LR: 0.2, BATCH: 128, "optimizer.clip_fisher_norm": 1.0,
        "optimizer.factor_interval": 20, WARMUP: 0.1,
    }, {
        "optimizer.damping": (0.03, 0.1, 0.3), LR: (0.025, 0.05, 0.1, 0.2, 0.3, 0.45), **BATCHES,
        "optimizer.clip_fisher_norm": (0.5, 1.0, 2.0), "optimizer.factor_interval": (10, 20, 40),
        WARMUP: (0.1, 0.25, 0.5),
    }),
)  # fmt: skip


@dataclass(eq=False)
class Trial:
    """A training of a side with some settings; `train` fills in how it ended."""

    side: Side
    settings: dict
    out: Path
    accuracy: float = 0.0  # final; 0 where the training diverged

    @property
    def changes(self):
        """The settings as for `labkit train --set`."""
        return tuple(f"{key}={json.dumps(value)}" for key, value in self.settings.items())

    @property
    def name(self):
        """The side and what is tuned; a digest of the whole recipe."""
        recipe = recipes.load(recipes.find("thor"), self.side.profile, self.changes)
        tuned = sorted({*self.side.ladders, "epochs", "seed"})
        words = [f"{key.rpartition('.')[2]}{self.settings[key]:g}" for key in tuned]
        return "-".join([self.side.name, *words, hashlib.sha256(recipe.dump().encode()).hexdigest()[:6]])

    @property
    def path(self):
        """Its Run."""
        return self.out / self.name

    def train(self):
        """Train it, if that was not done; returns the trial."""
        file = self.out / f"{self.name}.json"
        if not file.exists():
            known = {"side": self.side.name, "settings": self.settings, "accuracy": self._end()}
            atomic_write(file, json.dumps(known) + "\n")
        self.accuracy = json.loads(file.read_text())["accuracy"]
        click.echo(f"{self.name}: {self.accuracy:.2%}")
        return self

    def _end(self):
        shutil.rmtree(self.path, ignore_errors=True)  # not finished: compiled twice, its times would be wrong
        command = [sys.executable, "-m", "labkit", "train", "thor", "--profile", self.side.profile, "--out", self.path]
        command += [word for change in self.changes for word in ("--set", change)]
        log = self.out / f"{self.name}.log"
        with open(log, "w") as output:
            status = subprocess.run(command, stdout=output, stderr=output).returncode
        if status == 0:
            return runs.open_run(self.path).summary["accuracy"]
        if not re.search(DIVERGED, log.read_text()):
            raise click.ClickException(f"{self.name}: the training failed, see {log}")
        return 0.0

    def curve(self):
        """Its way; a single point at 0 where the training diverged."""
        return compare.curve(runs.open_run(self.path)) if self.accuracy else compare.Curve([0], [0.0], [0.0], 0.0, 0.0)


def tune(side, out) -> list[Trial]:
    """TRIALS trainings: the start, then settings that differ from the best so far by a step on one ladder."""
    settings, key, trials = side.start | {"epochs": EPOCHS, "seed": 1}, next(iter(side.ladders)), []
    while len(trials) < TRIALS:
        trials.append(Trial(side, settings, out).train())
        best_first = sorted(trials, key=lambda trial: -trial.accuracy)
        pairs = (pair for trial in best_first for pair in neighbours(side, trial.settings, key))
        key, settings = next(pair for pair in pairs if all(pair[1] != trial.settings for trial in trials))
    return trials


def neighbours(side, settings, first):
    """(key, settings) a step away on one ladder, from the ladder of the key `first` on; with a batch goes its rate."""
    keys = [*side.ladders]
    for key in keys[keys.index(first) :] + keys[: keys.index(first)]:
        for step in (1, -1):
            moved = [key, LR] if key == BATCH else [key]
            places = {key: side.ladders[key].index(settings[key]) + step for key in moved}
            if all(0 <= place < len(side.ladders[key]) for key, place in places.items()):
                yield key, settings | {key: side.ladders[key][place] for key, place in places.items()}


def with_length(trial, times) -> Trial:
    """The trial with its epochs and its warm-up multiplied by `times`."""
    scaled = {key: round(trial.settings[key] * times, 4) for key in ("epochs", WARMUP)}
    return Trial(trial.side, trial.settings | scaled, trial.out)


def repeated(trial, seed, evaluated=None) -> Trial:
    """The trial with another seed. evaluated: images between two evaluations on the way; None: those after an epoch."""
    steps = {"evaluation_steps": max(1, evaluated // trial.settings[BATCH])} if evaluated else {}
    return Trial(trial.side, trial.settings | {"seed": seed} | steps, trial.out)


def shortest(best, target) -> Trial:
    """Of LENGTHS trainings of the best settings the shortest that ends at the target; else the longest there may be."""
    too_few, enough = 0.0, 1.5
    for _ in range(LENGTHS):
        times = (too_few + enough) / 2
        reached = with_length(best, times).train().accuracy >= target
        too_few, enough = (too_few, times) if reached else (times, enough)
    return with_length(best, enough)


def race(chosen, evaluated=None) -> dict[str, list[Trial]]:
    """All chosen trials with all SEEDS, one training at a time; which side begins changes from seed to seed."""
    finals = {trial.side.name: [] for trial in chosen}
    for seed in SEEDS:
        first = seed % len(chosen)
        for trial in chosen[first:] + chosen[:first]:
            finals[trial.side.name].append(repeated(trial, seed, evaluated).train())
    return finals


def best_baseline(finals) -> tuple[str, list[float]]:
    """Of the baselines in a race, the name and final accuracies of the one with the highest median."""
    ends = {name: [trial.accuracy for trial in group] for name, group in finals.items() if group[0].side.baseline}
    return max(ends.items(), key=lambda side: statistics.median(side[1]))


def standings(finals, target) -> dict:
    """The target and a row for each side of a race; prints the table. Raises ClickException for several commits."""
    done = [trial.path for group in finals.values() for trial in group if trial.accuracy]
    if len(commits := {runs.open_run(path).provenance["commit"] for path in done}) > 1:
        raise click.ClickException(f"the race was run at several commits, {commits}: race again in another OUT")
    rows = compare.summary({name: [trial.curve() for trial in group] for name, group in finals.items()}, target)
    click.echo(compare.table(rows, target))
    return {"target": target, "commit_of_runs": next(iter(commits), None), "rows": rows}


def tested(trial) -> float:
    """Accuracy of a trained trial on the test images, which nothing else has seen; 0 where it diverged."""
    if not trial.accuracy:
        return 0.0
    run = runs.open_run(trial.path)
    recipe = recipes.with_folder(run.recipe, cifar10_files.FOLDER)
    info = cifar10_files.check(recipe.data_folder())
    return evaluation.accuracies(*evaluation.checkpoint_logits(recipe, run.checkpoint, info))["accuracy"]


def commit_and_data(data) -> dict:
    """Provenance of what is measured on a data set; raises UsageError if files differ from the commit."""
    made_by = provenance.collect(data)
    if made_by["dirty"] is not False:
        raise click.UsageError("what is recorded must come from a commit: files of this checkout differ from it")
    return made_by


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--record", is_flag=True, help="Keep the result and the Runs of the race in this checkout.")
def main(out, record):
    """Train what is missing under OUT, print who gets there when, and write the result to OUT."""
    made_by = commit_and_data(cifar10_files.check(environment.data_root() / DATA).dataset)
    out.mkdir(parents=True, exist_ok=True)
    result, done = arena(out, made_by)
    atomic_write(out / RESULT.name, json.dumps(result, indent=1) + "\n")
    if record:
        shutil.copyfile(out / RESULT.name, RESULT)
        for trial in done:
            kept = RECORDED / f"arena-{trial.side.name}-seed{trial.settings['seed']}"
            shutil.copytree(trial.path, kept, ignore=shutil.ignore_patterns("checkpoints"), dirs_exist_ok=True)


def arena(out, made_by) -> tuple[dict, list[Trial]]:
    """Tune all sides and race them; returns the result, and the trials of the race that did not diverge."""
    recorded = json.loads(RESULT.read_text()) if RESULT.exists() else {"trainings": {}}
    for name, known in recorded["trainings"].items():
        if "evaluation_steps" not in known["settings"] and recorded["provenance"]["dataset"] == made_by["dataset"]:
            atomic_write(out / f"{name}.json", json.dumps(known) + "\n")
    trials = [trial for side in SIDES for trial in tune(side, out)]
    best = [max((trial for trial in trials if trial.side is side), key=lambda trial: trial.accuracy) for side in SIDES]
    leader, ends = best_baseline(race([trial for trial in best if trial.side.baseline]))
    target, margin = statistics.median(ends), statistics.stdev(ends)
    chosen = [shortest(trial, target + margin) for trial in best]
    chosen.sort(key=lambda trial: trial.side.name != leader)  # which set the target, first
    finals = race(chosen, EVALUATED)
    result = standings(finals, target) | {
        "chosen": {trial.side.name: trial.settings for trial in chosen},
        "margin": margin,
        "test_accuracy": {name: [tested(trial) for trial in group] for name, group in finals.items()},
        "trainings": {file.stem: json.loads(file.read_text()) for file in sorted(out.glob("*-*.json"))},
    }
    done = [trial for group in finals.values() for trial in group if trial.accuracy]
    return result | {"provenance": made_by}, done


if __name__ == "__main__":
    main()
