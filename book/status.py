"""Say what is out of date, without building anything: python book/status.py (`make status`)

A line each: records against the code that made them, the environment against its pins, the sample data, the book
against what it was built from. It reports and does not test: its exit status is 0.
"""

import json
import os
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "book"), str(REPO / "book" / "_ext")]

try:
    import build
    import execution
    import recorded

    from labkit.system.environment import version_of
    from labkit.training import recipes
    from labkit.training.provenance import git
except ImportError as missing:
    print(f"environment: incomplete ({missing}); run `make env`")
    sys.exit(0)

NO_MATTER = {"seed", "baseline", "checkpoint_steps"}  # keys of a recipe in which a recorded Run may differ


BUILD, OLDER = "make book", "if results may differ: "


class Line(NamedTuple):
    what: str
    found: str
    do: str = ""  # empty where all is well


def few(names, most=3) -> str:
    """The first of some names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# -- What is installed, and the data -------------------------------------------------------------------


def chosen_mindspore() -> str | None:
    """What `make env MINDSPORE=...` was asked for; None for the default."""
    choice = Path(os.environ.get("VIRTUAL_ENV", sys.prefix), ".choice")
    words = choice.read_text().split() if choice.exists() else []
    return words[0] if words and words[0] != "default" else None


def environment() -> list[Line]:
    """Installed packages against the pins."""
    lines = []
    for title, files, target in (
        ("environment", ("requirements.txt", "requirements-dev.txt"), "make env"),
        ("PyTorch", ("requirements-torch.txt",), "make torch"),
    ):
        pins = {name: pin for file in files for name, pin in execution.pinned(REPO / file).items()}
        if "mindspore" in pins and (chosen := chosen_mindspore()):
            pins["mindspore"] = chosen
        there = {name: (version_of(name) or "").partition("+")[0] for name in pins}  # 2.13.0+cpu is 2.13.0
        other = [f"{name} {there[name] or 'missing'}, pinned {pin}" for name, pin in pins.items() if there[name] != pin]
        if title == "PyTorch" and not any(there.values()):
            lines.append(Line(title, f"not installed: part 2 shows what was recorded, after `{target}` it runs live"))
        elif other:
            lines.append(Line(title, f"{len(other)} of {len(pins)} packages: {few(other)}", target))
        else:
            lines.append(Line(title, f"{len(pins)} packages as pinned, Python {sys.version.split()[0]}"))
    return lines


def data() -> list[Line]:
    """The sample, as make sees it."""
    done = subprocess.run(["make", "-n", "sample"], cwd=REPO, capture_output=True, text=True)
    if done.returncode:
        return [Line("sample data", f"cannot be asked for: {few(done.stderr.strip().splitlines(), 1)}", "make sample")]
    if "cifar10.py sample" in done.stdout:
        return [Line("sample data", "missing, or older than the scripts that make it", "make sample")]
    return [Line("sample data", "current")]


# -- The book ------------------------------------------------------------------------------------------


def book() -> list[Line]:
    """What has changed since the last build, and what the next one will execute."""
    if not build.COMPLETE.exists():
        tried = (build.BUILD / "html").exists()
        return [Line("book", "its last build failed or was interrupted" if tried else "not built", BUILD)]
    built = datetime.fromtimestamp(build.COMPLETE.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
    lines = []
    if todo := execution.stale(build.notebooks()):
        lines.append(Line("book: chapters", build.reason(todo), BUILD))
    if changed := differing(json.loads(build.COMPLETE.read_text()), build.pages()):
        lines.append(Line("book: pages", f"{len(changed)} of their files changed: {few(changed)}", BUILD))
    lines = lines or [Line("book", f"built {built}, current")]

    chapters = {path.relative_to(REPO).with_suffix("").as_posix() for path in build.notebooks()}
    there = build.BUILD / "executed"
    executed = {path.relative_to(there).with_suffix("").as_posix() for path in there.rglob("*.ipynb")}
    same = f"{len(executed & chapters)} of {len(chapters)} chapters"
    lines.append(Line("executed notebooks", same, "" if executed == chapters else BUILD))
    return lines


def differing(then: dict, now: dict) -> list[str]:
    """Names whose values differ, or that one side only has."""
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def pdf() -> list[Line]:
    """The printed book, where there is one."""
    lines = []
    for file in sorted((build.BUILD / "pdf").glob("*.pdf")):
        old = not build.COMPLETE.exists() or file.stat().st_mtime < build.COMPLETE.stat().st_mtime
        lines.append(Line(file.name, "older than the book" if old else "printed from the book as built",
                          "make pdf" if old else ""))  # fmt: skip
    return lines or [Line("PDF", "none: it is made when asked for")]


# -- What is recorded ----------------------------------------------------------------------------------


def records() -> list[Line]:
    """Each record against its recipe, the code that made it, and the pinned MindSpore."""
    pin = execution.pinned(REPO / "requirements.txt")["mindspore"]
    return [line for name in recorded.records() for line in looked_at(name, record, name, pin)]


def record(name: str, pin: str) -> list[Line]:
    """A recorded Run, comparison or benchmark; what differs is named, and need not be wrong."""
    command, code = recorded.made_by(name)
    origin, found = recorded.origin(name), []
    if (REPO / name / "recipe.yaml").is_file() and (keys := other_keys(name, command)):
        found.append(f"its recipe differs from today's in {few(keys)}")
    if origin["mindspore"] and pin not in origin["mindspore"]:
        found.append(f"made with MindSpore {' and '.join(origin['mindspore'])}, pinned {pin}")
    # A record that names no commit was made before the one that brought it.
    commits = origin["commits"] or [git("log", "-1", "--format=%H", "--", name, folder=REPO) or ""]
    for commit in commits:
        changed = git("diff", "--name-only", commit, "--", *code, folder=REPO) if commit else None
        if changed is None:
            found.append(f"commit {commit[:10]} is not in this copy" if commit else "no history of git to compare with")
        elif changed:
            names = changed.splitlines()
            files = "1 file" if len(names) == 1 else f"{len(names)} files"
            found.append(f"{files} of its code changed since {commit[:10]}: {few(names, 2)}")
    return [Line(name, "; ".join(found) or "current", OLDER + command if found else "")]


def other_keys(name: str, command: str) -> list[str]:
    """Keys in which a recorded Run's recipe differs from what its command would train today."""
    run = recipes.read_resolved(REPO / name / "recipe.yaml")
    words = shlex.split(command)
    settings = [after for word, after in zip(words, words[1:]) if word == "--set" and not after.startswith("seed=")]
    try:
        now = recipes.load(REPO / "labs" / run.lab / "recipe.yaml", run.profile, tuple(settings))
    except recipes.RecipeError as error:
        return [str(error)]
    changed = differing(recipes.flatten(run.model_dump()), recipes.flatten(now.model_dump()))
    return [key for key in changed if key not in NO_MATTER]


def looked_at(what: str, look, *arguments) -> list[Line]:
    """What `look` has to say; where it fails, that: the other lines are worth having all the same."""
    try:
        return look(*arguments)
    except Exception as error:
        return [Line(what, f"cannot be looked at: {type(error).__name__}: {error}", "fix it, then `make status`")]


def main() -> int:
    looks = (records, environment, data, book, pdf)  # what there is to do comes right before the last line
    lines = [line for look in looks for line in looked_at(look.__name__, look)]
    width = max(len(line.what) for line in lines)
    for line in lines:
        print(f"{line.what:{width}}  {line.found}")
        if line.do:
            print(f"{'':{width}}  -> {line.do}")
    old = sum(line.do.startswith(OLDER) for line in lines)
    todo = sum(bool(line.do) for line in lines) - old
    print(f"make status: {todo or 'nothing'} to do; {old} records made by earlier code, which need not make them wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
