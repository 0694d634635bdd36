"""The command line. Imports of MindSpore and matplotlib wait until a command needs them."""

import errno
import json
import re
import shutil
import sys
import textwrap
from pathlib import Path

import click

import labkit
from labkit import cli_cloud, cli_grading, cli_jobs, cli_parity, cli_submit
from labkit.runtime import LabkitError


class Commands(click.Group):
    """Turns labkit's own errors into one line and their exit status, which is 1 but for a failed launch."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except LabkitError as error:
            known = click.ClickException(str(error))
            known.exit_code = error.exit_status
            raise known from None
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

    A recipe may name a rival, a profile with another optimizer: it is trained afterwards, into a Run beside the
    first one, and compared with it, which takes as long again. The last example does without.

    \b
    Example:  labkit train cifar10 --profile laptop --set schedule.lr_max=0.1 --out runs/mine
              labkit train cifar10 --resume --out runs/mine
              labkit train thor --profile sample
              labkit train thor --profile sample --set rival=null
    """
    from labkit import runtime

    runtime.require_one_process()
    file, recipe, place = _asked(lab, profile, settings, out, resume)
    again = f"labkit train {lab} --resume --out {place}"
    rival = _rival(file, recipe, place, resume) if recipe.rival else None  # what is wrong with it is told before hours
    run = _begin(file, recipe, place, resume)
    _train(run, again)
    if rival:
        recipe, beside = rival
        click.echo(f"\nthe rival, profile {recipe.profile}:")
        _train(_begin(file, recipe, beside, (beside / "recipe.yaml").exists()), again)
        click.echo()
        compare.callback([beside, place], None, None, False)
    if run:
        _look(run)


def _rival(file, recipe, place, resume):
    """Recipe and folder of the rival of a Run at `place`; the folder is free, or has the rival's Run to resume."""
    from labkit import recipe as recipes
    from labkit import run as runs

    rival, beside = recipes.rival_of(recipe, file), Path(f"{place}-rival")
    if resume and (beside / "recipe.yaml").exists():
        recipes.require_same(runs.open_run(beside).recipe, rival, beside, tuple(recipes.Recipe.model_fields))
    else:
        runs.require_free(beside)
    return rival, beside


def _train(run, again):
    """Train a Run, if there is one to train; `again` is the command to go on with."""
    if run is None:
        return
    from labkit import runtime, training

    try:
        with runtime.stopped_once():  # MindData turns Ctrl-C into SIGTERM, which a job's end sends as well
            training.train(run)
    except KeyboardInterrupt:
        click.echo(f"\nstopped; go on with: {again}", err=True)
        sys.exit(130)
    _tell(run)


def _asked(lab, profile, settings, out, resume, processes=1):
    """Recipe file, recipe and folder of the Run that `train` or `launch` is asked for; to be resumed, it is there."""
    from labkit import recipe as recipes
    from labkit import run as runs

    file = recipes.find(lab)
    if not resume:
        recipe = recipes.load(file, profile or "sample", settings)
        return file, recipe, out or runs.free_path(Path("runs"), f"{recipe.lab}-{recipe.profile}")
    run = runs.open_run(out) if out else runs.newest_unfinished(Path("runs"), recipes.lab_of(file), profile)
    beaten = run.path.with_name(run.path.name.removesuffix("-rival"))
    if not (out or profile) and beaten != run.path and (beaten / "recipe.yaml").exists():
        run = runs.open_run(beaten)  # the pair goes on, and is compared
    recipe = run.recipe
    asked = recipes.load(file, profile or recipe.profile, settings)
    keys = tuple(setting.partition("=")[0] for setting in settings)
    recipes.require_same(recipe, asked, run.path, ("lab", "profile", *keys))
    if (recipe.rival or not run.complete) and (run.path / "provenance.json").exists():
        runs.require_same_processes(run, processes)  # before any is started
    return file, recipe, run.path


