"""`labkit jobs`: the training jobs of an account, and what they can run on."""

import datetime
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from labkit.obs.commands import as_json, bar, connected
from labkit.system.errors import LabkitError

waiting = click.option(
    "--deadline", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, metavar="SECONDS",
    help="Without an answer for so long, a request is given up.",
)  # fmt: skip


@click.group()
def jobs():
    """Look at training jobs of ModelArts, stop them, fetch their Runs.

    The account's keys are OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY, with OBS_SECURITY_TOKEN if there is one, or
    HUAWEICLOUD_SDK_AK, _SK and _SECURITY_TOKEN, or in ~/.huaweicloud/credentials. The project is MODELARTS_PROJECT_ID
    or HUAWEICLOUD_SDK_PROJECT_ID; the region that of OBS_ENDPOINT, or MODELARTS_REGION. MODELARTS_ENDPOINT names
    another server, MODELARTS_CA_FILE what its certificate is checked by.
    Exit status: 0; 1 where ModelArts refuses or does not answer; 2 for wrong usage.

    \b
    Example:  labkit jobs list
              labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """


def _client(deadline):
    from labkit.modelarts.client import Client

    return Client.connect(deadline=deadline, notice=lambda line: click.echo(line, err=True))


@jobs.command("list")
@click.option("--name", default="", help="Only those whose names hold this.")
@waiting
@as_json
def listed(name, deadline, as_json):
    """List the newest jobs, 50 at most.

    \b
    Example:  labkit jobs list --name cifar10
    """
    found = _client(deadline).jobs(name)
    if as_json:
        click.echo(json.dumps([asdict(job) for job in found], indent=2))
    elif found:
        _table(("id", "name", "phase", "created", "duration"), [_row(job) for job in found])
    else:
        click.echo("no jobs", err=True)


@jobs.command()
@click.argument("job")
@waiting
@as_json
def show(job, deadline, as_json):
    """Show the job with the id JOB.

    \b
    Example:  labkit jobs show 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11
    """
    _show(_client(deadline).show(job), as_json)


@jobs.command()
@click.argument("job")
@click.option("--task", help="Its worker, such as worker-1. Default: the first.")
@click.option("--follow", is_flag=True, help="Go on until the job has ended; Ctrl-C does not stop the job.")
@waiting
def logs(job, task, follow, deadline):
    """Print the end of JOB's log, as much as ModelArts shows.

    \b
    Example:  labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """
    client = _client(deadline)
    if not follow:
        click.echo(client.log(job, task or "worker-0"), nl=False)
        return
    from labkit.modelarts.submission import follow as follow_job

    try:
        ended = follow_job(client, job, tell, task=task or "worker-0")
    except KeyboardInterrupt:
        click.echo("\nthe job goes on", err=True)
        raise SystemExit(130) from None
    raise SystemExit(0 if ended.phase == "Completed" else 1)


@jobs.command()
@click.argument("job")
@waiting
@as_json
def stop(job, deadline, as_json):
    """Stop JOB. One that has been stopped already is left alone; one that ended by itself is an error.

    \b
    Example:  labkit jobs stop 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11
    """
    _show(_client(deadline).stop(job), as_json)


@jobs.command()
@click.option("--kind", type=click.Choice(["CPU", "GPU", "Ascend"]), help="Only these.")
@waiting
@as_json
def flavors(kind, deadline, as_json):
    """List the machines that jobs can have: what `flavor` of job.yaml may be.

    \b
    Example:  labkit jobs flavors --kind Ascend
    """
    found = _client(deadline).flavors(kind or "")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _table(("flavor", "kind", "at most"), [
        (one.get("flavor_id", "-"), one.get("flavor_type", "-"), f"{one['max_num']} nodes" if "max_num" in one else "-")
        for one in found
    ])  # fmt: skip


@jobs.command()
@waiting
@as_json
def engines(deadline, as_json):
    """List the preset images: what `engine` of job.yaml may be.

    \b
    Example:  labkit jobs engines
    """
    found = _client(deadline).engines()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _table(("name", "version"), [(one.get("engine_name", "-"), one.get("engine_version", "-")) for one in found])


@jobs.command()
@click.argument("name")
@click.option("--bucket", required=True, metavar="URL", help="The bucket that `labkit submit` was given.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run. Default: runs/NAME.")
def fetch(name, bucket, out):
    """Fetch the Run of the job called NAME; of one that has not ended, what it has left so far.

    The Run names the data as it is called where it was submitted, so that `labkit eval` and `train --resume` find it.

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
    """Copy the Run of a job to this machine and tell what it is; False where the job left none."""
    from labkit.modelarts.submission import fetch

    with bar() as progress:
        run = fetch(bucket, name, out, progress, connected(bucket))
    if run is None:
        click.echo(f"the job left no Run in {bucket.rstrip('/')}/jobs/{name}/run, where its output is", err=True)
    elif run.complete:
        summary = run.summary
        click.echo(f"accuracy {summary['accuracy']:.2%} after {summary['steps']} steps\n{run.path}")
    else:
        click.echo(f"the Run is not complete; go on with: labkit train {run.recipe.lab} --resume --out {run.path}")
    return run is not None


def _show(job, as_json):
    if as_json:
        click.echo(json.dumps(asdict(job), indent=2))
        return
    names = ("id", "name", "phase", "created", "duration", "tasks")
    for name, value in zip(names, (*_row(job), ", ".join(job.tasks) or "-")):
        click.echo(f"{name:10}{value}")


def _row(job):
    moment = datetime.datetime.fromtimestamp(job.created / 1000, datetime.timezone.utc) if job.created else None
    created = f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "-"
    return job.id, job.name, job.phase, created, str(datetime.timedelta(seconds=job.duration // 1000))


def _table(names, rows):
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    for row in (names, *rows):
        click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip())


def tell(found):
    """A piece of the log on stdout, a phase on stderr."""
    if isinstance(found, str):
        click.echo(found, nl=False)
    else:
        click.echo(f"job {found.name}: {found.phase}", err=True)
