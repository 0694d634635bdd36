"""What is recorded: Runs, comparisons with PyTorch, benchmarks. What made each, and which chapters show it.

The directive {recorded} PATTERN makes an entry of each record that matches, with a label for chapters to refer to:
of labs/thor/runs/thor-seed1 it is recorded-thor-thor-seed1, of tests/benchmarks/results/steps.json it is
recorded-benchmarks-steps. book/status.py reads the same list.
"""

import json
import re
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from languages import said
from sphinx.util.docutils import SphinxDirective

from labkit.training import recipes
from labkit.training.provenance import git

REPO = Path(__file__).resolve().parents[2]
PLACES = ["labs/*/runs/*", "labs/*/parity/*.json", "labs/*/parity/*/report.json", "tests/benchmarks/results/*.json"]
UNSAID = {"labs", "runs", "tests", "results", "report"}  # parts of a path that its label leaves out

NETWORK = ["labkit/networks", "labkit/losses.py", "labkit/optimizers.py"]
CIFAR10 = ["labkit/data/cifar10.py", "labkit/data/cifar10_files.py", "labkit/data/formats.py"]
TRAINED_BY = ("build", "callbacks", "checkpoint", "evaluation", "loop")  # not what reads recipes, or draws
TRAINING = [*NETWORK, *CIFAR10, *(f"labkit/training/{name}.py" for name in TRAINED_BY), "labkit/schedules.py"]
THOR = [*TRAINING, "labkit/thor"]
COMPARED = ("measures", "report", "resnets", "step", "trajectory", "weights")
PARITY = [*NETWORK, *(f"labkit/parity/{name}.py" for name in COMPARED)]
SPEED = ["tests/benchmarks/cases.py", "tests/benchmarks/worker.py"]
RACE = "python -m tests.benchmarks.advantage OUT"
# Record: the command that makes it again, and the code that decides what comes out.
MADE_BY = {
    "labs/cifar10/runs/resnet20-laptop": ("labkit train cifar10 --profile laptop", TRAINING),
    "labs/cifar10/runs/resnet50-laptop": (
        "labkit train cifar10 --profile laptop --set network.name=resnet50 --set network.init=zero_residual "
        "--set data.batch_size=32 --set schedule.lr_init=0.005 --set schedule.lr_max=0.02 "
        "--set schedule.warmup_epochs=0.25 --set optimizer.clip_norm=1 --set epochs=2",
        TRAINING,
    ),
    "labs/thor/runs/momentum-seed?": (RACE, TRAINING),
    "labs/thor/runs/thor-seed?": (RACE, THOR),
    "labs/thor/runs/thor-nt-seed?": (
        "labkit train thor --profile laptop --set baseline=null --set evaluation_steps=6 "
        "--set optimizer.trace_rule=thor_nt --set seed=SEED",
        THOR,
    ),
    "labs/thor/runs/thor-3percent-seed?": (
        "labkit train thor --profile laptop --set baseline=null --set evaluation_steps=6 "
        "--set optimizer.trace_threshold=0.03 --set seed=SEED",
        THOR,
    ),
    "labs/imagenet/parity/resnet50/report.json": ("labkit parity resnet50 --report DIR", PARITY),
    "labs/imagenet/parity/same-padding/report.json": (
        "labkit.parity.clinic.examine, Report.save",
        [*PARITY, "labkit/parity/clinic.py"],
    ),
    "labs/imagenet/parity/own-pair/report.json": ("labkit.parity.compare_step, Report.save", PARITY),
    "labs/imagenet/parity/clinic.json": ("labkit clinic --report FILE", [*PARITY, "labkit/parity/clinic.py"]),
    "labs/imagenet/parity/operators.json": (
        "python book/2-migration/operator_table.py",
        [f"book/2-migration/operator_{part}.py" for part in ("check", "rows", "table")],
    ),
    "labs/imagenet/parity/subnets.json": (
        "python book/2-migration/subnets.py",
        [*PARITY, "book/2-migration/subnets.py"],
    ),
    "labs/imagenet/parity/evaluation-images.json": (
        "labkit.parity.pipeline.record_evaluation",
        ["labkit/data/imagenet.py", "labkit/parity/pipeline.py"],
    ),
    "labs/imagenet/parity/fusion.json": (
        "python tests/benchmarks/fusion.py --record FILE",
        [*NETWORK, "tests/benchmarks/fusion.py"],
    ),
    "labs/imagenet/parity/onednn.json": (
        "python tests/benchmarks/onednn.py --record FILE PYTHON PYTHON",
        ["tests/benchmarks/onednn.py"],
    ),
    "tests/benchmarks/results/steps.json": ("make bench ARGS=steps", [*NETWORK, *SPEED]),
    "tests/benchmarks/results/pipeline.json": ("make bench ARGS=pipeline", [*CIFAR10, *SPEED]),
    "tests/benchmarks/results/imagenet.json": ("make bench ARGS=imagenet", ["labkit/data/imagenet.py", *SPEED]),
    "tests/benchmarks/results/thor.json": ("make bench ARGS=thor", [*NETWORK, "labkit/thor", *SPEED]),
    "tests/benchmarks/results/thor-share.json": ("make bench ARGS=thor-share", [*NETWORK, "labkit/thor", *SPEED]),
    "tests/benchmarks/results/parity.json": ("make bench ARGS=parity", [*PARITY, "tests/benchmarks/parity.py"]),
    "tests/benchmarks/results/copying.json": (
        "make bench ARGS=copying",
        ["labkit/obs", "tests/benchmarks/copying.py"],
    ),
    "tests/benchmarks/results/grading.json": (
        "make bench ARGS=grading",
        ["grader", "tests/benchmarks/grading.py"],
    ),
    "tests/benchmarks/results/jpeg.json": (
        "python -m tests.benchmarks.jpeg OUT",
        [*TRAINING, "tests/benchmarks/jpeg.py"],
    ),
    "tests/benchmarks/results/advantage.json": (
        RACE,
        [*THOR, "tests/benchmarks/advantage.py", "tests/benchmarks/kfac.py"],
    ),
}


