"""`labkit jobs`: the training jobs of an account, and what they can run on."""

import datetime
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from labkit.obs import access
from labkit.obs.console import AS_JSON, bar, connected, deadline, print_json, warn, with_options
from labkit.system.errors import LabkitError

DEADLINE = deadline(120.0)
PLACEHOLDER = "5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11"  # of a job's id, in examples


@click.group(epilog=access.HELP)
def jobs():
    """Look at training jobs of ModelArts, stop them, fetch their Runs.

    Exit status: 0; 1 if ModelArts refuses or does not answer; 2 for wrong usage.

    \b
    Example:  labkit jobs list
              labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """


def _client(deadline):
    from labkit.modelarts.client import Client

    return Client.connect(deadline=deadline, notice=warn)


def _shows_a_job(action, help):
    """The command that does this with a job and shows what it is then."""

    @jobs.command(action, help=f"{help}\n\n\b\nExample:  labkit jobs {action} {PLACEHOLDER}")
    @click.argument("job")
    @with_options(DEADLINE, AS_JSON)
    def command(job, deadline, as_json):
        found = getattr(_client(deadline), action)(job)
        if as_json:
            print_json(asdict(found))
            return
        for name, value in {**_described(found), "tasks": ", ".join(found.tasks) or "-"}.items():
            click.echo(f"{name:10}{value}")


_shows_a_job("show", "Show the job with the id JOB.")
_shows_a_job("stop", "Stop JOB. One that has been stopped already is left alone; one that ended by itself is an error.")


@jobs.command("list")
@click.option("--name", default="", help="Only jobs whose names contain this.")
@with_options(DEADLINE, AS_JSON)
def listed(name, deadline, as_json):
    """List the newest jobs, 50 at most.

    \b
    Example:  labkit jobs list --name cifar10
    """
    found = _client(deadline).jobs(name)
    _list("jobs", [asdict(job) for job in found] if as_json else list(map(_described, found)), as_json)


@jobs.command()
@click.option("--kind", type=click.Choice(["CPU", "GPU", "Ascend"]), help="Only these.")
@with_options(DEADLINE, AS_JSON)
def flavors(kind, deadline, as_json):
    """List the machines that jobs can have, the values for `flavor` in job.yaml.

    \b
    Example:  labkit jobs flavors --kind Ascend
    """

    def described(one):
        most = f"{one['max_num']} nodes" if "max_num" in one else "-"
        return {"flavor": one.get("flavor_id", "-"), "kind": one.get("flavor_type", "-"), "at most": most}

    found = _client(deadline).flavors(kind or "")
    _list("flavors", found if as_json else list(map(described, found)), as_json)


@jobs.command()
@with_options(DEADLINE, AS_JSON)
def engines(deadline, as_json):
    """List the preset images, the values for `engine` in job.yaml.

    \b
    Example:  labkit jobs engines
    """

    def described(one):
        return {"name": one.get("engine_name", "-"), "version": one.get("engine_version", "-")}

    found = _client(deadline).engines()
    _list("engines", found if as_json else list(map(described, found)), as_json)


@jobs.command()
@click.argument("job")
@click.option("--task", default="worker-0", show_default=True, help="The worker whose log is printed.")
@click.option("--follow", is_flag=True, help="Until the job has ended. Ctrl-C stops following; the job keeps running.")
@with_options(DEADLINE)
def logs(job, task, follow, deadline):
    """Print the end of JOB's log, as much as ModelArts shows.

    \b
    Example:  labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """
    client = _client(deadline)
    if not follow:
        click.echo(client.log(job, task), nl=False)
        return
    try:
        sys.exit(follow_job(client, job, task))
    except KeyboardInterrupt:
        warn("\nthe job keeps running")
        sys.exit(130)


def follow_job(client, job, task="worker-0"):
    """Print phases and log of a job until it has ended; its exit status."""
    from labkit.modelarts.submission import follow

    def on_phase(found):
        warn(f"job {found.name}: {found.phase}")

    ended = follow(client, job, on_phase, lambda text: click.echo(text, nl=False), task)
    return 0 if ended.phase == "Completed" else 1


@jobs.command()
@click.argument("name")
@click.option("--bucket", required=True, metavar="URL", help="The bucket that `labkit submit` was given.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run. Default: runs/NAME.")
def fetch(name, bucket, out):
    """Fetch the Run of the job called NAME. If the job has not ended, fetch what it has left so far.

    The Run's recipe gets the data folder given at submission, so that `labkit eval` and `train --resume` find the data.

    \b
    Example:  labkit jobs fetch first --bucket obs://my-bucket/course
    """
    out = out or Path("runs") / name
    require_room(out)
    sys.exit(0 if fetch_run(bucket, name, out) else 1)


def require_room(out, others="another --out"):
    """LabkitError where a Run cannot be fetched to this folder: it is not empty, or cannot be made. Makes nothing."""
    from labkit.training.runs import RunError, require_free

    try:
        require_free(out)
    except RunError:
        raise LabkitError(f"{out}: already there; choose {others}") from None
    require_writable(out, f"--out {out}")


def require_writable(folder, option):
    """LabkitError that names the option where nothing can be written to this folder, there or not. Makes nothing."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise LabkitError(f"{option}: {there} cannot be written")


def fetch_run(bucket, name, out):
    """Copy the Run of a job to this machine and print what it is; False where the job left none."""
    from labkit.modelarts.submission import fetch

    with bar() as progress:
        run = fetch(bucket, name, out, progress, connected(bucket))
    if run is None:
        warn(f"the job left no Run in {bucket.rstrip('/')}/jobs/{name}/run, where jobs keep it")
    elif run.complete:
        summary = run.summary
        click.echo(f"accuracy {summary['accuracy']:.2%} after {summary['steps']} steps\n{run.path}")
    else:
        click.echo(f"the Run is not complete; resume it with: labkit train {run.recipe.lab} --resume --out {run.path}")
    return run is not None


def _described(job):
    """A job's fields in words, by the titles of their columns."""
    moment = datetime.datetime.fromtimestamp(job.created / 1000, datetime.timezone.utc) if job.created else None
    created = f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "-"
    duration = str(datetime.timedelta(seconds=job.duration // 1000))
    return {"id": job.id, "name": job.name, "phase": job.phase, "created": created, "duration": duration}


def _list(what, found, as_json):
    """Print what was found, as JSON or as a table with a column for each key."""
    if as_json:
        print_json(found)
    elif not found:
        warn(f"no {what}")
    else:
        rows = [list(found[0]), *(list(one.values()) for one in found)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip())
