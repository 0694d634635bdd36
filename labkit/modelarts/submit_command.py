"""`labkit submit`: run a lab as a training job of ModelArts, or rehearse the job on this machine."""

import json
import shlex
import sys
import tempfile
from pathlib import Path

import click

from labkit.modelarts.jobs_commands import fetch_run, follow_job, on_ctrl_c
from labkit.obs import access
from labkit.obs.console import DRY_RUN, bar, connected, warn
from labkit.system import interrupts
from labkit.system.errors import LabkitError


@click.command(epilog=access.HELP)
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe. Default: full; with --target local, sample.")
@click.option("--bucket", metavar="URL", help="obs://BUCKET[/FOLDER]; with --target local also file://DIR, "
              "absolute or relative. Default: job.yaml's; with --target local, file://runs/bucket.")  # fmt: skip
@click.option("--data", metavar="URL|FOLDER", help="Data in OBS, or a folder to copy. Default: job.yaml's, or else the "
              "recipe's folder, as for `labkit train`.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--flavor", help="Machine, instead of job.yaml's; see `labkit jobs flavors`.")
@click.option("--engine", metavar="NAME:VERSION", help="Image, instead of job.yaml's; see `labkit jobs engines`.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of machines, instead of job.yaml's.")
@click.option("--name", help="Name of the job. Default: LAB-PROFILE-TIME-NUMBER.")
@click.option("--target", type=click.Choice(["modelarts", "local"]), default="modelarts", show_default=True,
              help="local: rehearse the job on this machine, with paths (API v2), and wait.")  # fmt: skip
@click.option("--cards", type=click.IntRange(min=1), help="With --target local: number of cards. As in a custom "
              "image, one start file starts a process per card. Default: 1.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the fetched Run. Default: runs/NAME.")
@click.option("--wait", is_flag=True, help="Follow the job and its log to the end and fetch its Run.")
@DRY_RUN
def submit(lab, profile, bucket, data, settings, flavor, engine, nodes, name, target, cards, out, wait, dry_run):
    """Train LAB as a job: copy its data and code to a bucket, start the job there, fetch its Run.

    Copies the files of the lab and labkit that git tracks, including uncommitted changes. A rehearsal with a folder as
    bucket needs no account. With --dry-run, the job is printed as JSON. Ctrl-C while waiting does not stop a job of
    ModelArts, which costs money until it ends: `labkit jobs stop ID` does.

    \b
    Example:  labkit submit cifar10 --target local
              labkit submit cifar10 --bucket obs://my-bucket/course --dry-run
              labkit submit cifar10 --bucket obs://my-bucket/course \\
                  --data obs://my-bucket/cifar-10-batches-bin --wait
    """
    from labkit.modelarts import packing, submission
    from labkit.modelarts.client import Client
    from labkit.obs import copying
    from labkit.training import runs

    local = target == "local"
    given = {"flavor": flavor, "engine": _engine(engine), "nodes": nodes}
    for option, value in ({**given, "wait": wait} if local else {"cards": cards}).items():
        if value:
            raise click.UsageError(f"--{option}: only for --target {'modelarts' if local else 'local'}")
    profile, bucket = profile or ("sample" if local else "full"), bucket or ("file://runs/bucket" if local else None)
    given = {key: value for key, value in {"bucket": bucket, **given}.items() if value is not None}
    if not local and str(bucket).startswith("file://"):
        raise click.UsageError(f"--bucket {bucket}: a bucket on this machine needs --target local")
    prepared = submission.prepare(lab, profile, data, settings, name, not dry_run, **given)
    spec, out = prepared.spec, out or Path("runs") / prepared.spec.name
    fetch_command = _fetch_command(spec, out)
    with tempfile.TemporaryDirectory(prefix="labkit-code-") as top:
        code = Path(top)
        packing.pack(prepared, code)
        if others := packing.left_behind(prepared.lab):
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            warn(f"not in the job (not tracked by git, or not checked out): {', '.join(others[:5])}{more}")
        copies = submission.copies(prepared, code)
        if dry_run:
            _print_plan(prepared, copies)
            return
        runs.require_free(out)
        if not local:  # check the account and what ModelArts offers before copying
            client = Client.connect(notice=warn)
            submission.require_offered(spec, client)
            client.require_free(spec.name)
        store = connected(spec.bucket)
        with on_ctrl_c("the job was not started"):
            submission.require_new(prepared, store)
            for part in copies:
                warn(f"copying {_described(*part)}")
                with bar() as progress:
                    copying.copy(part[1], part[2], progress=progress, store=store)
    status = _rehearse(prepared, fetch_command, cards or 1) if local else _start(spec, fetch_command, client, wait)
    if local or wait:
        try:
            fetched = fetch_run(spec.bucket, spec.name, out)
        except LabkitError as error:
            warn(f"Error: {error}\nfetch the Run with: {fetch_command}")
            fetched = False
        sys.exit(status or (0 if fetched else 1))


def _engine(text):
    if text is None:
        return None
    name, _, version = text.partition(":")
    if not (name and version):
        raise click.BadParameter("must be NAME:VERSION", param_hint="--engine")
    return {"name": name, "version": version}


def _print_plan(prepared, copies):
    """Print the request, without the values of job.yaml's variables and parameters, which may be secret."""
    from labkit.training.provenance import COMMIT

    body = prepared.spec.body()
    variables = body["algorithm"]["environments"]
    body["algorithm"]["environments"] = {key: variables[key] if key == COMMIT else "***" for key in variables}
    for parameter in body["algorithm"]["parameters"]:
        parameter["value"] = parameter["value"] if parameter["name"] == "profile" else "***"
    click.echo(json.dumps(body, indent=2))
    for part in copies:
        warn(f"would copy {_described(*part)}")
    warn(f"would fetch the Run from {prepared.run}")


def _described(name, source, target):
    """A copy in words: its name, size and target."""
    sizes = [file.stat().st_size for file in source.rglob("*") if file.is_file()]
    folder = "" if name == "code" else f" of {source}"
    return f"{name}: {len(sizes)} files{folder}, {sum(sizes):,} bytes, to {target}"


def _rehearse(prepared, fetch_command, cards):
    """Rehearse the job; its exit status."""
    from labkit.modelarts.rehearsal import rehearse

    name = prepared.spec.name
    warn(f"job {name}: Running, on this machine, cards: {cards}")
    with on_ctrl_c(f"what it wrote is in {prepared.run}\nfetch it with: {fetch_command}"), interrupts.stopped_once():
        status = interrupts.shell_status(rehearse(prepared.spec, cards, lambda text: click.echo(text, nl=False)))
    warn(f"job {name}: {'Failed' if status else 'Completed'}, exit status {status}")
    return status


def _start(spec, fetch_command, client, wait):
    """Create the job; its exit status if we wait for it, or else 0."""
    with on_ctrl_c(f"the job may have been created; check with: labkit jobs list --name {spec.name}"):
        job = client.create(spec)
    warn(f"job {job.name}: {job.id}")
    click.echo(job.id)
    warn(
        f"the job keeps running; look at it with: labkit jobs show {job.id}\n"
        f"its log: labkit jobs logs {job.id} --follow; stop it: labkit jobs stop {job.id}\n"
        f"its Run, when it has ended: {fetch_command}"
    )
    return follow_job(client, job.id) if wait else 0


def _fetch_command(spec, out):
    """The command that fetches the Run of a job."""
    to = [] if out == Path("runs") / spec.name else ["--out", str(out)]
    return shlex.join(["labkit", "jobs", "fetch", spec.name, "--bucket", spec.bucket, *to])
