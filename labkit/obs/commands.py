"""The commands that look at and copy to and from buckets: labkit obs. The SDK is imported once a server is asked."""

import os
import signal
import sys
from contextlib import contextmanager

import click

from labkit.obs import access
from labkit.obs.console import AS_JSON, DRY_RUN, Place, bar, connected, deadline, print_json, warn, with_options
from labkit.obs.place import CloudError, Local, Remote, as_cloud_errors, parse

DEADLINE = deadline(300.0)
SOURCE_AND_TARGET = (
    click.argument("source", metavar="SRC", type=Place()),
    click.argument("target", metavar="DST", type=Place()),
)
SHOWN = 20  # files that failed, by name


COPYING = (
    *SOURCE_AND_TARGET,
    click.option("--include", multiple=True, metavar="PATTERN", help="Only files of a folder like this; repeatable."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="No files of a folder like this; repeatable."),
    click.option("--jobs", type=click.IntRange(min=1), default=8, show_default=True, help="Requests at a time."),
    click.option("--force", is_flag=True, help="Copy what is there already as well."),
    DEADLINE,
    DRY_RUN,
    AS_JSON,
)


@click.group(epilog=access.HELP)
def obs():
    """Copy between this machine and a bucket of OBS or S3, and look at what is there.

    A place is obs://BUCKET/KEY, s3://BUCKET/KEY, or a path.

    Exit status: 0; 1 if something or all of it failed; 2 if the command makes no sense; 130 after Ctrl-C, 143 after
    SIGTERM.

    \b
    Example:  labkit obs ls obs://my-bucket
              labkit obs cp data/sample obs://my-bucket/sample
    """
    context = click.get_current_context()
    resumes = context.invoked_subcommand in ("cp", "sync", "rm")
    context.with_resource(_ending_at_once("; the same command resumes it" if resumes else ""))


@obs.command()
@with_options(*COPYING)
def cp(source, target, **options):
    """Copy SRC to DST: a file, or what is in a folder. One of the two, or both, are on this machine.

    The files in a folder go into DST, with or without a "/" at its end. A single file goes into DST if that is a folder
    of this machine or ends with "/"; otherwise DST is its new name. If a key is both an object and a folder, obs://b/k
    is the object, obs://b/k/ the folder. Nothing in DST is ever deleted.

    A file that is there already, by size and checksum, is not copied again. If a copy was cut off, the same command
    resumes it. Everything is compared by checksum afterwards. In a pattern, * stands for anything, also for "/".

    \b
    Example:  labkit obs cp model.ckpt obs://my-bucket/models/           as models/model.ckpt
              labkit obs cp model.ckpt obs://my-bucket/models/best.ckpt  under a new name
              labkit obs cp obs://my-bucket/runs/mine runs/mine --exclude '*.ckpt'
              labkit obs cp data/sample obs://my-bucket/sample --dry-run
    """
    _copy(source, target, **options)


@obs.command()
@with_options(*COPYING)
def sync(source, target, **options):
    """Copy to the folder DST what the folder SRC has and DST lacks.

    A file that is there already, by size and checksum, is not copied again; what only DST has stays. Like `labkit obs
    cp`, but for folders only: a SRC that is a file is refused, and obs://b/k is never the object k.

    \b
    Example:  labkit obs sync runs/mine obs://my-bucket/runs/mine
              labkit obs sync obs://my-bucket/runs/mine runs/mine --include '*.json*'
    """
    place = parse(source)
    if isinstance(place, Local) and place.path.is_file():
        raise click.UsageError(f"{source}: a file, not a folder; copy it with `labkit obs cp`")
    _copy(source if source.endswith("/") else f"{source}/", target, **options)


@obs.command()
@click.argument("place", metavar="PLACE", type=Place())
@with_options(DEADLINE, AS_JSON)
def ls(place, deadline, as_json):
    """List the files of PLACE, with all below it, and their sizes in bytes.

    \b
    Example:  labkit obs ls obs://my-bucket/runs/mine
    """
    from labkit.obs import copying

    with _failure_as_json(as_json):
        found = copying.ls(place, store=connected(place, deadline=deadline))
        if not found and isinstance(parse(place), Remote) and parse(place).prefix:
            raise CloudError(f"{place}: there is no such object or folder")
    total = sum(item.size for item in found)
    if as_json:
        files = [{"name": item.name, "size": item.size} for item in found]
        print_json({"place": place, "files": files, "bytes": total})
        return
    for item in found:
        click.echo(f"{item.size:15,}  {_shown(item.name)}")
    click.echo(f"{total:15,}  bytes in {_files(len(found))}", err=True)


