"""`labkit submit`: a lab as a training job of ModelArts, or as a rehearsal of one on this machine."""

import json
import shlex
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import click

from labkit.modelarts.jobs_commands import fetch_run, require_room, require_writable, tell
from labkit.obs.commands import bar, connected
from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError

LOCAL_BUCKET = "file://runs/bucket"  # of rehearsals, where none is named


@click.command()
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe. Default: full; with --target local, sample.")
@click.option("--bucket", metavar="URL", help="obs://BUCKET[/FOLDER]; with --target local also file://DIR, a "
              "path as any other. Default: job.yaml's; with --target local, file://runs/bucket.")  # fmt: skip
@click.option("--data", metavar="URL|FOLDER", help="Data in OBS, or a folder to copy. Default: job.yaml's, else the "
              "recipe's folder, as `labkit train` takes it.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--flavor", help="Machine, instead of job.yaml's; see `labkit jobs flavors`.")
@click.option("--engine", metavar="NAME:VERSION", help="Image, instead of job.yaml's; see `labkit jobs engines`.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of machines, instead of job.yaml's.")
@click.option("--name", help="Name of the job. Default: LAB-PROFILE-TIME.")
@click.option("--target", type=click.Choice(["modelarts", "local"]), default="modelarts", show_default=True,
              help="local: rehearse the job on this machine, with paths (API v2), and wait.")  # fmt: skip
@click.option("--cards", type=click.IntRange(min=1), help="With --target local: cards of the machine. As in a custom "
              "image, one start file starts a process for each. Default: 1.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run that is fetched. Default: runs/NAME.")
@click.option("--wait", is_flag=True, help="Follow the job and its log to the end and fetch its Run.")
@click.option("--dry-run", is_flag=True, help="Print the job as JSON, say what would be copied, and do nothing.")
def submit(lab, profile, bucket, data, settings, flavor, engine, nodes, name, target, cards, out, wait, dry_run):
    """Train LAB as a job: copy its data and code to a bucket, start the job there, bring its Run back.

    What git tracks below the lab and labkit is copied, as it is now. A rehearsal with a folder as bucket needs no
    account. The bucket's server is OBS_ENDPOINT; ModelArts is that of its region, or of MODELARTS_REGION or
    MODELARTS_ENDPOINT; the project is MODELARTS_PROJECT_ID. The account's keys are OBS_ACCESS_KEY_ID and
    OBS_SECRET_ACCESS_KEY, with OBS_SECURITY_TOKEN if there is one, or HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or in
    ~/.huaweicloud/credentials. Ctrl-C while waiting does not stop a job of ModelArts, which costs money until it ends:
    `labkit jobs stop ID` does.

    \b
    Example:  labkit submit cifar10 --target local
              labkit submit cifar10 --bucket obs://my-bucket/course --dry-run
              labkit submit cifar10 --bucket obs://my-bucket/course \\
                  --data obs://my-bucket/cifar-10-batches-bin --wait
    """
    from labkit.modelarts import submission as submissions
    from labkit.obs.place import parse

    local = target == "local"
    if local and not dry_run and sys.platform == "win32":
        environment.require_linux("labkit submit --target local", "it stops a job by Unix signals")
    _require_sense(local, bucket, {"flavor": flavor, "engine": engine, "nodes": nodes, "wait": wait}, {"cards": cards})
    given = {"flavor": flavor, "engine": _engine(engine), "nodes": nodes}
    given = {key: value for key, value in given.items() if value is not None}
    profile, bucket = profile or ("sample" if local else "full"), bucket or (LOCAL_BUCKET if local else None)
    asked = submissions.prepare(lab, profile, bucket, data, settings, name, not dry_run, **given)
    if asked.recipe.baseline:
        only = f"the baseline is not trained; that takes a job of its own: --profile {asked.recipe.baseline}"
        click.echo(only, err=True)
    out = out or Path("runs") / asked.spec.name
    if not dry_run:
        require_room(out, "another --name, or --out")
    with tempfile.TemporaryDirectory(prefix="labkit-code-") as folder:
        submissions.pack(asked, Path(folder))
        if dry_run:
            _tell_plan(asked, Path(folder), submissions)
            return
        client = None if local else _client(asked, submissions)
        store = connected(asked.bucket)
        if asked.local:
            require_writable(parse(asked.bucket).path, f"--bucket {asked.bucket}")
        submissions.require_new(asked, Path(folder), store)
        _upload(asked, Path(folder), store, submissions)
    if local:
        _rehearse(asked, cards or 1, out)
    else:
        _start(client, asked, out, wait, submissions)


