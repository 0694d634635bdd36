"""The commands that look at and copy to and from buckets: labkit obs. The SDK waits until a server is asked."""

import json
import os
import signal
import sys
from contextlib import contextmanager

import click

from labkit.obs.place import CloudError, Local, Remote, as_cloud_errors, parse

SHOWN = 20  # files that failed, by name


class Place(click.ParamType):
    """A path or URL, looked at and handed on as it is: a "/" at its end means something."""

    name = "place"

    def convert(self, value, param, context):
        try:
            parse(value)
        except CloudError as error:
            self.fail(str(error), param, context)
        return value


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
dry_run = click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
deadline = click.option(
    "--deadline", type=click.FloatRange(0, min_open=True), default=300.0, show_default=True, metavar="SECONDS",
    help="Without success for so long, a request is given up.",
)  # fmt: skip
COPYING = (
    click.argument("source", metavar="SRC", type=Place()),
    click.argument("target", metavar="DST", type=Place()),
    click.option("--include", multiple=True, metavar="PATTERN", help="Only files of a folder like this; repeatable."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="No files of a folder like this; repeatable."),
    click.option("--jobs", type=click.IntRange(min=1), default=8, show_default=True, help="Requests at a time."),
    click.option("--force", is_flag=True, help="Send what is there already as well."),
    deadline,
    dry_run,
    as_json,
)


def copying(command):
    """Give a command what all copying takes."""
    for option in reversed(COPYING):
        command = option(command)
    return command


@click.group()
def obs():
    """Copy between this machine and a bucket of OBS or S3, and look at what is there.

    A place is obs://BUCKET/KEY, s3://BUCKET/KEY, or a path.

    \b
    The server   OBS_ENDPOINT; in a job S3_ENDPOINT and S3_USE_HTTPS (0 or 1)
    The account  OBS_ACCESS_KEY_ID, OBS_SECRET_ACCESS_KEY, OBS_SECURITY_TOKEN
                 or HUAWEICLOUD_SDK_AK, HUAWEICLOUD_SDK_SK and
                    HUAWEICLOUD_SDK_SECURITY_TOKEN
                 or ACCESS_KEY_ID, SECRET_ACCESS_KEY, SECURITY_TOKEN (in a job)
                 or ak, sk, security_token in ~/.huaweicloud/credentials
    If need be   OBS_SIGNATURE (obs, v2 or v4), OBS_REGION (for v4),
                 OBS_CA_FILE (a file of certificates to believe)

    Exit status 0, 1 where something or all of it failed, 2 where the command makes no sense, 130 after Ctrl-C, 143
    after SIGTERM.

    \b
    Example:  labkit obs ls obs://my-bucket
              labkit obs cp data/sample obs://my-bucket/sample
    """
    context = click.get_current_context()
    goes_on = context.invoked_subcommand in ("cp", "sync", "rm")
    context.with_resource(_ending_at_once("the same command goes on from here" if goes_on else ""))


@obs.command()
@copying
def cp(source, target, **options):
    """Copy SRC to DST: a file, or what is in a folder. One of the two, or both, are on this machine.

    Of a folder, what is in it goes into DST, with or without a "/" at its end. A file goes into DST where that is a
    folder of this machine or ends with "/"; otherwise DST is its new name. Of a key that is both an object and a
    folder, obs://b/k is the object, obs://b/k/ the folder. Nothing in DST is ever deleted.

    What is there already, by size and checksum, is left. Cut off anywhere, the same command goes on. All is compared
    by checksum afterwards. In a pattern, * stands for anything, also for "/".

    \b
    Example:  labkit obs cp model.ckpt obs://my-bucket/models/           as models/model.ckpt
              labkit obs cp model.ckpt obs://my-bucket/models/best.ckpt  under a new name
              labkit obs cp obs://my-bucket/runs/mine runs/mine --exclude '*.ckpt'
              labkit obs cp data/sample obs://my-bucket/sample --dry-run
    """
    _copy(source, target, **options)


