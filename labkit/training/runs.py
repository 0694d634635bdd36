"""Run: a directory that holds the results of a training: recipe, history, checkpoint, summary.

- recipe.yaml: the resolved Recipe
- history.jsonl: a line per step, evaluation and, with THOR, factor step
- provenance.json: commit, versions, machine and data of the first start
- checkpoints/latest.ckpt: weights, optimizer state and the place in the data stream
- summary.json: results and provenance; written last, so a Run that has one is complete
- evaluation.json: what `labkit eval` found, by class and with the confusion matrix and the worst mistakes
"""

import itertools
import json
import os
import shlex
import statistics
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.data.files import same_data
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write, locked
from labkit.training import provenance, recipes


class RunError(LabkitError):
    """A Run that cannot be used: one line that names the file."""


@dataclass(frozen=True)
class Run:
    """A Run on disk; every property reads it afresh."""

    path: Path

    @property
    def recipe(self) -> recipes.Recipe:
        """The resolved Recipe; raises RecipeError."""
        return recipes.read_resolved(self.path / "recipe.yaml")

    @property
    def history_file(self) -> Path:
        """A line for each step and each evaluation."""
        return self.path / "history.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoints" / "latest.ckpt"

    @property
    def complete(self) -> bool:
        """True once the training has finished."""
        return (self.path / "summary.json").exists()

    @property
    def summary(self) -> dict:
        """Results and provenance of a complete Run; raises RunError."""
        return self._json("summary.json", "this run is not complete; resume it with --resume")

    @property
    def provenance(self) -> dict:
        """Commit, versions, machine and data of the Run's first start; raises RunError."""
        if self.complete:
            return self.summary["provenance"]
        return self._json("provenance.json", "it was never trained")

    @property
    def processes(self) -> int:
        """Number of processes that train it, each on batches of its own; raises RunError."""
        return self.provenance["processes"]

    @property
    def evaluation(self) -> dict:
        """What `labkit eval` found, as `evaluation.score` returns it; raises RunError."""
        return self._json("evaluation.json", f"`labkit eval {shlex.quote(str(self.path))}` makes it")

    def _json(self, name, missing):
        try:
            return json.loads(self._read(name, missing))
        except ValueError:
            raise RunError(f"{self.path / name}: damaged: not valid JSON") from None

    def _read(self, name, missing):
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise RunError(f"{self.path / name}: missing: {missing}") from None

    def history(self) -> list[dict]:
        """All lines, of steps, evaluations and factor steps, in the order of training; raises RunError."""
        lines, records = self._read("history.jsonl", "it was never trained").splitlines(), []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                # A killed training may leave its last line half-written; elsewhere the file is damaged.
                if number < len(lines) or self.complete:
                    raise RunError(f"{self.history_file}, line {number}: not valid JSON") from None
        return records

    def steps(self) -> list[dict]:
        """History of steps: step, epoch, loss, lr, seconds (of the step), compiled (true if it compiled a graph)."""
        return [record for record in self.history() if "step" in record]

    def factor_steps(self) -> list[dict]:
        """History of THOR's factor steps: factor_step, trace by layer, inverted (names of layers)."""
        return [record for record in self.history() if "factor_step" in record]

    def evaluations(self) -> list[dict]:
        """History of evaluations: epoch (1.25 within the second), accuracy (0 to 1), top_5_accuracy if there is one."""
        return [record for record in self.history() if is_evaluation(record)]


def is_evaluation(record: dict) -> bool:
    """Whether a line of a history records an evaluation; otherwise it records a step or a factor step."""
    return "accuracy" in record


def open_run(path: Path) -> Run:
    """Open an existing Run; raises RunError."""
    path = Path(path)
    if not (path / "recipe.yaml").is_file():
        others = ", ".join(sorted(file.parent.name for file in path.parent.glob("*/recipe.yaml")))
        missing = "there is no such folder" + (f"; in {path.parent} there are {others}" if others else "")
        raise RunError(f"{path}: not a Run ({'it has no recipe.yaml' if path.exists() else missing})")
    return Run(path)


def require_free(path: Path) -> None:
    """Raise RunError if a new Run's directory already exists and is not empty."""
    # A process killed while making one leaves an empty folder and a part of the recipe.
    if path.exists() and not path.is_dir() or any(not p.is_dir() and p.suffix != ".part" for p in path.rglob("*")):
        if Run(path).complete:
            raise RunError(f"{path}: already there, and complete; choose another --out")
        raise RunError(f"{path}: already there; choose another --out, or resume it with --resume if it is a Run")