def _require_sense(local, bucket, modelarts_only, local_only):
    """Usage errors: options that mean nothing for this target."""
    for name, value in (modelarts_only if local else local_only).items():
        if value:
            raise click.UsageError(f"--{name}: only for --target {'modelarts' if local else 'local'}")
    if bucket and bucket.startswith("file://") and not local:
        raise click.UsageError(f"--bucket {bucket}: a bucket on this machine is for --target local")


def _engine(text):
    if text is None:
        return None
    name, colon, version = text.partition(":")
    if not (name and version):
        raise click.BadParameter("write NAME:VERSION", param_hint="--engine")
    return {"name": name, "version": version}


def _client(asked, submissions):
    """ModelArts, if it knows us and offers what the job needs: asked before anything is copied."""
    from labkit.modelarts.client import Client

    client = Client.connect(notice=lambda line: click.echo(line, err=True))
    submissions.require_offered(asked.spec, client)
    if taken := client.find(asked.spec.name):
        raise LabkitError(f"{asked.spec.name}: there is a job of this name already ({taken[0].id})")
    return client


def _told(what, source, target):
    """A line about what is copied."""
    sizes = [file.stat().st_size for file in source.rglob("*") if file.is_file()]
    place = "" if what == "code" else f" of {source}"
    return f"{what}: {len(sizes)} files{place}, {sum(sizes):,} bytes, to {target}"


def _tell_plan(asked, code, submissions):
    from labkit.training.provenance import COMMIT

    body = asked.spec.body()
    variables = body["algorithm"]["environments"]  # of job.yaml, as parameters are; one may be a key
    body["algorithm"]["environments"] = {key: variables[key] if key == COMMIT else "***" for key in variables}
    for one in body["algorithm"]["parameters"]:
        one["value"] = one["value"] if one["name"] == "profile" else "***"
    text = json.dumps(body, indent=2)
    if asked.local:  # a request names places as /BUCKET/KEY
        text = text.replace(f"/{submissions.REHEARSAL.removeprefix('obs://')}/", f"{asked.bucket.rstrip('/')}/")
    click.echo(text)
    for copy in submissions.copies(asked, code):
        click.echo(f"would copy {_told(*copy)}", err=True)
    click.echo(f"would fetch the Run from {asked.run}", err=True)


@contextmanager
def _watched(*part):
    click.echo(f"copying {_told(*part)}", err=True)
    with bar() as progress:
        yield progress


def _upload(asked, code, store, submissions):
    try:
        submissions.upload(asked, code, _watched, store)
    except KeyboardInterrupt:
        click.echo("\nstopped; the job was not started, and what is there is not copied again", err=True)
        sys.exit(130)


def _rehearse(asked, cards, out):
    from labkit.modelarts.rehearsal import rehearse

    name = asked.spec.name
    click.echo(f"job {name}: Running, on this machine, cards: {cards}", err=True)
    try:
        with interrupts.stopped_once():
            status = rehearse(asked, cards, lambda text: click.echo(text, nl=False))
    except KeyboardInterrupt:
        click.echo(f"\nstopped; what it wrote is in {asked.run}\nfetch it with: {_fetching(asked, out)}", err=True)
        sys.exit(130)
    status = interrupts.shell_status(status)
    click.echo(f"job {name}: {'Failed' if status else 'Completed'}, exit status {status}", err=True)
    sys.exit(_fetch(asked, out, status))


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
        f"its Run, when it has ended: {_fetching(asked, out)}"
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
    sys.exit(_fetch(asked, out, 0 if ended.phase == "Completed" else 1))


def _fetching(asked, out):
    """The command that fetches the Run of a job."""
    to = [] if out == Path("runs") / asked.spec.name else ["--out", str(out)]
    return shlex.join(["labkit", "jobs", "fetch", asked.spec.name, "--bucket", asked.bucket, *to])


def _fetch(asked, out, status):
    """Fetch the Run; the exit status: the job's, or 1 where it ended well and left no Run, or a damaged one."""
    try:
        found = fetch_run(asked.bucket, asked.spec.name, out)
    except LabkitError as error:
        click.echo(f"Error: {error}", err=True)
        if not out.exists():
            click.echo(f"fetch the Run with: {_fetching(asked, out)}", err=True)
        found = False
    return status or (0 if found else 1)
