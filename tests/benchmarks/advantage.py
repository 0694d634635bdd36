"""THOR beside momentum, both tuned with the same budget: python -m tests.benchmarks.advantage OUT [--seeds 3]

Every trial is a Run of labs/thor, profile laptop or laptop-momentum, under OUT; a second call goes on where the first
one stopped. First each setting of a grid is trained with seed 1, as many for either. The target is the accuracy that
momentum's best setting has at its end; THOR's best is the one that reaches it in the fewest steps, or comes nearest.
Then both bests are trained with the other seeds, and compared.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import click

from labkit import compare
from labkit import run as runs

GRIDS = {
    "laptop-momentum": {"schedule.lr_max": [0.25, 0.5, 1.0, 2.0], "optimizer.weight_decay": [5e-4]},
    "laptop": {"schedule.lr_max": [0.1, 0.2], "optimizer.damping": [0.03, 0.1]},
}
RESULT = Path(__file__).with_name("results") / "advantage.json"


def trial(out, profile, settings, seed):
    """The complete Run of a setting; trained, or gone on with, where it is not."""
    words = [f"{key.rpartition('.')[2]}{value:g}" for key, value in settings.items()]
    path = out / "-".join([profile.replace("laptop-", "").replace("laptop", "thor"), *words, f"seed{seed}"])
    run = runs.Run(path)
    if not run.complete:
        command = [sys.executable, "-m", "labkit", "train", "thor", "--profile", profile, "--out", str(path)]
        command += ["--resume"] if (path / "recipe.yaml").exists() else []
        for key, value in {**settings, "seed": seed, "rival": None}.items():
            command += ["--set", f"{key}={json.dumps(value)}"]
        subprocess.run(command, check=True)
    return run


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
def main(out, seeds):
    """Train what is missing under OUT, print the comparison and write results/advantage.json."""
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    for profile, grid in GRIDS.items():
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values))
            run = trial(out, profile, settings, 1)
            found.setdefault(profile, []).append((settings, compare.curve(run)))
            click.echo(f"{run.path.name}: {run.summary['accuracy']:.2%}")
    base, base_curve = max(found["laptop-momentum"], key=lambda pair: pair[1].accuracies[-1])
    target = base_curve.accuracies[-1]

    def soonest(pair):
        reached = pair[1].reaches(target)
        return (0, reached[0]) if reached else (1, -max(pair[1].accuracies))

    best, _ = min(found["laptop"], key=soonest)
    chosen = [
        trial(out, profile, settings, seed)
        for profile, settings in (("laptop-momentum", base), ("laptop", best))
        for seed in range(1, seeds + 1)
    ]
    curves = compare.settings(chosen)
    target = compare.default_target(curves)  # now of all seeds
    rows = compare.summary(curves, target)
    click.echo(compare.table(rows, target))
    trials = [
        {"profile": profile, "settings": settings, "accuracies": one.accuracies, "steps": one.steps}
        for profile, pairs in found.items()
        for settings, one in pairs
    ]
    result = {"target": target, "settings": rows, "chosen": {"momentum": base, "thor": best}, "trials": trials}
    runs.write_whole(RESULT, json.dumps({**result, "provenance": chosen[-1].provenance}, indent=1) + "\n")


if __name__ == "__main__":
    main()
