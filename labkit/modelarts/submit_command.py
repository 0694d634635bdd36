"""`labkit submit`: a lab as a training job of ModelArts, or as a rehearsal of one on this machine."""

import json
import shlex
import signal
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from labkit.modelarts.jobs_commands import fetch_run, follow_job, require_room, require_writable
from labkit.obs import access
from labkit.obs.console import DRY_RUN, bar, connected, warn
from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError

LOCAL_BUCKET = "file://runs/bucket"  # of rehearsals, where none is named


@click.command(epilog=access.HELP)
@click.argument("lab")
@click.option("--profile", help="Profile of the lab's recipe. Default: full; with --target local, sample.")
@click.option("--bucket", metavar="URL", help="obs://BUCKET[/FOLDER]; with --target local also file://DIR, "
              "absolute or relative. Default: job.yaml's; with --target local, file://runs/bucket.")  # fmt: skip
@click.option("--data", metavar="URL|FOLDER", help="Data in OBS, or a folder to copy. Default: job.yaml's, else the "
              "recipe's folder, as `labkit train` takes it.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the recipe; repeatable.")
@click.option("--flavor", help="Machine, instead of job.yaml's; see `labkit jobs flavors`.")
@click.option("--engine", metavar="NAME:VERSION", help="Image, instead of job.yaml's; see `labkit jobs engines`.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of machines, instead of job.yaml's.")
@click.option("--name", help="Name of the job. Default: LAB-PROFILE-TIME-NUMBER.")
@click.option("--target", type=click.Choice(["modelarts", "local"]), default="modelarts", show_default=True,
              help="local: rehearse the job on this machine, with paths (API v2), and wait.")  # fmt: skip
@click.option("--cards", type=click.IntRange(min=1), help="With --target local: cards of the machine. As in a custom "
              "image, one start file starts a process for each. Default: 1.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the Run that is fetched. Default: runs/NAME.")
@click.option("--wait", is_flag=True, help="Follow the job and its log to the end and fetch its Run.")
@DRY_RUN
def submit(lab, profile, bucket, data, settings, flavor, engine, nodes, name, target, cards, out, wait, dry_run):
    """Train LAB as a job: copy its data and code to a bucket, start the job there, bring its Run back.

    What git tracks below the lab and labkit is copied, as it is now. A rehearsal with a folder as bucket needs no
    account. With --dry-run, the job is printed as JSON. Ctrl-C while waiting does not stop a job of ModelArts, which
    costs money until it ends: `labkit jobs stop ID` does.

    \b
    Example:  labkit submit cifar10 --target local
              labkit submit cifar10 --bucket obs://my-bucket/course --dry-run
              labkit submit cifar10 --bucket obs://my-bucket/course \\
                  --data obs://my-bucket/cifar-10-batches-bin --wait
    """
    from labkit.modelarts import claims, packing, submission
    from labkit.obs.place import parse

    local = target == "local"
    if local and not dry_run and sys.platform == "win32":
        environment.require_linux("labkit submit --target local", "it stops a job by Unix signals")
    _require_sense(local, bucket, {"flavor": flavor, "engine": engine, "nodes": nodes, "wait": wait}, {"cards": cards})
    given = {"flavor": flavor, "engine": _engine(engine), "nodes": nodes}
    given = {key: value for key, value in given.items() if value is not None}
    profile, bucket = profile or ("sample" if local else "full"), bucket or (LOCAL_BUCKET if local else None)
    asked = submission.prepare(lab, profile, bucket, data, settings, name, not dry_run, **given)
    if asked.recipe.baseline:
        warn(f"the baseline is not trained; that takes a job of its own: --profile {asked.recipe.baseline}")
    out = out or Path("runs") / asked.spec.name
    if not dry_run:
        require_room(out, "another --name, or --out")
    fetching = _fetching(asked, out)
    with ExitStack() as named:
        code = Path(named.enter_context(tempfile.TemporaryDirectory(prefix="labkit-code-")))
        packing.pack(asked, code)
        if dry_run:
            _print_plan(asked, submission.copies(asked, code))
            return
        client = None if local else _client(asked)
        store = connected(asked.bucket)
        if asked.local:
            require_writable(parse(asked.bucket).path, f"--bucket {asked.bucket}")
        submission.require_new(asked, code, store)
        begun = named.enter_context(claims.claimed(asked.folder, asked.spec.name, store))
        with _on_ctrl_c("the job was not started, and what is there is not copied again"):
            submission.upload(asked, code, _watched, store)
        if local:
            status = _rehearse(asked, fetching, begun, cards or 1)
        else:
            status = _start(asked, fetching, begun, client, wait)
    if local or wait:
        sys.exit(_fetch(asked, out, fetching, status))


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


