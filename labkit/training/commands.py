"""`labkit train` and `labkit launch`. MindSpore is imported only when a command needs it."""

import sys
from pathlib import Path

import click

from labkit.system.errors import LabkitError
from labkit.training import run_commands

# The folder of a baseline's Run has the name of the Run compared with it, followed by this.
BASELINE, OLDER_BASELINE = "-baseline", "-rival"


@click.command()
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe, such as laptop or full.  [default: sample]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the Run. Default: a new one under runs/.")
@click.option("--resume", is_flag=True, help="Resume the Run at --out, or the newest unfinished one in runs/.")
def train(lab, profile, settings, out, resume):
    """Train LAB and keep the result as a Run.

    A recipe may name a baseline, a profile with another optimizer. The baseline is trained afterwards, into a Run next
    to the first one, and compared with it, which takes as long again. The last example trains no baseline.

    \b
    Example:  labkit train cifar10 --profile laptop --set schedule.lr_max=0.1 --out runs/mine
              labkit train cifar10 --resume --out runs/mine
              labkit train thor --profile sample
              labkit train thor --profile sample --set baseline=null
    """
    from labkit.system import device

    device.require_one_process()
    file, recipe, place = _requested(lab, profile, settings, out, resume)
    again = f"labkit train {lab} --resume --out {place}"
    # Errors in the baseline are reported now, not after hours.
    baseline = _requested_baseline(file, recipe, place, resume) if recipe.baseline else None
    run = _open_or_create(file, recipe, place, resume)
    _train(run, again)
    if baseline:
        recipe, compared = baseline
        click.echo(f"\nthe baseline, profile {recipe.profile}:")
        _train(_open_or_create(file, recipe, compared, (compared / "recipe.yaml").exists()), again)
        click.echo()
        run_commands.compare.callback([compared, place], None, None, False)
    if run:
        _print_next(run)


def _requested(lab, profile, settings, out, resume, processes=1):
    """Recipe file, recipe and folder of a Run to train: a new one's folder is free, one to resume is checked."""
    from labkit.training import recipes, runs

    file = recipes.find(lab)
    if not resume:
        recipe = recipes.load(file, profile or "sample", settings)
        place = out or runs.free_path(Path("runs"), f"{recipe.lab}-{recipe.profile}")
        runs.require_free(place)
        return file, recipe, place
    run = runs.open_run(out) if out else runs.newest_unfinished(Path("runs"), recipes.lab_of(file), profile)
    if not (out or profile):
        run = _compared_with(run) or run  # the pair is resumed, and compared
    recipe = run.recipe
    asked = recipes.load(file, profile or recipe.profile, settings)
    keys = tuple(recipes.key_of(setting) for setting in settings)
    recipes.require_same(recipe, asked, run.path, ("lab", "profile", *keys))
    if (recipe.baseline or not run.complete) and (run.path / "provenance.json").exists():
        runs.require_same_processes(run, processes)  # before any is started
    return file, recipe, run.path


def _requested_baseline(file, recipe, place, resume):
    """Recipe and folder of the baseline of a Run at `place`; the folder is free, or holds the Run to resume."""
    from labkit.training import recipes, runs

    baseline, compared = recipes.baseline_of(recipe, file), Path(f"{place}{BASELINE}")
    older = Path(f"{place}{OLDER_BASELINE}")
    if resume and not compared.exists() and (older / "recipe.yaml").exists():
        click.echo(f"{older}: resumed under its older name; a baseline's folder is now {compared}", err=True)
        compared = older
    if resume and (compared / "recipe.yaml").exists():
        recipes.require_same(runs.open_run(compared).recipe, baseline, compared, tuple(recipes.Recipe.model_fields))
    else:
        runs.require_free(compared)
    return baseline, compared


def _compared_with(run):
    """The Run that a baseline's Run is compared with, found by its folder's name; None if there is no such pair."""
    from labkit.training import runs

    for ending in (BASELINE, OLDER_BASELINE):
        other = run.path.with_name(run.path.name.removesuffix(ending))
        if other != run.path and (other / "recipe.yaml").exists():
            return runs.open_run(other)
    return None


