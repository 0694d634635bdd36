"""`labkit train` and `labkit launch`. MindSpore is imported only when a command needs it."""

import errno
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path

import click

from labkit.system import interrupts
from labkit.system.errors import LabkitError, of_file_system


@click.command()
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe, such as laptop or full.  [default: sample]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the Run. Default: a new one under runs/.")
@click.option("--resume", is_flag=True, help="Resume the Run at --out.")
def train(lab, profile, settings, out, resume):
    """Train LAB and keep the result as a Run.

    \b
    Example:  labkit train cifar10 --profile laptop --set schedule.lr_max=0.1 --out runs/mine
              labkit train cifar10 --resume --out runs/mine
    """
    from labkit.system import device

    device.require_one_process()
    run, known = _open_or_create(lab, profile, settings, out, resume)
    if run is None:
        return
    from labkit.training import loop

    with _resumable(run.path, ["train", lab, "--resume", "--out", str(run.path)]):
        loop.train(run, **known)
    _print_result(run)


@contextmanager
def _resumable(place, command):
    """Ctrl-C, SIGTERM and a full disk end the training with one line that says how to resume it."""
    again = f"; resume with: {shlex.join(['labkit', *command])}" if command else ""
    try:
        with interrupts.stopped_once():  # MindData turns Ctrl-C into SIGTERM, which a job's end sends as well
            yield
    except KeyboardInterrupt:
        click.echo(f"\nstopped{again}", err=True)
        sys.exit(130)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        error.filename = error.filename or (error.errno and place)  # a full disk does not say where
        raise LabkitError(f"{of_file_system(error)}{again}") from None


def _open_or_create(lab, profile, settings, out, resume, processes=1):
    """The Run to train, new or to be resumed, None if that is complete; and {recipe, info (if data was checked)}."""
    from labkit.training import recipes, runs

    file, info = recipes.find(lab), None
    if resume:
        if not out:
            raise LabkitError("--resume: name the Run to resume with --out")
        run = runs.open_run(out)
        recipe, place = run.recipe, run.path
        asked = recipes.load(file, profile or recipe.profile, settings)
        keys = tuple(setting.partition("=")[0] for setting in settings)
        recipes.require_same(recipe, asked, place, ("lab", "profile", *keys))
        if run.complete:
            click.echo(f"{place} is complete: nothing to resume")
            return None, {}
        if (place / "provenance.json").exists():
            runs.require_same_processes(run, processes)  # before any is started
    else:
        recipe = recipes.load(file, "sample" if profile is None else profile, settings)
        if out:
            runs.require_free(out)
        from labkit.training import build

        info = build.prepare_data(recipe, processes)  # before the Run's directory is made
        place = out or runs.new_folder(Path("runs"), f"{recipe.lab}-{recipe.profile}")
        run = runs.create(place, recipe)
    click.echo(
        f"{'resuming' if resume else 'training'} {recipe.network.name} by {file}, profile {recipe.profile}, "
        f"epochs: {recipe.epochs}, " + (f"processes: {processes}, " if processes > 1 else "") + f"into {place}"
    )
    return run, {"recipe": recipe, "info": info}


def _print_result(run):
    """The result on stdout, whose last line is the Run's path, for scripts; what to do next on stderr."""
    summary = run.summary
    click.echo(
        f"accuracy {summary['accuracy']:.2%} after epoch {summary['epochs']}, {summary['train_seconds']:.0f} s of "
        f"training, typically {summary['step_ms']:.0f} ms a step or {summary['images_per_second']:.0f} images/s\n"
        f"{run.path}"
    )
    name = shlex.quote(str(run.path))
    click.echo(f"look at it: labkit eval {name}; labkit plot {name}", err=True)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-n", "count", type=click.IntRange(min=1), required=True, help="Number of processes, one per device.")
@click.option(
    "--device-target", type=click.Choice(["CPU", "GPU", "Ascend"]), help="Default: MindSpore's own choice."
)  # fmt: skip
@click.option("--log-dir", type=click.Path(path_type=Path), help="Folder for their logs. Default: logs/ in the Run.")
@click.option("--rank-table", type=click.Path(path_type=Path), help="Ascend devices to use, as HCCL lists them.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(count, device_target, log_dir, rank_table, command):
    """Run COMMAND in several processes on this machine, which share the images and average their gradients.

    COMMAND is `train` with the arguments of `labkit train`, or a lab's start file with its arguments. A recipe's
    batch_size is per process. If one fails, all end. Each writes a log; the output of rank 0 is also shown here.

    \b
    Example:  labkit launch -n 2 train cifar10 --profile sample
              labkit launch -n 2 train cifar10 --resume --out runs/mine
              labkit launch -n 8 labs/cifar10/train.py \\
                  --data_url data/cifar-10-batches-bin --train_url out
    """
    from labkit.launch import msrun, rank_tables
    from labkit.system import device

    msrun.require_possible(count)
    device.require_one_process()
    cards = rank_tables.local_cards(rank_table, count) if rank_table else None
    run, again = None, []
    if command[0] == "train":
        asked = train.make_context("labkit launch train", list(command[1:])).params
        run, _ = _open_or_create(**asked, processes=count)
        if run is None:
            return
        command = ["-m", "labkit.training", str(run.path)]
        log_dir = log_dir or run.path / "logs"
        again = ["launch", "-n", str(count), "train", asked["lab"], "--resume", "--out", str(run.path)]
    elif not Path(command[0]).is_file():
        raise LabkitError(f"{command[0]}: neither `train` nor a file; see `labkit launch --help`")
    with _resumable(run and run.path, again):
        msrun.launch(command, count, log_dir, device=device_target, cards=cards)
    if run:
        _print_result(run)