def _begin(file, recipe, place, resume, processes=1):
    """The Run at `place`, a new one or the one to resume; None where it is complete."""
    from labkit import run as runs

    if resume:
        run = runs.open_run(place)
        if run.complete:
            click.echo(f"{place} is complete: nothing to resume")
            return None
    else:
        from labkit import training

        training.check_data(recipe, processes)  # before the Run's directory is made
        run = runs.create(place, recipe)
    click.echo(
        f"{'resuming' if resume else 'training'} {recipe.network.name} by {file}, profile {recipe.profile}, "
        f"epochs: {recipe.epochs}, " + (f"processes: {processes}, " if processes > 1 else "") + f"into {place}"
    )
    if resume and not run.checkpoint.exists():
        click.echo("it was stopped before its first checkpoint, so it begins again")
    return run


def _tell(run):
    """Print what came out."""
    summary = run.summary
    click.echo(
        f"accuracy {summary['accuracy']:.2%} after epoch {summary['epochs']}, {summary['train_seconds']:.0f} s of "
        f"training, typically {summary['step_ms']:.0f} ms a step or {summary['images_per_second']:.0f} images/s\n"
        f"{run.path}"
    )


def _look(run):
    """Say on stderr what comes next; a script reads the Run's path from stdout's last line."""
    click.echo(f"look at it: labkit eval {run.path}; labkit plot {run.path}", err=True)


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("-n", "count", type=click.IntRange(min=1), required=True, help="Number of processes, one for a device.")
@click.option(
    "--device-target", default="auto", type=click.Choice(["auto", "CPU", "GPU", "Ascend"]),
    help="Where to compute; auto (the default) is MindSpore's own choice.",
)  # fmt: skip
@click.option("--log-dir", type=click.Path(path_type=Path), help="Folder for a log of each. Default: logs/ in the Run.")
@click.option("--rank-table", type=click.Path(path_type=Path), help="Ascend devices to use; see `labkit rank-table`.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(count, device_target, log_dir, rank_table, command):
    """Run COMMAND in several processes on this machine, which share the images and average their gradients.

    COMMAND is `train` with what `labkit train` takes, or a start file of a lab with its arguments. A recipe's
    batch_size is for each process. Where one fails, all end. Each has a log; what rank 0 writes is shown here.

    \b
    Example:  labkit launch -n 2 train cifar10 --profile sample
              labkit launch -n 2 train cifar10 --resume
              labkit launch -n 8 labs/cifar10/train.py \\
                  --data_url data/cifar-10-batches-bin --train_url out
    """
    from labkit import launch as launching
    from labkit import rank_tables, runtime

    launching.require_possible(count)
    runtime.require_one_process()
    cards = rank_tables.local_cards(rank_table, count) if rank_table else None
    device = None if device_target == "auto" else device_target
    run, again = None, ""
    if command[0] == "train":
        asked = train.make_context("labkit launch train", list(command[1:])).params
        file, recipe, place = _asked(**asked, processes=count)
        run = _begin(file, recipe, place, asked["resume"], count)
        if run is None:
            return
        if recipe.rival:
            rival = f"labkit launch -n {count} train {asked['lab']} --profile {recipe.rival}"
            click.echo(f"the rival is not trained; that takes a launch of its own: {rival}")
        command = ["-m", "labkit", "worker", str(run.path)]
        log_dir = log_dir or run.path / "logs"
        again = f"; go on with: labkit launch -n {count} train {asked['lab']} --resume --out {run.path}"
    elif not Path(command[0]).is_file():
        raise LabkitError(f"{command[0]}: neither `train` nor a file; see `labkit launch --help`")
    try:
        with runtime.stopped_once():
            launching.launch(command, count, log_dir, device=device, cards=cards)
    except KeyboardInterrupt:
        click.echo(f"\nstopped{again}", err=True)
        sys.exit(130)
    if run:
        _tell(run)
        _look(run)


@main.command(hidden=True)
@click.argument("run", type=click.Path(path_type=Path))
def worker(run):
    """One of the processes of `labkit launch`: trains RUN."""
    from labkit import run as runs
    from labkit import training

    training.train(runs.open_run(run))


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
    if not opened.complete:
        click.echo(f"{run}: not complete; this is its last checkpoint", err=True)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    rows = [*result["classes"], {"name": "all", **result}]
    if "top_5_accuracy" in result:
        share, images = result["top_5_accuracy"], result["images"]
        rows.append({"name": "top 5", "accuracy": share, "correct": round(share * images), "images": images})
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        click.echo(f"{row['name']:{width}}  {row['correct']:6,} of {row['images']:6,}  {accuracy:>7}")


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format", "file_format", type=click.Choice(["mindir", "onnx", "air"]), default="mindir", help="Default: mindir."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File. Default: NETWORK.FORMAT in RUN.")
@click.option("--batch-size", type=click.IntRange(min=1), default=1, help="Images at a time. Default: 1.")
@click.option("--image-size", type=click.IntRange(min=1), help="Height and width in pixels. Default: the recipe's.")
def export(run, file_format, out, batch_size, image_size):
    """Write the network of RUN's checkpoint as one file for other programs: MINDIR, ONNX, or AIR (on Ascend).

    \b
    Example:  labkit export runs/imagenet-sample --format onnx
    """
    from labkit import run as runs

    opened = runs.open_run(run)
    recipe = opened.recipe
    from labkit import export as exports

    out = out or opened.path / f"{recipe.network.name}.{file_format}"
    exports.export(recipe, opened.checkpoint, out, file_format, batch_size=batch_size, image_size=image_size)
    click.echo(out)


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
    _save(plots.training_curves(opened), out)
    click.echo(out)