def _open_or_create(file, recipe, place, resume, processes=1):
    """The Run at `place`, a new one or the one to resume; None if it is complete."""
    from labkit.training import runs

    if resume:
        run = runs.open_run(place)
        if run.complete:
            click.echo(f"{place} is complete: nothing to resume")
            return None
    else:
        from labkit.training import build

        build.check_data(recipe, processes)  # before the Run's directory is made
        run = runs.create(place, recipe)
    click.echo(
        f"{'resuming' if resume else 'training'} {recipe.network.name} by {file}, profile {recipe.profile}, "
        f"epochs: {recipe.epochs}, " + (f"processes: {processes}, " if processes > 1 else "") + f"into {place}"
    )
    if resume and not run.checkpoint.exists():
        click.echo("it was stopped before its first checkpoint, so it starts over")
    return run


def _train(run, again):
    """Train a Run, if there is one to train; `again` is the command to resume with."""
    if run is None:
        return
    from labkit.system import interrupts
    from labkit.training import loop

    try:
        with interrupts.stopped_once():  # MindData turns Ctrl-C into SIGTERM, which a job's end sends as well
            loop.train(run)
    except KeyboardInterrupt:
        click.echo(f"\nstopped; resume with: {again}", err=True)
        sys.exit(130)
    _print_result(run)


def _print_result(run):
    summary = run.summary
    click.echo(
        f"accuracy {summary['accuracy']:.2%} after epoch {summary['epochs']}, {summary['train_seconds']:.0f} s of "
        f"training, typically {summary['step_ms']:.0f} ms a step or {summary['images_per_second']:.0f} images/s\n"
        f"{run.path}"
    )


def _print_next(run):
    """Say on stderr what comes next; a script reads the Run's path from stdout's last line."""
    click.echo(f"look at it: labkit eval {run.path}; labkit plot {run.path}", err=True)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-n", "count", type=click.IntRange(min=1), required=True, help="Number of processes, one per device.")
@click.option(
    "--device-target", default="auto", type=click.Choice(["auto", "CPU", "GPU", "Ascend"]),
    help="Where to compute; auto (the default) is MindSpore's own choice.",
)  # fmt: skip
@click.option("--log-dir", type=click.Path(path_type=Path), help="Folder for their logs. Default: logs/ in the Run.")
@click.option("--rank-table", type=click.Path(path_type=Path), help="Ascend devices to use; see `labkit rank-table`.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(count, device_target, log_dir, rank_table, command):
    """Run COMMAND in several processes on this machine, which share the images and average their gradients.

    COMMAND is `train` with the arguments of `labkit train`, or a lab's start file with its arguments. A recipe's
    batch_size is per process. If one fails, all end. Each writes a log; the output of rank 0 is also shown here.

    \b
    Example:  labkit launch -n 2 train cifar10 --profile sample
              labkit launch -n 2 train cifar10 --resume
              labkit launch -n 8 labs/cifar10/train.py \\
                  --data_url data/cifar-10-batches-bin --train_url out
    """
    from labkit.launch import msrun, rank_tables
    from labkit.system import device, interrupts

    msrun.require_possible(count)
    device.require_one_process()
    cards = rank_tables.local_cards(rank_table, count) if rank_table else None
    target = None if device_target == "auto" else device_target
    run, again = None, ""
    if command[0] == "train":
        asked = train.make_context("labkit launch train", list(command[1:])).params
        file, recipe, place = _requested(**asked, processes=count)
        run = _open_or_create(file, recipe, place, asked["resume"], count)
        if run is None:
            return
        if recipe.baseline:
            baseline = f"labkit launch -n {count} train {asked['lab']} --profile {recipe.baseline}"
            click.echo(f"the baseline is not trained; that takes a launch of its own: {baseline}")
        command = ["-m", "labkit.training", str(run.path)]
        log_dir = log_dir or run.path / "logs"
        again = f"; resume with: labkit launch -n {count} train {asked['lab']} --resume --out {run.path}"
    elif not Path(command[0]).is_file():
        raise LabkitError(f"{command[0]}: neither `train` nor a file; see `labkit launch --help`")
    try:
        with interrupts.stopped_once():
            msrun.launch(command, count, log_dir, device=target, cards=cards)
    except KeyboardInterrupt:
        click.echo(f"\nstopped{again}", err=True)
        sys.exit(130)
    if run:
        _print_result(run)
        _print_next(run)