@obs.command()
@click.argument("url", type=Place())
@click.option("--recursive", is_flag=True, help="Remove all below URL.")
@click.option("--yes", is_flag=True, help="Empty a whole bucket; the bucket itself stays.")
@with_options(DEADLINE, DRY_RUN, AS_JSON)
def rm(url, recursive, yes, deadline, dry_run, as_json):
    """Remove the object URL, or with --recursive all below the folder URL.

    Files of this machine are not removed. A whole bucket takes --recursive and --yes.

    \b
    Example:  labkit obs rm obs://my-bucket/models/old.ckpt
              labkit obs rm obs://my-bucket/runs/old --recursive --dry-run
    """
    from labkit.obs import copying

    place = parse(url)
    if isinstance(place, Local):
        raise click.UsageError(f"{url}: only objects are removed, no files of this machine")
    if not recursive and (not place.key or place.key.endswith("/")):
        raise click.UsageError(f"{url}: what is in a folder or bucket is removed with --recursive")
    if not place.prefix and not yes and not dry_run:
        raise click.UsageError(f"{url}: a whole bucket is emptied with --yes; look first with --dry-run")
    failure = None
    with _failure_as_json(as_json):
        store = connected(url, deadline=deadline)
        try:
            keys = copying.rm(url, recursive=recursive, empty_bucket=yes or dry_run, dry_run=dry_run, store=store)
        except copying.RemoveError as error:
            keys, failure = error.removed, error
    if as_json:
        failed = [{"key": key, **_fields(error)} for key, error in failure.failed] if failure else []
        print_json({"url": url, "dry_run": dry_run, "removed": keys, "failed": failed})
    else:
        for key in keys:
            click.echo(f"{'would remove' if dry_run else 'removed'}  obs://{place.bucket}/{_shown(key)}")
    if failure:
        raise failure


@obs.command()
@with_options(*SOURCE_AND_TARGET, DEADLINE, AS_JSON)
def verify(source, target, deadline, as_json):
    """Compare by checksum: is all of SRC in DST? Exit status 1 if something is missing or differs.

    SRC and DST as in `labkit obs cp`. An object that another tool has uploaded in parts, or that the server encrypts,
    may have no checksum to compare. It is listed as such, and the exit status is 1.

    \b
    Example:  labkit obs verify runs/mine obs://my-bucket/runs/mine
    """
    from labkit.obs import copying

    unknown = []
    with _failure_as_json(as_json):
        store = connected(source, target, deadline=deadline)
        differences = copying.verify(source, target, unknown=unknown, store=store)
    ok = not (differences or unknown)
    if as_json:
        print_json({"source": source, "target": target, "ok": ok, "differences": differences, "unknown": unknown})
        sys.exit(0 if ok else 1)
    for line in differences + unknown:
        click.echo(_shown(line))
    if differences:
        click.echo(f"{_files(len(differences))} of {source} missing in {target}, or different there")
    if unknown:
        click.echo(f"{_files(len(unknown))} of {source} the same size in {target}, but without a checksum to compare")
    if ok:
        click.echo("all is there")
    sys.exit(0 if ok else 1)


# -- What they share -------------------------------------------------------------------------------


def _copy(source, target, include, exclude, jobs, force, deadline, dry_run, as_json):
    from labkit.obs import copying, plan

    try:
        plan.require_possible(parse(source), parse(target))
    except CloudError as error:
        raise click.UsageError(str(error)) from None
    copied, failure = [], None
    with _failure_as_json(as_json), bar() as progress:
        try:
            report = copying.copy(
                source, target, jobs=jobs, incremental=not force, dry_run=dry_run, include=include, exclude=exclude,
                progress=progress, each=lambda item, outcome: copied.append(item) if outcome == "copied" else None,
                store=connected(source, target, deadline=deadline),
            )  # fmt: skip
        except copying.CopyError as error:
            report, failure = error.report, error
    copied.sort(key=lambda item: item.name)
    if as_json:
        failed = [{"name": name, **_fields(error)} for name, error in report.failed]
        counts = {"copied": report.copied, "skipped": report.skipped, "bytes": report.bytes, "failed": failed}
        names = [item.name for item in copied]
        print_json({"source": source, "target": target, "dry_run": dry_run, **counts, "files": names})
    elif dry_run:
        for item in copied:
            click.echo(f"would copy {item.size:15,}  {_shown(item.name)}")
    if failure:
        for name, error in report.failed[1:SHOWN]:
            warn(f"{_shown(name)}: {error}")
        raise failure
    if not as_json:
        verb = "would be copied" if dry_run else "copied"
        click.echo(f"{_files(report.copied)} {verb}, {report.bytes:,} bytes; {report.skipped:,} there already")


@contextmanager
def _failure_as_json(as_json):
    """If the command fails as a whole, the document is the error, which stderr and the exit status report too."""
    try:
        with as_cloud_errors():
            yield
    except CloudError as error:
        if as_json:
            print_json(_fields(error))
        raise


@contextmanager
def _ending_at_once(hint):
    """Ctrl-C and SIGTERM end the process without waiting for requests under way: a copy may be cut off anywhere."""

    def end(number, frame):
        os.write(2, f"\nstopped{hint}\n".encode())
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fields(error):
    return {"error": str(error), "status": error.status, "code": error.code, "request_id": error.request_id}


def _shown(name):
    """A name unchanged, unless it would move the cursor or cannot be printed."""
    return name if name.isprintable() else ascii(name)


def _files(count):
    return f"{count:,} {'file' if count == 1 else 'files'}"
