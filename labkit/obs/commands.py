"""`labkit obs` and its commands. The SDK is imported only for requests to a server."""

import os
import signal
import sys
from contextlib import contextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import click

from labkit.obs import access
from labkit.obs.console import DRY_RUN, QUIET, bar, connected, count, deadline, shown, warn
from labkit.obs.place import parse

SHOWN = 20  # failed files to list by name
DEADLINE = deadline()
SOURCE, TARGET = click.argument("source", metavar="SRC"), click.argument("target", metavar="DST")


@click.group(epilog=access.HELP)
def obs():
    """Copy between this machine and a bucket of OBS or S3, and list, compare and remove objects.

    A place is obs://BUCKET/KEY, s3://BUCKET/KEY, or a path.

    Exit status: 0; 1 if anything failed; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM.

    \b
    Example:  labkit obs ls obs://my-bucket
              labkit obs cp data/sample obs://my-bucket/sample
    """
    context = click.get_current_context()
    resumes = context.invoked_subcommand in ("cp", "rm")
    context.with_resource(_ending_at_once("; the same command resumes it" if resumes else ""))


@obs.command()
@SOURCE
@TARGET
@click.option("--include", multiple=True, metavar="PATTERN", help="Of a folder, copy only matches; repeatable.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Of a folder, copy no matches; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Requests at a time.")
@click.option("--force", is_flag=True, help="Also copy files that are already there.")
@DEADLINE
@DRY_RUN
@QUIET
def cp(source, target, deadline, quiet, force, **options):
    """Copy a file, or the contents of a folder, from SRC to DST. At least one of them must be on this machine.

    The files in a folder go into DST, with or without a "/" at its end. A single file goes into DST if that is a folder
    on this machine or ends with "/"; otherwise DST is its new name. If a key is both an object and a folder, obs://b/k
    is the object, obs://b/k/ the folder. Nothing in DST is ever deleted.

    A file that is already there, by size and checksum, is not copied again. If a copy was interrupted, the same command
    resumes it. All copies are verified by checksum. In a pattern, * matches anything, including "/".

    \b
    Example:  labkit obs cp model.ckpt obs://my-bucket/models/           as models/model.ckpt
              labkit obs cp model.ckpt obs://my-bucket/models/best.ckpt  under a new name
              labkit obs cp obs://my-bucket/runs/mine runs/mine --exclude '*.ckpt'
              labkit obs cp data/sample obs://my-bucket/sample --dry-run
    """
    from labkit.obs import copying

    items, failure, dry_run = {"copied": [], "skipped": []}, None, options["dry_run"]
    with bar(quiet) as progress:
        try:
            report = copying.copy(
                source, target, incremental=not force, progress=progress,
                each=lambda item, outcome: items[outcome].append(item),
                store=connected(source, target, deadline=deadline), **options,
            )  # fmt: skip
        except copying.CopyError as error:
            report, failure = error.report, error
    if dry_run:
        for item in sorted(items["copied"], key=lambda item: item.name):
            click.echo(f"would copy {item.size:15,}  {shown(item.name)}")
    if failure:
        for name, error in report.failed[1:SHOWN]:
            warn(f"{shown(name)}: {error}")
        raise failure
    if dry_run or not quiet:
        would = "would be " if dry_run else ""
        click.echo(f"{count(report.copied)} {would}copied, {report.bytes:,} bytes; {report.skipped:,} there already")


@obs.command()
@SOURCE
@TARGET
@DEADLINE
def verify(source, target, deadline):
    """Compare by checksum: is all of SRC in DST? Exit status 1 if something is missing or differs.

    SRC and DST as in `labkit obs cp`. An object that another tool uploaded in parts, or that the server encrypts, may
    have no checksum to compare. The output says so, and the exit status is 1.

    \b
    Example:  labkit obs verify runs/mine obs://my-bucket/runs/mine
    """
    from labkit.obs import copying

    unknown = []
    differences = copying.verify(source, target, unknown=unknown, store=connected(source, target, deadline=deadline))
    for line in differences + unknown:
        click.echo(shown(line))
    if differences:
        click.echo(f"{count(len(differences))} of {source} missing in {target}, or different there")
    if unknown:
        click.echo(f"{count(len(unknown))} of {source} the same size in {target}, but without a checksum to compare")
    if differences or unknown:
        sys.exit(1)
    click.echo("all is there")


@obs.command()
@click.argument("url")
@click.option("--recursive", is_flag=True, help="List everything below URL instead of one level.")
@DEADLINE
def ls(url, recursive, deadline):
    """List the objects at URL: sizes in bytes, dates in this machine's time zone, and names. Folders end with "/".

    \b
    Example:  labkit obs ls obs://my-bucket/runs
              labkit obs ls obs://my-bucket/runs/mine --recursive
    """
    from labkit.obs import copying

    files, folders = copying.level(url, recursive=recursive, store=connected(url, deadline=deadline))
    for name in folders:
        click.echo(f"{'':15}  {'':19}  {shown(name)}")
    for item in files:
        date = _moment(item.at.modified)
        text = f"{date.astimezone():%Y-%m-%d %H:%M:%S}" if date else ""
        click.echo(f"{item.size:15,}  {text:19}  {shown(item.name)}")
    below = f", {len(folders):,} {'folder' if len(folders) == 1 else 'folders'}" if folders else ""
    click.echo(f"{sum(item.size for item in files):15,}  bytes in {count(len(files))}{below}", err=True)


@obs.command()
@click.argument("url")
@click.option("--recursive", is_flag=True, help="Remove everything below URL.")
@click.option("--yes", is_flag=True, help="Empty a whole bucket; the bucket itself stays.")
@DEADLINE
@DRY_RUN
@QUIET
def rm(url, recursive, yes, deadline, dry_run, quiet):
    """Remove the object URL, or with --recursive everything below the folder URL.

    Files on this machine are never removed. Emptying a whole bucket needs --recursive and --yes.

    \b
    Example:  labkit obs rm obs://my-bucket/models/old.ckpt
              labkit obs rm obs://my-bucket/runs/old --recursive --dry-run
    """
    from labkit.obs import copying

    store = connected(url, deadline=deadline)
    keys = copying.rm(url, recursive=recursive, empty_bucket=yes or dry_run, dry_run=dry_run, store=store)
    for key in keys if dry_run or not quiet else ():
        click.echo(f"{'would remove' if dry_run else 'removed'}  obs://{parse(url).bucket}/{shown(key)}")


def _moment(text):
    """The time in a listing (2026-11-21T12:00:00.000Z) or a header (Sat, 21 Nov 2026 12:00:00 GMT); None for none."""
    try:
        if text and text[:1].isdigit():
            return datetime.fromisoformat(text.partition(".")[0].rstrip("Z")).replace(tzinfo=timezone.utc)
        return parsedate_to_datetime(text).astimezone(timezone.utc)
    except (TypeError, ValueError):
        return None


@contextmanager
def _ending_at_once(hint):
    """Ctrl-C and SIGTERM end the process without waiting for its requests: a copy may be interrupted anywhere."""

    def end(number, frame):
        os.write(2, f"\nstopped{hint}\n".encode())
        os._exit(128 + number)

    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