def _client(asked):
    """ModelArts, if it knows us and offers what the job needs: asked before anything is copied."""
    from labkit.modelarts.client import Client
    from labkit.modelarts.submission import require_offered

    client = Client.connect(notice=warn)
    require_offered(asked.spec, client)
    if taken := client.find(asked.spec.name):
        raise LabkitError(f"{asked.spec.name}: there is a job of this name already ({taken[0].id})")
    return client


def _print_plan(asked, copies):
    from labkit.modelarts.submission import REHEARSAL
    from labkit.training.provenance import COMMIT

    body = asked.spec.body()
    variables = body["algorithm"]["environments"]  # of job.yaml, as parameters are; one may be a key
    body["algorithm"]["environments"] = {key: variables[key] if key == COMMIT else "***" for key in variables}
    for one in body["algorithm"]["parameters"]:
        one["value"] = one["value"] if one["name"] == "profile" else "***"
    text = json.dumps(body, indent=2)
    if asked.local:  # a request names places as /BUCKET/KEY
        text = text.replace(f"/{REHEARSAL.removeprefix('obs://')}/", f"{asked.bucket.rstrip('/')}/")
    click.echo(text)
    for copy in copies:
        warn(f"would copy {_described(*copy)}")
    warn(f"would fetch the Run from {asked.run}")


def _described(what, source, target):
    """What is copied, how much of it, and where to."""
    sizes = [file.stat().st_size for file in source.rglob("*") if file.is_file()]
    place = "" if what == "code" else f" of {source}"
    return f"{what}: {len(sizes)} files{place}, {sum(sizes):,} bytes, to {target}"


@contextmanager
def _watched(*part):
    warn(f"copying {_described(*part)}")
    with bar() as progress:
        yield progress


@contextmanager
def _on_ctrl_c(hint):
    """Within, Ctrl-C ends the command with a line that says how things stand."""
    try:
        yield
    except KeyboardInterrupt as error:
        warn("\nstopped" if getattr(error, "told", False) else f"\nstopped; {hint}")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


def _rehearse(asked, fetching, begun, cards):
    """Rehearse the job; its exit status."""
    from labkit.modelarts.rehearsal import rehearse

    name = asked.spec.name
    warn(f"job {name}: Running, on this machine, cards: {cards}")
    with _on_ctrl_c(f"what it wrote is in {asked.run}\nfetch it with: {fetching}"), interrupts.stopped_once():
        status = interrupts.shell_status(rehearse(asked, cards, lambda text: click.echo(text, nl=False), begun))
    warn(f"job {name}: {'Failed' if status else 'Completed'}, exit status {status}")
    return status


def _start(asked, fetching, begun, client, wait):
    """Create the job; where it is waited for, its exit status."""
    with _on_ctrl_c(f"perhaps the job was created; look with: labkit jobs list --name {asked.spec.name}"):
        job = client.create(asked.spec)
        begun()
    warn(f"job {job.name}: {job.id}")
    click.echo(job.id)
    hint = (
        f"the job keeps running; look at it with: labkit jobs show {job.id}\n"
        f"its log: labkit jobs logs {job.id} --follow; stop it: labkit jobs stop {job.id}\n"
        f"its Run, when it has ended: {fetching}"
    )
    if not wait:
        warn(hint)
        return 0
    try:
        return follow_job(client, job.id)
    except KeyboardInterrupt:
        warn(f"\n{hint}")
        sys.exit(130)
    except LabkitError as error:
        raise LabkitError(f"{error}\n{hint}") from None


def _fetching(asked, out):
    """The command that fetches the Run of a job."""
    to = [] if out == Path("runs") / asked.spec.name else ["--out", str(out)]
    return shlex.join(["labkit", "jobs", "fetch", asked.spec.name, "--bucket", asked.bucket, *to])


def _fetch(asked, out, fetching, status):
    """Fetch the Run; the exit status: the job's, or 1 where it ended well and left no Run, or a damaged one."""
    try:
        found = fetch_run(asked.bucket, asked.spec.name, out)
    except LabkitError as error:
        warn(f"Error: {error}")
        if not out.exists():
            warn(f"fetch the Run with: {fetching}")
        found = False
    return status or (0 if found else 1)
