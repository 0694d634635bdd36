"""Speed beside a peer: `make bench` (or `make bench ARGS="steps --rounds 3"`).

Each peer runs in a process of its own, all at once, and takes its turn while the others wait: what else the machine
does meets them alike. A ratio is taken within a round; the median of the rounds' ratios is the result.
The group `parity` measures no speed: how far the networks are from PyTorch's at 224 pixels. The group `copying` puts
labkit.obs beside boto3 and s5cmd on an object server of its own, the group `grading` labkit grade beside nbgrader.
Results go to tests/benchmarks/results/NAME.json, which the book's appendix shows.
"""

import json
import os
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from labkit.system.files import atomic_write
from labkit.training import provenance
from tests.benchmarks import cases

RESULTS = Path(__file__).with_name("results")
GROUPS = (*cases.GROUPS, "parity", "copying", "grading")


class Peer:
    """A worker process: `measure()` lets it take one turn and returns seconds per unit."""

    def __init__(self, name, arguments):
        self.name = name
        command = [sys.executable, "-m", "tests.benchmarks.worker", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self._answer()  # sent when it is ready, warmed up

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name}: the worker ended with status {self.process.wait()}; see above")
        return json.loads(line)


def compare(case, rounds, report):
    """Let the peers of a case take turns; return a row each, with speed relative to the case's reference."""
    peers = []
    try:
        for name, arguments in case.peers.items():
            peers.append(Peer(name, arguments))
        if len({peer.about.get("parameters") for peer in peers}) > 1:
            raise click.ClickException(f"{case.name}: the peers' networks differ in their number of parameters")
        seconds = {peer.name: [] for peer in peers}
        for number in range(rounds):
            for peer in peers:
                seconds[peer.name].append(peer.measure())
            report(f"{case.name}: round {number + 1} of {rounds}")
        versions = {peer.name: peer.about["version"] for peer in peers}
    finally:
        for peer in peers:
            peer.close()
    rows = []
    for name, times in seconds.items():
        ratios = [reference / own for own, reference in zip(times, seconds[case.reference], strict=True)]
        typical = statistics.median(times)
        row = {"peer": name, "version": versions[name]}
        row |= {"step_ms": 1000 * typical, "images_per_second": case.images / typical if case.images else None}
        row |= {"speed": statistics.median(ratios), "speed_lowest": min(ratios), "speed_highest": max(ratios)}
        rows.append(row)
    return rows


def table(case, rows):
    """Rows as text."""
    lines = [f"\n{case.name} ({case.unit}); speed relative to {case.reference}, lowest to highest of the rounds"]
    for row in rows:
        rate = f"{row['images_per_second']:9.0f} images/s" if case.images else ""
        lines.append(
            f"  {row['peer']:34} {row['step_ms']:9.1f} ms {rate} "
            f"{row['speed']:6.2f}x  ({row['speed_lowest']:.2f} to {row['speed_highest']:.2f})"
        )
    return "\n".join(lines)


def _data(name, images):
    """What a group was measured on."""
    if name != "imagenet":
        return cases.DATA
    if images is None:
        return cases.PHOTOGRAPHS
    return f"{sum(path.is_file() for path in images.rglob('*'))} image files of {images.name}/"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(GROUPS))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Turns of each peer.")
@click.option(
    "--images", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of photographs for the group imagenet.  [default: scikit-learn's two, 64 times each]",
)  # fmt: skip
@click.option("--files", default=1000, show_default=True, type=click.IntRange(1), help="Of the group copying.")
@click.option("--mebibytes", default=256, show_default=True, type=click.IntRange(1), help="Of its large file.")
@click.option("--submissions", default=30, show_default=True, type=click.IntRange(2), help="Of the group grading.")
@click.option("--lab", default="cifar10", show_default=True, help="That they hand in.")
def main(names, rounds, images, files, mebibytes, submissions, lab):
    """Measure the groups NAMES, all without any, and write their results."""
    RESULTS.mkdir(exist_ok=True)
    made_by = provenance.collect({})  # before results are written over
    if images:
        os.environ["LABKIT_BENCH_IMAGES"] = str(images.resolve())
    def keep(name, result):
        head = {"date": datetime.now(timezone.utc).date().isoformat(), **result}
        atomic_write(RESULTS / f"{name}.json", json.dumps({**head, "provenance": made_by}, indent=1) + "\n")

    for name in names or GROUPS:
        if name == "parity":
            from tests.benchmarks import parity

            made_by["dataset"] = {"name": "tiles of scikit-learn's two photographs", "sha256": None}
            keep(name, parity.measure(click.echo))
            continue
        if name == "copying":
            from tests.benchmarks import copying

            result = copying.measure(lambda line: click.echo(line, err=True), rounds, files, mebibytes)
            for case in result["cases"]:
                click.echo(copying.table(case))
            made_by["dataset"] = {"name": "random bytes", "sha256": None}
            keep(name, result)
            continue
        if name == "grading":
            from tests.benchmarks import grading

            result = grading.measure(lambda line: click.echo(line, err=True), rounds, submissions, lab)
            click.echo(grading.table(result))
            made_by["dataset"] = {"name": f"a class that hands in the lab {lab}", "sha256": None}
            keep(name, result)
            continue
        result = {"rounds": rounds, "cases": []}
        for case in cases.GROUPS[name]:
            rows = compare(case, rounds, lambda line: click.echo(line, err=True))
            click.echo(table(case, rows))
            result["cases"].append({"name": case.name, "unit": case.unit, "reference": case.reference, "rows": rows})
        made_by["dataset"] = {"name": _data(name, images), "sha256": None}
        keep(name, result)


if __name__ == "__main__":
    main()
