"""`labkit submit`: a lab as a training job of ModelArts, or as a rehearsal of one on this machine."""

import json
import signal
import sys
import tempfile
from pathlib import Path

import click

from labkit.cli_jobs import tell
from labkit.runtime import LabkitError


@click.command()
@click.argument("lab")
@click.option("--profile", default="full", show_default=True, help="Profile of the lab's recipe.")
@click.option("--bucket", required=True, metavar="URL", help="obs://BUCKET[/FOLDER], or file://DIR for a rehearsal.")
@click.option("--data", metavar="URL|FOLDER", help="Data in OBS, or a folder to copy. Default: the recipe's folder.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--flavor", help="Machine, instead of job.yaml's; see `labkit jobs flavors`.")
@click.option("--engine", metavar="NAME:VERSION", help="Image, instead of job.yaml's; see `labkit jobs engines`.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of machines, instead of job.yaml's.")
@click.option("--name", help="Name of the job. Default: LAB-PROFILE-TIME.")
@click.option("--target", type=click.Choice(["modelarts", "local"]), default="modelarts", show_default=True,
              help="local: rehearse the job on this machine, and wait.")  # fmt: skip
@click.option("--cards", type=click.IntRange(min=1), default=1, show_default=True,
              help="With --target local: processes, as a machine with so many cards has.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run that is fetched. Default: runs/NAME.")
@click.option("--wait", is_flag=True, help="Follow the job and its log to the end and fetch its Run.")
@click.option("--dry-run", is_flag=True, help="Print the job as JSON, say what would be copied, and do nothing.")
def submit(lab, profile, bucket, data, settings, flavor, engine, nodes, name, target, cards, out, wait, dry_run):
    """Train LAB as a job: copy its code and data to a bucket, start the job there, bring its Run back.

    What git tracks below the lab and labkit is copied, as it is now. Keys of the account come from the environment
    (OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY, or HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK) or from
    ~/.huaweicloud/credentials. Ctrl-C while waiting does not stop a job of ModelArts, which costs money until it ends:
    `labkit jobs stop ID` does.

    \b
    Example:  labkit submit cifar10 --profile sample --target local --bucket file:///tmp/bucket --set max_steps=4
              labkit submit cifar10 --bucket obs://my-bucket/course --dry-run
              labkit submit cifar10 --bucket obs://my-bucket/course --data obs://my-bucket/cifar-10-batches-bin --wait
    """
    from labkit import run as runs
    from labkit.cloud import submission as submissions

    given = {"flavor": flavor, "engine": _engine(engine), "nodes": nodes}
    given = {key: value for key, value in given.items() if value is not None}
    asked = submissions.prepare(lab, profile, bucket, data, settings, name, not dry_run, **given)
    if asked.spec.bucket == submissions.REHEARSAL and target != "local" and not dry_run:
        raise LabkitError(f"{bucket}: a bucket on this machine is for --target local")
    if cards > 1 and target != "local":
        raise LabkitError("--cards: for --target local; at ModelArts the flavor says how many cards there are")
    if asked.recipe.rival:
        click.echo(f"the rival is not trained; that takes a job of its own: --profile {asked.recipe.rival}", err=True)
    out = out or Path("runs") / asked.spec.name
    runs.require_free(out)
    with tempfile.TemporaryDirectory(prefix="labkit-code-") as folder:
        submissions.pack(asked, Path(folder))
        if dry_run:
            _tell_plan(asked, Path(folder), submissions)
            return
        client = _client(asked, submissions) if target == "modelarts" else None
        submissions.require_new(asked)
        submissions.upload(asked, Path(folder), _Progress)
    if target == "local":
        _rehearse(asked, cards, out, submissions)
    else:
        _start(client, asked, out, wait, submissions)


def _engine(text):
    if text is None:
        return None
    name, colon, version = text.partition(":")
    if not (name and version):
        raise click.BadParameter("write NAME:VERSION", param_hint="--engine")
    return {"name": name, "version": version}


def _client(asked, submissions):
    """ModelArts, if it knows us and offers what the job needs: asked before anything is copied."""
    from labkit.cloud.modelarts import Client

    client = Client.connect()
    submissions.require_offered(asked.spec, client)
    if taken := client.find(asked.spec.name):
        raise LabkitError(f"{asked.spec.name}: there is a job of this name already ({taken[0].id})")
    return client


def _tell_plan(asked, code, submissions):
    click.echo(json.dumps(asked.spec.body(), indent=2))
    for what, source, target in submissions.copies(asked, code):
        sizes = [file.stat().st_size for file in source.rglob("*") if file.is_file()]
        place = "" if what == "code" else f" of {source}"
        click.echo(f"would copy {what}: {len(sizes)} files{place}, {sum(sizes):,} bytes, to {target}", err=True)
    click.echo(f"would fetch the Run from {asked.run}", err=True)


def _rehearse(asked, cards, out, submissions):
    from labkit.cloud.rehearsal import rehearse

    click.echo(f"job {asked.spec.name}: on this machine, {cards} process{'es' if cards > 1 else ''}", err=True)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        status = rehearse(asked, cards, lambda text: click.echo(text, nl=False))
    except KeyboardInterrupt:
        click.echo(f"\nstopped; what it wrote is in {asked.run}", err=True)
        sys.exit(130)
    phase = "Completed" if status == 0 else "Failed"
    click.echo(f"job {asked.spec.name}: {phase}, exit status {status}", err=True)
    _fetch(asked, out, submissions)
    sys.exit(status if status >= 0 else 128 - status)


def _interrupt(number, frame):
    raise KeyboardInterrupt


def _start(client, asked, out, wait, submissions):
    try:
        job = client.create(asked.spec)
    except KeyboardInterrupt:
        name = asked.spec.name
        click.echo(f"\nstopped while the job was created; see if it was: labkit jobs list --name {name}", err=True)
        sys.exit(130)
    click.echo(f"job {job.name}: {job.id}", err=True)
    click.echo(job.id)
    go_on = (
        f"the job goes on; look at it with: labkit jobs show {job.id}\n"
        f"its log: labkit jobs logs {job.id} --follow; stop it: labkit jobs stop {job.id}\n"
        f"its Run, when it has ended: labkit obs cp {asked.run} {out}"
    )
    if not wait:
        click.echo(go_on, err=True)
        return
    try:
        ended = submissions.follow(client, job.id, tell)
    except KeyboardInterrupt:
        click.echo(f"\n{go_on}", err=True)
        sys.exit(130)
    except LabkitError as error:
        raise LabkitError(f"{error}\n{go_on}") from None
    _fetch(asked, out, submissions)
    sys.exit(0 if ended.phase == "Completed" else 1)


def _fetch(asked, out, submissions):
    run = submissions.fetch(asked, out, _Progress)
    if run is None:
        click.echo(f"the job left no Run in {asked.run}", err=True)
    elif run.complete:
        summary = run.summary
        click.echo(f"accuracy {summary['accuracy']:.2%} after {summary['steps']} steps\n{run.path}")
    else:
        click.echo(f"the Run is not complete; go on with: labkit train {run.recipe.lab} --resume --out {run.path}")


class _Progress:
    """A bar of the bytes that are copied, on a terminal."""

    def __init__(self, what):
        from tqdm import tqdm

        self.bar = tqdm(desc=what, unit="B", unit_scale=True, disable=None)

    def __call__(self, done, total):
        self.bar.total = total
        self.bar.update(done - self.bar.n)
        if done >= total:
            self.bar.close()


COMMANDS = (submit,)