def _save(figure, out):
    try:
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise LabkitError(f"{out}: {getattr(error, 'strerror', None) or error}") from None


@main.command()
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", type=click.FloatRange(0, 1), help="Accuracy, 0 to 1. Default: the first RUN's at the end.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Image file to draw the curves into.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(run, target, out, as_json):
    """Tell how many steps and seconds each RUN took to a target accuracy, beside the first one.

    Runs whose recipes differ in the seed only are put together: the median of those that got there is shown. Accuracy
    is measured once an epoch. Seconds are of training alone, without compilation, and hold for a machine that had
    nothing else to do. "ms a step" is the mean of its steps; what `labkit train` ends with is their median.

    \b
    Example:  labkit compare runs/thor-sample-rival runs/thor-sample
              labkit compare runs/momentum-* runs/thor-* --target 0.7 --out compare.png
    """
    from labkit import compare as comparing
    from labkit import run as runs

    curves = comparing.settings([runs.open_run(path) for path in run])
    target = comparing.default_target(curves) if target is None else target
    rows = comparing.summary(curves, target)
    click.echo(json.dumps({"target": target, "settings": rows}, indent=2) if as_json else comparing.table(rows, target))
    if out:
        from labkit import plots

        _save(plots.comparison(curves, target), out)
        click.echo(out, err=as_json)


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
            click.echo(f"{status} {finding.name:15} {_wrapped(finding.found, '')}")
            if finding.advice:
                click.echo(f"{'':24} -> {_wrapped(finding.advice, '   ')}")
    sys.exit(0 if report["ok"] else 1)


def _wrapped(text, indent):
    """A text after the 25 columns of a finding's status and name, in lines that fit the terminal, commands whole."""
    if not sys.stdout.isatty():
        return text
    indent = " " * 25 + indent
    width = max(60, shutil.get_terminal_size().columns)
    text = re.sub("`.*?`", lambda command: command[0].replace(" ", "\0"), indent + text)
    lines = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.lstrip().replace("\0", " ")


for group in (cli_parity, cli_cloud, cli_submit, cli_jobs, cli_grading):
    for command in group.COMMANDS:
        main.add_command(command)
