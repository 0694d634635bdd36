"""`labkit jobs`: the training jobs of an account, and the machines and images for them."""

import datetime
import shlex
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import click

from labkit.obs import access
from labkit.obs.console import bar, connected, deadline, warn
from labkit.obs.place import CloudError

DEADLINE = deadline(120.0)
EXAMPLE = "5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11"  # of a job's id
POLL = 10.0  # seconds between two requests while following a job


@click.group(epilog=access.HELP)
def jobs():
    """List, show and stop training jobs of ModelArts, print their logs and fetch their Runs.

    Exit status: 0; 1 if ModelArts refuses or does not answer; 2 for wrong usage.

    \b
    Example:  labkit jobs list
              labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """


def _client(deadline):
    from labkit.modelarts.client import Client

    return Client.connect(deadline=deadline, notice=warn)


def _job_command(action, help):
    """Define the command that calls this method of the client and prints the job it returns."""

    @jobs.command(action, help=f"{help}\n\n\b\nExample:  labkit jobs {action} {EXAMPLE}")
    @click.argument("job")
    @DEADLINE
    def command(job, deadline):
        answer = getattr(_client(deadline), action)(job)
        for name, value in {**_described(answer), "tasks": ", ".join(answer.tasks) or "-"}.items():
            click.echo(f"{name:10}{value}")


_job_command("show", "Show the job with the id JOB.")
_job_command("stop", "Stop the job with the id JOB. It is an error if the job has already ended by itself.")


@jobs.command("list")
@click.option("--name", default="", help="Only jobs whose names contain this.")
@DEADLINE
def listed(name, deadline):
    """List the newest jobs, 50 at most.

    \b
    Example:  labkit jobs list --name cifar10
    """
    rows = [_described(job) for job in _client(deadline).jobs(name)]
    _list("jobs", rows, {key: key for key in ("id", "name", "phase", "created", "duration")})


@jobs.command()
@click.option("--kind", "device", type=click.Choice(["CPU", "GPU", "Ascend"]), help="Only machines of this kind.")
@DEADLINE
def flavors(device, deadline):
    """List the machines for jobs: the values for `flavor` in job.yaml.

    \b
    Example:  labkit jobs flavors --kind Ascend
    """
    columns = {"flavor": "flavor_id", "kind": "flavor_type", "at most": "max_num"}
    _list("flavors", _client(deadline).flavors(device or ""), columns)


@jobs.command()
@DEADLINE
def engines(deadline):
    """List the preset images: the values for `engine` in job.yaml.

    \b
    Example:  labkit jobs engines
    """
    columns = {"name": "engine_name", "version": "engine_version"}
    _list("engines", _client(deadline).engines(), columns)


@jobs.command()
@click.argument("job")
@click.option("--task", default="worker-0", show_default=True, help="The worker whose log to print.")
@click.option("--follow", is_flag=True, help="Until the job has ended. Ctrl-C stops following; the job keeps running.")
@DEADLINE
def logs(job, task, follow, deadline):
    """Print the end of JOB's log, as much as ModelArts provides.

    \b
    Example:  labkit jobs logs 5b5d8c2e-3f0a-4d57-9d3c-0c8a1f6f2b11 --follow
    """
    client = _client(deadline)
    if follow:
        sys.exit(follow_job(client, job, task))
    click.echo(client.log(job, task), nl=False)


def follow_job(client, job, task="worker-0"):
    """Print a job's phases and log until it has ended; return the exit status. Ctrl-C does not stop the job."""
    phase, shown = None, ""
    with on_ctrl_c("the job keeps running"):
        while True:
            now = client.show(job)
            if now.phase != phase and not now.ended:
                warn(f"job {now.name}: {now.phase}")
            phase = now.phase
            try:
                log = client.log(job, task) if phase not in ("Creating", "Pending") else ""
            except CloudError as error:
                if error.status != 404:
                    raise
                log = ""  # not available yet, or no longer; the job itself is not affected
            click.echo(added(shown, log), nl=False)
            shown = log or shown
            if now.ended:  # after the end of its log
                warn(f"job {now.name}: {now.phase}")
                return 0 if now.phase == "Completed" else 1
            time.sleep(POLL)


@contextmanager
def on_ctrl_c(hint):
    """Inside this context, Ctrl-C ends the command with a line that contains this hint."""
    try:
        yield
    except KeyboardInterrupt as error:
        warn(f"\nstopped; {hint}")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


def added(shown, log):
    """The new lines in a log that was partly `shown` before; both are only the end of the full log."""
    if log.startswith(shown):
        return log[len(shown) :]
    _, overlap, rest = log.rpartition(shown[-400:])  # the beginning of the log is gone
    return rest if overlap else log


@jobs.command()
@click.argument("name")
@click.option("--bucket", required=True, metavar="URL", help="The --bucket of `labkit submit`.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run. Default: runs/NAME.")
def fetch(name, bucket, out):
    """Fetch the Run of the job called NAME. If the job has not ended, fetch what it has saved so far.

    The Run's recipe gets the data folder given at submission, so that `labkit eval` and `train --resume` find the data.

    \b
    Example:  labkit jobs fetch first --bucket obs://my-bucket/course
    """
    sys.exit(0 if fetch_run(bucket, name, out or Path("runs") / name) else 1)


def fetch_run(bucket, name, out):
    """Copy a job's Run to this machine and print a summary; False if the job left no Run."""
    from labkit.modelarts.submission import fetch

    with bar() as progress:
        run = fetch(bucket, name, out, progress, connected(bucket))
    if run is None:
        warn(f"the job left no Run in {bucket.rstrip('/')}/jobs/{name}/run, where jobs keep it")
    elif run.complete:
        summary = run.summary
        click.echo(f"accuracy {summary['accuracy']:.2%} after {summary['steps']} steps\n{out}")
    else:
        command = shlex.join(["labkit", "train", run.recipe.lab, "--resume", "--out", str(out)])
        click.echo(f"the Run is not complete; resume it with: {command}")
    return run is not None


def _described(job):
    """A job's fields as text, by column title."""
    moment = datetime.datetime.fromtimestamp(job.created / 1000, datetime.timezone.utc) if job.created else None
    created = f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "-"
    duration = str(datetime.timedelta(seconds=job.duration // 1000))
    return {"id": job.id, "name": job.name, "phase": job.phase, "created": created, "duration": duration}


def _list(title, rows, columns):
    """Print rows as a table; columns: {column title: key in a row}."""
    if not rows:
        warn(f"no {title}")
    else:
        table = [list(columns), *([str(row.get(key, "-")) for key in columns.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table)]
        for row in table:
            click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip())