def records(pattern: str = "*", repo: Path = REPO) -> list[str]:
    """Names of what is recorded, as paths from the project's folder: a Run's is its folder."""
    paths = [path for place in PLACES for path in repo.glob(place)]
    found = {path.relative_to(repo).as_posix() for path in paths if path.is_file() or (path / "summary.json").is_file()}
    return sorted(name for name in found if fnmatchcase(name, pattern))


def made_by(name: str) -> tuple[str, list[str]]:
    """The command that makes a record again, and the code that decides what comes out; KeyError where nobody said."""
    for pattern, how in MADE_BY.items():
        if fnmatchcase(name, pattern):
            return how
    raise KeyError(f"{name}: say in book/_ext/recorded.py (MADE_BY) what makes it")


def label(name: str) -> str:
    """What chapters refer to."""
    parts = [part for part in Path(name).with_suffix("").parts if part not in UNSAID]
    return "-".join(["recorded", *parts])


def origin(name: str, repo: Path = REPO) -> dict:
    """Commits, date, MindSpore, PyTorch, machine, cores of a record: what of these it tells, the others empty."""
    path = repo / name
    tree = json.loads((path / "summary.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    parts = [tree, *(part for part in tree.values() if isinstance(part, dict))]
    provenance = [part["provenance"] for part in parts if "provenance" in part] or [tree]
    about = next((part["about"] for part in parts if "about" in part), {})
    rows = [row for row in tree.get("rows", []) if "mindspore" in row]
    mindspore = {row["mindspore"] for row in rows} | {one.get("versions", {}).get("mindspore") for one in provenance}
    return {
        "commits": list(dict.fromkeys(one["commit"] for one in provenance if one.get("commit"))),
        "date": tree.get("date") or about.get("date") or "",
        "mindspore": sorted((mindspore | {about.get("MindSpore")}) - {None}),
        "pytorch": about.get("PyTorch") or tree.get("torch") or "",
        "machine": provenance[0].get("machine") or about.get("machine") or "",
        "cores": provenance[0].get("cores") or "",
    }


def shown_in(name: str, texts: dict[str, str]) -> list[str]:
    """Of the pages' texts by document, the documents that refer to a record."""
    wanted = re.compile(rf"(?<![\w-]){re.escape(label(name))}(?![\w-])")
    return sorted(document for document, text in texts.items() if wanted.search(text))


def _origin_text(name, say):
    found = origin(name)
    code = []
    for commit in found["commits"]:
        day = git("show", "-s", "--format=%cs", commit, folder=REPO)  # None in a copy without it
        one = f"`{commit[:10]}`"
        code.append(say("{commit} of {day}").format(commit=one, day=day) if day else one)
    both = say(" and ")
    parts = [
        say("recorded on {date}").format(date=found["date"]) if found["date"] else "",
        (say("commits {code}") if len(code) > 1 else say("commit {code}")).format(code=both.join(code)) if code else "",
        f"MindSpore {both.join(found['mindspore'])}" if found["mindspore"] else "",
        f"PyTorch {found['pytorch']}" if found["pytorch"] else "",
        found["machine"],
        say("{number} cores").format(number=found["cores"]) if found["cores"] else "",
    ]
    text = say(", ").join(filter(None, parts))
    return say("{sentence}.").format(sentence=f"{text[0].upper()}{text[1:]}")


def _run_text(folder, say):
    """A Run's recipe and results, a line each."""
    recipe = recipes.read_resolved(folder / "recipe.yaml")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    optimizer, steps = recipe.optimizer.name, recipe.max_steps
    if optimizer == "thor":
        optimizer = say("thor and the trace rule `{rule}`").format(rule=recipe.optimizer.trace_rule)
    epochs = say("{epochs} epochs, stopped after {steps} steps") if steps else say("{epochs} epochs")
    return [
        say(
            "{network}, trained with {optimizer}, profile `{profile}`, {epochs}, batches of {batch}, "
            "rate up to {rate}, seed {seed}. Data: {data}."
        ).format(
            network=recipe.network.name, optimizer=optimizer, profile=recipe.profile,
            epochs=epochs.format(epochs=recipe.epochs, steps=steps), batch=recipe.data.batch_size,
            rate=f"{recipe.schedule.lr_max:g}", seed=recipe.seed, data=summary["provenance"]["dataset"]["name"],
        ),
        say("Accuracy {accuracy} after {steps} steps in {minutes} minutes, {step} ms a step.").format(
            accuracy=f"{summary['accuracy']:.2%}", steps=f"{summary['steps']:,}",
            minutes=f"{summary['train_seconds'] / 60:.0f}", step=f"{summary['step_ms']:,.0f}",
        ),
    ]  # fmt: skip


def entry(name: str, words: list[str], texts: dict[str, str], say=str) -> list[str]:
    """A record's entry in MyST: its name with its label, what it is, what made it, who shows it, its files.

    say: gives a text in the page's language.
    """
    path = REPO / name
    run = path.is_dir()
    files = ["recipe.yaml", "summary.json", "evaluation.json"] if run else [path.name]
    folder = name if run else str(Path(name).parent)
    links = say(", ").join(
        f"{{download}}`{file} </{folder}/{file}>`" for file in files if (REPO / folder / file).exists()
    )
    documents = [f"{{doc}}`/{document}`" for document in shown_in(name, texts)]
    shown = say("Shown in {chapters}. Files: {files}.") if documents else say("Shown in no chapter. Files: {files}.")
    lines = [
        *([" ".join(words)] if words else []),
        *(_run_text(path, say) if run else []),
        say("Made by `{command}`. {origin}").format(command=made_by(name)[0], origin=_origin_text(name, say)),
        shown.format(chapters=say(", ").join(documents), files=links),
    ]
    return [f"[`{name}`]{{#{label(name)}}}", *(f": {line}" for line in lines), ""]


class Recorded(SphinxDirective):
    """{recorded} PATTERN: an entry for each record that matches; what the directive holds stands first in each."""

    required_arguments = 1
    has_content = True

    def run(self):
        found = records(self.arguments[0])
        if not found:
            raise self.error(f"nothing is recorded at {self.arguments[0]}")
        self.env.note_reread()  # any page may refer to a record, or cease to
        texts = {
            document: Path(self.env.doc2path(document)).read_text(encoding="utf-8")
            for document in self.env.found_docs
            if document != self.env.docname
        }
        say = partial(said, self.env.app)
        lines = [line for name in found for line in entry(name, [*self.content], texts, say)]
        place = nodes.Element()
        self.state.nested_parse(StringList(lines, self.get_source_info()[0]), 0, place)
        return place.children


def setup(app):
    app.add_directive("recorded", Recorded)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