@obs.command()
@copying
def sync(source, target, **options):
    """Have the folder DST hold all that the folder SRC has.

    What is there already, by size and checksum, is left; what only DST has stays. As `labkit obs cp`, but of folders
    only: a SRC that is a file is refused, and obs://b/k is never the object k.

    \b
    Example:  labkit obs sync runs/mine obs://my-bucket/runs/mine
              labkit obs sync obs://my-bucket/runs/mine runs/mine --include '*.json*'
    """
    place = parse(source)
    if isinstance(place, Local) and place.path.is_file():
        raise click.UsageError(f"{source}: a file, no folder; copy it with `labkit obs cp`")
    _copy(source if source.endswith("/") else f"{source}/", target, **options)


@obs.command()
@click.argument("place", metavar="PLACE", type=Place())
@deadline
@as_json
def ls(place, deadline, as_json):
    """List the files of PLACE, with all below it, and their sizes in bytes.

    \b
    Example:  labkit obs ls obs://my-bucket/runs/mine
    """
    from labkit.obs import copying as cloud

    with _failure_as_json(as_json):
        found = cloud.ls(place, store=connected(place, deadline=deadline))
        if not found and isinstance(parse(place), Remote) and parse(place).key.strip("/"):
            raise CloudError(f"{place}: there is no such object or folder")
    total = sum(item.size for item in found)
    if as_json:
        files = [{"name": item.name, "size": item.size} for item in found]
        _print({"place": place, "files": files, "bytes": total})
        return
    for item in found:
        click.echo(f"{item.size:15,}  {_shown(item.name)}")
    click.echo(f"{total:15,}  bytes in {_files(len(found))}", err=True)


@obs.command()
@click.argument("url", type=Place())
@click.option("--recursive", is_flag=True, help="Remove all below URL.")
@click.option("--yes", is_flag=True, help="Yes, the whole bucket; the empty bucket stays.")
@deadline
@dry_run
@as_json
def rm(url, recursive, yes, deadline, dry_run, as_json):
    """Remove the object URL, or with --recursive all below the folder URL.

    Files of this machine are not removed. A whole bucket takes --recursive and --yes.

    \b
    Example:  labkit obs rm obs://my-bucket/models/old.ckpt
              labkit obs rm obs://my-bucket/runs/old --recursive --dry-run
    """
    from labkit.obs import copying as cloud

    place = parse(url)
    if isinstance(place, Local):
        raise click.UsageError(f"{url}: only objects are removed, no files of this machine")
    if not recursive and (not place.key or place.key.endswith("/")):
        raise click.UsageError(f"{url}: what is in a folder or bucket is removed with --recursive")
    if not place.key.strip("/") and not yes and not dry_run:
        raise click.UsageError(f"{url}: a whole bucket is emptied with --yes; see first with --dry-run")
    failed, failure = [], None
    with _failure_as_json(as_json):
        try:
            keys = cloud.rm(
                url, recursive=recursive, empty_bucket=yes or dry_run, dry_run=dry_run,
                store=connected(url, deadline=deadline),
            )
        except cloud.RemoveError as error:
            keys, failed, failure = error.removed, error.failed, error
    if as_json:
        told = [{"key": key, **_told(error)} for key, error in failed]
        _print({"url": url, "dry_run": dry_run, "removed": keys, "failed": told})
    else:
        for key in keys:
            click.echo(f"{'would remove' if dry_run else 'removed'}  obs://{place.bucket}/{_shown(key)}")
    if failure:
        raise failure


@obs.command()
@click.argument("source", metavar="SRC", type=Place())
@click.argument("target", metavar="DST", type=Place())
@deadline
@as_json
def verify(source, target, deadline, as_json):
    """Compare by checksum: is all of SRC in DST? Exit status 1 where something is missing or another there.

    SRC and DST as in `labkit obs cp`. An object that another tool has uploaded in parts, or that the server encrypts,
    may have no checksum to compare: it is told apart from what differs, and the exit status is 1.

    \b
    Example:  labkit obs verify runs/mine obs://my-bucket/runs/mine
    """
    from labkit.obs import copying as cloud

    unknown = []
    with _failure_as_json(as_json):
        differences = cloud.verify(source, target, unknown=unknown, store=connected(source, target, deadline=deadline))
    ok = not (differences or unknown)
    if as_json:
        told = {"ok": ok, "differences": differences, "unknown": unknown}
        _print({"source": source, "target": target, **told})
    else:
        for line in differences + unknown:
            click.echo(_shown(line))
        if differences:
            click.echo(f"{_files(len(differences))} of {source} not as in {target}")
        if unknown:
            click.echo(f"{_files(len(unknown))} of {source} of the same size in {target}, and nothing else to tell by")
        if ok:
            click.echo("all is there")
    sys.exit(0 if ok else 1)


