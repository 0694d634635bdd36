"""Speed compared with a peer's: `make bench` (or `make bench ARGS="steps --rounds 3"`).

Each peer runs in a process of its own, all at once, and takes its turn while the others wait: what else the machine
does meets them alike. A ratio is taken within a round; the median of the rounds' ratios is the result.
The group `parity` measures no speed: how far the networks are from PyTorch's at 224 pixels. Nor does `checkers`: what
other ways to check a port see of the clinic's defects. The group `copying` compares labkit.obs with other programs on
an object server of its own.
Results go to tests/benchmarks/results/NAME.json, which the book's appendix shows.
"""

import json
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from labkit.system.files import atomic_write
from labkit.training import provenance
from tests.benchmarks import cases, rotated

RESULTS = Path(__file__).with_name("results")
GROUPS = (*cases.GROUPS, "parity", "checkers", "copying")


class Peer:
    """A worker process: `measure()` lets it take one turn and returns seconds per unit."""

    def __init__(self, name, arguments):
        self.name = name
        command = [sys.executable, "-m", "tests.benchmarks.worker", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self._answer()  # sent when it is ready, warmed up
        self.seconds = []

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.seconds.append(self._answer()["seconds"])

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
    peers = {}
    try:
        for name, arguments in case.peers.items():
            peers[name] = Peer(name, arguments)
        if len({peer.about.get("parameters") for peer in peers.values()}) > 1:
            raise click.ClickException(f"{case.name}: the peers' networks differ in their number of parameters")
        for number in range(rounds):
            for peer in rotated([*peers.values()], number):
                peer.measure()
            report(f"{case.name}: round {number + 1} of {rounds}")
    finally:
        for peer in peers.values():
            peer.close()
    rows = []
    for name, peer in peers.items():
        ratios = [theirs / ours for ours, theirs in zip(peer.seconds, peers[case.reference].seconds, strict=True)]
        typical = statistics.median(peer.seconds)
        row = {"peer": name, "version": peer.about["version"]}
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


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(GROUPS))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Turns of each peer.")
def main(names, rounds):
    """Measure the groups NAMES, all without any, and write their results."""
    made_by = provenance.collect({})  # before results are written over
    for name in names or GROUPS:
        if name in ("parity", "checkers"):
            import importlib

            data, result = cases.PHOTOGRAPHS, importlib.import_module(f"tests.benchmarks.{name}").measure(click.echo)
        elif name == "copying":
            from tests.benchmarks import copying

            data, result = "random bytes", copying.measure(_report, rounds)
            click.echo("\n".join(map(copying.table, result["cases"])))
        else:
            data, result = cases.PHOTOGRAPHS if name == "imagenet" else cases.PIXELS, {"rounds": rounds, "cases": []}
            for case in cases.GROUPS[name]:
                rows = compare(case, rounds, _report)
                click.echo(table(case, rows))
                about = {"name": case.name, "unit": case.unit, "reference": case.reference}
                result["cases"].append({**about, "rows": rows})
        made_by["dataset"] = {"name": data, "sha256": None}
        result = {"date": datetime.now(timezone.utc).date().isoformat(), **result, "provenance": made_by}
        atomic_write(RESULTS / f"{name}.json", json.dumps(result, indent=1) + "\n")


def _report(line):
    click.echo(line, err=True)


if __name__ == "__main__":
    main()