def create(path: Path, recipe: recipes.Recipe) -> Run:
    """Start a Run in a new or empty directory; raises RunError if something is in the way."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with locked(path, RunError(f"{path}: another training is starting there")):
            require_free(path)
            (path / "checkpoints").mkdir(exist_ok=True)
            atomic_write(path / "recipe.yaml", recipe.dump())
    except OSError as error:
        raise RunError(f"{path}: cannot be made ({error.strerror})") from None
    return Run(path)


def relocate(run: Run, folder: str) -> None:
    """Make a Run's recipe name another data folder: another machine may keep the same data elsewhere."""
    atomic_write(run.path / "recipe.yaml", recipes.with_folder(run.recipe, folder).dump())


@contextmanager
def alone(run: Run):
    """Keep a second training out of a Run, and any out of a complete Run; raises RunError."""
    with locked(run.path, RunError(f"{run.path}: another training of this Run is under way")):
        if run.complete:  # asked under the lock: the other training may just have ended
            raise RunError(f"{run.path}: complete, so there is nothing left to train")
        yield


def begin(run: Run, info, processes: int = 1, workers: int | None = None) -> None:
    """Record a Run's provenance at its first start; at a later one, raise RunError unless data and processes are equal.

    Removes evaluation.json: its checkpoint will be overwritten. info: a labkit.data.files.Info. workers: number of data
    workers that the batches depend on.
    """
    file = run.path / "provenance.json"
    if not file.exists():
        kept = provenance.collect(info.dataset, processes) | ({"workers": workers} if workers else {})
        atomic_write(file, json.dumps(kept, indent=1) + "\n")
    require_same_data(run, info)
    require_same_processes(run, processes, workers)
    (run.path / "evaluation.json").unlink(missing_ok=True)


def require_same_processes(run: Run, processes: int, workers: int | None = None) -> None:
    """Raise RunError if a Run is resumed with other numbers of processes or data workers: its steps would differ."""
    if (began := run.processes) != processes:
        raise RunError(f"{run.path}: number of processes: began with {began}, cannot be resumed with {processes}")
    if workers and workers != run.provenance["workers"]:
        began = f"{run.path}: began with {run.provenance['workers']} data workers, which decide its random crops"
        raise RunError(f"{began}; on this machine's cores there are {workers}")


def require_same_data(run: Run, info) -> None:
    """Raise RunError if the present data, a labkit.data.files.Info, is not what the Run began with."""
    kept = run.provenance["dataset"]
    if not same_data(kept, info.dataset):
        what = "an image has changed since" if kept["sha256"] == info.sha256 else f"there is now {info.name}"
        raise RunError(f"{run.path}: began with other data, {kept['name']}: in {info.folder} {what}")


def new_folder(parent: Path, name: str) -> Path:
    """Make the first of NAME, NAME-2, NAME-3, ... in `parent` that does not exist, which no other process then gets."""
    for path in itertools.chain([parent / name], (parent / f"{name}-{number}" for number in itertools.count(2))):
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if not parent.is_dir():  # a link that leads nowhere
                raise


def write_summary(run: Run) -> dict:
    """Write summary.json from the history: accuracy, epochs, steps, seconds and speed, with provenance."""
    steps, evaluations = run.steps(), run.evaluations()
    # The first step compiles the graph. If it is the only one, its time is all there is.
    typical = statistics.median(record["seconds"] for record in (steps[1:] or steps))
    # In sink mode a line covers all steps since the line before it.
    counts = [after - before for before, after in itertools.pairwise([0, *(record["step"] for record in steps)])]
    summary = {
        **{name: value for name, value in evaluations[-1].items() if name != "epoch"},  # accuracies
        "epochs": steps[-1]["epoch"],
        "steps": steps[-1]["step"],
        "train_seconds": round(sum(n * record["seconds"] for n, record in zip(counts, steps, strict=True)), 3),
        "step_ms": round(1000 * typical, 3),
        "images_per_second": round(run.processes * run.recipe.data.batch_size / typical, 1),
        "provenance": run.provenance,
    }
    with open(run.history_file, "rb") as history:
        os.fsync(history.fileno())  # a complete Run has all of its history
    atomic_write(run.path / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary
