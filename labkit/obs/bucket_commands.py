"""The commands of labkit obs about what is in a bucket: they copy nothing."""

import os
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import click

from labkit.obs import access
from labkit.obs.console import (
    AS_JSON,
    DRY_RUN,
    QUIET,
    Days,
    Place,
    connected,
    count,
    deadline,
    failure_as_json,
    fields,
    print_json,
    shown,
    with_options,
)
from labkit.obs.place import Local, parse

DEADLINE = deadline()


@click.command()
@click.argument("place", metavar="PLACE", type=Place())
@click.option("--recursive", is_flag=True, help="List all below PLACE instead of one level.")
@with_options(DEADLINE, AS_JSON)
def ls(place, recursive, deadline, as_json):
    """List the files of PLACE: sizes in bytes, dates in this machine's time zone, and names. Folders end with "/".

    \b
    Example:  labkit obs ls obs://my-bucket/runs
              labkit obs ls obs://my-bucket/runs/mine --recursive
    """
    from labkit.obs import listing

    with failure_as_json(as_json):
        store = connected(place, deadline=deadline)
        files, folders = listing.below(place, recursive=recursive, store=store)
        rows = [(item.name, item.size, listing.modified(item)) for item in files]
    total = sum(item.size for item in files)
    if as_json:
        listed = [{"name": name, "size": size, "modified": _utc(date)} for name, size, date in rows]
        print_json({"place": place, "folders": folders, "files": listed, "bytes": total})
        return
    for name in folders:
        click.echo(f"{'':15}  {'':19}  {shown(name)}")
    for name, size, date in rows:
        click.echo(f"{size:15,}  {_local(date):19}  {shown(name)}")
    below = f", {len(folders):,} {'folder' if len(folders) == 1 else 'folders'}" if folders else ""
    click.echo(f"{total:15,}  bytes in {count(len(files))}{below}", err=True)


@click.command()
@click.argument("place", metavar="PLACE", type=Place())
@with_options(DEADLINE, AS_JSON)
def du(place, deadline, as_json):
    """Add up the files below each folder of PLACE, and all of them: bytes and numbers of files.

    \b
    Example:  labkit obs du obs://my-bucket/runs
    """
    from labkit.obs import listing

    with failure_as_json(as_json):
        files, _ = listing.below(place, recursive=True, store=connected(place, deadline=deadline))
    total, folders = listing.usage(files)
    if as_json:
        below = [{"name": name, "files": number, "bytes": size} for name, (number, size) in sorted(folders.items())]
        print_json({"place": place, "folders": below, "files": len(files), "bytes": total})
        return
    for name, (number, size) in (*sorted(folders.items()), (place, (len(files), total))):
        click.echo(f"{size:15,}  {count(number):>15}  {shown(name)}")


@click.command()
@click.argument("url", type=Place())
@click.option("--recursive", is_flag=True, help="Remove all below URL.")
@click.option("--yes", is_flag=True, help="Empty a whole bucket; the bucket itself stays.")
@with_options(DEADLINE, DRY_RUN, QUIET, AS_JSON)
def rm(url, recursive, yes, deadline, dry_run, quiet, as_json):
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
    with failure_as_json(as_json):
        store = connected(url, deadline=deadline)
        try:
            keys = copying.rm(url, recursive=recursive, empty_bucket=yes or dry_run, dry_run=dry_run, store=store)
        except copying.RemoveError as error:
            keys, failure = error.removed, error
    if as_json:
        failed = [{"key": key, **fields(error)} for key, error in failure.failed] if failure else []
        print_json({"url": url, "dry_run": dry_run, "removed": keys, "failed": failed})
    elif not quiet or dry_run:
        for key in keys:
            click.echo(f"{'would remove' if dry_run else 'removed'}  obs://{place.bucket}/{shown(key)}")
    if failure:
        raise failure


@click.command()
@click.argument("url", type=Place())
@with_options(DEADLINE, QUIET, AS_JSON)
def mb(url, deadline, quiet, as_json):
    """Make the bucket URL, private, in the region of OBS_ENDPOINT or else OBS_REGION.

    \b
    Example:  labkit obs mb obs://my-bucket
    """
    from labkit.obs import buckets

    place = parse(url)
    if isinstance(place, Local) or place.key:
        raise click.UsageError(f"{url}: a bucket is made as obs://BUCKET")
    with failure_as_json(as_json):
        new = buckets.make(place.bucket, connected(url, deadline=deadline), access.region(os.environ))
    if as_json:
        print_json({"url": url, "made": new})
    elif not quiet:
        click.echo(f"{'made' if new else 'there already'}  obs://{place.bucket}")


@click.command()
@click.argument("url", type=Place())
@click.option("--abort", is_flag=True, help="Remove them, with the parts that were sent.")
@click.option("--older", type=Days(), default=0, metavar="DAYS", help="Only those begun more than so many days ago.")
@click.option("--yes", is_flag=True, help="Abort the uploads of a whole bucket.")
@with_options(DEADLINE, QUIET, AS_JSON)
def uploads(url, abort, older, yes, deadline, quiet, as_json):
    """List unfinished multipart uploads of the object URL, and below the folder URL.

    Their parts are billed, and no other listing shows them. The same `labkit obs cp` on the same machine resumes one;
    abort only what nobody resumes.

    \b
    Example:  labkit obs uploads obs://my-bucket
              labkit obs uploads obs://my-bucket/runs --older 2 --abort
    """
    from labkit.obs import buckets

    place = parse(url)
    if isinstance(place, Local):
        raise click.UsageError(f"{url}: only buckets have uploads")
    if abort and not place.prefix and not yes:
        raise click.UsageError(f"{url}: those of a whole bucket are aborted with --yes; look first without --abort")
    with failure_as_json(as_json):
        store = connected(url, deadline=deadline)
        before = datetime.now(timezone.utc) - timedelta(days=older)
        found = [one for one in buckets.open_uploads(place, store) if not older or (one.begun and one.begun < before)]
        for one in found if abort else ():
            store.abort_multipart_upload(place.bucket, one.key, one.id)
    if as_json:
        listed = [{"key": one.key, "id": one.id, "begun": _utc(one.begun)} for one in found]
        print_json({"url": url, "aborted": abort, "uploads": listed})
    elif not (quiet and abort):
        for one in found:
            click.echo(f"{'aborted' if abort else _local(one.begun):19}  obs://{place.bucket}/{shown(one.key)}")


ALL = (ls, du, rm, mb, uploads)


def _local(date):
    """A time in this machine's time zone."""
    with suppress(OverflowError):  # at the end of the year 9999
        return f"{date.astimezone():%Y-%m-%d %H:%M:%S}" if date else ""
    return ""


def _utc(date):
    return f"{date:%Y-%m-%dT%H:%M:%SZ}" if date else None