# -- What they share -------------------------------------------------------------------------------


def _copy(source, target, include, exclude, jobs, force, deadline, dry_run, as_json):
    from labkit.obs import copying as cloud

    _require_sense(source, target)
    done = {"copied": [], "skipped": []}
    failure = None
    with _failure_as_json(as_json), bar() as progress:
        try:
            report = cloud.copy(
                source, target, jobs=jobs, incremental=not force, dry_run=dry_run, include=include, exclude=exclude,
                progress=progress, each=lambda item, outcome: done[outcome].append(item),
                store=connected(source, target, deadline=deadline),
            )  # fmt: skip
        except cloud.CopyError as error:
            report, failure = error.report, error
    copied = sorted(done["copied"], key=lambda item: item.name)
    if as_json:
        failed = [{"name": name, **_told(error)} for name, error in report.failed]
        counts = {"copied": report.copied, "skipped": report.skipped, "bytes": report.bytes, "failed": failed}
        _print({"source": source, "target": target, "dry_run": dry_run, **counts, "files": [i.name for i in copied]})
    elif dry_run:
        for item in copied:
            click.echo(f"would copy {item.size:15,}  {_shown(item.name)}")
    if failure:
        for name, error in report.failed[1:SHOWN]:
            click.echo(f"{_shown(name)}: {error}", err=True)
        raise failure
    if not as_json:
        verb = "would be copied" if dry_run else "copied"
        click.echo(f"{_files(report.copied)} {verb}, {report.bytes:,} bytes; {report.skipped:,} there already")


def _require_sense(source, target):
    """Usage errors that no server needs to be asked for."""
    from labkit.obs import listing

    ends = parse(source), parse(target)
    if all(isinstance(end, Remote) for end in ends):
        raise click.UsageError(f"{source} to {target}: one of the two must be on this machine")
    if all(isinstance(end, Local) for end in ends):
        paths = [end.path for end in ends]
        if listing.resolved(paths[0]) != listing.resolved(paths[1]):
            try:
                listing.require_apart(*paths, single=not paths[0].is_dir())
            except CloudError as error:
                raise click.UsageError(str(error)) from None


def connected(*places, deadline=300.0):
    """The server, with this deadline in seconds; None where all places are on this machine."""
    if all(isinstance(parse(place), Local) for place in places):
        return None
    from labkit.obs.store import Store

    return Store.connect(deadline=deadline, tell=_tell)


def _tell(line):
    """A line on stderr, above a bar if there is one."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


@contextmanager
def bar():
    """What to call with bytes done and bytes to do: moves a bar, on a terminal."""
    from tqdm import tqdm

    with tqdm(unit="B", unit_scale=True, dynamic_ncols=True, delay=0.5, disable=None) as bar:

        def progress(done, total):
            bar.total = total
            bar.update(done - bar.n)

        yield progress


@contextmanager
def _failure_as_json(as_json):
    """Where all fails, the reason is the document; the error goes on to stderr and the exit status."""
    try:
        with as_cloud_errors():
            yield
    except CloudError as error:
        if as_json:
            _print(_told(error))
        raise


@contextmanager
def _ending_at_once(hint):
    """Ctrl-C and SIGTERM end the process without waiting for requests under way: a copy may be cut off anywhere."""

    def end(number, frame):
        os.write(2, f"\nstopped{'; ' if hint else ''}{hint}\n".encode())
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(error):
    return {"error": str(error), "status": error.status, "code": error.code, "request_id": error.request_id}


def _print(document):
    click.echo(json.dumps(document, indent=2))


def _shown(name):
    """A name as it is, unless it would move the cursor or cannot be printed."""
    return name if name.isprintable() else ascii(name)


def _files(count):
    return f"{count:,} {'file' if count == 1 else 'files'}"
