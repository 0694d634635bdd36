"""The command line. Imports of MindSpore and matplotlib wait until a command needs them."""

import errno
import json
import signal
import sys
from pathlib import Path

import click

import labkit
from labkit.runtime import LabkitError


class Commands(click.Group):
    """Turns labkit's own errors into one line and exit status 1."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except LabkitError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # output piped into `head`; click ends quietly
                raise
            raise click.ClickException(f"{error.filename or 'file system'}: {error.strerror or error}") from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(labkit.__version__)
def main():
    """Train, evaluate and compare the networks of the course.

    \b
    Start with:  labkit doctor
                 labkit train cifar10 --profile sample
    """


@main.command()
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe: sample (the default), laptop or full.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the Run. Default: a new one under runs/.")
@click.option("--resume", is_flag=True, help="Go on with the Run at --out, or the newest unfinished one in runs/.")
def train(lab, profile, settings, out, resume):
    """Train LAB and keep the result as a Run.

    \b
    Example:  labkit train cifar10 --profile laptop --set schedule.lr_max=0.1 --out runs/mine
              labkit train cifar10 --resume --out runs/mine
    """
    from labkit import recipe as recipes
    from labkit import run as runs

    path = recipes.find(lab)
    if resume:
        run = runs.open_run(out) if out else runs.newest_unfinished(Path("runs"), recipes.lab_of(path), profile)
        asked = recipes.load(path, profile or run.recipe.profile, settings)
        keys = tuple(setting.partition("=")[0] for setting in settings)
        recipes.require_same(run.recipe, asked, run.path, ("lab", "profile", *keys))
        if run.complete:
            click.echo(f"{run.path} is complete: nothing to resume")
            return
        from labkit import training
    else:
        asked = recipes.load(path, profile or "sample", settings)
        name = f"{asked.lab}-{asked.profile}"
        from labkit import training

        training.check_data(asked)  # before the Run's directory is made
        run = runs.create(out or runs.free_path(Path("runs"), name), asked)
    recipe = run.recipe
    click.echo(
        f"{'resuming' if resume else 'training'} {recipe.network.name} by {path}, profile {recipe.profile}, "
        f"epochs: {recipe.epochs}, into {run.path}"
    )
    if resume and not run.checkpoint.exists():
        click.echo("it was stopped before its first checkpoint, so it begins again")
    signal.signal(signal.SIGTERM, _interrupt)  # MindData turns Ctrl-C into SIGTERM, which a job's end sends as well
    try:
        training.train(run)
    except KeyboardInterrupt:
        click.echo(f"\nstopped; go on with: labkit train {lab} --resume --out {run.path}", err=True)
        sys.exit(130)
    summary = run.summary
    click.echo(
        f"accuracy {summary['accuracy']:.2%} after epoch {summary['epochs']}, {summary['train_seconds']:.0f} s of "
        f"training, {summary['step_ms']:.0f} ms a step, {summary['images_per_second']:.0f} images/s\n{run.path}"
    )


def _interrupt(number, frame):
    raise KeyboardInterrupt


@main.command("eval")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(run, as_json):
    """Evaluate the checkpoint of RUN on its test images, in all and by class; keeps RUN/evaluation.json.

    \b
    Example:  labkit eval runs/cifar10-sample
    """
    from labkit import run as runs

    opened = runs.open_run(run)
    from labkit import training

    result = training.evaluate(opened)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    width = max(len(row["name"]) for row in result["classes"])
    for row in [*result["classes"], {"name": "all", **result}]:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        click.echo(f"{row['name']:{width}}  {row['correct']:6,} of {row['images']:6,}  {accuracy:>7}")


@main.command()
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Image file. Default: curves.png in the first RUN."
)
def plot(run, out):
    """Draw loss, learning rate and accuracy of one or more Runs.

    \b
    Example:  labkit plot runs/cifar10-sample runs/mine --out compare.png
    """
    from labkit import run as runs

    opened = [runs.open_run(path) for path in run]
    from labkit import plots

    out = out or opened[0].path / "curves.png"
    figure = plots.training_curves(opened)
    try:
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise LabkitError(f"{out}: {getattr(error, 'strerror', None) or error}") from None
    click.echo(out)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json):
    """Examine this machine: versions, device, cores, convolution speed, data; and say what to do.

    Exit status 1 where there is a problem.

    \b
    Example:  labkit doctor
    """
    from labkit import doctor as doctors

    findings = doctors.examine()
    report = doctors.as_dict(findings)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for finding in findings:
            status = click.style(f"{finding.status:8}", fg=colours[finding.status])
            click.echo(f"{status} {finding.name:15} {finding.found}")
            if finding.advice:
                click.echo(f"{'':24} -> {finding.advice}")
    sys.exit(0 if report["ok"] else 1)
