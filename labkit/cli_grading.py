"""`labkit release` and `labkit grade`: a lab handed out to learners, and what they hand in graded."""

from pathlib import Path

import click


@click.command()
@click.argument("lab")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--no-run", is_flag=True, help="Leave out the training of the instructor's own Run.")
@click.option("--no-sandbox", is_flag=True, help="Execute without bubblewrap: it is the instructor's own code.")
def release(lab, folder, no_run, no_sandbox):
    """Write what learners get of LAB into DIR: its notebook, the same as Markdown, and a zip for ModelArts.

    Solutions are replaced by stubs, hidden checks are left out. Nothing is written unless the master has full marks,
    the blank none, and no line of a solution is told. That takes minutes, mostly for training.

    \b
    Example:  labkit release cifar10 handout
    """
    from labkit.grading import release as releasing

    loaded = _load(lab)
    tell = lambda stage: click.echo(f"{stage} ...", err=True)  # noqa: E731
    for file in releasing.release(loaded, folder, sandboxed=not no_sandbox, train=not no_run, tell=tell):
        click.echo(file)


@click.command()
@click.argument("lab")
def grade(lab):
    """Grade what learners handed in for LAB."""


def _load(lab):
    """The lab of this name, or in this folder."""
    from labkit.grading import lab as labs

    folder = Path(lab).resolve()
    return labs.load(folder.name, folder) if (folder / "lab.md").is_file() else labs.load(lab)


COMMANDS = (release, grade)
